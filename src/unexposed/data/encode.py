"""Turn columns of raw ids into ids and indices."""

from typing import Any

import numpy as np
import polars as pl

from unexposed import memory
from unexposed.data.clicks import Indices
from unexposed.data.delimited import Column
from unexposed.data.ids import Ids
from unexposed.data.sources import Table, bad_row
from unexposed.errors import InputError

BYTES_OF_AN_ID = 160  # besides its text, twice: sorted, hashed, and as a Python object


def encode_pairs(
    table: Table, columns: list[Column], names: list[str]
) -> list[tuple[Ids, Indices]]:
    if len(columns[0]) == 0:
        raise InputError(f"{table.name} has no rows: write a user and an item in each")
    return [encode(table, columns.pop(0), name) for name in names]  # popped: freed once encoded


def encode(table: Table, column: Column, name: str) -> tuple[Ids, Indices]:
    """The distinct ids of a column, sorted where they can be, and each row's index among them."""
    column = _id_column(column)
    if isinstance(column, list):
        return _encode_objects(table, column, name)
    missing = column.is_null() if column.dtype == pl.Int64 else column.is_null() | (column == "")
    for row in missing.arg_true().head(1):
        raise bad_row(table, row, f"the id in column {name!r} is missing; fill it in")
    values = column.unique()
    if column.dtype == pl.Int64:
        values = values.sort()
        return Ids(values.to_numpy()), values.search_sorted(column).cast(pl.Int32).to_numpy()
    memory.check(
        table.name,
        len(values) * BYTES_OF_AN_ID + 2 * int(values.estimated_size()),
        what=f"holding {len(values):,} ids of column {name!r}",
        cure="give a log of fewer",
    )
    values = values.sort()
    codes = column.cast(pl.Enum(values)).to_physical()  # by hashing: half the time of sorting
    return Ids.of(values.to_list()), codes.cast(pl.Int32).to_numpy()


def _encode_objects(table: Table, column: list[Any], name: str) -> tuple[Ids, Indices]:
    place: dict[Any, int] = {}
    codes = np.empty(len(column), dtype=np.int32)
    for row, raw in enumerate(column):
        if raw is None or (isinstance(raw, float | str) and (raw == "" or raw != raw)):
            raise bad_row(table, row, f"the id in column {name!r} is missing; fill it in")
        try:
            codes[row] = place.setdefault(raw, len(place))
        except TypeError:
            fault = f"the {type(raw).__name__} in column {name!r} cannot be an id; make it a tuple"
            raise bad_row(table, row, fault) from None
    try:
        ids = sorted(place)
    except TypeError:  # ids of several kinds stay in the order of their first appearance
        ids = list(place)
    rank = np.empty(len(ids), dtype=np.int32)
    rank[[place[raw] for raw in ids]] = np.arange(len(ids))
    return Ids(np.fromiter(ids, dtype=object, count=len(ids))), rank[codes]


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
