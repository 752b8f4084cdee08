"""Score users in blocks, so that users × items is never held; break ties by a fixed hash."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.pairs import Indices

Block = NDArray[np.float32]  # (users of the block, all items)
Scores = Callable[[Indices], Block]

BLOCK_ENTRIES = 4_000_000  # scores held at a time: memory stays bounded for any catalogue


def parts(n_users: int, n_items: int, *, entries: int | None = None) -> Iterator[slice]:
    """Slices of users, each with at most `entries` scores (or one user)."""
    size = max(1, (entries or BLOCK_ENTRIES) // max(n_items, 1))
    for start in range(0, n_users, size):
        yield slice(start, min(start + size, n_users))


def blocks(score: Any, users: Indices, clicks: Clicks) -> Iterator[tuple[slice, Block]]:
    """Each slice of the users with its scores."""
    for part in parts(len(users), clicks.n_items):
        yield part, score(users[part])


def in_whole(clicks: Clicks, users: Indices) -> Indices:
    """The index of each user in the whole log, which breaks ties, where ranks divide the log."""
    return users if clicks.share is None else clicks.share.users[users].astype(np.int32)


def pairs_from_rows(rows: Any, users: Indices, items: Indices) -> NDArray[np.float32]:
    """Look up the entry of each pair, given a function that returns whole rows."""
    distinct, place = np.unique(users, return_inverse=True)
    order = np.argsort(place, kind="stable")
    out = np.empty(len(users), dtype=np.float32)
    for part in parts(len(distinct), rows(users[:0]).shape[1]):
        first, stop = np.searchsorted(place, (part.start, part.stop), sorter=order)
        here = order[first:stop]
        out[here] = rows(distinct[part])[place[here] - part.start, items[here]]
    return out


def tie_break(users: NDArray[Any], items: NDArray[Any]) -> NDArray[np.uint64]:
    """Rank equally scored items by a fixed hash of the pair, smaller first.

    The hash depends neither on popularity nor on the order of the catalogue, and every method
    uses the same one, so ties favour no item and no method.
    """
    return pair_hash(users, items, salt=0x5EED)


def pair_hash(users: NDArray[Any], items: NDArray[Any], *, salt: int) -> NDArray[np.uint64]:
    """Hash each pair to a uniform 64-bit number (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        x = np.asarray(users).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = x + np.asarray(items).astype(np.uint64) * np.uint64(0xD1B54A32D192ED03)
        x = x + np.uint64(salt % 2**64) * np.uint64(0x8CB92BA72F3D8DD7)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x
