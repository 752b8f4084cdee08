"""Progress of long work: a bar on a terminal or in a notebook, plain lines or nothing elsewhere."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Self, TextIO

from unexposed.streams import Messages

WIDE = 100  # columns of a terminal on which a bar says all of a tick


@dataclass(frozen=True)
class Tick:
    """One finished epoch."""

    label: str
    epoch: int  # from 1
    epochs: int
    loss: float
    value: float | None  # quality on the held-out clicks, which chooses the epoch: higher is better
    best_epoch: int


class Progress:
    """Called after every epoch; a context manager around a training. This one shows nothing."""

    def __call__(self, tick: Tick) -> None:
        pass

    def note(self, text: str) -> None:
        """Say what is being done, for slow work outside epochs."""

    def count(self, label: str, done: int, total: int) -> None:
        """Show the progress of work without epochs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


Silent = Progress


class Lines(Progress):
    """A plain line now and then: the first epoch, every few seconds, and each label's last."""

    def __init__(self, stream: TextIO | None = None, *, seconds: float = 5.0) -> None:
        self._stream = Messages(stream or sys.stderr)
        self._seconds = seconds
        self._last: Tick | None = None
        self._next = 0.0
        self._noted: set[str] = set()

    def __call__(self, tick: Tick) -> None:
        if self._last is not None and self._last.label != tick.label:
            self._flush()
        self._last = tick
        if time.monotonic() >= self._next:
            self._flush()
            self._next = time.monotonic() + self._seconds

    def note(self, text: str) -> None:
        if text not in self._noted:
            self._flush()  # keeps the order
            self._noted.add(text)
            print(text, file=self._stream, flush=True)

    def count(self, label: str, done: int, total: int) -> None:
        now = time.monotonic()
        self._next = self._next or now + self._seconds  # short work ends without a line
        if now >= self._next:
            print(f"{done:,} of {total:,} {label}", file=self._stream, flush=True)
            self._next = now + self._seconds

    def __exit__(self, *_: object) -> None:
        self._flush()

    def _flush(self) -> None:
        if self._last is not None:
            print(_line(self._last), file=self._stream, flush=True)
            self._last = None


class Bar(Progress):
    """A rich progress bar on standard error, with the time left for the work it names."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(file=Messages(sys.stderr))  # type: ignore[arg-type]
        self._width = console.width
        self._is_wide = self._width >= WIDE
        self._bar_width = 24 if self._is_wide else 10
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=self._bar_width),
            TextColumn("{task.fields[note]}", markup=False),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[left]}"),
            console=console,
            transient=True,
            redirect_stdout=False,  # results go where the shell sends them, not above the bar
        )
        self._task = self._bar.add_task("starting", total=None, note="", left="", visible=False)
        self._label = ""

    def __call__(self, tick: Tick) -> None:
        said = _note(tick) if self._is_wide else _short_note(tick)
        self._show(tick.label, tick.epoch, tick.epochs, f"{tick.epoch}/{tick.epochs} {said}")

    def note(self, text: str) -> None:
        self._begin("", None)
        self._bar.update(self._task, description=self._cut(text, beside=""))

    def count(self, label: str, done: int, total: int) -> None:
        self._show(label, done, total, f"{done:,}/{total:,}")

    def _show(self, label: str, done: int, total: int, note: str) -> None:
        if label != self._label:
            self._begin(label, total)
        said = self._cut(label, beside=f"{note} 0:00:00 left")
        self._bar.update(self._task, completed=done, description=said, note=note)

    def _begin(self, label: str, total: int | None) -> None:
        left = "" if total is None else "left"
        self._bar.reset(self._task, total=total, visible=True, note="", left=left)
        self._label = label

    def _cut(self, text: str, *, beside: str) -> str:
        """The text, shortened so that bar, count and time are never cut."""
        room = max(8, self._width - self._bar_width - len(beside) - 4)  # a space between parts
        return text if len(text) <= room else text[: room - 1] + "…"

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ask = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return ask is not None and hasattr(ask(), "kernel")


def on_terminal(otherwise: Callable[[], Progress]) -> Progress:
    """A bar on a terminal or in a notebook that has widgets, otherwise the given progress."""
    if in_notebook():
        return Bar() if find_spec("ipywidgets") else Lines()
    return Bar() if Messages(sys.stderr).isatty() else otherwise()


def _note(tick: Tick) -> str:
    if tick.value is None:
        return f"loss {tick.loss:.4f}"
    return f"loss {tick.loss:.4f}, held-out {tick.value:.4f}, best epoch {tick.best_epoch}"


def _short_note(tick: Tick) -> str:
    name, value = ("loss", tick.loss) if tick.value is None else ("held-out", tick.value)
    return f"{name} {value:.4f}"


def _line(tick: Tick) -> str:
    return f"{tick.label}: epoch {tick.epoch} of {tick.epochs}, {_note(tick)}"
