"""Features of users and items, read from a file or a frame by raw id and encoded as numbers."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from unexposed.data.columns import Table, recognised
from unexposed.data.encode import encode
from unexposed.data.features import (
    SEPARATOR,
    Categories,
    Coding,
    Encoding,
    Features,
    Held,
    Number,
    Role,
)
from unexposed.data.ids import Ids, match
from unexposed.data.pairs import HasIds, Indices
from unexposed.data.sources import opened
from unexposed.errors import InputError, did_you_mean, plain

_MANY = (list, tuple, set, frozenset, np.ndarray)


def read_features(
    source: Any,
    like: HasIds,
    *,
    role: Role,
    id_column: str | None = None,
    categories: Sequence[str] = (),
    encoding: Encoding | None = None,
    delimiter: str | None = None,
    say: Callable[[str], object] | None = None,
) -> Features:
    """The features of users or items in a CSV, TSV or Parquet file, a frame or a mapping.

    A column of numbers is standardised; any other, and those named in `categories`, has a column
    for each of its values: several are set by a list, or a text such as "a|b". Constant
    columns are dropped. With the `encoding` of a model, rows are encoded
    as they were in its training. Some of the ids must be known to `like`.
    """
    with opened(source, delimiter) as table:
        name = _id_column(table, role, id_column)
        others = _named(table, name, role, encoding)
        raw, *columns = table.take([name, *others])
        if len(raw) == 0:
            raise InputError(f"{table.name} has no rows: write one for each {role}")
        ids, at = _distinct(table, raw, name)
        from_pandas = hasattr(source, "iloc")
        typed = {n: _typed(c, from_pandas) for n, c in zip(others, columns, strict=True)}
        left_out: dict[str, str] = {}
        if encoding is None:
            encoding, left_out = _fitted(table, typed, categories, role)
        found = Features(ids, _matrix(table, encoding, typed, at), encoding)
    taken = [plain(coding) for coding in encoding.codings]
    taken += [f"{plain(column)} dropped ({why})" for column, why in left_out.items()]
    unknown = _unknown(found, like, role, table.name)
    say = say or logging.getLogger("unexposed").info
    say(f"{table.name}: {role} = {plain(name)}, {', '.join(taken)}{unknown}")
    return found


# pl.Seriess and rows


def _id_column(table: Table, role: Role, given: str | None) -> str:
    """The column given if it is there, else the first one that is called like an id."""
    if given in table.columns:
        return str(given)
    alike = {name.lower(): name for name in table.columns}
    if found := recognised(table.columns, role) or alike.get("id"):
        return found
    near = plain(did_you_mean(given or role, table.columns), 200)
    raise InputError(f"{table.name} has no column of {role} ids ({near}): call one {role!r}")


def _named(table: Table, name: str, role: Role, encoding: Encoding | None) -> list[str]:
    """The columns of features: all others, or those of an encoding."""
    others = [column for column in table.columns if column and column != name]
    if encoding is None:
        if not others:
            raise InputError(f"{table.name} has only ids: add columns of features of {role}s")
        return others
    return [_known(table, coding.name, others) for coding in encoding.codings]


def _known(table: Table, name: str, columns: list[str]) -> str:
    if name not in columns:
        near = plain(did_you_mean(name, columns), 200)
        raise InputError(f"{table.name} has no column {name!r} of features; {near}")
    return name


def _distinct(table: Table, raw: pl.Series, name: str) -> tuple[Ids, Indices]:
    """The ids, and the place of each row among them; an id may stand in one row only."""
    ids, at = encode(table, raw, name)
    if len(ids) < len(at):
        first = np.unique(at, return_index=True)[1]
        again = int(np.setdiff1d(np.arange(len(at)), first)[0])
        fault = f"the id {plain(raw[again], 40)!r} in column {name!r} stands there twice"
        raise table.refusal(again, f"{fault}; leave one row of each")
    return ids, at


def _typed(column: pl.Series, from_pandas: bool) -> pl.Series:
    """The column as floats, texts or lists of texts, null where missing (NaN, to pandas)."""
    if column.dtype == pl.Object:
        column = _of_objects(column.to_list())
    if column.dtype in (pl.List, pl.Array):
        return column.cast(pl.List(pl.String))
    if column.dtype.is_temporal():
        column = column.to_physical()
    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        numbers = column.cast(pl.Float64)
        return numbers.fill_nan(None) if from_pandas else numbers
    texts = column.cast(pl.String).str.strip_chars()
    return texts.replace("", None)


def _of_objects(values: list[Any]) -> pl.Series:
    if any(isinstance(value, _MANY) for value in values):
        lists = [
            list(map(str, v)) if isinstance(v, _MANY) else [] if v is None else [str(v)]
            for v in values
        ]
        return pl.Series(lists, dtype=pl.List(pl.String))
    if all(value is None or isinstance(value, int | float | np.number) for value in values):
        return pl.Series([None if v is None else float(v) for v in values], dtype=pl.Float64)
    return pl.Series([None if v is None else str(v) for v in values], dtype=pl.String)


def _fitted(
    table: Table, columns: dict[str, pl.Series], categories: Sequence[str], role: Role
) -> tuple[Encoding, dict[str, str]]:
    """How to encode columns, and why some are left out."""
    wanted = {_known(table, name, list(columns)) for name in categories}
    codings: list[Coding] = []
    left_out: dict[str, str] = {}
    for name, column in columns.items():
        found: Coding | str
        if name not in wanted and _holds_numbers(column):
            found = Number.fit(name, _numbers(table, name, column))
        else:
            found = Categories.fit(name, Held.of(_texts(column)))
        if isinstance(found, str):
            left_out[name] = found
        else:
            codings.append(found)
    if not codings:
        raise InputError(
            f"{table.name}: every column of features is constant or rare; give numbers, categories "
            f"that several {role}s share, or lists of them"
        )
    return Encoding(tuple(codings)), left_out


def _matrix(
    table: Table, encoding: Encoding, columns: dict[str, pl.Series], at: Indices
) -> NDArray[np.float32]:
    """The encoded rows, row n of the table in place at[n]."""
    matrix, first = encoding.missing(len(at)), 1
    for coding in encoding.codings:
        column, width = columns[coding.name], len(coding.columns)
        if isinstance(coding, Number):
            part = coding.encode(_numbers(table, coding.name, column))
        else:
            part = coding.encode(Held.of(_texts(column)))
        matrix[at, first : first + width] = part
        first += width
    return matrix


def _holds_numbers(column: pl.Series) -> bool:
    """Whether a column is one of numbers: most of its texts are, and none is a list."""
    if column.dtype != pl.String:
        return column.dtype == pl.Float64
    given = column.drop_nulls()
    if given.str.contains(SEPARATOR, literal=True).any():
        return False
    return 2 * given.cast(pl.Float64, strict=False).is_not_null().sum() > len(given)


def _numbers(table: Table, name: str, column: pl.Series) -> pl.Series:
    """The column as finite numbers, null where missing."""
    if column.dtype == pl.List:
        raise InputError(f"{table.name}: {plain(name)} holds lists, and the model knows numbers")
    numbers = column.cast(pl.Float64, strict=False)
    good = column.is_null() | numbers.is_finite().fill_null(False)
    for row in (~good).arg_true().head(1):
        fault = f"the {plain(name)} '{plain(column[row], 40)}' is not a finite number"
        raise table.refusal(row, f"{fault}; correct it, or leave it empty")
    return numbers


def _texts(column: pl.Series) -> pl.Series:
    """Values as texts: 3.0 is "3", as a file of whole numbers writes it."""
    if column.dtype != pl.Float64:
        return column
    return pl.Series([None if x is None else f"{x:.15g}" for x in column], dtype=pl.String)


def _unknown(found: Features, like: HasIds, role: Role, name: str) -> str:
    """How many of those known have no features, in words; refused where none of them has."""
    known = like.user_ids if role == "user" else like.item_ids
    missing = int((match(known, found.ids) < 0).sum())
    if missing == len(known):
        raise InputError(
            f"{name} names no {role} of the log: check that its column of ids is the right one, "
            "and that ids are written alike"
        )
    return f"; {missing:,} of {len(known):,} {role}s are not in it" if missing else ""
