"""The samples of an epoch: every click with the unclicked items drawn for it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks, Indices
from unexposed.sampling import draw

Weighting = Literal["none", "unbiased"]
Source = Literal["unclicked", "catalogue"]


@dataclass(frozen=True, eq=False)
class Samples:
    """Clicks with their drawn items, in the order of training.

    The items of click c are items[start[c] : start[c + 1]], the clicked one first. The pair of a
    click counts 1, each item drawn for it weight[c].
    """

    users: Indices  # (clicks,)
    start: NDArray[np.int64]  # (clicks + 1,)
    items: Indices  # (pairs,)
    weight: NDArray[np.float32]  # (clicks,)

    def __len__(self) -> int:
        return len(self.users)

    def batches(self, size: int) -> Iterator["Samples"]:
        """Cut into batches of `size` clicks, the last one shorter."""
        for first in range(0, len(self), size):
            part, start = slice(first, first + size), self.start[first : first + size + 1]
            items = self.items[start[0] : start[-1]]
            yield Samples(self.users[part], start - start[0], items, self.weight[part])

    def pairs(self) -> "SampledPairs":
        """These samples as single pairs."""
        each = np.diff(self.start)
        click = np.zeros(len(self.items), dtype=np.float32)
        click[self.start[:-1]] = 1
        weight = np.where(click > 0, np.float32(1), np.repeat(self.weight, each))
        return SampledPairs(np.repeat(self.users, each), self.items, click, weight)


@dataclass(frozen=True, eq=False)
class SampledPairs:
    """The pair of each click, and of each item drawn for it."""

    users: Indices
    items: Indices
    click: NDArray[np.float32]
    weight: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.users)


@dataclass(frozen=True)
class Drawing:
    """How an epoch is sampled: with drawn items for each click, or every pair."""

    negatives: int
    weighting: Weighting = "none"  # "unbiased" holds for the source "unclicked"
    every_pair: bool = False
    source: Source = "unclicked"

    def samples(self, clicks: Clicks, rng: np.random.Generator) -> Samples:
        """The samples of one epoch."""
        if self.every_pair:
            return every_pair(clicks, rng=rng)
        return drawn(
            clicks,
            negatives=self.negatives,
            weighting=self.weighting,
            source=self.source,
            rng=rng,
        )

    def weight(self, clicks: Clicks) -> NDArray[np.float32]:
        """The weight of a drawn item, for each user.

        A user with n clicks among M items has n·negatives draws for M − n unclicked pairs, so
        each draw stands for (M − n) / (n·negatives) pairs: the weighted loss of an epoch is then
        an unbiased estimate of the sum over all pairs. (A user without clicks is never visited,
        and both sums leave out its pairs.)
        """
        if self.weighting == "none" or self.every_pair:
            return np.ones(clicks.n_users, dtype=np.float32)
        n = np.maximum(clicks.user_counts, 1)
        return ((clicks.n_items - n) / (n * self.negatives)).astype(np.float32)

    def log_odds(self, clicks: Clicks) -> float:
        """The log-odds of a click among the weighted pairs of an epoch: log(clicks / Σ weights)."""
        n = clicks.user_counts
        left = (n > 0) * (clicks.n_items - n)  # the unclicked pairs of users with clicks
        if self.every_pair:
            weights = float(left.sum())
        else:
            finds = left > 0 if self.source == "unclicked" else n > 0
            weights = float((finds * n * self.negatives * self.weight(clicks)).sum())
        return float(np.log(len(clicks) / max(weights, 1)))  # 1: where everything is clicked


def drawn(
    clicks: Clicks,
    *,
    negatives: int,
    weighting: Weighting = "none",
    source: Source = "unclicked",
    rng: np.random.Generator,
) -> Samples:
    """Every click with this many items drawn for it, in random order.

    Drawn items are uniform on the items that the user has not clicked (none, for a user who
    clicked them all), or uniform on the catalogue.
    """
    seed = rng.integers(2**64, dtype=np.uint64)
    everything = source == "catalogue"
    users, items = draw.samples(
        clicks.items, clicks.user_start, clicks.n_items, negatives, everything, seed=seed
    )
    start: NDArray[Any] = np.arange(len(users) + 1, dtype=np.int64) * (1 + negatives)
    items = items.reshape(-1)
    if not everything and (clicks.user_counts == clicks.n_items).any():
        # −1: there was no item to draw
        there = items >= 0
        start = np.concatenate([[0], np.cumsum(there)])[start]
        items = items[there]
    weight = Drawing(negatives, weighting).weight(clicks)[users]
    return Samples(users, start, items, weight)


def every_pair(clicks: Clicks, *, rng: np.random.Generator) -> Samples:
    """Every click, the unclicked items of its user dealt out evenly, in random order.

    Exact, and users × items long. The pairs of users without clicks are left out.
    """
    order = rng.permutation(len(clicks))
    n = clicks.user_counts[clicks.users]
    number = np.arange(len(clicks)) - clicks.user_start[clicks.users]  # of a click of its user
    unclicked = clicks.n_items - n
    begin, end = number * unclicked // n, (number + 1) * unclicked // n  # its share of them
    start = np.concatenate([[0], np.cumsum((1 + end - begin)[order])])
    at = np.empty(len(clicks), dtype=np.int64)  # where the items of each click begin
    at[order] = start[:-1]
    items = np.empty(start[-1], dtype=np.int32)
    items[at] = clicks.items
    for user in np.flatnonzero(clicks.user_counts):
        of_user = slice(clicks.user_start[user], clicks.user_start[user + 1])
        is_unclicked = np.ones(clicks.n_items, dtype=bool)
        is_unclicked[clicks.items[of_user]] = False
        dealt = rng.permutation(np.flatnonzero(is_unclicked))
        share = (end - begin)[of_user]
        offset = np.arange(len(dealt)) - np.repeat(begin[of_user], share)
        items[np.repeat(at[of_user], share) + 1 + offset] = dealt
    users = clicks.users[order]
    return Samples(users, start, items, np.ones(len(users), dtype=np.float32))
