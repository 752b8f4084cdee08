"""The CUDA engine: factor models, every step in closed form, a few Triton kernels a step."""

import ctypes
import sys
from importlib.util import find_spec

from unexposed.late import torch


def available() -> bool:
    """Whether this machine has a GPU that torch can use, and Triton to compile for it."""
    return find_spec("triton") is not None and _has_driver() and torch.cuda.is_available()


def _has_driver() -> bool:
    """Whether NVIDIA's driver is here: without it torch need not be imported to ask."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True
