"""What one of several ranks holds of a click log: its own users, and what it knows of the rest.

A user belongs to one rank, with all clicks (see `partitions`). Users and clicks keep the numbers
that they have in the whole log, as one process would read it, so that ranks draw and count as one
process does.
"""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from unexposed.data.ids import Ids
from unexposed.data.partitions import partitions
from unexposed.errors import InputError
from unexposed.ranks import Ranks, together

if TYPE_CHECKING:
    from unexposed.data.clicks import Clicks

BLOCK = 1 << 20  # users whose clicks are counted at a time, so that no rank holds a count of all


@dataclass(frozen=True, eq=False)
class Share:
    """Where the users and clicks of this rank stand in the whole log.

    In the whole log, clicks are numbered by user and item: those of own user u are
    first_click[u], first_click[u] + 1, …
    """

    n_users: int  # of the whole log
    n_clicks: int  # pairs of the whole log
    users: NDArray[np.int64]  # (own users,): the index of each in the whole log, ascending
    first_click: NDArray[np.int64]  # (own users,)
    item_counts: NDArray[np.int64]  # (items,): how many users of the whole log clicked each

    def check(self, n_users: int, n_items: int) -> None:
        """Refuse the share of other users or items than these."""
        if not len(self.users) == len(self.first_click) == n_users:
            raise InputError("a share of clicks must know the place of each of its users")
        if len(self.item_counts) != n_items:
            raise InputError("a share of clicks must count every item of the whole log")


def owner(user_ids: Ids, size: int) -> NDArray[np.int64]:
    """The rank of so many that each user belongs to."""
    return partitions(user_ids) % size


def cut(clicks: "Clicks", ranks: Ranks) -> "Clicks":
    """This rank's own part of a log that every rank holds whole: no rank waits for another."""
    clicks = clicks.checked()
    if clicks.share is not None:
        raise InputError("these clicks are divided among ranks already: cut a whole log")
    users = np.flatnonzero(owner(clicks.user_ids, ranks.size) == ranks.rank)
    place = np.full(clicks.n_users, -1, dtype=np.int32)  # of an own user among them
    place[users] = np.arange(len(users), dtype=np.int32)
    chosen, user_ids = place[clicks.users] >= 0, Ids(clicks.user_ids.values[users])
    shown = clicks.shown
    if shown is not None:
        shown = shown.pick(place[shown.users] >= 0)
        shown = replace(shown, users=place[shown.users], user_ids=user_ids)
    return replace(
        clicks,
        users=place[clicks.users[chosen]],
        items=clicks.items[chosen],
        counts=clicks.counts[chosen],
        user_ids=user_ids,
        times=None if clicks.times is None else clicks.times[chosen],
        shown=shown,
        share=Share(
            clicks.n_users, len(clicks), users, clicks.user_start[users], clicks.item_counts
        ),
    )


def counted(own: "Clicks", users: NDArray[np.int64], n_users: int, ranks: Ranks) -> "Clicks":
    """Clicks of own users with their share of the whole log, counted by all ranks together.

    `users` are the indices of the own users among all n_users of the whole log, ascending.
    """
    items = np.bincount(own.items, minlength=own.n_items)
    item_counts = ranks.sum(items)
    first_click = np.empty(len(users), dtype=np.int64)
    before = 0  # clicks of the users before the block
    own_counts = np.bincount(own.users, minlength=len(users))
    for start in range(0, n_users, BLOCK):
        here = slice(*np.searchsorted(users, [start, start + BLOCK]))
        block = np.zeros(min(BLOCK, n_users - start), dtype=np.int64)
        block[users[here] - start] = own_counts[here]
        block = ranks.sum(block)
        first_click[here] = before + (np.cumsum(block) - block)[users[here] - start]
        before += int(block.sum())
    return replace(own, share=Share(n_users, before, users, first_click, item_counts))


def counted_again(own: "Clicks", share: Share) -> "Clicks":
    """Other clicks of the users of a share, counted by all ranks together."""
    with together() as ranks:
        if ranks is None:
            raise InputError(
                "clicks that ranks have divided are chosen by all of them at once: do it on every "
                "rank, in their process group"
            )
        return counted(own, share.users, share.n_users, ranks)
