"""UBO (Chen et al. 2022): relevance by the low-variance loss, exposure by bi-level optimisation."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from unexposed.data import over_ranks
from unexposed.data.clicks import Clicks
from unexposed.engine.objective import Strategy
from unexposed.errors import InputError
from unexposed.maths.item_level import Factors, validation_losses
from unexposed.methods.composed import ComposedMethod
from unexposed.methods.composition import Composition
from unexposed.methods.exposures import Exposure, Gated, OnClock
from unexposed.methods.shared_settings import PairSettings, PopularitySettings
from unexposed.methods.trained import NOTHING
from unexposed.sampling import validation
from unexposed.settings import setting
from unexposed.training.loop import Loop
from unexposed.training.side import Parameters, Side
from unexposed.training.strategy import ExposureLearning, Guide


@dataclass(frozen=True)
class UBO(PopularitySettings, PairSettings, ComposedMethod):
    """−[ R̃·log(m·p) + (1 − R̃)·log(1 − m·p) ] with a learned exposure:

    m = r(ω_i)·σ(e_uᵀω_i) + (1 − r(ω_i))·θ_i,  r(x) = σ(wᵀx + b),
    where α = (e, w, b) descends L_val at ω' = ω − η ∂L_train/∂ω (strategy "bilevel").
    The other strategies are the paper's JointOpt, AlterOpt and BiOpt2, and an exposure that stays
    where it starts.
    """

    name: ClassVar[str] = "ubo"
    takes: ClassVar[frozenset[str]] = ComposedMethod.takes | {
        "exposure",
        "user_features",
        "validation",
    }
    strategy: Strategy = setting("bilevel", "how the exposure learns")
    exposure_model: Literal["gated", "items", "popularity"] = setting(
        "gated",
        "what is learned: the paper's gate of user and item; one number an item; or a level and "
        "an exponent of popularity",
        before="gated",
    )
    epoch_by: Literal["held_out", "validation", "traffic"] = setting(  # type: ignore[assignment]
        "held_out",
        "what chooses the epoch: held-out clicks, a half of the validation set that the exposure "
        "does not learn from, or random traffic that training does not use",
        before="held_out",
    )
    traffic_use: Literal["training", "guide", "both", "none"] = setting(  # type: ignore[assignment]
        "training",
        "of random traffic: extra training pairs with m = 1, the validation set, a half for "
        "either, or none but epoch_by",
    )
    exposure_learning_rate: float = setting(
        1e-4,
        "of Adam, for the exposure; about 0.03 where it steps once an epoch (items, popularity)",
        low=0,
        search=(1e-5, 3e-3),
    )
    exposure_weight_decay: float = setting(
        1e-4,
        "added to the exposure's gradient: a pull to 0, for items and popularity to the start",
        low=0,
    )
    gate_pace: float = setting(
        0.0,
        "learning rate of the gate, as a share of the exposure's; learned, it runs away",
        low=0,
        search=[0.0, 1.0],
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exposure_model != "gated" and self.strategy == "bilevel_on_batch":
            raise InputError(
                f"exposure_model={self.exposure_model} learns after every epoch, not on a batch: "
                "use strategy bilevel, joint or frozen"
            )

    def composition(self) -> Composition:
        return Composition(
            relevance=self.relevance_model(),
            loss="low_variance",
            exposure=self._exposure(),
            drawing=self.pair_drawing(self.negatives, self.negatives_from, self.negatives_exponent),
            learning=ExposureLearning(
                self.strategy,
                self.exposure_learning_rate,
                self.exposure_weight_decay,
                self.gate_pace,
                self.lookahead,
                self.guide(),
            ),
        )

    def guide(self) -> Guide:
        """The small unbiased set that the exposure learns from."""
        return Guide(
            self.validation_users,
            self.validation_items,
            self.validation_negatives,
            self.validation_batch,
            self.validation_in_training,
            checks=self.epoch_by == "validation",
        )

    def loop(self, clicks: Clicks, held_out: Clicks, side: Side = NOTHING) -> Loop:
        loop = super().loop(clicks, held_out, side)
        if self.epoch_by != "validation":
            return loop
        _, check = self.guide().halves(clicks, side.validation)

        def quality(parameters: Parameters) -> float:
            vectors = self.vectors(parameters)
            if vectors is None:
                raise InputError("epoch_by=validation needs relevance=dot: use epoch_by=held_out")
            tables = Factors(*vectors)
            return -over_ranks.mean(
                validation_losses(tables, check.users, check.items, check.relevant)
            )

        return replace(loop, quality=quality, window=1)

    def _exposure(self) -> Exposure:
        if self.exposure_model != "gated":
            return OnClock(self.popularity(), self.exposure_model)
        return Gated(
            self.popularity(),
            self.exposure_offset,
            self.gate_start,
            self.initial_scale,
            self.relevance_model(),
        )
