"""What a step of CJMF computes (Zhu et al. 2020).

C sub-models lie side by side. p = σ(ω_uᵀω_i) is what one of them says of a pair's relevance, m of
its item's exposure:

    L  = −[ c/m·log p + (1 − c/m)·log(1 − p) ]      the relevance, at the other's fixed weight 1/m
         −[ c/p·log m + (1 − c/p)·log(1 − m) ]      the exposure, at the other's fixed weight 1/p
    L′ = −[ c·log(m̄p′) + (1 − c)·log(1 − m̄p′) ]     the residual, p′ = σ((ω_u + ρ_u)ᵀ(ω_i + ρ_i))

The other is the sub-model of the pair's part, which learns nothing from it by L; all others do.
m̄ is the mean of all. ρ learns from every pair by L′, at fixed ω, and stays out of L. The loss of a
batch is the sum over its pairs and the sub-models, divided by its clicks. What a sub-model holds of
a user or item moves only where it learned from one of the row's pairs.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from unexposed.data.clicks import Indices
from unexposed.sampling import samples as sampling

LEAST, MOST = 0.01, 0.99  # every probability is kept in these bounds
LARGEST_LOGIT = math.log(MOST / LEAST)

Tables = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Samples:
    """Clicks with their drawn items, and the part that each click and its items belong to.

    Every pair counts 1, whatever its weight.
    """

    drawn: sampling.Samples
    part: Indices  # (clicks,)

    def __len__(self) -> int:
        return len(self.part)

    def batches(self, size: int) -> Iterator["Samples"]:
        """Cut into batches of `size` clicks, the last one shorter."""
        for number, batch in enumerate(self.drawn.batches(size)):
            yield Samples(batch, self.part[number * size :][:size])


@dataclass(frozen=True)
class Rates:
    """Of Adam: how fast one kind of table learns, and what pulls it back to zero."""

    learning_rate: float
    weight_decay: float


@dataclass(frozen=True)
class JointRates:
    """Adam on the rows a batch touches; without rates for a residual there is none."""

    submodel: Rates
    exposure: Rates
    residual: Rates | None
