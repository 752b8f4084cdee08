"""The small unbiased set that guides the exposure, built from the log itself."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.data import Clicks, Indices, Judgements, pair_keys
from unexposed.errors import InputError


@dataclass(frozen=True, eq=False)
class ValidationSet:
    """Pairs taken as surely exposed (m = 1), and whether each is relevant."""

    users: Indices
    items: Indices
    relevant: NDArray[np.bool_]

    def __post_init__(self) -> None:
        if not len(self.users) == len(self.items) == len(self.relevant):
            raise InputError("a validation set needs a user, an item and a relevance for each pair")
        if len(self.users) == 0:
            raise InputError("the validation set is empty: raise validation_users")

    def __len__(self) -> int:
        return len(self.users)

    def keys(self, n_items: int) -> NDArray[np.int64]:
        """One number for each pair, as in `Clicks.keys`."""
        return pair_keys(self.users, self.items, n_items)

    def shuffled(self, rng: np.random.Generator) -> "ValidationSet":
        """The same pairs in another order: parts of it taken in turn are then fair samples."""
        order = rng.permutation(len(self))
        return ValidationSet(self.users[order], self.items[order], self.relevant[order])

    def describe(self, clicks: Clicks) -> dict[str, Any]:
        """Its size, its users and items, and how popular its items are beside the catalogue's."""
        share = clicks.item_counts / max(clicks.item_counts.max(), 1)
        return {
            "pairs": len(self),
            "relevant": int(self.relevant.sum()),
            "users": len(np.unique(self.users)),
            "items": len(np.unique(self.items)),
            "popularity_of_relevant": float(share[self.items[self.relevant]].mean()),
            "popularity_of_irrelevant": float(share[self.items[~self.relevant]].mean()),
            "popularity_of_catalogue": float(share.mean()),
        }


def from_log(
    clicks: Clicks,
    *,
    users: float,
    items: int,
    disliked: tuple[Indices, Indices] | None = None,
) -> ValidationSet:
    """The most active users, each with its most popular clicked and unclicked items.

    `users` is the fraction of all users, by training clicks; `items` how many of either kind a
    user gives. Ties go to the lower index. `disliked` pairs (ratings below the threshold), where
    the log has them, take the place of the unclicked items for the users that have any.
    """
    order = np.argsort(-clicks.user_counts, kind="stable")
    chosen = np.sort(order[: max(1, int(len(order) * users))])
    chosen = chosen[clicks.user_counts[chosen] > 0]
    by_popularity = np.argsort(-clicks.item_counts, kind="stable").astype(np.int32)
    place = np.empty(clicks.n_items, dtype=np.int64)  # 0 for the most popular item
    place[by_popularity] = np.arange(clicks.n_items)
    dislikes = _by_user(disliked)
    out: list[tuple[int, int, bool]] = []
    for user in chosen.tolist():
        clicked = clicks.items[clicks.user_start[user] : clicks.user_start[user + 1]]
        liked = clicked[np.argsort(place[clicked])][:items]
        if user in dislikes:
            rejected = np.array(dislikes[user], dtype=np.int32)
            rejected = rejected[np.argsort(place[rejected])][:items]
        else:  # among the first items + clicked, at least `items` are unclicked, if there are any
            head = by_popularity[: items + len(clicked)]
            rejected = head[~np.isin(head, clicked)][:items]
        out += [(user, int(item), True) for item in liked]
        out += [(user, int(item), False) for item in rejected]
    table = np.array(out, dtype=np.int32).reshape(-1, 3)
    return ValidationSet(table[:, 0], table[:, 1], table[:, 2].astype(bool))


def from_random_traffic(judged: Judgements) -> ValidationSet:
    """Real random traffic in place of the self-built set, where a user has some to spend on it."""
    return ValidationSet(judged.users, judged.items, judged.relevant)


def _by_user(pairs: tuple[Indices, Indices] | None) -> dict[int, list[int]]:
    out: dict[int, list[int]] = {}
    if pairs is not None:
        for user, item in zip(*(p.tolist() for p in pairs), strict=True):
            out.setdefault(user, []).append(item)
    return out
