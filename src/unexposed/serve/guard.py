"""Around every request: limits, security headers, a line in the log, no traceback in an answer."""

import asyncio
import json
import time
import traceback
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from unexposed.errors import plain
from unexposed.serve.reloading import Say

MOST_URL = 8 << 10  # bytes
SECONDS = 30.0  # for a request, from its head to the end of its answer
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
)
HEADERS = [
    (name.encode(), value.encode())
    for name, value in {
        "content-security-policy": POLICY,
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-resource-policy": "same-origin",
        "cross-origin-opener-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
        "cache-control": "no-store",
    }.items()
]


class Guard:
    """An ASGI application around another one."""

    def __init__(
        self, app: ASGIApp, *, hosts: frozenset[str] | None, log: Say | None, fail: Say
    ) -> None:
        self._app, self._hosts, self._log, self._fail = app, hosts, log, fail

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":  # a web socket
            return await send({"type": "websocket.close", "code": 1003})
        begin, status = time.perf_counter(), 0

        async def guarded(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message["headers"], *HEADERS]}
            await send(message)

        try:
            refusal = self._refusal(scope)
            if refusal is None:
                async with asyncio.timeout(SECONDS):
                    await self._app(scope, receive, guarded)
            else:
                await _answer(guarded, *refusal)
        except TimeoutError:
            if not status:
                await _answer(guarded, 503, f"there was no answer within {SECONDS:.0f} seconds")
        except Exception:  # the answer has been sent by the application
            self._fail(traceback.format_exc())
        if self._log is not None:
            took = 1_000 * (time.perf_counter() - begin)
            self._log(f"{scope['method']} {_address(scope)} {status or '-'} {took:.1f} ms")
        return None

    def _refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Status and sentence for a request that the application is not to see."""
        length = len(scope.get("raw_path") or b"") + len(scope["query_string"])
        if length > MOST_URL:
            return 414, f"the address may have {MOST_URL:,} bytes, got {length:,}"
        if self._hosts is not None:
            # a page from elsewhere can give its own name this machine's address, and read answers
            host = next((value for name, value in scope["headers"] if name == b"host"), b"")
            if _name(host.decode("latin-1")) not in self._hosts:
                return 400, f"this service answers to {', '.join(sorted(self._hosts))} only"
        return None


def _name(host: str) -> str:
    """The host without its port."""
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0].lower()


def _address(scope: Scope) -> str:
    query = scope["query_string"].decode("latin-1")
    return plain(scope["path"] + (f"?{query}" if query else ""), 500)


async def _answer(send: Any, status: int, sentence: str) -> None:
    content = json.dumps({"error": sentence}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(content)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
