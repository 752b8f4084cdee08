"""Standard streams that may fail: work goes on without a message, but not without a result."""

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

from unexposed.errors import InputError

READER_GONE = 141  # as a shell says of a command that SIGPIPE ended


class Messages:
    """A text stream that drops what it cannot write; None stands for a closed one."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with self._failing():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._failing():
            self._stream.flush()

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        with contextlib.suppress(OSError, AttributeError):  # AttributeError: it is None
            yield


class Results(Messages):
    """A text stream that must be written: a failure ends the command in one sentence."""

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        if self._stream is None:
            raise InputError("cannot write to standard output: it is closed")
        try:
            yield
        except OSError as error:
            _silence(self._stream)
            if isinstance(error, BrokenPipeError):  # the reader has gone, as with `| head`
                sys.exit(READER_GONE)
            reason = error.strerror or error
            raise InputError(f"cannot write to standard output: {reason}") from None


@contextlib.contextmanager
def steady() -> Iterator[None]:
    """Make standard error `Messages` and standard output `Results` while a command runs."""
    for descriptor in range(3):  # a file opened later must not take the place of a closed one
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    err = sys.stderr
    with (
        contextlib.redirect_stderr(Messages(err)),
        contextlib.redirect_stdout(Results(sys.stdout)),
    ):
        try:
            yield
        finally:
            try:
                err.flush()
            except (OSError, AttributeError):
                _silence(err)


def _silence(stream: Any) -> None:
    """Drop the text still buffered: Python would try to write it once more when it exits."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
