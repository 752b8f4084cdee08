"""Virtual partitions of the users, by raw id: what several processes divide among them."""

import json
from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from unexposed import ranks
from unexposed.data.ids import Ids, to_json

PARTITIONS = 64


def partitions(ids: Ids) -> NDArray[np.int64]:
    """The partition of each user, the same in every log that holds the user.

    A hash of the raw id: integers by the finaliser of splitmix64, anything else by BLAKE2 of its
    text, or of its JSON where it is not a text.
    """
    if ids.are_integers:
        return (_mixed(ids.values.astype(np.uint64)) % np.uint64(PARTITIONS)).astype(np.int64)
    texts = (raw if type(raw) is str else json.dumps(to_json(raw)) for raw in ids.values.tolist())
    return np.array([_hashed(text) % PARTITIONS for text in texts], dtype=np.int64)


def owned() -> range:
    """The partitions of this rank; of a process that is alone, all."""
    others = ranks.current()
    return range(PARTITIONS) if others is None else range(others.rank, PARTITIONS, others.size)


def own_rows(ids: Ids) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each partition of this rank with the rows of its users, ascending."""
    number_of = partitions(ids)
    order = np.argsort(number_of, kind="stable")
    ends = np.searchsorted(number_of[order], np.arange(PARTITIONS + 1))
    return ((number, order[ends[number] : ends[number + 1]]) for number in owned())


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x


def _hashed(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
