"""A log read by several ranks: each reads some of the files, and keeps the clicks of its users.

Rank 0 lists the files and decides what is what, as one process does. Then every rank reads its
files one after the other; after each, the rows go to the owners of their users (`shuffle`). So a
rank holds its share of the rows, one file, and the ids of items, but never the ids of all users.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from unexposed.data import database
from unexposed.data.about import About, summary
from unexposed.data.clicks import Clicks
from unexposed.data.columns import Columns
from unexposed.data.encode import joint_kind
from unexposed.data.logged import check_log, clicks_of_blocks
from unexposed.data.numbering import places_among_all
from unexposed.data.parts import Part as FileOfLog
from unexposed.data.parts import Parts, hive_columns
from unexposed.data.plan import Plan, plan_of
from unexposed.data.rows import Part, about, check_room, read_part
from unexposed.data.share import counted
from unexposed.data.shuffle import Shuffle
from unexposed.data.sources import Files, Table, is_paths, opened, refusing
from unexposed.errors import InputError, plain
from unexposed.ranks import Ranks, together


@dataclass(frozen=True)
class Listing:
    """The files of a log, and how to read them: what rank 0 tells the others."""

    name: str
    paths: list[Path]
    first: str | None  # name of the part that stands for all; None: the log is one file
    plan: Plan
    delimiter: str | None
    dealt: list[list[int]]  # the files of each rank, by number

    def file(self, rank: int, turn: int) -> int | None:
        """The file that a rank reads in a turn."""
        return self.dealt[rank][turn] if turn < len(self.dealt[rank]) else None


def divides(source: Any) -> bool:
    """Whether ranks divide the reading of this source: files, but no pipe, frame or database."""
    if isinstance(source, str | PathLike):
        return str(source) != "-" and not database.is_address(str(source))
    return is_paths(source)


def read_divided(
    source: Any, asked: Columns, *, delimiter: str | None = None, any_size: bool = False
) -> Clicks:
    """This rank's own part of the clicks of a log; every rank calls it, in their process group."""
    with together() as ranks:
        assert ranks is not None
        listing = ranks.led(lambda: _listing(source, asked, delimiter, ranks.size))
        shuffle, parts = _shuffled(listing, ranks)
        told = summary(listing.name, parts, listing.plan)
        check_room(listing.name, shuffle.n_rows, told.rows)
        users, n_users = places_among_all(shuffle.users, ranks)
        n_items = shuffle.number_items()
        sizes = {"n_users": n_users, "n_items": n_items}
        check_log(listing.name, told, listing.plan, **sizes, any_size=any_size)
        own = clicks_of_blocks(listing.name, shuffle.blocks(told), told, listing.plan)
        own = counted(own, users, n_users, ranks)
        assert own.read is not None
        return replace(own, read=replace(own.read, pairs=own.n_clicks))


def dealt(sizes: Sequence[int], n_ranks: int) -> list[list[int]]:
    """Which files each rank reads, so that all read about as many bytes."""
    load, found = [0] * n_ranks, [list[int]() for _ in range(n_ranks)]
    for file in sorted(range(len(sizes)), key=lambda file: -sizes[file]):
        rank = load.index(min(load))
        load[rank] += sizes[file]
        found[rank].append(file)
    return [sorted(files) for files in found]


def _listing(source: Any, asked: Columns, delimiter: str | None, n_ranks: int) -> Listing:
    with opened(source, delimiter) as table:
        plan = plan_of(table, asked)
        paths: list[Path]
        first: str | None
        if isinstance(table, Parts):
            paths, first = table.paths, table.first
        else:
            paths, first = [Path(source)], None
        sizes = [path.stat().st_size for path in paths]
        return Listing(table.name, paths, first, plan, delimiter, dealt(sizes, n_ranks))


def _shuffled(listing: Listing, ranks: Ranks) -> tuple[Shuffle, list[About]]:
    """The rows of own users, and what each file tells about the log.

    The owner of a user depends on whether ids are integers or texts, which a later file of a CSV
    log may decide: then all files are read once more.
    """
    texts = set[str]()  # roles of columns that turned out to be texts
    while True:
        shuffle, parts = _read(listing, ranks, texts)
        if shuffle is not None:
            return shuffle, parts


def _read(listing: Listing, ranks: Ranks, texts: set[str]) -> tuple[Shuffle | None, list[About]]:
    told, kinds, shuffle = dict[int, About](), dict[str, str](), None
    columns = [_COLUMNS[role] for role in listing.plan.columns if role in _COLUMNS]
    with ExitStack() as stack:
        files = Files(listing.delimiter, stack)
        for turn in range(max(map(len, listing.dealt))):
            here = [listing.file(rank, turn) for rank in range(ranks.size)]
            part = _part(listing, files, here[ranks.rank])
            found = ranks.every(None if part is None else about(part))
            told |= {
                file: of for file, of in zip(here, found, strict=True) if file is not None and of
            }
            now = _kinds([told[file] for file in sorted(told)], listing, texts)
            if not now:
                continue  # no row yet
            if kinds and (other := {role for role in now if now[role] != kinds[role]}):
                texts |= other
                return None, []
            kinds = now
            shuffle = shuffle or Shuffle(ranks, **kinds, columns=["clicked", *columns])
            shuffle.send(part, here)
    empty = Shuffle(ranks, users="integers", items="integers", columns=columns)
    return shuffle or empty, [told[file] for file in sorted(told)]


_COLUMNS = {
    "user": "users",
    "item": "items",
    "time": "times",
    "count": "counts",
    "propensity": "propensity",
}


def _part(listing: Listing, files: Files, file: int | None) -> Part | None:
    if file is None:
        return None
    path = listing.paths[file]
    with refusing(path):
        table: Table = files.open_part(path)
        if listing.first is not None:
            table = FileOfLog(table, hive_columns(path), listing.first)
        return read_part(table, listing.plan)


def _kinds(parts: list[About], listing: Listing, texts: set[str]) -> dict[str, str]:
    """Whether users and items are integers or texts, as far as the parts with rows tell."""
    found = {}
    for role, name in (("users", "user"), ("items", "item")):
        column, kinds = listing.plan.columns[name], [getattr(part, role) for part in parts]
        kinds = [kind for kind in kinds if kind.rows]
        for kind in kinds:
            if kind.kind == "objects":
                raise InputError(
                    f"column {plain(column)!r} of {kind.part} holds other ids than 64-bit integers "
                    "or texts, which several ranks cannot divide: write them as texts"
                )
        if kinds:
            found[role] = "texts" if role in texts else joint_kind(kinds, column)
    return found
