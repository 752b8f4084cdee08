"""Packages imported when they are first used: torch, and those that an extra installs.

The import of torch takes seconds, and neither lists nor the CPU engine need it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from unexposed.errors import InputError

if TYPE_CHECKING:
    import torch as torch
    import torch.distributed as dist
    from torch import Tensor as Tensor
    from torch import dtype as Dtype
else:

    class Late:
        """A module that is imported when first used."""

        def __init__(self, name: str) -> None:
            self._name = name

        def __getattr__(self, attribute: str) -> Any:
            return getattr(import_module(self._name), attribute)

    torch, dist = Late("torch"), Late("torch.distributed")
    Dtype = Tensor = Any

__all__ = ["Dtype", "Tensor", "dist", "install", "logsigmoid", "optional", "sigmoid", "torch"]


def sigmoid(x: Tensor) -> Tensor:
    return torch.sigmoid(x)


def logsigmoid(x: Tensor) -> Tensor:
    """log σ(x), without overflow for any x."""
    return torch.nn.functional.logsigmoid(x)


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
