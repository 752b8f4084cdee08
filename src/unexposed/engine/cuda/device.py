"""The Triton kernels, imported when an engine first uses them."""

import importlib
import importlib.util
import os
from typing import Any, Literal

from unexposed.errors import InputError
from unexposed.late import torch


def take_card() -> None:
    """Use the card of this rank, by LOCAL_RANK, unless the process has chosen another one."""
    local = os.environ.get("LOCAL_RANK", "")
    if local.isdigit() and torch.cuda.current_device() == 0:
        torch.cuda.set_device(int(local) % torch.cuda.device_count())


def load(device: str, name: Literal["kernels", "drawing_kernel"]) -> Any:
    """The kernels for a GPU or, for tensors on the CPU, for Triton's interpreter."""
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("the cuda engine needs an NVIDIA GPU that torch can see; use cpu")
    if importlib.util.find_spec("triton") is None:
        raise InputError("the cuda engine needs triton: pip install triton")
    return importlib.import_module(f"unexposed.engine.cuda.{name}")
