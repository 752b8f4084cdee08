"""Bayesian personalised ranking (Rendle et al. 2009): a clicked item above an unclicked one."""

from dataclasses import dataclass
from typing import ClassVar

from unexposed.methods.composed import ComposedMethod
from unexposed.methods.composition import Composition
from unexposed.sampling.samples import Drawing
from unexposed.settings import setting


@dataclass(frozen=True)
class BPR(ComposedMethod):
    """−log σ(ω_uᵀω_i − ω_uᵀω_j), i clicked and j not, summed over the j drawn for i."""

    name: ClassVar[str] = "bpr"
    initial_scale: float = setting(0.003, "standard deviation of the first vectors", above=0)

    def composition(self) -> Composition:
        return Composition(
            relevance=self.relevance_model(pairwise=True),
            loss="pairwise",
            drawing=Drawing(
                self.negatives, source=self.negatives_from, exponent=self.negatives_exponent
            ),
        )
