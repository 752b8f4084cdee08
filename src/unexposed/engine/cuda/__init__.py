"""The CUDA engine: factor models, every step in closed form, a few Triton kernels a step."""

import ctypes
import importlib
import os
from importlib.util import find_spec
from typing import Any, Literal

from unexposed.errors import InputError
from unexposed.late import torch


def available() -> bool:
    """Whether this machine has a GPU that torch can use, and Triton to compile for it."""
    return find_spec("triton") is not None and _has_driver() and torch.cuda.is_available()


def _has_driver() -> bool:
    """Whether NVIDIA's driver is here: without it torch need not be imported to ask."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def take_card() -> None:
    """Use the card of this worker, by LOCAL_RANK, unless the process has chosen another one."""
    local = os.environ.get("LOCAL_RANK", "")
    if local.isdigit() and torch.cuda.current_device() == 0:
        torch.cuda.set_device(int(local) % torch.cuda.device_count())


def load(device: str, name: Literal["kernels", "drawing_kernel"]) -> Any:
    """The kernels for a GPU or, for tensors on the CPU, for Triton's interpreter."""
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("the cuda engine needs an NVIDIA GPU that torch can see; use cpu")
    if find_spec("triton") is None:
        raise InputError("the cuda engine needs triton: pip install triton")
    return importlib.import_module(f"unexposed.engine.cuda.{name}")
