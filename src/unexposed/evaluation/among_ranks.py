"""Judged users divided among ranks: each ranks items for some of them, and all know the result.

Outside a process group nothing here does anything.
"""

import numpy as np

from unexposed import ranks
from unexposed.data.labelled import Judgements
from unexposed.data.pairs import Indices
from unexposed.ranking.metrics import Ranking


def own(judged: Judgements) -> Judgements:
    """The judgements of this rank's users."""
    others = ranks.current()
    return judged if others is None else judged.pick(judged.users % others.size == others.rank)


def own_users(users: Indices) -> Indices:
    """The users of this rank, of all that are evaluated."""
    others = ranks.current()
    return users if others is None else users[users % others.size == others.rank]


def joined(users: Indices, ranking: Ranking) -> tuple[Indices, Ranking]:
    """The users of all ranks, ascending, and the ranks of their relevant items."""
    others = ranks.current()
    if others is None:
        return users, ranking
    found = others.every((users, ranking))
    every = np.concatenate([one for one, _ in found])
    place = [np.searchsorted(np.sort(every), one) for one, _ in found]
    parts = [part for _, part in found]
    return np.sort(every), Ranking.from_pairs(
        np.concatenate([at[part.users] for at, part in zip(place, parts, strict=True)]),
        np.concatenate([part.ranks for part in parts]),
        np.concatenate([part.items for part in parts]),
        n_candidates=np.concatenate([part.n_candidates for part in parts])[np.argsort(every)],
        weights=np.concatenate([part.weights for part in parts]),
    )


def joined_lists(users: Indices, lists: Indices) -> Indices:
    """The lists of all ranks, (users, k), in the order of their users."""
    others = ranks.current()
    if others is None:
        return lists
    found = others.every((users, lists))
    order = np.argsort(np.concatenate([one for one, _ in found]))
    return np.concatenate([rows for _, rows in found])[order]
