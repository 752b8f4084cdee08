"""Bayesian personalised ranking (Rendle et al. 2009): a clicked item above an unclicked one."""

from dataclasses import dataclass
from typing import ClassVar

from unexposed.methods.composed import ComposedMethod, Composition
from unexposed.settings import setting


@dataclass(frozen=True)
class BPR(ComposedMethod):
    """−log σ(ω_uᵀω_i − ω_uᵀω_j), i clicked and j not, summed over the j drawn for i."""

    name: ClassVar[str] = "bpr"
    initial_scale: float = setting(0.003, "standard deviation of the first vectors", above=0)

    def composition(self) -> Composition:
        return Composition(self.relevance_model(pairwise=True), "pairwise", self.drawing())
