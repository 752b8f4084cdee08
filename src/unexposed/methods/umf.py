"""UMF (Chen et al. 2022): the low-variance loss, with the exposure of RelMF."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from unexposed.engine import Objective
from unexposed.factors import GivenExposureMethod
from unexposed.settings import setting


@dataclass(frozen=True)
class UMF(GivenExposureMethod):
    """−[ R̃·log(m·p) + (1 − R̃)·log(1 − m·p) ], m = θ."""

    name: ClassVar[str] = "umf"
    negatives: int = setting(
        20, "unclicked items drawn for each click, anew each epoch", low=1, search=[5, 10, 20]
    )
    weight_decay: float = setting(
        1e-6, "added to the gradient of touched rows", low=0, search=(1e-6, 1e-4)
    )
    form: Literal["log", "squared"] = setting("log", "of the loss")

    def objective(self) -> Objective:
        return Objective("low_variance_squared" if self.form == "squared" else "low_variance")
