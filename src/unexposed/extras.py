"""Optional packages: installed by an extra, imported when used."""

from importlib import import_module
from typing import Any

from unexposed.errors import InputError


def install(extra: str = "") -> str:
    """The command that installs this package with an extra, in the checkout it came from."""
    what = f"'.[{extra}]'" if extra else "--force-reinstall ."
    return f"pip install {what} in the checkout of unexposed"  # it is on no package index


def optional(module: str, *, extra: str) -> Any:
    """Import a module, or raise one sentence with the command that installs it."""
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise InputError(f"this needs {package}: {install(extra)}") from None
