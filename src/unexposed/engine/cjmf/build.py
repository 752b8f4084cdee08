"""What runs CJMF's steps, by name."""

from typing import Any

from numpy.typing import NDArray

from unexposed.engine import cuda
from unexposed.engine.cjmf.cpu import CpuLearner
from unexposed.engine.cjmf.reference import ReferenceLearner
from unexposed.engine.cjmf.step import JointRates, Tables
from unexposed.engine.objective import Name
from unexposed.errors import InputError


def build(
    optimiser: JointRates, tables: Tables, popularity: NDArray[Any], *, name: Name = "auto"
) -> CpuLearner | ReferenceLearner:
    """The learner of this engine; on a card it is the reference, which the CPU's outruns."""
    if name in ("auto", "cpu"):
        return CpuLearner(optimiser, tables, popularity)
    if name == "cuda" and not cuda.available():
        raise InputError("there is no CUDA card here, or no triton; use engine cpu or auto")
    device = "cuda" if name == "cuda" else "cpu"
    return ReferenceLearner(optimiser, tables, popularity, device=device)
