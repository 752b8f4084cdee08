"""Print messages and progress to standard error, results to standard output."""

import json
import math
import sys
from typing import Any


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def progress() -> Any:
    from unexposed.progress import Lines, on_terminal

    return on_terminal(otherwise=Lines)


def print_json(document: object) -> None:
    print(json.dumps(_finite(document), indent=1, allow_nan=False))


def _finite(value: Any) -> Any:
    """The document with null for infinities and NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
