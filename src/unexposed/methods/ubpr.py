"""UBPR (Saito 2020): BPR whose pairs are weighted by the inverse exposure of the clicked item."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from unexposed.methods.composed import ComposedMethod, Composition, PopularitySettings
from unexposed.methods.exposures import Given
from unexposed.settings import setting


@dataclass(frozen=True)
class UBPR(PopularitySettings, ComposedMethod):
    """−R̃_ui/m_i·(1 − R̃_uj/m_j)·log σ(ω_uᵀω_i − ω_uᵀω_j), m = θ, clipped below at 0.

    The weight 1 − R̃_uj/m_j is 1 where j was not clicked and at most 0 where it was. Clipping
    the loss of each pair at 0, as the paper does against its variance, leaves the pairs of a click
    and an unclicked item: those that are drawn here.
    """

    name: ClassVar[str] = "ubpr"
    fixed_exposure: ClassVar[bool] = True
    takes: ClassVar[frozenset[str]] = ComposedMethod.takes | {"exposure"}
    negatives_from: Literal["unclicked", "shown"] = setting(
        "unclicked",
        "what negatives are drawn from: unclicked items, or those shown and not clicked",
    )
    initial_scale: float = setting(0.003, "standard deviation of the first vectors", above=0)

    def composition(self) -> Composition:
        return Composition(
            self.relevance_model(pairwise=True),
            "inverse_propensity_pairwise",
            self.drawing(),
            Given(self.assumed()),
        )
