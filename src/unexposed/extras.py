"""Packages that only some commands need: brought by an extra, imported when used."""

from importlib import import_module
from typing import Any

from unexposed.errors import InputError


def optional(module: str, *, extra: str) -> Any:
    """The module, or one sentence with the install that brings it."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise InputError(f"this needs {package}: pip install 'unexposed[{extra}]'") from None
