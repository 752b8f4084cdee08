"""Virtual partitions of the users, by raw id: what several processes divide among them."""

import json
from collections.abc import Iterator
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from unexposed.data.ids import Ids, to_json
from unexposed.workers import Workers

PARTITIONS = 64


def partitions(ids: Ids) -> NDArray[np.int64]:
    """The partition of each user, the same in every log that holds the user.

    A hash of the raw id: integers by the finaliser of splitmix64, anything else by BLAKE2 of its
    text, or of its JSON where it is not a text.
    """
    if ids.are_integers:
        return (mixed(ids.values.astype(np.uint64)) % np.uint64(PARTITIONS)).astype(np.int64)
    texts = (raw if type(raw) is str else json.dumps(to_json(raw)) for raw in ids.values.tolist())
    return np.array([_hashed(text) % PARTITIONS for text in texts], dtype=np.int64)


def partitions_among(known: Ids, raw: Ids) -> NDArray[np.int64]:
    """The partition of each raw id in a log that has such users, whatever else is asked for.

    An integer counts as one among integers only: with others it is hashed as its text.
    """
    if known.are_integers and not raw.are_integers:
        found = partitions(raw)
        whole = [n for n, one in enumerate(raw.values.tolist()) if _is_integer(one)]
        found[whole] = partitions(Ids.of(raw.values[whole].tolist()))
        return found
    if raw.are_integers and not known.are_integers:
        values = np.empty(len(raw), dtype=object)
        values[:] = raw.values.tolist()
        return partitions(Ids(values))
    return partitions(raw)


def owned(workers: Workers | None) -> range:
    """The partitions of this worker; of a process that is alone, all."""
    return range(PARTITIONS) if workers is None else range(workers.number, PARTITIONS, workers.size)


def own_rows(ids: Ids, workers: Workers | None) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each partition of this worker with the rows of its users, ascending."""
    return rows_by(partitions(ids), workers)


def rows_by(
    number_of: NDArray[np.int64], workers: Workers | None
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each partition of this worker with the places where it is named."""
    order = np.argsort(number_of, kind="stable")
    ends = np.searchsorted(number_of[order], np.arange(PARTITIONS + 1))
    return ((number, order[ends[number] : ends[number + 1]]) for number in owned(workers))


def _is_integer(raw: object) -> bool:
    return type(raw) is int and -(2**63) <= raw < 2**63


def mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x


def _hashed(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
