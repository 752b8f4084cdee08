"""Whether this machine can run the CUDA engine, and its kernels, imported when they are used."""

import importlib
import importlib.util
from typing import Any, Literal

import torch

from unexposed.errors import InputError


def available() -> bool:
    """Whether this machine has a CUDA card, and Triton to write to it."""
    return torch.cuda.is_available() and importlib.util.find_spec("triton") is not None


def load(device: str, name: Literal["kernels", "drawing_kernel"]) -> Any:
    """The kernels, which need a card, or Triton's interpreter for tensors of the CPU."""
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("the cuda engine needs an NVIDIA card that torch can see; use cpu")
    if importlib.util.find_spec("triton") is None:
        raise InputError("the cuda engine needs triton: pip install triton")
    return importlib.import_module(f"unexposed.engine.cuda.{name}")
