"""The small unbiased validation set that guides the exposure, built from the log itself."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Judgements
from unexposed.data.pairs import Indices, pair_keys
from unexposed.data.share import Share, before, smallest
from unexposed.errors import InputError
from unexposed.workers import Workers, in_all, summed

Negatives = Literal["popular", "drawn"]
BLOCK = 1 << 20  # draws that workers look up at a time


@dataclass(frozen=True, eq=False)
class ValidationSet:
    """Pairs assumed to be exposed (m = 1), and whether each is relevant.

    One of several workers has the pairs of its own users, `position` being the place of each, in
    ascending order, among the `total` pairs of all workers.
    """

    users: Indices
    items: Indices
    relevant: NDArray[np.bool_]
    position: NDArray[np.int64] | None = None  # (pairs,); None: there are no other workers
    total: int = 0  # where there is a position

    def __post_init__(self) -> None:
        if not len(self.users) == len(self.items) == len(self.relevant):
            raise InputError("a validation set needs a user, an item and a relevance for each pair")
        if self.n_pairs == 0:
            raise InputError("the validation set is empty: give pairs, or more clicks")

    def __len__(self) -> int:
        return len(self.users)

    @property
    def n_pairs(self) -> int:
        """How many pairs all workers have."""
        return len(self) if self.position is None else self.total

    def bounds(self, n_parts: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Where each of so many parts of all workers' pairs begins here, and what a pair counts.

        A part stands for all pairs, so its pairs count n / (pairs of the part).
        """
        first = self.n_pairs * np.arange(n_parts + 1) // n_parts
        scale = self.n_pairs / np.maximum(np.diff(first), 1)
        return (first if self.position is None else np.searchsorted(self.position, first)), scale

    def own(self, row: NDArray[np.int32]) -> "ValidationSet":
        """The pairs of one worker; row[u] is its row for user u, −1 for users of others."""
        at = np.flatnonzero(row[self.users] >= 0)
        return ValidationSet(
            row[self.users[at]], self.items[at], self.relevant[at], position=at, total=len(self)
        )

    def keys(self, n_items: int) -> NDArray[np.int64]:
        """One number for each pair, as in `Clicks.keys`."""
        return pair_keys(self.users, self.items, n_items)

    def part(self, begin: int, end: int) -> "ValidationSet":
        """The pairs from one place to another among the pairs of all workers."""
        if self.position is None:
            return self._pick(slice(begin, end))
        own = slice(*np.searchsorted(self.position, (begin, end)).tolist())
        return self._pick(own, position=self.position[own] - begin, total=end - begin)

    def shuffled(self, rng: np.random.Generator) -> "ValidationSet":
        """Shuffle the pairs, so that consecutive parts are random samples of the set."""
        order = rng.permutation(self.n_pairs)
        if self.position is None:
            return self._pick(order)
        is_own = np.zeros(self.n_pairs, dtype=bool)
        is_own[self.position] = True
        at = np.flatnonzero(is_own[order])
        own = np.searchsorted(self.position, order[at])
        return self._pick(own, position=at, total=self.total)

    def _pick(self, chosen: slice | NDArray[np.int64], **here: Any) -> "ValidationSet":
        return ValidationSet(self.users[chosen], self.items[chosen], self.relevant[chosen], **here)


def from_log(
    clicks: Clicks,
    *,
    users: float,
    items: int,
    negatives: Negatives = "popular",
    disliked: tuple[Indices, Indices] | None = None,
    rng: np.random.Generator | None = None,
    workers: Workers | None = None,
) -> ValidationSet:
    """The most active users, each with its most popular clicked items and as many unclicked ones.

    `users` is the fraction of all users, by training clicks; `items` how many of either kind a
    user gives, 0 for all that it clicked. The unclicked items are the most popular, or drawn in
    proportion to their clicks, so that they are as popular as clicked ones. Ties go to the lower
    index. `disliked` pairs (ratings below the threshold) replace the unclicked items of users who
    have any.
    """
    chosen = most_active(clicks, users, workers)
    by_popularity = np.argsort(-clicks.item_counts, kind="stable").astype(np.int32)
    place = np.empty(clicks.n_items, dtype=np.int64)  # 0 for the most popular item
    place[by_popularity] = np.arange(clicks.n_items)

    liked = _first(clicks.users, place[clicks.items], items) & chosen[clicks.users]
    pairs = [(clicks.users[liked], clicks.items[liked])]
    if disliked is not None:
        taken = _first(disliked[0], place[disliked[1]], items) & chosen[disliked[0]]
        pairs.append((disliked[0][taken], disliked[1][taken]))
        chosen[disliked[0]] = False
    if negatives == "drawn":
        pairs.append(_drawn(clicks, clicks.users[liked & chosen[clicks.users]], rng, workers))
    else:
        pairs.append(_most_popular(clicks, np.flatnonzero(chosen), items, by_popularity))
    relevant = np.repeat([True, False], [len(pairs[0][0]), sum(len(u) for u, _ in pairs[1:])])
    of, what = (np.concatenate(side).astype(np.int32) for side in zip(*pairs, strict=True))
    order = np.lexsort((~relevant, of))
    columns = of[order], what[order], relevant[order]
    if clicks.share is None:
        return ValidationSet(*columns)
    position = _places(columns[0], clicks.share, workers)
    return ValidationSet(*columns, position=position, total=in_all(len(position), workers))


