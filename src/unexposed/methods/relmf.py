"""RelMF (Saito et al. 2020): clicks weighted by the inverse of their exposure."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from unexposed.methods.composed import Composition, PointwiseMethod, PopularitySettings
from unexposed.methods.exposures import Given
from unexposed.settings import setting


@dataclass(frozen=True)
class RelMF(PopularitySettings, PointwiseMethod):
    """−[ R̃/m·log p + (1 − R̃/m)·log(1 − p) ], m = θ; `popularity_floor` is the clipping of m."""

    name: ClassVar[str] = "relmf"
    fixed_exposure: ClassVar[bool] = True
    takes: ClassVar[frozenset[str]] = PointwiseMethod.takes | {"exposure"}
    popularity_exponent: float = setting(
        0.1, "of θ = (clicks / most clicks)^exponent", low=0, search=(0.05, 1)
    )
    popularity_floor: float = setting(
        0.01, "least θ, the clipping of m", above=0, high=1, search=(0.01, 0.5)
    )
    form: Literal["log", "squared"] = setting("log", "of the loss; public code trains the squared")

    def composition(self) -> Composition:
        loss = "inverse_propensity_squared" if self.form == "squared" else "inverse_propensity"
        return Composition(self.relevance_model(), loss, self.drawing(), Given(self.assumed()))
