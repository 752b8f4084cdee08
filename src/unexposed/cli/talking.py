"""Print messages and progress to standard error, results to standard output."""

import json
import math
import os
import stat
import sys
import textwrap
from typing import Any


def under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def leads() -> bool:
    """Whether this process talks and writes: alone, or as the first that torchrun started."""
    return not under_torchrun() or os.environ.get("RANK") == "0"


def say(line: str, *, command: str = "") -> None:
    """Print a message, of the first worker alone, and a command that a person may copy."""
    if leads():
        print(_folded(line, command), file=sys.stderr, flush=True)


def say_error(sentence: str) -> None:
    """Print what ended the command, on whichever worker it happened."""
    worker = "" if leads() else f"worker {os.environ.get('RANK')}: "
    print(_folded(f"error: {worker}{sentence}"), file=sys.stderr, flush=True)


def _folded(text: str, command: str = "") -> str:
    """Text and command on one line; on a terminal, folded between words.

    A terminal would break a word at its edge. A command is never folded: it is copied whole.
    """
    whole = f"{text} {command}" if command else text
    if len(whole) <= (width := _width(sys.stderr)):
        return whole
    lines = _wrapped(text, width)
    return "\n".join([*lines, command] if command else lines)


def print_folded(text: str, *, indent: int) -> None:
    """Print lines of a result, on a terminal folded between words under an indent."""
    width = _width(sys.stdout)
    for line in text.splitlines():
        short = len(line) <= width
        print("\n".join([line] if short else _wrapped(line, width, " " * indent)), flush=True)


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    how: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
    return textwrap.wrap(text, width, subsequent_indent=indent, **how)


def _width(stream: Any) -> int:
    """Columns of the stream's terminal; endless without one."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or sys.maxsize
    except (OSError, ValueError, AttributeError):  # no terminal; closed; of Python alone
        return sys.maxsize


def progress(*, prints_rows: bool = False) -> Any:
    """A bar on a terminal, lines elsewhere, and where rows are printed beside it."""
    from unexposed.progress import Lines, Silent, on_terminal

    if not leads():
        return Silent()
    if prints_rows and not _is_file(sys.stdout):  # a pipe may end on the terminal of the bar
        return Lines()
    return on_terminal(otherwise=Lines)


def _is_file(stream: Any) -> bool:
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError, AttributeError):  # closed, or of Python alone
        return False


def disagreement(preferred: dict[str, str]) -> str:
    """Say which criteria prefer something else, and what tells which of them to trust."""
    said = ", ".join(f"`{criterion}` prefers {choice}" for criterion, choice in preferred.items())
    return f"criteria disagree: {said}; judged pairs can tell (unexposed evaluate)"


def print_json(document: object) -> None:
    print(json.dumps(_finite(document), indent=1, allow_nan=False))


def _finite(value: Any) -> Any:
    """The document with null for infinities and NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
