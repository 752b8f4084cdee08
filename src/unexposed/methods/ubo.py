"""UBO (Chen et al. 2022): relevance by the low-variance loss, exposure by bi-level optimisation."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from unexposed.data.clicks import Clicks
from unexposed.engine.objective import Strategy
from unexposed.errors import InputError
from unexposed.maths.item_level import Factors, validation_losses
from unexposed.methods.composed import Composition, PointwiseMethod, PopularitySettings
from unexposed.methods.exposures import GUIDES, Exposure, ExposureLearning, Gated, OnClock
from unexposed.settings import setting
from unexposed.training.loop import Loop
from unexposed.training.side import Parameters, Side
from unexposed.workers import Workers, mean


@dataclass(frozen=True)
class UBO(PopularitySettings, PointwiseMethod):
    """−[ R̃·log(m·p) + (1 − R̃)·log(1 − m·p) ] with a learned exposure:

    m = r(ω_i)·σ(e_uᵀω_i) + (1 − r(ω_i))·θ_i,  r(x) = σ(wᵀx + b),
    where α = (e, w, b) descends L_val at ω' = ω − η ∂L_train/∂ω (strategy "bilevel").
    The other strategies are the paper's JointOpt, AlterOpt and BiOpt2, and an exposure that stays
    where it starts. L_val is over a guide, whose clicks stay in training: the paper does not say.
    """

    name: ClassVar[str] = "ubo"
    takes: ClassVar[frozenset[str]] = PointwiseMethod.takes | {
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
        "what chooses the epoch: held-out clicks, a half of the guide that the exposure does not "
        "learn from, or random traffic that training does not use",
        before="held_out",
    )
    traffic_use: Literal["training", "guide", "both", "none"] = setting(  # type: ignore[assignment]
        "training",
        "of random traffic: extra training pairs with m = 1, the guide, a half for either, or none "
        "but epoch_by",
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
    guide: str = setting(
        "popular",
        "validation set that the exposure learns from, where no random traffic is: "
        + "; ".join(f"{name}: {guide.about}" for name, guide in GUIDES.items()),
        names=GUIDES,
    )
    validation_batch: int = setting(0, "pairs of the guide used at each step; 0: all", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exposure_model != "gated" and self.strategy == "bilevel_on_batch":
            raise InputError(
                f"exposure_model={self.exposure_model} learns after every epoch, not on a batch: "
                "use strategy bilevel, joint or frozen"
            )

    def composition(self) -> Composition:
        return Composition(
            self.relevance_model(),
            "low_variance",
            self.drawing(),
            self._exposure(),
            self.learning(),
        )

    def _exposure(self) -> Exposure:
        if self.exposure_model != "gated":
            return OnClock(self.assumed(), self.exposure_model)
        return Gated(
            self.assumed(),
            self.exposure_offset,
            self.gate_start,
            self.initial_scale,
            self.relevance_model(),
        )

    def learning(self) -> ExposureLearning:
        return ExposureLearning(
            self.strategy,
            self.exposure_learning_rate,
            self.exposure_weight_decay,
            self.gate_pace,
            self.lookahead,
            GUIDES[self.guide],
            self.validation_batch,
            checks=self.epoch_by == "validation",
        )

    def traffic_uses(self) -> list[str]:
        uses = super().traffic_uses()
        return ["training", "guide", *uses[1:]] if self.traffic_use == "both" else uses

    def loop(
        self, clicks: Clicks, held_out: Clicks, side: Side, workers: Workers | None = None
    ) -> Loop:
        loop = super().loop(clicks, held_out, side, workers)
        if self.epoch_by != "validation":
            return loop
        _, check = self.learning().halves(clicks, side.validation, workers)

        def quality(parameters: Parameters) -> float:
            vectors = self.vectors(parameters)
            if vectors is None:
                raise InputError("epoch_by=validation needs relevance=dot: use epoch_by=held_out")
            losses = validation_losses(Factors(*vectors), check.users, check.items, check.relevant)
            return -mean(losses, workers)

        return replace(loop, quality=quality, window=1)
