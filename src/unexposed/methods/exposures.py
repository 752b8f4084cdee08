"""How likely a pair was shown: the exposures that a composed method can use, and how one learns."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.pairs import Indices
from unexposed.engine.objective import Strategy
from unexposed.errors import InputError
from unexposed.maths import exposure, item_level
from unexposed.maths.relevance import Relevance, normal
from unexposed.ranking.blocks import Block
from unexposed.sampling import validation
from unexposed.sampling.validation import ValidationSet
from unexposed.training.exposure_clock import ExposureClock
from unexposed.training.side import Parameters, Side
from unexposed.workers import Workers

ExposureFrom = Literal["auto", "modelled", "shown", "logged"]
USER_FEATURES = "exposure_feature_weight"  # W of e_u = F_uᵀW, a parameter of the model
_FIRST = np.zeros(1, dtype=np.int32)


@dataclass(frozen=True)
class Assumed:
    """What is assumed of exposure: θᵢ = max((nᵢ / max n)^exponent, floor), and m of single pairs.

    `source` says where the m of pairs comes from that a log tells of; `attention` is the chance
    that a shown item is seen, 0 to learn it.
    """

    exponent: float = 0.5
    floor: float = 0.01
    source: ExposureFrom = "modelled"
    attention: float = 0.0

    def popularity(self, clicks: Clicks) -> exposure.Table:
        return exposure.popularity(clicks.item_counts, exponent=self.exponent, floor=self.floor)


@dataclass(frozen=True)
class Guide:
    """How to take a small validation set from a log; given random traffic replaces it."""

    about: str
    users: float  # share of the users, the most active
    items: int  # clicked and unclicked items of each; 0: all that the user clicked
    negatives: validation.Negatives

    def from_log(
        self,
        clicks: Clicks,
        rng: np.random.Generator | None = None,
        workers: Workers | None = None,
    ) -> ValidationSet:
        how: dict[str, Any] = {"items": self.items, "negatives": self.negatives}
        return validation.from_log(clicks, users=self.users, **how, rng=rng, workers=workers)


GUIDES: dict[str, Guide] = {
    "popular": Guide(
        "of the most active fifth of users, the most popular item clicked, and unclicked (paper)",
        users=0.2,
        items=1,
        negatives="popular",
    ),
    "drawn": Guide(
        "every click, and an unclicked item for each, drawn in proportion to clicks",
        users=1.0,
        items=0,
        negatives="drawn",
    ),
}


@dataclass(frozen=True)
class ExposureLearning:
    """A strategy of `maths/bilevel.py`, with Adam's rates for the exposure, and its guide."""

    strategy: Strategy
    learning_rate: float
    weight_decay: float
    gate_pace: float  # the gate's learning rate, as a share of the exposure's
    lookahead: float  # η of the look-ahead step
    guide: Guide
    batch: int = 0  # pairs of the guide used at each step; 0: all
    checks: bool = False  # whether half of the guide is kept to choose the epoch by

    def pairs(
        self,
        clicks: Clicks,
        given: ValidationSet | None,
        rng: np.random.Generator,
        workers: Workers | None = None,
    ) -> ValidationSet:
        """The pairs of the guide, in the order in which steps use them."""
        if self.checks:
            return self.halves(clicks, given, workers)[0].shuffled(rng)
        return (given or self.guide.from_log(clicks, rng, workers)).shuffled(rng)

    def halves(
        self, clicks: Clicks, given: ValidationSet | None, workers: Workers | None = None
    ) -> tuple[ValidationSet, ValidationSet]:
        """A random half of the pairs to learn from, and the other to choose the epoch by."""
        whole = given or self.guide.from_log(clicks, workers=workers)
        pairs = whole.shuffled(np.random.default_rng(0))
        half = pairs.n_pairs // 2
        if half == 0:
            raise InputError(
                "the validation set has a single pair, too few for epoch_by=validation: "
                "give more of it, or use epoch_by=held_out"
            )
        return pairs.part(0, half), pairs.part(half, pairs.n_pairs)


