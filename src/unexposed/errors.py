"""Errors for a user's mistake: one sentence with the cure in it."""

import sys
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any

PACKAGE = str(Path(__file__).parent)


class InputError(ValueError):
    """A mistake in the input; its text is shown to the user unchanged."""

    shown_elsewhere = False  # by another process of the same training


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during long work; `result` is what was finished before, None if there is nothing."""

    def __init__(self, result: Any = None) -> None:
        super().__init__("interrupted")
        self.result = result


class LogWarning(UserWarning):
    """Rows of a log were dropped, or a threshold was assumed."""


def warn(said: str, kind: type[Warning]) -> None:
    """Warn at the line of the caller's own code, however deep inside the package we are."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(said, kind, stacklevel=level)


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the nearest known one, or all of them."""
    known = list(known)
    by_folded = {k.lower().replace("_", ""): k for k in known}
    near = get_close_matches(str(name).lower().replace("_", ""), by_folded, n=1, cutoff=0.5)
    if near:
        return f"did you mean {by_folded[near[0]]!r}?"
    return f"there is {', '.join(repr(k) for k in known) or 'none'}"


def plain(text: object, limit: int = 1000) -> str:
    """Text on one line, control characters escaped, shortened to a limit."""
    whole = "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))
    return whole if len(whole) <= limit else whole[: limit - 1] + "…"


def as_path(given: str | PathLike[str], what: str) -> Path:
    """A path from what the caller gave for it."""
    if not isinstance(given, str | PathLike):
        raise InputError(f"give the path of {what}, got {type(given).__name__}")
    return Path(given)
