"""Print messages and progress to standard error, results to standard output."""

import json
import math
import os
import stat
import sys
from typing import Any


def under_torchrun() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def leads() -> bool:
    """Whether this process talks and writes: alone, or as rank 0 of those that torchrun started."""
    return not under_torchrun() or os.environ.get("RANK") == "0"


def say(line: str) -> None:
    """Print a message, of rank 0 alone."""
    if leads():
        print(line, file=sys.stderr, flush=True)


def say_error(sentence: str) -> None:
    """Print what ended the command, on whichever rank it happened."""
    rank = "" if leads() else f"rank {os.environ.get('RANK')}: "
    print(f"error: {rank}{sentence}", file=sys.stderr, flush=True)


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


def print_json(document: object) -> None:
    print(json.dumps(_finite(document), indent=1, allow_nan=False))


def _finite(value: Any) -> Any:
    """The document with null for infinities and NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
