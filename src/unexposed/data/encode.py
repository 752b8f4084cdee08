"""Columns of raw ids become ids and indices, part by part where a table has parts."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from unexposed.data.columns import Table
from unexposed.data.ids import Ids
from unexposed.data.pairs import Indices
from unexposed.data.text import joined
from unexposed.errors import InputError, plain


def encode(table: Table, column: pl.Series, name: str) -> tuple[Ids, Indices]:
    """The distinct ids of a column, sorted where they can be, and each row's index among them."""
    return indexed(id_column(table, column, name))


def id_column(
    table: Table, column: pl.Series, name: str, rows: NDArray[np.int64] | None = None
) -> pl.Series:
    """The ids of these rows: int64 or texts where all are, otherwise objects; none is missing."""
    found = _of_one_type(column if rows is None else column[rows])
    fault = f"the id in column {name!r} is missing; fill it in"
    if found.dtype != pl.Object:
        missing = found.is_null() if found.dtype == pl.Int64 else found.is_null() | (found == "")
        bad = missing.arg_true().to_list()[:1]
    else:
        bad = [at for at, raw in enumerate(found.to_list()) if not _is_id(raw)][:1]
        kind = type(found[bad[0]]).__name__ if bad else ""
        if kind in ("list", "dict", "set"):
            fault = f"the {kind} in column {name!r} cannot be an id; make it a tuple"
    for at in bad:
        raise table.refusal(at if rows is None else int(rows[at]), fault)
    return as_texts(found) if found.dtype == pl.String else found


def _is_id(raw: Any) -> bool:
    """Whether an object is not missing, and can be looked up."""
    if raw is None or (isinstance(raw, float | str) and (raw == "" or raw != raw)):
        return False
    try:
        hash(raw)
    except TypeError:
        return False
    return True


def _of_one_type(column: pl.Series) -> pl.Series:
    if column.dtype in (pl.String, pl.Categorical, pl.Enum):
        return column.cast(pl.String)
    if column.dtype.is_integer():
        integers = column.cast(pl.Int64, strict=False)
        if integers.null_count() == column.null_count():
            return integers
    values = column.to_list()
    kinds = {type(raw) for raw in values}
    try:
        if kinds == {str}:
            return pl.Series(values, dtype=pl.String)
        if kinds and all(kind is int or issubclass(kind, np.integer) for kind in kinds):
            return pl.Series([int(raw) for raw in values], dtype=pl.Int64)
    except (TypeError, OverflowError, UnicodeError):  # beyond 64 bits, or a lone surrogate
        pass
    return pl.Series(values, dtype=pl.Object)


def join_ids(parts: Sequence[tuple[Table, pl.Series]], name: str) -> pl.Series:
    """The ids of the parts of a column one after the other; refused where they are of two kinds.

    Integers beside texts are texts where they were read from text: one part of a CSV log may hold
    no other ids than numbers.
    """
    parts = [part for part in parts if len(part[1])] or parts[:1]
    kinds = [kind_of(column) for _, column in parts]
    spelled = all(name in table.spelled for table, _ in parts)
    if "texts" in kinds and len(set(kinds)) > 1 and not (spelled and "objects" not in kinds):
        other = next(n for n, kind in enumerate(kinds) if kind != kinds[0])
        raise InputError(
            f"column {plain(name)!r} holds {kinds[0]} in {parts[0][0].name} and "
            f"{kinds[other]} in {parts[other][0].name}: write it alike in all parts"
        )
    return joined([as_texts(c) if "texts" in kinds else c for _, c in parts])


def kind_of(column: pl.Series) -> str:
    if column.dtype == pl.Object:
        return "objects"
    return "integers" if column.dtype == pl.Int64 else "texts"


def as_texts(column: pl.Series) -> pl.Series:
    """The texts of a column in little memory: a number each, and every text once."""
    if column.dtype == pl.Int64:
        column = column.cast(pl.String)
    return column.cast(_TEXTS) if column.dtype == pl.String else column


_TEXTS = pl.Categorical(pl.Categories("unexposed ids"))


def indexed(column: pl.Series) -> tuple[Ids, Indices]:
    """The distinct ids, sorted where they can be, and the index of each row among them."""
    if column.dtype == pl.Object:
        raw = column.to_list()
        every = _sorted_if_possible(list(dict.fromkeys(raw)))
        place = {one: index for index, one in enumerate(every)}
        return _ids(every), np.array([place[one] for one in raw], dtype=np.int32)
    if column.dtype == pl.Int64:
        values = column.unique().sort()
        return Ids(values.to_numpy()), values.search_sorted(column).cast(pl.Int32).to_numpy()
    column = as_texts(column)
    distinct = column.unique()
    order, numbers = distinct.cast(pl.String).arg_sort(), distinct.to_physical().to_numpy()
    index = np.empty(int(numbers.max(initial=0)) + 1, dtype=np.int32)
    index[numbers[order]] = np.arange(len(numbers), dtype=np.int32)
    return _ids(distinct.cast(pl.String)[order]), index[column.to_physical().to_numpy()]


def _ids(values: Any) -> Ids:
    return Ids(np.fromiter(values, dtype=object, count=len(values)))


def _sorted_if_possible(raw: list[Any]) -> list[Any]:
    """The ids sorted; ids of several kinds stay in the order of their first appearance."""
    try:
        return sorted(raw)
    except TypeError:
        return raw
