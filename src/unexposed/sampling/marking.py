"""Mark the samples of an epoch: known exposures, random traffic, weights of clicks."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.data.labelled import Traffic
from unexposed.data.pairs import Indices
from unexposed.sampling.marks import Marks, PairTable, Reals
from unexposed.sampling.samples import Samples


@dataclass(frozen=True, eq=False)
class Marking:
    """What is known of single pairs, and how it enters the loss of an epoch.

    A pair of the random traffic counts once, as the traffic says: m = 1, with the traffic's weight.
    An item drawn for a click counts 0 where the pair is in the traffic.
    So the loss of an epoch is Σ over other pairs of the log's loss + weight·Σ over the traffic.
    """

    known: PairTable | None = None  # the given exposure of pairs
    click_weight: PairTable | None = None  # of clicked pairs; 1 without
    traffic: Traffic | None = None
    traffic_weight: float = 1.0
    negatives: int = 0  # above 0: the loss compares pairs, so many for each relevant one

    @property
    def pairwise(self) -> bool:
        return self.negatives > 0

    def mark(self, samples: Samples, rng: np.random.Generator) -> Samples:
        """The samples with their marks, and with the traffic among them in random order."""
        pairs = samples.pairs()
        weight, first = pairs.weight.copy(), samples.start[:-1]
        if self.click_weight is not None:
            of_click = self.click_weight.look_up(samples.users, samples.items[first])
            of_click = np.where(np.isnan(of_click), np.float32(1), of_click)
            if self.pairwise:
                weight *= np.repeat(of_click, np.diff(samples.start))
            else:
                weight[first] = of_click
        exposure = np.full(len(weight), np.nan, dtype=np.float32)
        if self.known is not None:
            exposure = self.known.look_up(pairs.users, pairs.items)
        if self.traffic is None:
            return _with(samples, Marks(pairs.click, weight, exposure))
        judged = ~np.isnan(self._judged.look_up(pairs.users, pairs.items))
        weight[(pairs.click == 0) & judged] = 0
        marked = _with(samples, Marks(pairs.click, weight, exposure))
        return _shuffled_in(marked, self._of_traffic(self.traffic, rng), rng)

    @cached_property
    def _judged(self) -> PairTable:
        t = self.traffic
        assert t is not None
        return PairTable.of(t.users, t.items, t.relevant, n_users=len(t.user_ids))

    def _of_traffic(self, traffic: Traffic, rng: np.random.Generator) -> Samples:
        if self.pairwise:
            return _compared(traffic, self.negatives, self.traffic_weight, rng)
        order = rng.permutation(len(traffic))
        ones = np.ones(len(traffic), dtype=np.float32)
        label = traffic.relevant[order].astype(np.float32)
        marks = Marks(label, np.float32(self.traffic_weight) * ones, ones)
        start = np.arange(len(traffic) + 1, dtype=np.int64)
        users, items = traffic.users[order], traffic.items[order]
        return Samples(users, start, items, ones, marks=marks)


def _with(samples: Samples, marks: Marks) -> Samples:
    return replace(samples, item_weight=None, marks=marks)


def _compared(traffic: Traffic, negatives: int, weight: float, rng: np.random.Generator) -> Samples:
    """Each relevant pair with items drawn from the user's irrelevant ones, in random order.

    A user without a relevant or without an irrelevant pair has nothing to compare.
    """
    bad = np.flatnonzero(~traffic.relevant)
    n_users = len(traffic.user_ids)
    start = np.searchsorted(traffic.users[bad], np.arange(n_users + 1))
    good = np.flatnonzero(traffic.relevant)
    good = rng.permutation(good[np.diff(start)[traffic.users[good]] > 0])
    users: Indices = traffic.users[good]
    low, high = start[users], start[users + 1]
    at = rng.integers(low[:, None], high[:, None], size=(len(good), negatives))
    items = np.concatenate([traffic.items[good][:, None], traffic.items[bad][at]], axis=1)
    label = np.zeros(items.shape, dtype=np.float32)
    label[:, 0] = 1
    ones: Reals = np.ones(items.size, dtype=np.float32)
    return Samples(
        users,
        np.arange(len(good) + 1, dtype=np.int64) * (1 + negatives),
        items.reshape(-1).astype(np.int32),
        np.ones(len(good), dtype=np.float32),
        marks=Marks(label.reshape(-1), np.float32(weight) * ones, ones),
    )


def _shuffled_in(one: Samples, other: Samples, rng: np.random.Generator) -> Samples:
    """Both samples, the clicks of the other at random places; either keeps its own order."""
    assert one.marks is not None
    assert other.marks is not None
    of_other = rng.permutation(len(one) + len(other)) < len(other)
    each = np.empty(len(of_other), dtype=np.int64)
    each[of_other], each[~of_other] = np.diff(other.start), np.diff(one.start)
    pair_of_other = np.repeat(of_other, each)

    def merged(where: NDArray[np.bool_], left: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
        found = np.empty(len(where), dtype=left.dtype)
        found[where], found[~where] = right, left
        return found

    columns = (
        merged(pair_of_other, getattr(one.marks, name), getattr(other.marks, name))
        for name in ("click", "weight", "exposure")
    )
    return Samples(
        merged(of_other, one.users, other.users),
        np.concatenate([[0], np.cumsum(each)]),
        merged(pair_of_other, one.items, other.items),
        merged(of_other, one.weight, other.weight),
        marks=Marks(*columns),
    )
