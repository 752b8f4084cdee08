"""Torch, imported when it is first used.

Its import takes seconds, and neither lists nor the CPU engine need it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

__all__ = ["Dtype", "Tensor", "dist", "logsigmoid", "sigmoid", "torch"]


def sigmoid(x: Tensor) -> Tensor:
    return torch.sigmoid(x)


def logsigmoid(x: Tensor) -> Tensor:
    """log σ(x), without overflow for any x."""
    return torch.nn.functional.logsigmoid(x)
