"""A folder of files, or the files that a pattern finds, as one table that is read part by part."""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from glob import glob
from itertools import accumulate
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

import polars as pl

from unexposed.data.delimited import Column, integers_if_canonical
from unexposed.errors import InputError, plain

PARQUET = (".parquet", ".pq")
LINES = (".jsonl", ".ndjson")
TEXT = (".csv", ".tsv", ".tab")
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # what Hive writes for a missing value


class File(Protocol):
    """A table of one file."""

    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> list[str]: ...
    def take(self, names: list[str]) -> list[Column]: ...
    def spells(self, name: str) -> bool: ...
    def where(self, row: int) -> str: ...


@dataclass(frozen=True)
class Part:
    """A file of a log, with the columns that its path names: day=2024-01-31/part.parquet."""

    file: File
    hive: dict[str, str]
    first: str  # name of the part that stands for all others

    @property
    def name(self) -> str:
        return self.file.name

    @property
    def columns(self) -> list[str]:
        own = list(self.file.columns)
        return own + [name for name in self.hive if name not in own]

    def take(self, names: list[str]) -> list[Column]:
        for name in names:
            if name not in self.columns:
                raise InputError(
                    f"{self.name} has no column {name!r}, which {self.first} has: "
                    "give parts of one log"
                )
        own = [name for name in names if name in self.file.columns]
        wanted = own or self.file.columns[:1]  # which tells the number of rows
        taken = dict(zip(wanted, self.file.take(wanted), strict=True))
        n = len(next(iter(taken.values())))
        return [taken[name] if name in own else _constant(self.hive[name], n) for name in names]

    has_header = False

    def parts(self) -> Iterator["Part"]:
        yield self

    def spells(self, name: str) -> bool:
        return name not in self.file.columns or self.file.spells(name)

    def where(self, row: int) -> str:
        return self.file.where(row)


class Parts:
    """Files with the same columns as one table; `parts` opens them one after the other."""

    def __init__(self, name: str, paths: list[Path], open_file: Callable[[Path], File]) -> None:
        self.name = name
        self.paths, self._open = paths, open_file
        self.first = ""  # name of the part that stands for all others
        self._ends: list[int] = []
        first = next(self.parts())
        self.first, self.columns = first.name, first.columns
        self._spelled = {name for name in first.columns if first.spells(name)}

    has_header = False

    def parts(self) -> Iterator[Part]:
        for path in self.paths:
            yield Part(self._open(path), hive_columns(path), self.first)

    def take(self, names: list[str]) -> list[Column]:
        """Whole columns of all parts: for tables that are small."""
        taken = [part.take(names) for part in self.parts()]
        self._ends = list(accumulate(len(columns[0]) for columns in taken))
        return [
            _joined([columns[n] for columns in taken], spelled=self.spells(name))
            for n, name in enumerate(names)
        ]

    def spells(self, name: str) -> bool:
        return name in self._spelled

    def where(self, row: int) -> str:
        """The file and the row of the last columns taken."""
        at = bisect_right(self._ends, row)
        part = Part(self._open(self.paths[at]), {}, self.first)
        return f"{part.name}, {part.where(row - (self._ends[at - 1] if at else 0))}"


def files_of_folder(folder: Path) -> list[Path]:
    """The files of a folder and the folders in it, by name; hidden ones and _SUCCESS are none."""
    found = []
    for path in folder.rglob("*"):
        below = path.relative_to(folder).parts
        if path.is_file() and not any(name.startswith((".", "_")) for name in below):
            found.append(path)
    kinds = {kind: [p for p in found if is_kind(p, kind)] for kind in (PARQUET, LINES, TEXT)}
    several = [paths for paths in kinds.values() if paths]
    name = plain(folder)
    if not several:
        raise InputError(
            f"{name} is a folder without Parquet, CSV, TSV or JSON lines files: give a folder of "
            "parts, or the path of a file"
        )
    if len(several) > 1:
        some = " and ".join(paths[0].name for paths in several)
        raise InputError(
            f"{name} holds files of several kinds ({plain(some, 200)}): give a pattern such as "
            f"'{name}/*{several[0][0].suffix}'"
        )
    return sorted(several[0], key=str)


def files_of_pattern(pattern: str) -> list[Path]:
    """The files that a pattern with *, ? or [ ] finds, by name."""
    found = sorted(path for name in glob(pattern, recursive=True) if (path := Path(name)).is_file())
    if not found:
        where = plain(Path.cwd())
        raise InputError(f"{plain(pattern)} finds no file; relative paths start at {where}")
    return sorted(found, key=str)


def is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def is_kind(path: Path, suffixes: tuple[str, ...]) -> bool:
    packed = suffixes is not PARQUET
    name = path.name.lower()
    return (name.removesuffix(".gz") if packed else name).endswith(suffixes)


def hive_columns(path: Path) -> dict[str, str]:
    """Columns that folders name, such as day=2024-01-31, with the value of each."""
    pairs = (name.partition("=") for name in path.parts[:-1])
    return {unquote(name): unquote(value) for name, sign, value in pairs if sign and name}


def _constant(value: str, n: int) -> pl.Series:
    text = None if value == NO_PARTITION else value
    return integers_if_canonical(pl.Series([text], dtype=pl.String)).new_from_index(0, n)


def _joined(columns: list[Column], *, spelled: bool) -> Column:
    series = [column for column in columns if isinstance(column, pl.Series)]
    if len(series) == len(columns):
        if len({column.dtype for column in series}) == 1:
            return pl.concat(series, rechunk=True)
        if spelled:
            return pl.concat([column.cast(pl.String) for column in series], rechunk=True)
    return [value for column in columns for value in column]
