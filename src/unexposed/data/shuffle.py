"""The shuffle of a divided reading: every row of a log goes to the rank that owns its user."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from unexposed.data.about import Summary
from unexposed.data.encode import ids_of, of_kind
from unexposed.data.moments import Moments, to_seconds
from unexposed.data.numbering import Numbering, all_ids, no_ids, packed, unpacked
from unexposed.data.rows import Part, Rows
from unexposed.data.share import owner
from unexposed.ranks import Ranks

FEW = 1 << 20  # ids of users that may wait for their numbers
BLOCK = 1 << 18  # rows that are merged at a time
TYPES = {
    "users": np.int32,  # place among the ids that travel with them, later the user's number
    "items": np.int32,  # the sender's number, later the place among all items
    "clicked": np.bool_,
    "times": np.int64,  # of the clicked rows alone
    "counts": np.int64,
    "propensity": np.float64,
}
Columns = dict[str, NDArray[Any]]


@dataclass
class Chunk:
    """Rows of own users that a rank has sent from one file, in the order of the file."""

    file: int
    sender: int
    ids: pl.Series | None  # of the users; None: they have their numbers
    columns: Columns


class Shuffle:
    """Sends the rows that this rank has read to their owners, and keeps the rows of own users.

    Every rank makes the same calls. Rows travel with a number instead of the item's id: each rank
    numbers the items that it has read, and tells the others at the end.
    """

    def __init__(self, ranks: Ranks, *, users: str, items: str, columns: list[str]) -> None:
        self._ranks = ranks
        self._kinds = users, items  # of the ids
        self._names = columns  # of TYPES
        self._users, self._items = Numbering(users), Numbering(items)
        self._chunks: list[Chunk] = []
        self._every = no_ids(items)  # items of all ranks

    def send(self, part: Part | None, files: list[int | None]) -> None:
        """Send a part, or nothing, and keep what comes from these files, one of each rank."""
        ids, columns, lengths = self._sorted(part)
        runs = self._ranks.exchanged(np.concatenate(ids), [len(run) for run in ids])
        come = {n: self._ranks.exchanged(columns[n], lengths[n]) for n in self._names}
        for sender, file in enumerate(files):
            if file is not None:
                own = {name: values[sender] for name, values in come.items()}
                self._chunks.append(Chunk(file, sender, unpacked(runs[sender]), own))
        waiting = sum(len(chunk.ids) for chunk in self._chunks if chunk.ids is not None)
        if waiting > max(FEW, len(self._users)):
            self._number_users()

    def _sorted(
        self, part: Part | None
    ) -> tuple[list[NDArray[Any]], Columns, dict[str, list[int]]]:
        """Ids of users for each rank; clicks and impressions by rank, and how many go to each."""
        size, (kind, item_kind) = self._ranks.size, self._kinds
        if part is None or len(part.clicked) == 0:
            nothing: Columns = {name: np.empty(0, dtype=TYPES[name]) for name in self._names}
            return [packed(no_ids(kind))] * size, nothing, dict.fromkeys(self._names, [0] * size)
        values = of_kind(cast(pl.Series, part.users.values), kind)
        owners = owner(ids_of(values), size).astype(np.uint16)  # fast to sort by
        ids = [packed(values.filter(pl.Series(owners == rank))) for rank in range(size)]
        place = np.empty(len(values), dtype=np.int32)  # of a user among the ids of its owner
        for rank in range(size):
            own = np.flatnonzero(owners == rank)
            place[own] = np.arange(len(own), dtype=np.int32)
        numbers = self._items.add(of_kind(cast(pl.Series, part.items.values), item_kind))
        rows = np.flatnonzero(part.clicked | part.shown)
        to = owners[part.users.codes[rows]]
        order = np.argsort(to, kind="stable")
        rows, to = rows[order], to[order]
        clicked = part.clicked[rows]
        columns: Columns = {
            "users": place[part.users.codes[rows]],
            "items": numbers[part.items.codes[rows]],
            "clicked": clicked,
        }
        lengths = dict.fromkeys(self._names, np.bincount(to, minlength=size).tolist())
        if "times" in self._names:
            found = np.empty(0, dtype=np.int64)
            if isinstance(part.times, Moments):
                found = part.times.values[(np.cumsum(part.clicked) - 1)[rows[clicked]]]
            columns["times"] = found
            lengths["times"] = np.bincount(to[clicked][: len(found)], minlength=size).tolist()
        for name, whole in (("counts", part.counts), ("propensity", part.propensity)):
            if whole is not None:
                columns[name] = whole[rows]
        return ids, columns, lengths

    def _number_users(self) -> None:
        waiting = [chunk for chunk in self._chunks if chunk.ids is not None]
        if not waiting:
            return
        ids = [cast(pl.Series, chunk.ids) for chunk in waiting]
        numbers, start = self._users.add(pl.concat(ids)), 0
        for chunk, of_chunk in zip(waiting, ids, strict=True):
            chunk.ids = None
            chunk.columns["users"] = numbers[start : start + len(of_chunk)][chunk.columns["users"]]
            start += len(of_chunk)

    @property
    def n_rows(self) -> int:
        """How many rows of own users have come."""
        return sum(len(chunk.columns["users"]) for chunk in self._chunks)

    @property
    def users(self) -> pl.Series:
        """The ids of own users, ascending: of all parts, once all are sent."""
        self._number_users()
        return self._users.values

    def blocks(self, told: Summary) -> Iterator[Rows]:
        """The rows of some own users after another, each in the order of files.

        Merging the rows of a pair takes several times their memory, and so is done block by block.
        """
        users = self.users
        ids = ids_of(users), ids_of(self._every)
        chunks, self._chunks = sorted(self._chunks, key=lambda chunk: chunk.file), []
        place, rows_of = self._users.places(users), np.zeros(len(users), dtype=np.int64)
        for chunk in chunks:
            chunk.columns["users"] = place[chunk.columns["users"]]
            np.add.at(rows_of, chunk.columns["users"], 1)
        block = np.cumsum(rows_of) // BLOCK  # of each user
        n_blocks = int(block[-1]) + 1 if len(block) else 1
        parts = []
        while chunks:  # freed one after the other
            parts.append(_by_block(chunks.pop(0).columns, block, n_blocks))
        for n in range(n_blocks):
            columns = _joined(self._names, [cut[n] for cut in parts])
            times = columns.get("times")
            yield Rows(
                columns["users"],
                columns["items"],
                *ids,
                columns["clicked"],
                ~columns["clicked"],
                columns.get("counts"),
                None if told.unit is None or times is None else to_seconds(times, told.unit),
                columns.get("propensity"),
            )

    def number_items(self) -> int:
        """Put places among all items for the numbers of the senders; how many items there are."""
        self._every = all_ids(self._items.values, self._ranks)
        own = self._items.places(self._every)
        for sender in range(self._ranks.size):
            places = self._ranks.told(own, sender)
            for chunk in self._chunks:
                if chunk.sender == sender:
                    chunk.columns["items"] = places[chunk.columns["items"]]
        return len(self._every)


def _by_block(columns: Columns, block: NDArray[np.int64], n_blocks: int) -> list[Columns]:
    """The rows of each block of users, in their order."""
    of_row = block[columns["users"]]
    order = np.argsort(of_row, kind="stable")
    cuts = np.searchsorted(of_row[order], np.arange(1, n_blocks))
    number = np.cumsum(columns["clicked"]) - 1  # of a clicked row among all of them
    clicked = columns["clicked"][order]
    parts = {}
    for name, values in columns.items():
        if name == "times" and len(values):
            times = values[number[order[clicked]]]
            parts[name] = np.split(times, np.searchsorted(np.flatnonzero(clicked), cuts))
        else:
            parts[name] = np.split(values[order] if len(values) else values, cuts)
    return [{name: found[n] for name, found in parts.items()} for n in range(n_blocks)]


def _joined(names: list[str], parts: list[Columns]) -> Columns:
    """Columns of these rows, one part after the other."""
    return {
        name: np.concatenate([np.empty(0, dtype=TYPES[name]), *(part[name] for part in parts)])
        for name in names
    }
