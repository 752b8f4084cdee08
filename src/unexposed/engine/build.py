"""The engine that runs a method's steps, by name or by what is fastest here."""

from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from unexposed.engine import cuda
from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.cuda.engine import CudaEngine
from unexposed.engine.objective import Engine, Initial, Name, Objective, Optimiser, has_closed_form
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.sampling.validation import ValidationSet


def build(
    objective: Objective,
    optimiser: Optimiser,
    parameters: Initial,
    *,
    exposure: NDArray[Any] | None = None,
    features: NDArray[Any] | None = None,
    validation: ValidationSet | None = None,
    name: Name = "auto",
) -> Engine:
    """The engine of this name, or the fastest one that knows the objective and runs here."""
    if name == "auto":
        if not has_closed_form(objective, parameters, features):
            name = "reference"
        else:
            name = "cuda" if cuda.available() else "cpu"
    elif name == "cuda" and not cuda.available():
        raise InputError("there is no CUDA card here, or no triton; use engine cpu or auto")
    engines: dict[str, Callable[..., Engine]] = {
        "cuda": CudaEngine,
        "cpu": CpuEngine,
        "reference": ReferenceEngine,
    }
    return engines[name](
        objective,
        optimiser,
        parameters,
        exposure=exposure,
        features=features,
        validation=validation,
    )