class Exposure:
    """The exposure of a composition; by default nothing is modelled and m = 1."""

    assumed: Assumed
    in_steps: ClassVar[bool] = False  # whether the steps of an engine learn it
    offset: float  # added to the logit of an exposure that steps learn

    def table(self, clicks: Clicks, side: Side) -> exposure.Table | None:
        """The exposure that is not learned: (items,) or (users, items)."""
        del clicks, side
        return None

    def initial(
        self,
        n_users: int,
        width: int,
        side: Side,
        rng: np.random.Generator,
        rows: NDArray[Any] | None = None,
    ) -> Parameters:
        """The parameters to learn, at the start of training.

        `n_users` are all users; `rows` those whose rows are kept, where they are not all.
        """
        del n_users, width, side, rng, rows
        return {}

    def clock(
        self,
        clicks: Clicks,
        side: Side,
        learning: ExposureLearning,
        rng: np.random.Generator,
        workers: Workers | None,
        **training: Any,
    ) -> ExposureClock | None:
        """What moves the exposure after every epoch; None: nothing of that kind."""
        del clicks, side, learning, rng, workers, training
        return None

    def kept(self, learned: Parameters, clicks: Clicks, side: Side) -> Parameters:
        """The parameters a model keeps, from those the engine has learned."""
        del clicks, side
        return learned

    def block(self, parameters: Parameters, users: Indices) -> Block | None:
        """The exposure of every item to each of these users; None: there is no exposure model."""
        del parameters, users
        return None

    def pairs(self, parameters: Parameters, users: Indices, items: Indices) -> NDArray[np.float32]:
        """The exposure of each pair."""
        del parameters, items
        return np.ones(len(users), dtype=np.float32)

    def of_new_user(self, parameters: Parameters) -> NDArray[np.float32] | None:
        """The exposure of each item to a user who was not trained on."""
        del parameters
        return None

    def rows_of_new_users(
        self, parameters: Parameters, n_users: int, features: NDArray[Any] | None
    ) -> Parameters:
        """The rows a model keeps for users who were not trained on, from their features if any."""
        del parameters, n_users
        if features is not None:
            raise InputError("the exposure of this model does not depend on user features")
        return {}

    def user_tables(self, parameters: Parameters) -> set[str]:
        """The parameters that have a row for each user."""
        del parameters
        return set()


class AllSeen(Exposure):
    """m = 1: a missing click is a dislike."""

    assumed = Assumed()


@dataclass(frozen=True)
class Given(Exposure):
    """m = θ, or the table given to the training."""

    assumed: Assumed

    def table(self, clicks: Clicks, side: Side) -> exposure.Table:
        if side.exposure is None:
            return self.assumed.popularity(clicks)
        return exposure.given(side.exposure, n_users=clicks.n_users, n_items=clicks.n_items)

    def kept(self, learned: Parameters, clicks: Clicks, side: Side) -> Parameters:
        return learned | {"exposure": self.table(clicks, side)}

    def block(self, parameters: Parameters, users: Indices) -> Block:
        table = parameters["exposure"]
        if table.ndim == 1:
            return np.broadcast_to(table, (len(users), len(table)))
        return table[users]

    def pairs(self, parameters: Parameters, users: Indices, items: Indices) -> NDArray[np.float32]:
        table = parameters["exposure"]
        return table[items] if table.ndim == 1 else table[users, items]

    def of_new_user(self, parameters: Parameters) -> NDArray[np.float32]:
        table = parameters["exposure"]
        return table if table.ndim == 1 else table.mean(axis=0)

    def rows_of_new_users(
        self, parameters: Parameters, n_users: int, features: NDArray[Any] | None
    ) -> Parameters:
        rows = super().rows_of_new_users(parameters, n_users, features)
        if parameters["exposure"].ndim == 1:
            return rows
        return {"exposure": np.tile(self.of_new_user(parameters), (n_users, 1))}

    def user_tables(self, parameters: Parameters) -> set[str]:
        table = parameters.get("exposure")
        return {"exposure"} if table is not None and table.ndim > 1 else set()


@dataclass(frozen=True)
class OnClock(Given):
    """m is the same for all users and learned after every epoch: see `maths/item_level.py`."""

    form: item_level.Form

    def table(self, clicks: Clicks, side: Side) -> exposure.Table:
        """The exposure that learning starts from: near θ, or near the table given."""
        form, share = item_level.FORMS[self.form], item_level.log_share(clicks.item_counts)
        return form.table(self._start(clicks, side), share).astype(np.float32)

    def clock(
        self,
        clicks: Clicks,
        side: Side,
        learning: ExposureLearning,
        rng: np.random.Generator,
        workers: Workers | None,
        **training: Any,
    ) -> ExposureClock | None:
        if learning.strategy == "frozen":
            return None
        return ExposureClock(
            self.form,
            self._start(clicks, side),
            item_level.log_share(clicks.item_counts),
            learning.pairs(clicks, side.validation, rng, workers),
            on_training=learning.strategy != "bilevel",
            learning_rate=learning.learning_rate,
            weight_decay=learning.weight_decay,
            rng=rng,
            workers=workers,
            **training,
        )

    def _start(self, clicks: Clicks, side: Side) -> NDArray[np.float64]:
        """The numbers α of the form that learning starts from."""
        if side.user_features is not None:
            raise InputError(
                f"exposure_model={self.form} is the same for all users, so user_features have no "
                "use: leave them out, or use exposure_model=gated"
            )
        table = super().table(clicks, side)
        if table.ndim > 1:
            raise InputError(
                f"exposure_model={self.form} is the same for all users: give one value for each "
                f"of {clicks.n_items} items, not {table.shape[0]} × {table.shape[1]}"
            )
        return item_level.FORMS[self.form].start(table, item_level.log_share(clicks.item_counts))


