"""UMF (Chen et al. 2022): the low-variance loss, with the exposure of RelMF."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from unexposed.engine.objective import Objective
from unexposed.methods.trained import GivenExposureMethod
from unexposed.settings import setting


@dataclass(frozen=True)
class UMF(GivenExposureMethod):
    """−[ R̃·log(m·p) + (1 − R̃)·log(1 − m·p) ], m = θ."""

    name: ClassVar[str] = "umf"
    popularity_exponent: float = setting(
        0.1, "of θ = (clicks / most clicks)^exponent", low=0, search=(0.05, 1)
    )
    form: Literal["log", "squared"] = setting("log", "of the loss")

    def objective(self) -> Objective:
        return Objective("low_variance_squared" if self.form == "squared" else "low_variance")
