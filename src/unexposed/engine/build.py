"""The engine that runs a method's steps, by name or by what is fastest here."""

from typing import Any

import torch
from numpy.typing import NDArray

from unexposed.engine import cuda
from unexposed.engine.closed_form import NO_MARKS
from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.cuda.device import take_card
from unexposed.engine.cuda.engine import CudaEngine
from unexposed.engine.exchange import Shared
from unexposed.engine.objective import Engine, Initial, Name, Objective, Optimiser, has_closed_form
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.maths.relevance import DotProduct, Relevance, WithFeatures
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
    relevance: Relevance | None = None,
    marked: bool = False,
    shared: Shared | None = None,
    name: Name = "auto",
) -> Engine:
    """The engine of this name, or the fastest one that knows the objective and runs here.

    Without a relevance model it is the dot product of `user_factors` and `item_factors`. `marked`
    says that samples will have marks, which the cuda engine does not run. `shared` divides the
    users among ranks, on the cuda engine where every rank has a card, else on the reference engine.
    """
    if shared is not None:
        if name == "cpu":
            raise InputError(
                f"the {name} engine trains in one process: use engine=reference for several ranks"
            )
        if not isinstance(relevance, DotProduct | WithFeatures | None):
            raise InputError("several ranks train dot products only: train this in one process")
        own: dict[str, Any] = {
            "exposure": exposure
            if exposure is None or exposure.ndim == 1
            else exposure[shared.users],
            "features": None if features is None else features[shared.users],
            "validation": None if validation is None else validation.own(shared.row),
            "relevance": relevance,
            "exchange": shared,
        }
        if name == "cuda" and not cuda.available():
            raise InputError(NO_CARD)
        plain = not marked and isinstance(relevance, DotProduct | None)
        known = plain and has_closed_form(objective, parameters, features)
        if name == "cuda" or (name == "auto" and _all_have_cards(shared) and known):
            take_card()
            return CudaEngine(objective, optimiser, shared.cut(parameters), **own)
        return ReferenceEngine(objective, optimiser, shared.cut(parameters), **own)
    is_product = relevance is None or isinstance(relevance, DotProduct)
    known = is_product and has_closed_form(objective, parameters, features)
    if name == "auto":
        on_gpu = cuda.available() and not marked
        name = "reference" if not known else "cuda" if on_gpu else "cpu"
    elif name == "cuda" and marked:
        raise InputError(NO_MARKS)
    elif name == "cuda" and not cuda.available():
        raise InputError(NO_CARD)
    given: dict[str, Any] = {
        "exposure": exposure,
        "features": features,
        "validation": validation,
        "relevance": relevance,
    }
    if name == "reference":
        return ReferenceEngine(objective, optimiser, parameters, **given)
    if not is_product:
        raise InputError(f"the {name} engine knows dot products only; use the reference engine")
    if name == "cpu":
        return CpuEngine(objective, optimiser, parameters, marked=marked, **given)
    return CudaEngine(objective, optimiser, parameters, **given)


def _all_have_cards(shared: Shared) -> bool:
    """Whether every rank can run the cuda engine: all must choose the same one."""
    without = torch.tensor([0 if cuda.available() else 1])
    return int(shared.total({"without": without})["without"]) == 0
