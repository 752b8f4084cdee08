"""The engine that runs a method's steps, by name or by what is fastest here."""

from typing import Any

from numpy.typing import NDArray

from unexposed.engine import cuda
from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.cuda.engine import CudaEngine
from unexposed.engine.objective import (
    NO_MARKS,
    PRODUCT,
    Engine,
    Initial,
    Name,
    Objective,
    Optimiser,
    has_closed_form,
)
from unexposed.engine.reference import ReferenceEngine
from unexposed.engine.workers import Shared
from unexposed.errors import InputError
from unexposed.maths.relevance import Relevance
from unexposed.sampling.validation import ValidationSet

NO_CARD = "the cuda engine needs a CUDA GPU and triton; use engine cpu or auto"


def build(
    objective: Objective,
    optimiser: Optimiser,
    parameters: Initial,
    *,
    exposure: NDArray[Any] | None = None,
    features: NDArray[Any] | None = None,
    validation: ValidationSet | None = None,
    relevance: Relevance = PRODUCT,
    marked: bool = False,
    shared: Shared | None = None,
    name: Name = "auto",
) -> Engine:
    """The engine of this name, or the fastest one that knows the objective and runs here.

    On a GPU the reference engine runs what the cuda engine does not know. `marked` says that
    samples will have marks, which the cuda engine does not run. With `shared`, tables, exposure,
    features and validation pairs are those of this worker's users.
    """
    known = has_closed_form(objective, parameters, features, relevance)
    if name == "auto":
        on_gpu = cuda.available() and not marked and shared is None  # workers ask for cards by name
        name = "reference" if not known else "cuda" if on_gpu else "cpu"
    elif name == "cuda" and marked and known:
        raise InputError(NO_MARKS)
    elif name == "cuda" and not cuda.available():
        raise InputError(NO_CARD)
    given: dict[str, Any] = {
        "exposure": exposure,
        "features": features,
        "validation": validation,
        "relevance": relevance,
    }
    if name == "reference" or (name == "cuda" and not known):
        given |= {"exchange": shared, "device": "cuda" if name == "cuda" else "cpu"}
        return ReferenceEngine(objective, optimiser, parameters, **given)
    if relevance.kernel is None:
        raise InputError(f"the {name} engine knows dot products only; use the reference engine")
    if name == "cpu":
        given |= {"marked": marked, "exchange": shared}
        return CpuEngine(objective, optimiser, parameters, **given)
    if shared is not None:
        cuda.take_card()
    return CudaEngine(objective, optimiser, parameters, exchange=shared, **given)
