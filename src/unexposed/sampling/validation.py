"""The small unbiased validation set that guides the exposure, built from the log itself."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks, Indices, Judgements, pair_keys
from unexposed.errors import InputError

Negatives = Literal["popular", "drawn"]


@dataclass(frozen=True, eq=False)
class ValidationSet:
    """Pairs assumed to be exposed (m = 1), and whether each is relevant.

    One of several ranks has the pairs of its own users, `position` being the place of each, in
    ascending order, among the `total` pairs of all ranks.
    """

    users: Indices
    items: Indices
    relevant: NDArray[np.bool_]
    position: NDArray[np.int64] | None = None  # (pairs,); None: there are no other ranks
    total: int = 0  # where there is a position

    def __post_init__(self) -> None:
        if not len(self.users) == len(self.items) == len(self.relevant):
            raise InputError("a validation set needs a user, an item and a relevance for each pair")
        if self.n_pairs == 0:
            raise InputError("the validation set is empty: raise validation_users")

    def __len__(self) -> int:
        return len(self.users)

    @property
    def n_pairs(self) -> int:
        """How many pairs all ranks have."""
        return len(self) if self.position is None else self.total

    def bounds(self, n_parts: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Where each of so many parts of all ranks' pairs begins here, and what a pair counts.

        A part stands for all pairs, so its pairs count n / (pairs of the part).
        """
        first = self.n_pairs * np.arange(n_parts + 1) // n_parts
        scale = self.n_pairs / np.maximum(np.diff(first), 1)
        return (first if self.position is None else np.searchsorted(self.position, first)), scale

    def own(self, row: NDArray[np.int32]) -> "ValidationSet":
        """The pairs of one rank, row[u] being its row for user u, −1 for users of other ranks."""
        at = np.flatnonzero(row[self.users] >= 0)
        return ValidationSet(
            row[self.users[at]], self.items[at], self.relevant[at], position=at, total=len(self)
        )

    def keys(self, n_items: int) -> NDArray[np.int64]:
        """One number for each pair, as in `Clicks.keys`."""
        return pair_keys(self.users, self.items, n_items)

    def pick(self, mask: slice) -> "ValidationSet":
        """A part of the pairs."""
        return ValidationSet(self.users[mask], self.items[mask], self.relevant[mask])

    def shuffled(self, rng: np.random.Generator) -> "ValidationSet":
        """Shuffle the pairs, so that consecutive parts are random samples of the set."""
        order = rng.permutation(len(self))
        return ValidationSet(self.users[order], self.items[order], self.relevant[order])


def from_log(
    clicks: Clicks,
    *,
    users: float,
    items: int,
    negatives: Negatives = "popular",
    disliked: tuple[Indices, Indices] | None = None,
    rng: np.random.Generator | None = None,
) -> ValidationSet:
    """The most active users, each with its most popular clicked items and as many unclicked ones.

    `users` is the fraction of all users, by training clicks; `items` how many of either kind a
    user gives, 0 for all that it clicked. The unclicked items are the most popular, or drawn in
    proportion to their clicks, so that they are as popular as clicked ones. Ties go to the lower
    index. `disliked` pairs (ratings below the threshold) replace the unclicked items of users who
    have any.
    """
    order = np.argsort(-clicks.user_counts, kind="stable")
    chosen = np.zeros(clicks.n_users, dtype=bool)
    chosen[order[: max(1, int(len(order) * users))]] = True
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
        pairs.append(_drawn(clicks, clicks.users[liked & chosen[clicks.users]], rng))
    else:
        pairs.append(_most_popular(clicks, np.flatnonzero(chosen), items, by_popularity))
    relevant = np.repeat([True, False], [len(pairs[0][0]), sum(len(u) for u, _ in pairs[1:])])
    of, what = (np.concatenate(side).astype(np.int32) for side in zip(*pairs, strict=True))
    order = np.lexsort((~relevant, of))
    return ValidationSet(of[order], what[order], relevant[order])


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
    clicks: Clicks, users: Indices, rng: np.random.Generator | None
) -> tuple[Indices, Indices]:
    """Draw an item for each entry in proportion to its clicks, and leave out clicked pairs."""
    rng = rng or np.random.default_rng(0)
    items = rng.choice(clicks.items, len(users))
    fresh = ~np.isin(pair_keys(users, items, clicks.n_items), clicks.keys)
    return users[fresh], items[fresh]


def from_random_traffic(judged: Judgements) -> ValidationSet:
    """Take real random traffic in place of the set built from the log."""
    return ValidationSet(judged.users, judged.items, judged.relevant)
