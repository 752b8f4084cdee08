"""Scores by blocks of users, so that users × items is never held; how ties are broken."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks, Indices

Block = NDArray[np.float32]  # users of a block × all items
Scores = Callable[[Indices], Block]

BLOCK_ENTRIES = 4_000_000  # scores held at a time: memory stays bounded for any catalogue


def blocks(score: Any, users: Indices, clicks: Clicks) -> Iterator[tuple[slice, Block]]:
    """Scores by blocks of users, so that users × items is never held."""
    size = max(1, BLOCK_ENTRIES // max(clicks.n_items, 1))
    for start in range(0, len(users), size):
        part = slice(start, min(start + size, len(users)))
        yield part, score(users[part])


def pairs_from_rows(rows: Any, users: Indices, items: Indices) -> NDArray[np.float32]:
    """The entry of each pair, from a function that gives whole rows, by blocks of users."""
    distinct, place = np.unique(users, return_inverse=True)
    order = np.argsort(place, kind="stable")
    size = max(1, BLOCK_ENTRIES // max(rows(users[:0]).shape[1], 1))
    out = np.empty(len(users), dtype=np.float32)
    for start in range(0, len(distinct), size):
        first, stop = np.searchsorted(place, (start, start + size), sorter=order)
        here = order[first:stop]
        out[here] = rows(distinct[start : start + size])[place[here] - start, items[here]]
    return out


def tie_break(users: NDArray[Any], items: NDArray[Any]) -> NDArray[np.uint64]:
    """The order of equally scored items: a fixed hash of the pair, smaller first.

    It knows nothing of popularity or of the order of the catalogue, and is the same for every
    method, so that ties favour none.
    """
    return pair_hash(users, items, salt=0x5EED)


def pair_hash(users: NDArray[Any], items: NDArray[Any], *, salt: int) -> NDArray[np.uint64]:
    """Evenly spread 64-bit numbers, one for each pair (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        x = np.asarray(users).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x = x + np.asarray(items).astype(np.uint64) * np.uint64(0xD1B54A32D192ED03)
        x = x + np.uint64(salt % 2**64) * np.uint64(0x8CB92BA72F3D8DD7)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x
