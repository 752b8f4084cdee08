"""How a step is run. A method states what it is (an Objective); an engine knows how to run that."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.errors import InputError, did_you_mean
from unexposed.maths.losses import LOSSES, PAIRWISE_LOSSES, kernel_of
from unexposed.maths.relevance import DotProduct, Relevance, Table
from unexposed.sampling.samples import Drawing, Samples
from unexposed.sampling.validation import ValidationSet

Name = Literal["auto", "reference", "cpu", "cuda"]
Strategy = Literal["bilevel", "joint", "alternate", "bilevel_on_batch", "frozen"]


@dataclass(frozen=True)
class Objective:
    """What a factor model minimises, and how its exposure comes about.

    `loss` names one of `losses.LOSSES` or `PAIRWISE_LOSSES`. Without a strategy the exposure is
    given; with one it is the gated model of `exposure.py`, trained as `bilevel.py` says.
    """

    loss: str
    strategy: Strategy | None = None
    offset: float = 0.0  # added inside σ(e_uᵀω_i): where the learned exposure starts
    validation_batch: int = 0  # validation pairs of a step, about, in turn; 0: all of them

    def __post_init__(self) -> None:
        known = (*LOSSES, *PAIRWISE_LOSSES)
        if self.loss not in known:
            raise InputError(f"no loss {self.loss!r}; {did_you_mean(self.loss, known)}")

    def validation_parts(self, validation: ValidationSet | None) -> int:
        """How many parts the validation pairs are cut into; step n learns from part n − 1, …"""
        size = self.validation_batch
        return 1 if validation is None or size == 0 else max(1, -(-validation.n_pairs // size))


@dataclass(frozen=True)
class Optimiser:
    """Adam on the rows a batch touches, for relevance and for exposure."""

    learning_rate: float
    weight_decay: float
    exposure_learning_rate: float = 1e-3
    exposure_weight_decay: float = 0.0
    gate_pace: float = 1.0  # the gate's learning rate, as a share of the exposure's
    lookahead: float = 1e-3  # η of the look-ahead step ω' = ω − η ∂L_train/∂ω


class Engine(Protocol):
    """Holds the parameters and learns from samples in the order they are given.

    A batch is `batch_size` clicks with their drawn items; its loss is the weighted sum over its
    pairs, divided by its clicks.
    """

    def compile(self) -> None:
        """Have everything ready for the first step: slow once on a machine, then cached."""
        ...

    def epoch(self, samples: Samples, *, batch_size: int) -> float:
        """Take a step on each batch; the mean over batches of the loss before its step."""
        ...

    def parameters(self) -> dict[str, NDArray[Any]]:
        """A copy of what has been learned, by name."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """All that a step reads and changes, by name; not copied where it need not be."""
        ...

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Put back the parameters, moments and steps that `state` gave."""
        ...

    @property
    def user_arrays(self) -> frozenset[str]:
        """The arrays of `state` that have a row for each user."""
        ...

    def give_exposure(self, table: NDArray[Any]) -> None:
        """Replace the given exposure of each item, (n_items,)."""
        ...


@runtime_checkable
class DrawsSamples(Protocol):
    """An engine that draws its samples itself, where it computes: see `sampling`."""

    def sampler(self, clicks: Clicks, drawing: Drawing, *, seed: int) -> Any:
        """What draws the epochs of this log; its `draw` gives the next one on the host."""
        ...

    def train_epoch(self, sampler: Any, *, batch_size: int) -> float:
        """As `epoch`, on the sampler's next one."""
        ...


Initial = Mapping[str, NDArray[Any]]
Code = TypeVar("Code")


def put_back(tables: Mapping[str, NDArray[Any]], state: Mapping[str, NDArray[Any]]) -> None:
    """Copy a state into tables of the same shapes and types."""
    for name, table in tables.items():
        if (state[name].shape, state[name].dtype) != (table.shape, table.dtype):
            raise ValueError(f"{name} has not the shape it has here")
        table[...] = state[name]


FACTORS = ("user_factors", "item_factors")  # the tables of the relevance "dot"
EXPOSURE_TABLES = {  # of a learned exposure; the second takes the place of the first
    "exposure_user_factors": Table("users"),
    "exposure_feature_weight": Table("shared"),
    "gate_weight": Table("shared"),
    "gate_bias": Table("shared"),
}
PRODUCT = DotProduct(0, 0.0)


def has_closed_form(
    objective: Objective,
    parameters: Initial,
    features: NDArray[Any] | None,
    relevance: Relevance = PRODUCT,
) -> bool:
    """Whether the fast engines know the objective; the reference knows the rest."""
    if relevance.kernel is None or features is not None or "exposure_feature_weight" in parameters:
        return False
    if objective.strategy is None:
        return kernel_of(objective.loss) is not None
    return objective.loss == "low_variance"


# what the engines with closed-form steps refuse

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
