"""UBO (Chen et al. 2022): relevance by the low-variance loss, exposure by bi-level optimisation."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks, Indices
from unexposed.engine.build import build
from unexposed.engine.objective import Engine, Objective, Optimiser, Strategy
from unexposed.errors import InputError
from unexposed.maths import exposure
from unexposed.methods.trained import PopularityMethod, continued
from unexposed.model.graph import Graph
from unexposed.ranking.blocks import Block
from unexposed.sampling import validation
from unexposed.settings import setting
from unexposed.training.given import Parameters, Side

_FIRST = np.zeros(1, dtype=np.int32)


@dataclass(frozen=True)
class UBO(PopularityMethod):
    """−[ R̃·log(m·p) + (1 − R̃)·log(1 − m·p) ] with a learned exposure:

    m = r(ω_i)·σ(e_uᵀω_i) + (1 − r(ω_i))·θ_i,  r(x) = σ(wᵀx + b),
    where α = (e, w, b) descends L_val at ω' = ω − η ∂L_train/∂ω (strategy "bilevel").
    The other strategies are the paper's JointOpt, AlterOpt and BiOpt2, and an exposure that stays
    where it starts.
    """

    name: ClassVar[str] = "ubo"
    takes: ClassVar[frozenset[str]] = frozenset({"start", "user_features", "validation"})
    strategy: Strategy = setting("bilevel", "how the exposure learns")
    exposure_learning_rate: float = setting(
        1e-4, "of Adam, for the exposure", low=0, search=(1e-5, 3e-3)
    )
    exposure_weight_decay: float = setting(1e-4, "added to the exposure's gradient", low=0)
    gate_pace: float = setting(
        1.0,
        "learning rate of the gate, as a share of the exposure's",
        low=0,
        search=[0.0, 0.03, 1.0],
    )
    gate_start: float = setting(
        0.0, "b at the start: higher trusts the user's part over θ", search=[-2.0, 0.0]
    )
    exposure_offset: float = setting(
        0.0, "added inside σ(e_uᵀω_i): higher starts higher", search=[0.0, 2.0]
    )
    lookahead: float = setting(1e-3, "η, the step size of the look-ahead", above=0)
    validation_users: float = setting(
        0.2, "share of users, the most active, in the validation set", above=0, high=1
    )
    validation_items: int = setting(
        1, "clicked and unclicked items of each of them; 0: all that it clicked", low=0
    )
    validation_negatives: validation.Negatives = setting(
        "popular", "the unclicked ones: the most popular, or drawn in proportion to clicks"
    )
    validation_batch: int = setting(0, "validation pairs used at each step; 0: all", low=0)
    validation_in_training: bool = setting(True, "keep the validation clicks in training")

    def objective(self) -> Objective:
        return Objective(
            "low_variance",
            self.strategy,
            offset=self.exposure_offset,
            validation_batch=self.validation_batch,
        )

    def optimiser(self) -> Optimiser:
        return Optimiser(
            self.learning_rate,
            self.weight_decay,
            exposure_learning_rate=self.exposure_learning_rate,
            exposure_weight_decay=self.exposure_weight_decay,
            gate_pace=self.gate_pace,
            lookahead=self.lookahead,
        )

    def validation_set(
        self, clicks: Clicks, rng: np.random.Generator | None = None
    ) -> validation.ValidationSet:
        """The unbiased set that this method builds from a log."""
        return validation.from_log(
            clicks,
            users=self.validation_users,
            items=self.validation_items,
            negatives=self.validation_negatives,
            rng=rng,
        )

    def build(self, clicks: Clicks, side: Side, rng: np.random.Generator) -> Engine:
        start = self.initial(clicks, rng)
        if side.user_features is None:
            start["exposure_user_factors"] = self.normal(clicks.n_users, rng)
        else:
            features = _checked(side.user_features, clicks.n_users)
            start["exposure_feature_weight"] = self.normal(features.shape[1], rng)
        start["gate_weight"] = self.normal(1, rng)[0]
        start["gate_bias"] = np.full(1, self.gate_start, dtype=np.float32)
        guide = side.validation or self.validation_set(clicks, rng)
        return build(
            self.objective(),
            self.optimiser(),
            continued(start, side.start),
            exposure=self.popularity(clicks),
            features=side.user_features,
            validation=guide.shuffled(rng),
            name=self.engine,
        )

    def trained_on(self, clicks: Clicks, side: Side) -> Clicks:
        if self.validation_in_training or side.validation is not None:
            return clicks
        guide = self.validation_set(clicks)
        in_guide = np.isin(clicks.keys, guide.keys(clicks.n_items))
        if in_guide.all():
            raise InputError(
                "the validation set holds every click, so that none is left to train on: "
                "keep validation_in_training, or lower validation_users or validation_items"
            )
        return clicks.pick(~in_guide)

    def finished(self, parameters: Parameters, clicks: Clicks, side: Side) -> Parameters:
        parameters["popularity"] = self.popularity(clicks)
        if side.user_features is not None:  # e_u = features · weight
            weight = parameters.pop("exposure_feature_weight")
            parameters["exposure_user_factors"] = (side.user_features @ weight).astype(np.float32)
        return parameters

    def exposure_of_new(self, parameters: Parameters) -> NDArray[np.float32]:
        """With e_u at the mean over the users of the model."""
        mean = parameters["exposure_user_factors"].mean(axis=0, keepdims=True)
        return self.exposure(parameters | {"exposure_user_factors": mean}, _FIRST)[0]

    def user_rows(
        self, parameters: Parameters, clicks: Clicks, *, n_clicks: int, epochs: int
    ) -> Parameters:
        rows = super().user_rows(parameters, clicks, n_clicks=n_clicks, epochs=epochs)
        mean = parameters["exposure_user_factors"].mean(axis=0)
        return rows | {"exposure_user_factors": np.tile(mean, (clicks.n_users, 1))}

    def exposure(self, parameters: Parameters, users: Indices) -> Block:
        return exposure.gated_block(
            parameters["exposure_user_factors"][users],
            parameters["item_factors"],
            parameters["gate_weight"],
            float(parameters["gate_bias"][0]),
            parameters["popularity"],
            offset=self.exposure_offset,
        )

    def add_exposure(self, graph: Graph, parameters: Parameters) -> None:
        """m = θ_i + r·(σ(e_uᵀω_i + offset) − θ_i), r = σ(wᵀω_i + b)."""
        for name in ("exposure_user_factors", "gate_weight", "gate_bias", "popularity"):
            graph.constant(name, parameters[name])
        graph.constant("offset", np.float32(self.exposure_offset))
        graph.add("MatMul", "item", "gate_weight", to="gate_product")
        graph.add("Add", "gate_product", "gate_bias", to="gate_logit")
        graph.add("Sigmoid", "gate_logit", to="gate")
        graph.add("Gather", "exposure_user_factors", "users", to="seer")
        graph.product("item", "seer", to="seen_product")
        graph.add("Add", "seen_product", "offset", to="seen_logit")
        graph.add("Sigmoid", "seen_logit", to="seen")
        graph.add("Gather", "popularity", "items", to="popular")
        graph.add("Sub", "seen", "popular", to="difference")
        graph.add("Mul", "gate", "difference", to="gated")
        graph.output("Add", "popular", "gated", to="exposure")

    def pair_exposure(
        self, parameters: Parameters, users: Indices, items: Indices
    ) -> NDArray[np.float32]:
        return exposure.gated_pairs(
            parameters["exposure_user_factors"][users],
            parameters["item_factors"][items],
            parameters["gate_weight"],
            float(parameters["gate_bias"][0]),
            parameters["popularity"][items],
            offset=self.exposure_offset,
        )


def _checked(features: NDArray[Any], n_users: int) -> NDArray[Any]:
    if features.ndim != 2 or len(features) != n_users:
        raise InputError(
            f"user_features must have a row for each of {n_users} users, got shape {features.shape}"
        )
    if not np.isfinite(features).all():
        raise InputError("user_features must be finite numbers")
    return features
