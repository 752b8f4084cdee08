"""Checks that the engines with closed-form steps share."""

from collections.abc import Mapping
from typing import Any, TypeVar

from numpy.typing import NDArray

from unexposed.engine.objective import Initial, Objective, has_closed_form
from unexposed.errors import InputError
from unexposed.maths.losses import kernel_of
from unexposed.sampling.samples import Samples
from unexposed.sampling.validation import ValidationSet

Code = TypeVar("Code")
NO_MARKS = (
    "the cuda engine does not run given exposures, random traffic and counts of single pairs; "
    "use engine cpu or auto"
)


def check_objective(
    engine: str,
    objective: Objective,
    parameters: Initial,
    features: NDArray[Any] | None,
    validation: ValidationSet | None,
) -> None:
    """Refuse an objective that the engine cannot run with these parameters."""
    if not has_closed_form(objective, parameters, features):
        raise InputError(f"the {engine} engine does not know {objective}; use the reference engine")
    if objective.strategy == "bilevel" and validation is None:
        raise InputError("the strategy 'bilevel' needs a validation set")


def loss_code(engine: str, objective: Objective, codes: Mapping[str, Code]) -> Code:
    """The kernels' code of the objective's loss."""
    loss = kernel_of(objective.loss)
    if loss is None or loss not in codes:
        raise InputError(f"the {engine} engine has no loss {loss!r}; use the reference engine")
    return codes[loss]


def check_samples(samples: Samples, *, n_users: int, n_items: int) -> None:
    """Refuse rows that the tables do not have."""
    for what, rows, n in (("user", samples.users, n_users), ("item", samples.items, n_items)):
        if len(rows) and (rows.min() < 0 or rows.max() >= n):
            raise InputError(f"a sample names {what} {rows.max()}, but there are {n}")
    if samples.item_weight is not None and len(samples.item_weight) != n_items:
        raise InputError(f"{len(samples.item_weight)} items have a weight, but there are {n_items}")
    if samples.marks is not None and len(samples.marks.click) != len(samples.items):
        raise InputError(f"{len(samples.marks.click)} pairs are marked of {len(samples.items)}")
