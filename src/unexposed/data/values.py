"""Columns as numbers: ratings, 0 and 1, counts and chances; a bad value is refused by its row."""

import math
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from unexposed.data.delimited import Column
from unexposed.data.sources import Table, bad_row
from unexposed.errors import InputError, plain

THRESHOLD = 4.0  # of five stars
WORDS = {"true": "1", "false": "0"}
MOST = 2**31 - 1  # a count is an int32


def limit_of(threshold: float | None) -> float:
    if threshold is None:
        return THRESHOLD
    if not (math.isfinite(threshold) and threshold >= 0):
        raise InputError(f"threshold must be a finite number of at least 0, got {threshold}")
    return threshold


def rated(table: Table, column: Column, name: str) -> NDArray[Any]:
    """Ratings, which are finite numbers of at least 0."""
    numbers = _numbers(column)
    good = numbers.is_finite() & (numbers >= 0)
    for row in _bad(good):
        must = "a number" if numbers[row] is None else "a finite number of at least 0"
        raise _refusal(table, column, name, row, must, "correct it or leave the row out")
    return numbers.to_numpy()


def binary(table: Table, column: Column, name: str, *, or_else: str = "") -> NDArray[np.bool_]:
    """Whether each row holds 1 instead of 0, or true instead of false."""
    numbers = _numbers(column, WORDS)
    for row in _bad((numbers == 0) | (numbers == 1)):
        cure = f"if it rates, give rating={name!r} (--rating) and a threshold{or_else}"
        raise _refusal(table, column, name, row, "0 or 1", cure)
    return numbers.to_numpy() == 1


def counted(
    table: Table, column: Column, name: str, clicked: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """How often each row counts: a whole number where it is a click, elsewhere at least 1."""
    numbers = _numbers(column)
    good = (numbers >= 0) & (numbers <= MOST) & (numbers == numbers.cast(pl.Float64).floor())
    missing = ~pl.Series(clicked) & numbers.is_null()
    for row in _bad(good.fill_null(False) | missing):
        cure = f"correct it, or give count='' (--count '') if {plain(name)} does not count clicks"
        raise _refusal(table, column, name, row, f"a whole number of 0 to {MOST:,}", cure)
    counts = numbers.fill_null(1).cast(pl.Int64).to_numpy()
    return np.where(clicked, counts, np.maximum(counts, 1))


def chances(
    table: Table, column: Column, name: str, needed: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Logged chances of being shown, in (0, 1] where they are needed."""
    numbers = _numbers(column).cast(pl.Float64)
    good = (numbers > 0) & (numbers <= 1)
    for row in _bad(good.fill_null(False) | ~pl.Series(needed)):
        cure = "correct it, or give propensity='' (--propensity '') to leave the column out"
        raise _refusal(table, column, name, row, "a chance above 0 and at most 1", cure)
    return numbers.fill_null(1).to_numpy()


def texts(column: Column) -> pl.Series:
    """The values of a column as they print, without the blanks around them."""
    if isinstance(column, list):
        column = pl.Series([None if v is None else str(v) for v in column], dtype=pl.String)
    return column.cast(pl.String, strict=False).fill_null("").str.strip_chars()


def _bad(good: pl.Series) -> pl.Series:
    return (~good.fill_null(False)).arg_true().head(1)


def _refusal(table: Table, column: Column, name: str, row: int, must: str, cure: str) -> InputError:
    value = "" if column[row] is None else plain(column[row], 40)
    return bad_row(table, row, f"the {plain(name)} '{value}' is not {must}; {cure}")


def _numbers(column: Column, words: dict[str, str] | None = None) -> pl.Series:
    """A column as floats, null where it does not hold a number."""
    if isinstance(column, list) or not (
        column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.String)
    ):
        as_text = [None if value is None else str(value) for value in column]
        column = pl.Series(as_text, dtype=pl.String)
    if column.dtype == pl.String:
        column = column.str.strip_chars().str.to_lowercase().replace(words or {})
    return column if column.dtype.is_float() else column.cast(pl.Float64, strict=False)
