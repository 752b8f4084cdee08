"""Choose the learner that runs CJMF's steps."""

from typing import Any

from numpy.typing import NDArray

from unexposed.engine import cuda
from unexposed.engine.cjmf.cpu import CpuLearner
from unexposed.engine.cjmf.reference import ReferenceLearner
from unexposed.engine.cjmf.step import JointRates, Tables
from unexposed.engine.objective import Name
from unexposed.errors import InputError


def build(
    rates: JointRates, tables: Tables, popularity: NDArray[Any], *, name: Name = "auto"
) -> CpuLearner | ReferenceLearner:
    """The learner of an engine; on a GPU the reference runs, more slowly than the CPU's learner."""
    if name in ("auto", "cpu"):
        return CpuLearner(rates, tables, popularity)
    if name == "cuda" and not cuda.available():
        raise InputError("engine cuda needs a CUDA GPU and triton; use engine cpu or auto")
    device = "cuda" if name == "cuda" else "cpu"
    return ReferenceLearner(rates, tables, popularity, device=device)
