"""Progress of long work: a bar on a terminal or in a notebook, plain lines or nothing elsewhere."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from unexposed import cards
from unexposed.streams import Messages


@dataclass(frozen=True)
class Tick:
    """One finished epoch."""

    label: str
    epoch: int  # from 1
    epochs: int
    loss: float
    value: float | None  # quality on the held-out clicks, which chooses the epoch: higher is better
    best_epoch: int


class Progress(Protocol):
    """Called after every epoch; a context manager around a training."""

    def __call__(self, tick: Tick) -> None: ...

    def note(self, text: str) -> None:
        """Say what is being done, for slow work outside epochs."""
        ...

    def count(self, label: str, done: int, total: int) -> None:
        """Show the progress of work without epochs."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Silent:
    """Shows nothing."""

    def __call__(self, tick: Tick) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def count(self, label: str, done: int, total: int) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class Lines(Silent):
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


class Bar(Silent):
    """A rich progress bar on standard error."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            console=Console(file=Messages(sys.stderr)),  # type: ignore[arg-type]
            transient=True,
        )
        self._task = self._bar.add_task("starting", total=1, note="", visible=False)
        self._label = ""

    def __call__(self, tick: Tick) -> None:
        if tick.label != self._label:
            self._bar.reset(self._task, description=tick.label, total=tick.epochs, visible=True)
            self._label = tick.label
        self._bar.update(self._task, completed=tick.epoch, note=_note(tick))

    def note(self, text: str) -> None:
        self._label = ""
        self._bar.reset(self._task, description=text, total=1, visible=True, note="")

    def count(self, label: str, done: int, total: int) -> None:
        if label != self._label:
            self._bar.reset(self._task, description=label, total=total, visible=True, note="")
            self._label = label
        self._bar.update(self._task, completed=done)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


class Notebook(Silent):
    """A bar and a line below the cell of a notebook, updated in place; the last line stays."""

    def __init__(self, *, seconds: float = 0.2) -> None:
        self._display = import_module("IPython.display").display
        self._handle: Any = None
        self._seconds = seconds
        self._next = 0.0
        self._last: dict[str, str] | None = None  # not shown yet

    def __call__(self, tick: Tick) -> None:
        self._show(_line(tick), tick.epoch, tick.epochs)

    def note(self, text: str) -> None:
        self._next = 0.0
        self._show(text, 0, 0)

    def count(self, label: str, done: int, total: int) -> None:
        if self._handle is None:
            self._next = self._next or time.monotonic() + 1  # short work ends without a line
        self._show(f"{done:,} of {total:,} {label}", done, total)
        if self._handle is None:
            self._last = None

    def __exit__(self, *_: object) -> None:
        self._draw()

    def _show(self, line: str, done: int, total: int) -> None:
        self._last = {"text/plain": line, "text/html": cards.bar(line, done, total)}
        if time.monotonic() >= self._next:
            self._draw()
            self._next = time.monotonic() + self._seconds

    def _draw(self) -> None:
        if self._last is None:
            return
        if self._handle is None:
            self._handle = self._display(self._last, raw=True, display_id=True)
        else:
            self._handle.update(self._last, raw=True)
        self._last = None


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ask = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return ask is not None and hasattr(ask(), "kernel")


def on_terminal(otherwise: Callable[[], Progress]) -> Progress:
    """A bar in a notebook or if standard error is a terminal, otherwise the given progress."""
    if in_notebook():
        return Notebook()
    return Bar() if Messages(sys.stderr).isatty() else otherwise()


def _note(tick: Tick) -> str:
    if tick.value is None:
        return f"loss {tick.loss:.4f}"
    return f"loss {tick.loss:.4f}, held-out {tick.value:.4f}, best epoch {tick.best_epoch}"


def _line(tick: Tick) -> str:
    return f"{tick.label}: epoch {tick.epoch} of {tick.epochs}, {_note(tick)}"
