"""Plain matrix factorisation: every item is taken as seen, so a missing click is a dislike."""

from dataclasses import dataclass
from typing import ClassVar

from unexposed.engine.objective import Objective
from unexposed.methods.trained import PointwiseMethod


@dataclass(frozen=True)
class MF(PointwiseMethod):
    """−[ R̃·log p + (1 − R̃)·log(1 − p) ]: the low-variance loss at m = 1."""

    name: ClassVar[str] = "mf"

    def objective(self) -> Objective:
        return Objective("low_variance")
