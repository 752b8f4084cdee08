"""Turn columns of raw ids into ids and indices, part by part where a table has parts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from unexposed import memory
from unexposed.data.clicks import Indices
from unexposed.data.delimited import Column
from unexposed.data.ids import Ids
from unexposed.data.sources import Table, bad_row
from unexposed.errors import InputError, plain

Values = pl.Series | list[Any]  # int64 or strings, otherwise objects
Refused = Callable[[int, str], InputError]  # of a row, for a fault
BYTES_OF_AN_ID = 160  # besides its text, twice: sorted, hashed, and as a Python object


@dataclass(frozen=True)
class Coded:
    """A column of a part: its distinct values, sorted where they can be, and each row's index."""

    values: Values
    codes: Indices
    spelled: bool  # its integers were read from text, whose spelling they keep
    part: str  # where it comes from

    @property
    def kind(self) -> str:
        """What the values are: integers, texts or objects."""
        if isinstance(self.values, list):
            return "objects"
        return "integers" if self.values.dtype == pl.Int64 else "texts"


@dataclass(frozen=True)
class Kind:
    """What the column of a part tells about the ids of all parts."""

    rows: int
    kind: str
    spelled: bool
    part: str

    @staticmethod
    def of(part: Coded) -> "Kind":
        return Kind(len(part.codes), part.kind, part.spelled, part.part)


def encode_pairs(
    table: Table, columns: list[Column], names: list[str]
) -> list[tuple[Ids, Indices]]:
    if len(columns[0]) == 0:
        raise no_rows(table.name)
    return [encode(table, columns.pop(0), name) for name in names]  # popped: freed once encoded


def no_rows(name: str) -> InputError:
    return InputError(f"{name} has no rows: write a user and an item in each")


def encode(table: Table, column: Column, name: str) -> tuple[Ids, Indices]:
    """The distinct ids of a column, sorted where they can be, and each row's index among them."""
    return merged(table.name, [coded(table, column, name)], name)


def coded(table: Table, column: Column, name: str, rows: NDArray[np.int64] | None = None) -> Coded:
    """The column of a part, whose rows are all of the part's, or these."""

    def refused(row: int, fault: str) -> InputError:
        return bad_row(table, row if rows is None else int(rows[row]), fault)

    values, codes = _distinct(table.name, _id_column(column), name, refused)
    return Coded(values, codes, spelled=table.spells(name), part=table.name)


def _distinct(source: str, column: Column, name: str, refused: Refused) -> tuple[Values, Indices]:
    if isinstance(column, list):
        return _distinct_objects(column, name, refused)
    missing = column.is_null() if column.dtype == pl.Int64 else column.is_null() | (column == "")
    for row in missing.arg_true().head(1):
        raise refused(row, f"the id in column {name!r} is missing; fill it in")
    values = column.unique()
    if column.dtype == pl.String:
        _check_room(source, values, name)
    values = values.sort()
    return values, places_of(column, values)


def merged(source: str, parts: Sequence[Coded], name: str) -> tuple[Ids, Indices]:
    """The ids of all parts of a column, and each row's index among them."""
    parts = [part for part in parts if len(part.codes)] or parts[:1]
    if len(parts) == 1:
        return ids_of(parts[0].values), parts[0].codes
    kind = joint_kind([Kind.of(part) for part in parts], name)
    if kind == "objects":
        every, places = _merged_objects([list(part.values) for part in parts])
    else:
        kept = [cast(pl.Series, part.values) for part in parts]
        every, places = _merged_series(source, [of_kind(v, kind) for v in kept], name)
    codes = [place[part.codes] for place, part in zip(places, parts, strict=True)]
    return ids_of(every), np.concatenate(codes)


def joint_kind(parts: Sequence[Kind], name: str) -> str:
    """What the ids of all parts of a column are, empty ones left out; refused where they differ.

    Integers beside texts are texts where they were read from text: one part of a CSV log may hold
    no other ids than numbers.
    """
    parts = [part for part in parts if part.rows] or parts[:1]
    kinds = {part.kind for part in parts}
    if kinds == {"integers", "texts"} and all(part.spelled for part in parts):
        return "texts"
    if "texts" in kinds and len(kinds) > 1:
        raise _unlike(parts, name)
    return "integers" if kinds == {"integers"} else "texts" if kinds == {"texts"} else "objects"