@dataclass(frozen=True)
class Gated(Exposure):
    """m = r(ω_i)·σ(e_uᵀω_i + offset) + (1 − r(ω_i))·θ_i,  r(x) = σ(wᵀx + b).

    e, w and b are learned. Where relevance has biases, ω_i is the item's whole row [ω_i, 1, b_i]:
    then e_u and w also have a term of their own, the user's activity in e_u, and a slope on the
    item's bias.
    """

    assumed: Assumed
    offset: float
    gate_start: float  # b at the start
    initial_scale: float
    relevance: Relevance  # which gives ω_i
    in_steps: ClassVar[bool] = True

    def table(self, clicks: Clicks, side: Side) -> exposure.Table:
        if side.exposure is not None:
            raise InputError(
                "exposure_model=gated starts from popularity: use exposure_model=items to start "
                "from a known exposure"
            )
        return self.assumed.popularity(clicks)

    def initial(
        self,
        n_users: int,
        width: int,
        side: Side,
        rng: np.random.Generator,
        rows: NDArray[Any] | None = None,
    ) -> Parameters:
        name, n = "exposure_user_factors", n_users
        if side.user_rows is not None:
            name, n, rows = USER_FEATURES, side.user_rows.shape[1], None
        return {
            name: normal(rng, (n, width), self.initial_scale, rows),
            "gate_weight": normal(rng, (1, width), self.initial_scale)[0],
            "gate_bias": np.full(1, self.gate_start, dtype=np.float32),
        }

    def kept(self, learned: Parameters, clicks: Clicks, side: Side) -> Parameters:
        kept = learned | {"popularity": self.assumed.popularity(clicks)}
        if side.user_rows is not None:  # the map stays with the model, for users who come later
            kept["exposure_user_factors"] = mapped(side.user_rows, kept)
        return kept

    def block(self, parameters: Parameters, users: Indices) -> Block:
        items = self.relevance.item_vectors(parameters, slice(None))
        product = parameters["exposure_user_factors"][users] @ items.T
        return self._gated(product, parameters, slice(None))

    def pairs(self, parameters: Parameters, users: Indices, items: Indices) -> NDArray[np.float32]:
        product = np.einsum(
            "nd,nd->n",
            parameters["exposure_user_factors"][users],
            self.relevance.item_vectors(parameters, items),
        )
        return self._gated(product, parameters, items)

    def _gated(self, product: Block, parameters: Parameters, items: Indices | slice) -> Block:
        return exposure.gated_array(
            product,
            self.relevance.item_vectors(parameters, items),
            parameters["gate_weight"],
            float(parameters["gate_bias"][0]),
            parameters["popularity"][items],
            offset=self.offset,
        )

    def of_new_user(self, parameters: Parameters) -> NDArray[np.float32]:
        """The exposure at the mean e_u over the model's users."""
        mean = parameters["exposure_user_factors"].mean(axis=0, keepdims=True)
        return self.block(parameters | {"exposure_user_factors": mean}, _FIRST)[0]

    def rows_of_new_users(
        self, parameters: Parameters, n_users: int, features: NDArray[Any] | None
    ) -> Parameters:
        if features is None:
            mean = parameters["exposure_user_factors"].mean(axis=0)
            return {"exposure_user_factors": np.tile(mean, (n_users, 1))}
        if USER_FEATURES not in parameters:
            raise InputError(
                "this model was trained without user features, so it cannot use those of new "
                "users: leave them out, or fit it again with user_features"
            )
        return {"exposure_user_factors": mapped(features, parameters)}

    def user_tables(self, parameters: Parameters) -> set[str]:
        del parameters
        return {"exposure_user_factors"}


def mapped(features: NDArray[Any], parameters: Parameters) -> NDArray[np.float32]:
    """e_u = F_uᵀW of each row of features."""
    weight = parameters[USER_FEATURES]
    if features.shape[1] != len(weight):
        raise InputError(
            f"user_features have {features.shape[1]} columns, and the model knows {len(weight)}: "
            "encode them as in its training, read_features(…, encoding=model.encoding('user'))"
        )
    return (features @ weight).astype(np.float32)