def most_active(
    clicks: Clicks, fraction: float, workers: Workers | None = None
) -> NDArray[np.bool_]:
    """Which users are among this fraction of all, by their clicks; ties go to the lower index."""
    if clicks.share is not None:
        wanted = max(1, int(clicks.share.n_users * fraction))
        fewer = (clicks.n_items - clicks.user_counts).astype(np.uint64)
        return smallest(fewer, clicks.share.users, wanted, workers)
    order = np.argsort(-clicks.user_counts, kind="stable")
    chosen = np.zeros(clicks.n_users, dtype=bool)
    chosen[order[: max(1, int(len(order) * fraction))]] = True
    return chosen


def _places(users: Indices, share: Share, workers: Workers | None) -> NDArray[np.int64]:
    """The place of each pair among the pairs of all workers; both are ordered by user."""
    counts = np.bincount(users, minlength=len(share.users))
    first = before(counts, share.users, share.n_users, workers)
    return np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(len(users))


def _first(users: Indices, place: NDArray[np.int64], items: int) -> NDArray[np.bool_]:
    """Which pairs are among the first few of their user, by place; 0: all of them."""
    order = np.lexsort((place, users))
    start = np.searchsorted(users[order], users[order])  # where the pairs of its user begin
    out = np.empty(len(users), dtype=bool)
    out[order] = (np.arange(len(users)) - start < items) | (items == 0)
    return out


def _most_popular(
    clicks: Clicks, users: NDArray[np.int64], items: int, by_popularity: Indices
) -> tuple[Indices, Indices]:
    found: list[tuple[int, int]] = []
    for user in users.tolist():
        clicked = clicks.items[clicks.user_start[user] : clicks.user_start[user + 1]]
        if not len(clicked):
            continue
        wanted = items or len(clicked)
        head = by_popularity[: wanted + len(clicked)]  # holds that many unclicked, if there are any
        found += [(user, item) for item in head[~np.isin(head, clicked)][:wanted].tolist()]
    table = np.array(found, dtype=np.int32).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def _drawn(
    clicks: Clicks, users: Indices, rng: np.random.Generator | None, workers: Workers | None
) -> tuple[Indices, Indices]:
    """Draw an item for each entry in proportion to its clicks, and leave out clicked pairs."""
    rng = rng or np.random.default_rng(0)
    if clicks.share is None:
        items = rng.choice(clicks.items, len(users))
    else:
        places = _places(users, clicks.share, workers)
        items = _drawn_of_all(clicks, clicks.share, places, rng, workers)
    fresh = ~np.isin(pair_keys(users, items, clicks.n_items), clicks.keys)
    return users[fresh], items[fresh]


def _drawn_of_all(
    clicks: Clicks,
    share: Share,
    places: NDArray[np.int64],
    rng: np.random.Generator,
    workers: Workers | None,
) -> Indices:
    """The items at these places among all that one process would draw, block by block.

    Each worker fills in the items of its own clicks.
    """
    found, n = np.empty(len(places), dtype=np.int32), in_all(len(places), workers)
    with_clicks = np.flatnonzero(clicks.user_counts)
    first = np.concatenate([[-1], share.first_click[with_clicks]])  # −1: before all own clicks
    start, counts = (
        np.concatenate([[0], c[with_clicks]]) for c in (clicks.user_start, clicks.user_counts)
    )
    for begin in range(0, n, BLOCK):
        click = rng.integers(share.n_clicks, size=min(BLOCK, n - begin))
        at = np.searchsorted(first, click, side="right") - 1
        number = click - first[at]
        is_own = number < counts[at]
        items = np.zeros(len(click), dtype=np.int32)
        items[is_own] = clicks.items[(start[at] + number)[is_own]]
        items = summed(items, workers)
        own = slice(*np.searchsorted(places, (begin, begin + BLOCK)).tolist())
        found[own] = items[places[own] - begin]
    return found


def from_random_traffic(judged: Judgements) -> ValidationSet:
    """Take real random traffic in place of the set built from the log."""
    return ValidationSet(judged.users, judged.items, judged.relevant)
