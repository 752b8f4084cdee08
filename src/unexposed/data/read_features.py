"""Features of users and items, read from a file or a frame by raw id and encoded as numbers."""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from unexposed.data.columns import Table, recognised
from unexposed.data.features import Categories, Coding, Encoding, Features, Number, Role
from unexposed.data.ids import match
from unexposed.data.pairs import HasIds
from unexposed.data.sources import opened
from unexposed.data.values import encode
from unexposed.errors import InputError, did_you_mean, plain

MOST_VALUES = 100  # of a column, the most frequent: the others share a column
LEAST_ROWS = 2  # that must have a value: what a single row has tells nothing of another
MOST_DEVIATIONS = 10.0  # a number beyond would outweigh all else that is known of its row
SEPARATOR = "|"  # between the values of one text
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
    for each of its values: several are set by a list, or a text such as "a|b". Constant columns are
    dropped. With the `encoding` of a model, rows are encoded as they were in its training. Some of
    the ids must be known to `like`.
    """
    with opened(source, delimiter) as table:
        name = _id_column(table, role, id_column)
        others = [column for column in table.columns if column and column != name]
        if not others:
            raise InputError(f"{table.name} has only ids: add columns of features of {role}s")
        asked = categories if encoding is None else [coding.name for coding in encoding.codings]
        for one in asked:
            if one not in others:
                near = plain(did_you_mean(one, others), 200)
                raise InputError(f"{table.name} has no column {one!r} of features; {near}")
        others = others if encoding is None else [*asked]
        raw, *taken = table.take([name, *others])
        if len(raw) == 0:
            raise InputError(f"{table.name} has no rows: write one for each {role}")
        ids, at = encode(table, raw, name)
        if len(ids) < len(at):
            again = int(np.setdiff1d(np.arange(len(at)), np.unique(at, return_index=True)[1])[0])
            fault = f"the id {plain(raw[again], 40)!r} in column {name!r} stands there twice"
            raise table.refusal(again, f"{fault}; leave one row of each")
        nan_is_missing = hasattr(source, "iloc")  # to pandas
        columns = {n: _typed(c, nan_is_missing) for n, c in zip(others, taken, strict=True)}
        dropped: dict[str, str] = {}
        if encoding is None:
            fitted = {n: _fitted(table, n, c, n in categories) for n, c in columns.items()}
            dropped = {n: why for n, why in fitted.items() if isinstance(why, str)}
            encoding = Encoding(tuple(c for c in fitted.values() if not isinstance(c, str)))
            if not encoding.codings:
                raise InputError(
                    f"{table.name}: every column of features is constant or rare; give numbers, "
                    f"categories that several {role}s share, or lists of them"
                )
        rows = encoding.missing(len(raw))[:, :1]
        encoded = [_encoded(table, coding, columns[coding.name]) for coding in encoding.codings]
        matrix = np.empty((len(raw), len(encoding.columns)), dtype=np.float32)
        matrix[at] = np.concatenate([rows, *encoded], axis=1)
    said = [
        *map(plain, encoding.codings),
        *(f"{plain(n)} dropped ({w})" for n, w in dropped.items()),
    ]
    known = like.user_ids if role == "user" else like.item_ids
    missing = int((match(known, ids) < 0).sum())
    if missing == len(known):
        raise InputError(
            f"{table.name} names no {role} of the log: check that its column of ids is the right "
            "one, and that ids are written alike"
        )
    unknown = f"; {missing:,} of {len(known):,} {role}s are not in it" if missing else ""
    say = say or logging.getLogger("unexposed").info
    say(f"{table.name}: {role} = {plain(name)}, {', '.join(said)}{unknown}")
    return Features(ids, matrix, encoding)


def _id_column(table: Table, role: Role, given: str | None) -> str:
    """The column given if it is there, else the first one that is called like an id."""
    if given and given in table.columns:
        return given
    called_id = {name.lower(): name for name in reversed(table.columns)}.get("id")
    if found := recognised(table.columns, role) or called_id:
        return found
    near = plain(did_you_mean(given or role, table.columns), 200)
    raise InputError(f"{table.name} has no column of {role} ids ({near}): call one {role!r}")


def _typed(column: pl.Series, nan_is_missing: bool) -> pl.Series:
    """The column as floats, texts or lists of texts, null where missing."""
    if column.dtype == pl.Object:
        values = column.to_list()
        if any(isinstance(value, _MANY) for value in values):
            lists = [[*map(str, v)] if isinstance(v, _MANY) else _texts_of([v]) for v in values]
            return pl.Series(lists, dtype=pl.List(pl.String))
        if all(value is None or isinstance(value, int | float | np.number) for value in values):
            numbers = [None if v is None else float(v) for v in values]
            return pl.Series(numbers, dtype=pl.Float64)
        column = pl.Series([None if v is None else str(v) for v in values], dtype=pl.String)
    if column.dtype in (pl.List, pl.Array):
        return column.cast(pl.List(pl.String))
    if column.dtype.is_temporal():
        column = column.to_physical()
    if column.dtype.is_numeric() or column.dtype == pl.Boolean:
        numbers_of = column.cast(pl.Float64)
        return numbers_of.fill_nan(None) if nan_is_missing else numbers_of
    return column.cast(pl.String).str.strip_chars().replace("", None)


def _texts_of(values: list[Any]) -> list[str]:
    return [str(value) for value in values if value is not None]


def _fitted(table: Table, name: str, column: pl.Series, is_category: bool) -> Coding | str:
    """How to encode a column, or why it is dropped."""
    if is_category or not _holds_numbers(column):
        return _fitted_categories(name, column)
    values = _numbers(table, name, column).drop_nulls().to_numpy().astype(np.float64)
    if len(values) == 0:
        return "it is empty"
    if values.min() == values.max():
        return "it is constant"
    scale = np.abs(values).max()  # keeps sums and squares of large numbers finite
    mean, deviation = scale * (values / scale).mean(), scale * (values / scale).std()
    if not 0 < deviation < math.inf:
        return "it is nearly constant"
    return Number(name, float(mean), float(deviation))


def _fitted_categories(name: str, column: pl.Series) -> Categories | str:
    """The most frequent values of a column, by code points where equally frequent."""
    rows, many = _values(column)
    counted = rows.group_by("value").len().sort(["len", "value"], descending=[True, False])
    kept = counted.filter(pl.col("len") >= LEAST_ROWS).head(MOST_VALUES)
    if len(counted) == 0:
        return "it is empty"
    if len(kept) == 0:
        return "no two rows share a value"
    if len(counted) == 1 and kept["len"][0] == len(column):
        return "it is constant"
    return Categories(name, tuple(kept["value"].to_list()), len(kept) < len(counted), many)


def _encoded(table: Table, coding: Coding, column: pl.Series) -> NDArray[np.float32]:
    """The numbers of each row of a column."""
    if isinstance(coding, Number):
        standard = (_numbers(table, coding.name, column) - coding.mean) / coding.deviation
        within = standard.fill_null(0).clip(-MOST_DEVIATIONS, MOST_DEVIATIONS)
        return within.to_numpy().astype(np.float32)[:, None]
    rows, _ = _values(column)
    place = {value: at for at, value in enumerate(coding.values)}
    otherwise = len(coding.values) if coding.other else -1
    at = np.array([place.get(value, otherwise) for value in rows["value"]], dtype=np.int64)
    found = np.zeros((len(column), len(coding.values) + coding.other), dtype=np.float32)
    found[rows["row"].to_numpy()[at >= 0], at[at >= 0]] = 1
    return found


def _values(column: pl.Series) -> tuple[pl.DataFrame, bool]:
    """Each row with each of its values, once, and whether a row may have several."""
    if column.dtype == pl.Float64:  # 3.0 is "3", as a file of whole numbers writes it
        column = pl.Series([None if x is None else f"{x:.15g}" for x in column], dtype=pl.String)
    many = column.dtype == pl.List
    if not many and column.str.contains(SEPARATOR, literal=True).any():
        column, many = column.str.split(SEPARATOR), True
    frame = pl.DataFrame({"row": pl.Series(np.arange(len(column))), "value": column})
    frame = frame.explode("value") if many else frame
    frame = frame.select("row", pl.col("value").cast(pl.String).str.strip_chars())
    frame = frame.filter(pl.col("value").is_not_null() & (pl.col("value") != ""))
    return frame.unique(maintain_order=True), many


def _holds_numbers(column: pl.Series) -> bool:
    """Whether a column is one of numbers: most of its texts are, and none is a list."""
    if column.dtype != pl.String:
        return column.dtype == pl.Float64
    texts = column.drop_nulls()
    if texts.str.contains(SEPARATOR, literal=True).any():
        return False
    return 2 * texts.cast(pl.Float64, strict=False).is_not_null().sum() > len(texts)


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
