"""Ask before a saved model is replaced."""

import sys
from pathlib import Path

from unexposed.errors import InputError


def check_replaces(out: Path, *, force: bool) -> None:
    """Ask on a terminal whether the model in `out` may be replaced; without one, refuse."""
    from unexposed.model.save import model_path

    if force or not model_path(out).exists():
        return
    if not (_is_terminal(sys.stdin) and _is_terminal(sys.stderr)):
        raise InputError(f"{out} holds a model: give --force to replace it, or another --out")
    print(f"{out} holds a model. Replace it? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InputError(f"{out} is kept; give another --out")


def _is_terminal(stream: object) -> bool:
    return bool(getattr(stream, "isatty", lambda: False)())  # None: closed when Python began
