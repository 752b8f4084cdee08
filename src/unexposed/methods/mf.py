"""Plain matrix factorisation: every item is taken as seen, so a missing click is a dislike."""

from dataclasses import dataclass
from typing import ClassVar

from unexposed.methods.composed import ComposedMethod
from unexposed.methods.composition import Composition
from unexposed.methods.shared_settings import PairSettings


@dataclass(frozen=True)
class MF(PairSettings, ComposedMethod):
    """−[ R̃·log p + (1 − R̃)·log(1 − p) ]: the low-variance loss at m = 1."""

    name: ClassVar[str] = "mf"

    def composition(self) -> Composition:
        return Composition(
            relevance=self.relevance_model(),
            loss="low_variance",
            drawing=self.pair_drawing(self.negatives, self.negatives_from, self.negatives_exponent),
        )
