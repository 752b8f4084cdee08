"""A command line typed at a terminal of a given width: what a person sees."""

import contextlib
import fcntl
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from unittest import mock

from command import ended

SHELL = f'unexposed() {{ {sys.executable} -m unexposed "$@"; }}\n'
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Seen:
    """The exit code, and all that the terminal was sent."""

    code: int
    sent: bytearray

    @property
    def text(self) -> str:
        """Without escape sequences."""
        return ESCAPES.sub("", self.sent.decode())

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in re.split(r"[\r\n]+", self.text)]


def typed(line: str, *, width: int = 80) -> Seen:
    """Run a line of the shell at a terminal: it redirects and pipes as a person's would."""
    with terminal(width) as (opened, sent):
        child = subprocess.Popen(
            ["bash", "-o", "pipefail", "-c", SHELL + line],
            stdin=opened,
            stdout=opened,
            stderr=opened,
            env={k: v for k, v in os.environ.items() if k != "COLUMNS"} | {"TERM": "xterm"},
        )
        code = child.wait(timeout=240)
    return Seen(code, sent)


def shown(line: str, *, width: int = 80, answer: str = "") -> Seen:
    """Run the command in this process, with a terminal for its streams: faster than `typed`.

    `answer` is what a person types where it asks.
    """
    with (
        terminal(width, typing=answer) as (opened, sent),
        open(opened, encoding="utf-8", closefd=False) as stdin,
        open(opened, "w", encoding="utf-8", closefd=False) as stdout,
        open(opened, "w", encoding="utf-8", closefd=False) as stderr,
        mock.patch.multiple(sys, stdin=stdin, stdout=stdout, stderr=stderr),
        mock.patch.dict(os.environ, {"COLUMNS": str(width), "TERM": "xterm"}),
    ):
        code = ended(*shlex.split(line))
    return Seen(code, sent)


@contextlib.contextmanager
def terminal(width: int, typing: str = "") -> Iterator[tuple[int, bytearray]]:
    """A terminal of this width: its descriptor, and what it is sent, complete at the end."""
    controller, opened = pty.openpty()
    fcntl.ioctl(opened, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    os.write(controller, typing.encode())
    sent = bytearray()

    def read() -> None:
        with contextlib.suppress(OSError):  # Linux: nobody holds the terminal any more
            while part := os.read(controller, 1 << 16):
                sent.extend(part)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield opened, sent
    finally:
        os.close(opened)
        reader.join()
        os.close(controller)
