"""HTTP with limits on the head of a request, which uvicorn has none for: its size and its time."""

from asyncio import TimerHandle, Transport
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0  # for the head of a request to come
MOST_HEAD = 32 << 10  # bytes


class Strict(HttpToolsProtocol):
    """Closes connections whose request heads are too slow or too long."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._timer: TimerHandle | None = None
        self._unread = 0  # bytes of a head that is not complete

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._start()

    def on_headers_complete(self) -> None:
        self._stop()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._timer is not None:
            self._unread += len(data)
            if self._unread > MOST_HEAD:
                self._close()

    def _start(self) -> None:
        self._stop()
        self._unread = 0
        self._timer = self.loop.call_later(HEAD_SECONDS, self._close)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close(self) -> None:
        self._stop()
        if not self.transport.is_closing():
            self.transport.close()
