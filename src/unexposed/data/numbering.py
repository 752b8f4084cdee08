"""Numbers for the raw ids of a log that comes part by part, and their way between ranks.

Ids are integers or texts: a polars series of int64 or strings. Their order is by value, as one
process sorts them.
"""

from io import BytesIO
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from unexposed.data.encode import places_of
from unexposed.data.pairs import Indices
from unexposed.ranks import Ranks

BLOCK = 1 << 20  # ids that travel at a time, so that no rank holds those of another


class Numbering:
    """Distinct ids, ascending, with a number each that stays the same when more ids come."""

    def __init__(self, kind: str) -> None:
        self.values = no_ids(kind)
        self._numbers = np.empty(0, dtype=np.int32)  # of the values

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, ids: pl.Series) -> Indices:
        """The number of each of these ids; new ids get the next numbers."""
        every = pl.concat([self.values, ids]).unique().sort()
        numbers = np.full(len(every), -1, dtype=np.int32)
        numbers[places_of(self.values, every)] = self._numbers
        new = numbers < 0
        numbers[new] = np.arange(len(self), len(every), dtype=np.int32)
        self.values, self._numbers = every, numbers
        return numbers[places_of(ids, every)]

    def places(self, every: pl.Series) -> Indices:
        """By number, the place of each id among all of these, which are ascending."""
        found = np.empty(len(self), dtype=np.int32)
        found[self._numbers] = places_of(self.values, every)
        return found


def no_ids(kind: str) -> pl.Series:
    return pl.Series([], dtype=pl.Int64 if kind == "integers" else pl.String)


def packed(ids: pl.Series) -> NDArray[Any]:
    """Ids as an array that can travel: int64, or the bytes of texts in Arrow's format."""
    if ids.dtype == pl.Int64:
        return ids.to_numpy()
    stream = BytesIO()
    ids.to_frame("").write_ipc_stream(stream)
    return np.frombuffer(stream.getbuffer(), dtype=np.uint8)


def unpacked(array: NDArray[Any]) -> pl.Series:
    """The ids that `packed` gave."""
    if array.dtype == np.int64:
        return pl.Series("", array)
    return pl.read_ipc_stream(BytesIO(array.tobytes())).to_series()


def all_ids(own: pl.Series, ranks: Ranks) -> pl.Series:
    """The distinct ids that any rank has, ascending: on every rank."""
    every = own
    for sender in range(ranks.size):
        every = pl.concat([every, unpacked(ranks.told(packed(own), sender))]).unique()
    return every.sort()


def places_among_all(own: pl.Series, ranks: Ranks) -> tuple[NDArray[np.int64], int]:
    """The index of each own id among the ids of all ranks, and how many there are.

    Own ids ascend, and no other rank has any of them. An id's index is its place among the own
    ones, plus how many smaller ids the others have: these pass by in blocks.
    """
    sizes = ranks.every(len(own))
    before = np.zeros(len(own) + 1, dtype=np.int64)  # ids of others between two own ones
    for sender, size in enumerate(sizes):
        for start in range(0, size, BLOCK):
            block = unpacked(ranks.told(packed(own[start : start + BLOCK]), sender))
            if sender != ranks.rank and len(own):
                gaps, ids = np.unique(own.search_sorted(block).to_numpy(), return_counts=True)
                before[gaps] += ids
    return np.arange(len(own)) + np.cumsum(before)[:-1], sum(sizes)
