"""UMF (Chen et al. 2022): the low-variance loss, with the exposure of RelMF."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from unexposed.methods.composed import Composition, PointwiseMethod, PopularitySettings
from unexposed.methods.exposures import Given
from unexposed.settings import setting


@dataclass(frozen=True)
class UMF(PopularitySettings, PointwiseMethod):
    """−[ R̃·log(m·p) + (1 − R̃)·log(1 − m·p) ], m = θ."""

    name: ClassVar[str] = "umf"
    fixed_exposure: ClassVar[bool] = True
    takes: ClassVar[frozenset[str]] = PointwiseMethod.takes | {"exposure"}
    popularity_exponent: float = setting(
        0.1, "of θ = (clicks / most clicks)^exponent", low=0, search=(0.05, 1)
    )
    form: Literal["log", "squared"] = setting("log", "of the loss")

    def composition(self) -> Composition:
        loss = "low_variance_squared" if self.form == "squared" else "low_variance"
        return Composition(self.relevance_model(), loss, self.drawing(), Given(self.assumed()))
