"""The samples of an epoch: every click with the unclicked items drawn for it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.pairs import Indices
from unexposed.errors import InputError
from unexposed.sampling import draw, draw_own
from unexposed.sampling.draw import EVEN, Chances, Pool, chances
from unexposed.sampling.marks import Marks
from unexposed.workers import Workers, summed

Weighting = Literal["none", "unbiased"]
Source = Literal["unclicked", "catalogue", "shown"]
LEAST_LEFT = 1e-3  # of the chances of a user's unclicked items: below, the host draws for a GPU


class Batches(NamedTuple):
    """How samples are cut into steps."""

    bounds: NDArray[np.int64]  # (batches + 1,): where the clicks of each batch begin
    n_clicks: NDArray[np.int64]  # (batches,): clicks of a batch, which its loss is divided by
    before: NDArray[np.int64]  # (batches,): steps of the training before each


@dataclass(frozen=True, eq=False)
class Samples:
    """Clicks with their drawn items, in the order of training.

    The items of click c are items[start[c] : start[c + 1]], the clicked one first. The pair of a
    click counts 1, each item i drawn for it weight[c]·item_weight[i], unless `marks` say otherwise.

    One of several workers has the clicks of its own users, `position` being the place of each, in
    ascending order, among the `total` clicks of all workers.
    """

    users: Indices  # (clicks,)
    start: NDArray[np.int64]  # (clicks + 1,)
    items: Indices  # (pairs,)
    weight: NDArray[np.float32]  # (clicks,)
    item_weight: NDArray[np.float32] | None = None  # (all items,); None: 1 for each
    marks: Marks | None = None  # label, weight and exposure of each pair
    position: NDArray[np.int64] | None = None  # (clicks,); None: there are no other workers
    total: int = 0  # where there is a position

    def __len__(self) -> int:
        return len(self.users)

    @property
    def n_clicks(self) -> int:
        """How many clicks all workers have."""
        return len(self) if self.position is None else self.total

    def bounds(self, size: int) -> NDArray[np.int64]:
        """Where batches of `size` clicks of all workers begin here, and the last one ends."""
        first = np.arange(0, self.n_clicks + size, size).clip(max=self.n_clicks)
        if len(first) > 1 and first[-2] == first[-1]:
            first = first[:-1]
        return first if self.position is None else np.searchsorted(self.position, first)

    def steps(self, size: int, before: int) -> Batches:
        """Batches of `size` clicks of all workers, the last one shorter, after so many steps."""
        bounds = self.bounds(size)
        number = np.arange(len(bounds) - 1)
        return Batches(bounds, np.minimum(size, self.n_clicks - size * number), before + number)

    def batches(self, size: int) -> Iterator["Samples"]:
        """Cut into batches of `size` clicks of all workers, the last one shorter."""
        for number, (first, stop) in enumerate(pairwise(self.bounds(size).tolist())):
            here: dict[str, Any] = {}
            if self.position is not None:
                here["position"] = self.position[first:stop] - number * size
                here["total"] = min(size, self.total - number * size)
            yield self._part(first, stop, **here)

    def parts(self, batches: Batches) -> Iterator["Samples"]:
        """The samples of each of these batches."""
        totals = batches.n_clicks.tolist()
        for (first, stop), total in zip(pairwise(batches.bounds.tolist()), totals, strict=True):
            yield self._part(first, stop, position=np.arange(stop - first), total=total)

    def _part(self, first: int, stop: int, **here: Any) -> "Samples":
        start = self.start[first : stop + 1]
        pairs = slice(start[0], start[-1])
        columns = self.users[first:stop], start - start[0], self.items[pairs]
        marks = None if self.marks is None else self.marks.part(pairs)
        return Samples(*columns, self.weight[first:stop], self.item_weight, marks, **here)

    def own(self, row: NDArray[np.int32]) -> "Samples":
        """The clicks of one worker; row[u] is its row for user u, −1 for users of others."""
        chosen = row[self.users] >= 0
        own, at = self.pick(chosen), np.flatnonzero(chosen)
        return replace(own, users=row[own.users], position=at, total=len(self))

    def pick(self, chosen: NDArray[np.bool_]) -> "Samples":
        """Some of the clicks, each with its drawn items."""
        each = np.diff(self.start)
        start = np.concatenate([[0], np.cumsum(each[chosen])])
        of_pairs = np.repeat(chosen, each)
        marks = None if self.marks is None else self.marks.part(of_pairs)
        columns = self.users[chosen], start, self.items[of_pairs], self.weight[chosen]
        return Samples(*columns, self.item_weight, marks)

    def pairs(self) -> "SampledPairs":
        """These samples as single pairs."""
        each = np.diff(self.start)
        if self.marks is not None:
            columns = self.marks.click, self.marks.weight, self.marks.exposure
            return SampledPairs(np.repeat(self.users, each), self.items, *columns)
        click = np.zeros(len(self.items), dtype=np.float32)
        click[self.start[:-1]] = 1
        weight = np.repeat(self.weight, each)
        if self.item_weight is not None:
            weight *= self.item_weight[self.items]
        weight = np.where(click > 0, np.float32(1), weight)
        return SampledPairs(np.repeat(self.users, each), self.items, click, weight)


@dataclass(frozen=True, eq=False)
class SampledPairs:
    """The pair of each click, and of each item drawn for it."""

    users: Indices
    items: Indices
    click: NDArray[np.float32]
    weight: NDArray[np.float32]
    exposure: NDArray[np.float32] | None = None  # given m, NaN for the model's own; None: no m is

    def __len__(self) -> int:
        return len(self.users)


class Log(Protocol):
    """What chances and weights need to know of a click log, on the host or on a GPU."""

    @property
    def n_users(self) -> int: ...

    @property
    def n_items(self) -> int: ...

    @property
    def user_counts(self) -> NDArray[np.int64]: ...

    @property
    def item_counts(self) -> NDArray[np.int64]: ...

    def sum_by_user(self, values: NDArray[np.float64]) -> NDArray[np.float64]: ...


@dataclass(frozen=True)
class Drawing:
    """How an epoch is sampled: with drawn items for each click, or every pair."""

    negatives: int
    weighting: Weighting = "none"  # "unbiased" holds for the source "unclicked"
    every_pair: bool = False
    source: Source = "unclicked"  # "shown": from a pool; a user without one as "unclicked"
    exponent: float = 0.0  # items are drawn in proportion to clicks^exponent

    def sampler(self, clicks: Clicks, pairs: tuple[Indices, Indices] | None = None) -> "Sampler":
        """What draws the epochs of this log; `pairs`, ordered, are what "shown" draws from."""
        if clicks.share is not None and (self.every_pair or pairs is not None):
            raise InputError(
                "several workers draw negatives from the unclicked items or the catalogue: use "
                "pairs=sampled without negatives_from=shown, or train in one process"
            )
        law = self.law(clicks)
        pool = None if pairs is None else Pool.of(*pairs, n_users=clicks.n_users, law=law)
        return Sampler(self, clicks, law, self.weight(clicks, law), self.item_weight(law), pool)

    def samples(self, clicks: Clicks, rng: np.random.Generator) -> Samples:
        """The samples of one epoch."""
        return self.sampler(clicks).draw(rng)

    def law(self, clicks: Log) -> Chances:
        """The chances that items are drawn by; nothing is counted where all are alike."""
        if self.every_pair or self.exponent == 0:
            return EVEN
        return chances(clicks.item_counts, self.exponent)

    def weight(self, clicks: Log, law: Chances) -> NDArray[np.float32]:
        """The weight of a drawn item, for each user, apart from the item's own weight.

        Draws by the chances q hit an unclicked item i of a user with n clicks n·negatives·q_i/Z
        times, Z being the sum of q over what the user has not clicked. A draw of i stands for
        1 / that many pairs, Z·M/(n·negatives) times 1/(M·q_i) among M items, so that the
        weighted loss of an epoch is an unbiased estimate of the sum over all pairs. Where q = 1/M
        the first is (M − n) / (n·negatives), the second 1. (A user without clicks is never
        visited, and both sums leave out its pairs.)
        """
        if self.weighting == "none" or self.every_pair:
            return np.ones(clicks.n_users, dtype=np.float32)
        n = np.maximum(clicks.user_counts, 1)
        return (unclicked(clicks, law) / (n * self.negatives)).astype(np.float32)

    def item_weight(self, law: Chances) -> NDArray[np.float32] | None:
        """1/(M·q): the weight that a drawn item has for any user (see `weight`)."""
        if self.weighting == "none" or law.uniform:
            return None
        return (1 / (len(law.of_item) * law.of_item)).astype(np.float32)

    def expected_weight(self, clicks: Clicks, users: Indices) -> NDArray[np.float32]:
        """Expected weight of an unclicked pair in the loss of an epoch: (users, 1), or by item.

        Without weights a pair counts as often as it is expected to be drawn, n·negatives·q_i/Z.
        """
        if self.every_pair or self.weighting == "unbiased":
            return np.ones((len(users), 1), dtype=np.float32)
        law = self.law(clicks)
        drawn = (clicks.user_counts * self.negatives)[users, None]
        share = unclicked(clicks, law) if self.source == "unclicked" else clicks.n_items
        each = drawn / np.maximum(np.broadcast_to(share, clicks.n_users)[users, None], 1e-9)
        if not law.uniform:
            each = each * clicks.n_items * law.of_item
        return each.astype(np.float32)

    def log_odds(self, clicks: Clicks, workers: Workers | None = None) -> float:
        """The log-odds of a click among the weighted pairs of an epoch: log(clicks / Σ weights)."""
        n = clicks.user_counts
        left = (n > 0) * (clicks.n_items - n)  # the unclicked pairs of users with clicks
        finds = left > 0 if self.source == "unclicked" else n > 0
        own = np.array([len(clicks), left.sum(), (finds * n).sum()])
        n_clicks, n_left, n_found = summed(own, workers)
        weights = float(n_left)
        if not self.every_pair and self.weighting == "none":
            weights = float(n_found) * self.negatives
        return float(np.log(n_clicks / max(weights, 1)))  # 1: where everything is clicked


def unclicked(clicks: Log, law: Chances) -> NDArray[Any]:
    """Z·M: the chance that a draw gives what the user has not clicked, times the items.

    The chances are 1 less those of the clicked items: no table of users × items is made.
    """
    if law.uniform:
        return clicks.n_items - np.maximum(clicks.user_counts, 1)
    left = np.maximum(1 - clicks.sum_by_user(law.of_item), 0) * clicks.n_items
    return np.where(clicks.user_counts < clicks.n_items, left, 0)


@dataclass(frozen=True, eq=False)
class Sampler:
    """Draws the epochs of a log; what they share is computed once."""

    drawing: Drawing
    clicks: Clicks
    law: Chances
    weight: NDArray[np.float32]  # (users,)
    item_weight: NDArray[np.float32] | None  # (items,)
    pool: Pool | None = None

    def rejects_few(self) -> bool:
        """Whether drawing until an item is unclicked, as a GPU does, takes a bounded time."""
        if self.drawing.every_pair or self.pool is not None:
            return False
        if self.law.uniform or self.drawing.source == "catalogue":
            return True
        left = unclicked(self.clicks, self.law)[self.clicks.user_counts < self.clicks.n_items]
        return bool(left.min(initial=np.inf) >= LEAST_LEFT * self.clicks.n_items)

    def draw(self, rng: np.random.Generator) -> Samples:
        """The samples of the next epoch."""
        if self.drawing.every_pair:
            return every_pair(self.clicks, rng=rng)
        users, start, items, here = drawn_pairs(
            self.clicks, self.drawing.negatives, self.drawing.source, self.law, rng
        )
        if self.pool is not None:
            items = self.pool.redrawn(users, start, items, rng)
        return Samples(users, start, items, self.weight[users], self.item_weight, **here)


def drawn(clicks: Clicks, *, negatives: int, rng: np.random.Generator) -> Samples:
    """Every click with items that its user has not clicked, all as likely, in random order."""
    return Drawing(negatives).samples(clicks, rng)


def drawn_pairs(
    clicks: Clicks, negatives: int, source: Source, law: Chances, rng: np.random.Generator
) -> tuple[Indices, NDArray[np.int64], Indices, dict[str, Any]]:
    """Every click with this many items drawn for it, in random order: `Samples` without weights.

    Items are drawn from those that the user has not clicked (none, for a user who clicked them
    all), or from the catalogue. One of several workers has its own clicks, and where they stand.
    """
    seed = rng.integers(2**64, dtype=np.uint64)
    everything, here = source == "catalogue", dict[str, Any]()
    log = clicks.items, clicks.user_start, clicks.n_items
    if clicks.share is None:
        users, items = draw.samples(*log, negatives, everything, law=law, seed=seed)
    else:
        users, items, position = draw_own.own_samples(
            *log, negatives, everything, share=clicks.share, law=law, seed=seed
        )
        here = {"position": position, "total": clicks.share.n_clicks}
    start: NDArray[Any] = np.arange(len(users) + 1, dtype=np.int64) * (1 + negatives)
    items = items.reshape(-1)
    if not everything and (clicks.user_counts == clicks.n_items).any():
        # −1: there was no item to draw
        there = items >= 0
        start = np.concatenate([[0], np.cumsum(there)])[start]
        items = items[there]
    return users, start, items, here


def samples_alone(
    clicks: Clicks,
    drawing: Drawing,
    law: Chances,
    *,
    epochs: int,
    steps: int,  # of an epoch of the training
    batch_size: int,
    seed: int,
) -> tuple[Samples, Batches]:
    """Epochs of new users, each drawn as if it were alone, spread over the steps of a training.

    Every click of an epoch goes to a random one of its steps. What is drawn for a user depends on
    their own clicks alone.
    """
    everything = drawing.source == "catalogue" and not drawing.every_pair
    counts = clicks.user_counts
    left = clicks.n_items - counts * (not everything)
    number = np.arange(len(clicks)) - clicks.user_start[clicks.users]  # of a click of its user
    n, unclicked = counts[clicks.users], left[clicks.users]
    if drawing.every_pair:
        each = 1 + (number + 1) * unclicked // n - number * unclicked // n
    else:
        each = 1 + drawing.negatives * (unclicked > 0)
    each = np.tile(each, epochs)
    start = np.concatenate([[0], np.cumsum(each)])
    items, step = np.empty(start[-1], dtype=np.int32), np.empty((epochs, len(clicks)), np.int64)
    log = clicks.items, clicks.user_start, clicks.n_items
    kind = everything, drawing.every_pair
    draw.fill_alone(items, step, start, *log, *kind, law, steps, np.uint64(seed))
    taken = (step + steps * np.arange(epochs)[:, None]).reshape(-1)  # before each click
    order = np.argsort(taken, kind="stable")
    sorted_start = np.concatenate([[0], np.cumsum(each[order])])
    at = np.repeat(start[:-1][order] - sorted_start[:-1], each[order]) + np.arange(len(items))
    before, first = np.unique(taken[order], return_index=True)
    bounds, users = np.append(first, len(order)), np.tile(clicks.users, epochs)[order]
    weight = drawing.weight(clicks, law)[users]
    samples = Samples(users, sorted_start, items[at], weight, drawing.item_weight(law))
    return samples, Batches(bounds, np.full(len(before), batch_size), before)


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
