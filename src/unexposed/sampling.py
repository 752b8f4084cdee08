"""The pairs of an epoch: clicks and drawn negatives, with their weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from unexposed.data import Clicks, Indices

Weighting = Literal["none", "unbiased"]


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs to learn from, in the order they will be visited."""

    users: Indices
    items: Indices
    click: NDArray[np.float32]
    weight: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.users)

    def batches(self, size: int) -> Iterator["Pairs"]:
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            yield Pairs(self.users[part], self.items[part], self.click[part], self.weight[part])


@dataclass(frozen=True, eq=False)
class Triples:
    """A user, an item it clicked and one it did not, in the order they will be visited."""

    users: Indices
    items: Indices
    negatives: Indices

    def __len__(self) -> int:
        return len(self.users)

    def batches(self, size: int) -> Iterator["Triples"]:
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            yield Triples(self.users[part], self.items[part], self.negatives[part])


def draw_unclicked(clicks: Clicks, users: Indices, rng: np.random.Generator) -> Indices:
    """For each user of the list an item drawn uniformly from those it has not clicked.

    Rejection: draw from the catalogue, draw again where the pair was clicked. The users must
    have an unclicked item.
    """
    items = rng.integers(clicks.n_items, size=len(users), dtype=np.int32)
    rejected = np.flatnonzero(clicks.contain(users, items))
    while len(rejected):
        items[rejected] = rng.integers(clicks.n_items, size=len(rejected), dtype=np.int32)
        again = clicks.contain(users[rejected], items[rejected])
        rejected = rejected[again]
    return items


def sampled_pairs(
    clicks: Clicks, *, negatives: int, weighting: Weighting, rng: np.random.Generator
) -> Pairs:
    """Every click, and for each click this many unclicked items of the same user, shuffled.

    With weighting "unbiased" the weighted loss of the epoch is an unbiased estimate of the sum
    over all pairs: a user with n clicks among M items sends n·negatives draws for M − n
    unclicked pairs, so each stands for (M − n) / (n·negatives) of them.
    (A user without clicks is never drawn; its pairs are missing from either estimate.)
    """
    users, items, clicked = _shuffled_samples(clicks, negatives, pairs=True, rng=rng)
    weight = np.ones(len(users), dtype=np.float32)
    if weighting == "unbiased":
        n = np.maximum(clicks.user_counts, 1)
        stands_for = ((clicks.n_items - n) / (n * negatives)).astype(np.float32)
        weight = np.where(clicked, weight, stands_for[users])
    return Pairs(users, items, clicked.astype(np.float32), weight)


def sampled_triples(clicks: Clicks, *, negatives: int, rng: np.random.Generator) -> Triples:
    """Every click beside this many unclicked items of the same user, shuffled."""
    return Triples(*_shuffled_samples(clicks, negatives, pairs=False, rng=rng))


def all_pairs(clicks: Clicks, *, rng: np.random.Generator) -> Pairs:
    """Every pair of the matrix once, shuffled: exact, and users × items long."""
    keys = rng.permutation(clicks.n_users * clicks.n_items)
    users = (keys // clicks.n_items).astype(np.int32)
    items = (keys % clicks.n_items).astype(np.int32)
    click = clicks.contain(users, items).astype(np.float32)
    return Pairs(users, items, click, np.ones(len(keys), dtype=np.float32))


def _shuffled_samples(
    clicks: Clicks, negatives: int, *, pairs: bool, rng: np.random.Generator
) -> Iterator[Indices]:
    from unexposed import loops

    seed = rng.integers(2**64, dtype=np.uint64)
    log = (clicks.items, clicks.user_start, clicks.n_items)
    return iter(loops.samples(*log, negatives, pairs=pairs, seed=seed))
