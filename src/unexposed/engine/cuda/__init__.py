"""The CUDA engine: factor models, every step in closed form, a few Triton kernels a step."""

import importlib.util

import torch


def available() -> bool:
    """Whether this machine has a GPU that torch can use, and Triton to compile for it."""
    return torch.cuda.is_available() and importlib.util.find_spec("triton") is not None
