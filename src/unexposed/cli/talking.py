"""How commands speak: lines and progress on standard error, results on standard output."""

import json
import sys
from typing import Any


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def progress() -> Any:
    from unexposed.progress import Lines, on_terminal

    return on_terminal(otherwise=Lines)


def print_json(document: object) -> None:
    print(json.dumps(document, indent=1, allow_nan=False))
