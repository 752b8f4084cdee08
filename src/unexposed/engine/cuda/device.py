"""The Triton kernels, imported when an engine first uses them."""

import importlib
import importlib.util
from typing import Any, Literal

import torch

from unexposed.errors import InputError


def load(device: str, name: Literal["kernels", "drawing_kernel"]) -> Any:
    """The kernels for a GPU or, for tensors on the CPU, for Triton's interpreter."""
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("the cuda engine needs an NVIDIA GPU that torch can see; use cpu")
    if importlib.util.find_spec("triton") is None:
        raise InputError("the cuda engine needs triton: pip install triton")
    return importlib.import_module(f"unexposed.engine.cuda.{name}")