def of_kind(values: pl.Series, kind: str) -> pl.Series:
    """Integers as texts, where all ids of the column are texts."""
    return values.cast(pl.String) if kind == "texts" else values


def _merged_series(source: str, parts: list[pl.Series], name: str) -> tuple[Values, list[Indices]]:
    several = pl.concat(parts, rechunk=True)
    every = several.unique()
    if every.dtype == pl.String:
        _check_room(source, every, name)
    every = every.sort()
    places = places_of(several, every)
    return every, np.split(places, np.cumsum([len(part) for part in parts])[:-1])


def places_of(column: pl.Series, values: pl.Series) -> Indices:
    """The index of each row among sorted values."""
    if column.dtype == pl.Int64:
        return values.search_sorted(column).cast(pl.Int32).to_numpy()
    # by hashing: half the time of sorting
    return column.cast(pl.Enum(values)).to_physical().cast(pl.Int32).to_numpy()


def _merged_objects(parts: list[list[Any]]) -> tuple[Values, list[Indices]]:
    every = _sorted_if_possible(list(dict.fromkeys(raw for part in parts for raw in part)))
    place = {raw: index for index, raw in enumerate(every)}
    return every, [np.array([place[raw] for raw in part], dtype=np.int32) for part in parts]


def _unlike(parts: Sequence[Kind], name: str) -> InputError:
    first = parts[0]
    other = next(part for part in parts if part.kind != first.kind)
    return InputError(
        f"column {plain(name)!r} holds {first.kind} in {first.part} and "
        f"{other.kind} in {other.part}: write it alike in all parts"
    )


def ids_of(values: Values) -> Ids:
    """Distinct values as ids."""
    if isinstance(values, pl.Series) and values.dtype == pl.Int64:
        return Ids(values.to_numpy())
    return Ids(np.fromiter(values, dtype=object, count=len(values)))


def _check_room(source: str, values: pl.Series, name: str) -> None:
    memory.check(
        source,
        len(values) * BYTES_OF_AN_ID + 2 * int(values.estimated_size()),
        what=f"holding {len(values):,} ids of column {name!r}",
        cure="give a log of fewer",
    )


def _distinct_objects(column: list[Any], name: str, refused: Refused) -> tuple[Values, Indices]:
    place: dict[Any, int] = {}
    codes = np.empty(len(column), dtype=np.int32)
    for row, raw in enumerate(column):
        if raw is None or (isinstance(raw, float | str) and (raw == "" or raw != raw)):
            raise refused(row, f"the id in column {name!r} is missing; fill it in")
        try:
            codes[row] = place.setdefault(raw, len(place))
        except TypeError:
            fault = f"the {type(raw).__name__} in column {name!r} cannot be an id; make it a tuple"
            raise refused(row, fault) from None
    ids = _sorted_if_possible(list(place))
    rank = np.empty(len(ids), dtype=np.int32)
    rank[[place[raw] for raw in ids]] = np.arange(len(ids))
    return ids, rank[codes]


def _sorted_if_possible(raw: list[Any]) -> list[Any]:
    """The ids sorted; ids of several kinds stay in the order of their first appearance."""
    try:
        return sorted(raw)
    except TypeError:
        return raw


def _id_column(column: Column) -> Column:
    """The column as int64 or strings where all values are, otherwise as a list of objects."""
    if isinstance(column, list):
        kinds = {type(raw) for raw in column}
        try:
            if kinds == {str}:
                return pl.Series(column, dtype=pl.String)
            if all(kind is int or issubclass(kind, np.integer) for kind in kinds):
                return pl.Series([int(raw) for raw in column], dtype=pl.Int64)
        except (TypeError, UnicodeError):  # beyond 64 bits, or a lone surrogate
            pass
        return column
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        return column.cast(pl.String)
    integers = column.cast(pl.Int64, strict=False) if column.dtype.is_integer() else None
    if integers is not None and integers.null_count() == column.null_count():
        return integers
    return column.to_list()
