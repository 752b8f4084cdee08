"""What a step of CJMF computes (Zhu et al. 2020).

C sub-models learn side by side. For one of them p = σ(ω_uᵀω_i) is a pair's relevance and m the
exposure of its item:

    L  = −[ c/m·log p + (1 − c/m)·log(1 − p) ]      the relevance, at the other's fixed weight 1/m
         −[ c/p·log m + (1 − c/p)·log(1 − m) ]      the exposure, at the other's fixed weight 1/p
    L′ = −[ c·log(m̄p′) + (1 − c)·log(1 − m̄p′) ]     the residual, p′ = σ((ω_u + ρ_u)ᵀ(ω_i + ρ_i))

The other is the sub-model of the pair's part: L teaches it nothing from the pair, and all others
learn. m̄ is the mean over sub-models. ρ learns from every pair by L′, at fixed ω, and stays out of
L. The loss of a batch is the sum over its pairs and the sub-models, divided by its clicks. A
sub-model's vector of a user or item moves only if the sub-model learned from one of its pairs.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from unexposed.data.pairs import Indices
from unexposed.sampling.samples import Samples

LEAST, MOST = 0.01, 0.99  # every probability is kept in these bounds
LARGEST_LOGIT = math.log(MOST / LEAST)

Tables = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class PartedSamples:
    """Clicks with their drawn items, and the part that each click and its items belong to.

    Every pair counts 1, whatever its weight.
    """

    drawn: Samples
    part: Indices  # (clicks,)

    def __len__(self) -> int:
        return len(self.part)

    def batches(self, size: int) -> Iterator["PartedSamples"]:
        """Cut into batches of `size` clicks, the last one shorter."""
        for number, batch in enumerate(self.drawn.batches(size)):
            yield PartedSamples(batch, self.part[number * size :][:size])


@dataclass(frozen=True)
class Rates:
    """Adam's learning rate and weight decay for one kind of table."""

    learning_rate: float
    weight_decay: float


@dataclass(frozen=True)
class JointRates:
    """The rates of every kind of table; without rates for it, there is no residual."""

    submodel: Rates
    exposure: Rates
    residual: Rates | None
