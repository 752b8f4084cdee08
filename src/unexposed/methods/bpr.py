"""Bayesian personalised ranking (Rendle et al. 2009): a clicked item above an unclicked one."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from unexposed import sampling
from unexposed.data import Clicks
from unexposed.engine import Objective
from unexposed.factors import FactorMethod
from unexposed.settings import setting


@dataclass(frozen=True)
class BPR(FactorMethod):
    """−log σ(ω_uᵀω_i − ω_uᵀω_j), i clicked and j not."""

    name: ClassVar[str] = "bpr"
    negatives: int = setting(
        3, "unclicked items drawn for each click, anew each epoch", low=1, search=[3, 5, 10]
    )
    weight_decay: float = setting(
        1e-4, "added to the gradient of touched rows", low=0, search=(1e-6, 1e-3)
    )
    initial_scale: float = setting(0.003, "standard deviation of the first vectors", above=0)

    def objective(self) -> Objective:
        return Objective("pairwise")

    def samples(self, clicks: Clicks, rng: np.random.Generator) -> sampling.Triples:
        return sampling.sampled_triples(clicks, negatives=self.negatives, rng=rng)
