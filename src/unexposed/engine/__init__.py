"""How a step is run. A method states what it is (an Objective); an engine knows how to run that."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

from unexposed.sampling import Pairs, Triples
from unexposed.validation import ValidationSet

Strategy = Literal["bilevel", "joint", "alternate", "bilevel_on_batch", "frozen"]


@dataclass(frozen=True)
class Objective:
    """What a factor model minimises, and how its exposure comes about.

    `loss` names one of `losses.LOSSES`, or "pairwise". Without a strategy the exposure is given;
    with one it is the gated model of `exposure.py`, trained as `bilevel.py` says.
    """

    loss: str
    strategy: Strategy | None = None
    offset: float = 0.0  # added inside σ(e_uᵀω_i): where the learned exposure starts
    validation_batch: int = 0  # validation pairs of a step, in turn; 0: all of them


@dataclass(frozen=True)
class Optimiser:
    """Adam on the rows a batch touches, for relevance and for exposure."""

    learning_rate: float
    weight_decay: float
    exposure_learning_rate: float = 1e-3
    exposure_weight_decay: float = 0.0
    lookahead: float = 1e-3  # η of the look-ahead step ω' = ω − η ∂L_train/∂ω


class Engine(Protocol):
    """Holds the parameters and learns from samples in the order they are given."""

    def epoch(self, samples: Pairs | Triples, *, batch_size: int) -> float:
        """Take a step on each batch; the mean over batches of the loss before its step."""
        ...

    def parameters(self) -> dict[str, NDArray[Any]]:
        """A copy of what has been learned, by name."""
        ...


Initial = Mapping[str, NDArray[Any]]


def build(
    objective: Objective,
    optimiser: Optimiser,
    parameters: Initial,
    *,
    exposure: NDArray[Any] | None = None,
    features: NDArray[Any] | None = None,
    validation: ValidationSet | None = None,
) -> Engine:
    """The engine for this objective."""
    from unexposed.engine.reference import ReferenceEngine

    return ReferenceEngine(
        objective,
        optimiser,
        parameters,
        exposure=exposure,
        features=features,
        validation=validation,
    )
