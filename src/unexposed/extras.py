"""Packages that only some commands need: brought by an extra, imported when used."""

from importlib import import_module
from typing import Any

from unexposed.errors import InputError


def install(extra: str = "") -> str:
    """The command that installs this package with an extra, in the checkout it came from."""
    what = f"'.[{extra}]'" if extra else "--force-reinstall ."
    return f"pip install {what} in the checkout of unexposed"  # whose name no index has


def optional(module: str, *, extra: str) -> Any:
    """The module, or one sentence with the install that brings it."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise InputError(f"this needs {package}: {install(extra)}") from None
