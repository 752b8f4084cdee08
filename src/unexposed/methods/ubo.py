"""UBO (Chen et al. 2022): relevance by the low-variance loss, exposure by bi-level optimisation."""

from dataclasses import dataclass
from typing import ClassVar

from unexposed.engine.objective import Strategy
from unexposed.methods.composed import (
    ComposedMethod,
    Composition,
    PairSettings,
    PopularitySettings,
)
from unexposed.methods.exposures import Gated
from unexposed.sampling import validation
from unexposed.settings import setting
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

    def composition(self) -> Composition:
        return Composition(
            relevance=self.dot_product(),
            loss="low_variance",
            exposure=Gated(
                self.popularity(), self.exposure_offset, self.gate_start, self.initial_scale
            ),
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
        )
