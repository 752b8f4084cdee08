"""Columns as numbers and times; a value that is none is refused with its row."""

import math
from datetime import UTC, date, datetime, time
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from unexposed.data.columns import Table
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


def rated(table: Table, column: pl.Series, name: str) -> NDArray[Any]:
    """Ratings, which are finite numbers of at least 0."""
    numbers = _numbers(column)
    for row in _bad(numbers.is_finite() & (numbers >= 0)):
        must = "a number" if numbers[row] is None else "a finite number of at least 0"
        raise _refusal(table, column, name, row, must, "correct it or leave the row out")
    return numbers.to_numpy()


def binary(table: Table, column: pl.Series, name: str, *, or_else: str = "") -> NDArray[np.bool_]:
    """Whether each row holds 1 instead of 0, or true instead of false."""
    numbers = _numbers(column, WORDS)
    for row in _bad((numbers == 0) | (numbers == 1)):
        cure = f"if it rates, give rating={name!r} (--rating) and a threshold{or_else}"
        raise _refusal(table, column, name, row, "0 or 1", cure)
    return numbers.to_numpy() == 1


def counted(
    table: Table, column: pl.Series, name: str, clicked: NDArray[np.bool_]
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
    table: Table, column: pl.Series, name: str, needed: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Logged chances of being shown, in (0, 1] where they are needed."""
    numbers = _numbers(column).cast(pl.Float64)
    good = (numbers > 0) & (numbers <= 1)
    for row in _bad(good.fill_null(False) | ~pl.Series(needed)):
        cure = "correct it, or give propensity='' (--propensity '') to leave the column out"
        raise _refusal(table, column, name, row, "a chance above 0 and at most 1", cure)
    return numbers.fill_null(1).to_numpy()


def texts(column: pl.Series) -> pl.Series:
    """The values of a column as they print, without the blanks around them."""
    if column.dtype == pl.Object:
        column = _printed(column)
    return column.cast(pl.String, strict=False).fill_null("").str.strip_chars()


def _bad(good: pl.Series) -> pl.Series:
    return (~good.fill_null(False)).arg_true().head(1)


def _refusal(
    table: Table, column: pl.Series, name: str, row: int, must: str, cure: str
) -> InputError:
    value = "" if column[row] is None else plain(column[row], 40)
    return table.refusal(row, f"the {plain(name)} '{value}' is not {must}; {cure}")


def _numbers(column: pl.Series, words: dict[str, str] | None = None) -> pl.Series:
    """A column as floats, null where it does not hold a number."""
    if not (column.dtype.is_numeric() or column.dtype in (pl.Boolean, pl.String)):
        column = _printed(column)
    if column.dtype == pl.String:
        column = column.str.strip_chars().str.to_lowercase().replace(words or {})
    return column if column.dtype.is_float() else column.cast(pl.Float64, strict=False)


def _printed(column: pl.Series) -> pl.Series:
    values = [None if value is None else str(value) for value in column.to_list()]
    return pl.Series(values, dtype=pl.String)


# Times

# Below how many units after 1970 a number counts in that unit; 10¹¹ s is the year 5138.
UNITS = {
    "seconds": (1e11, 1),
    "milliseconds": (1e14, 10**3),
    "microseconds": (1e17, 10**6),
    "nanoseconds": (math.inf, 10**9),
}
DATES, DAYS = "dates", "days as 20240131"
ISO = (
    r"^(\d{4}[-/]\d{2}[-/]\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2})?)(?:[.,]\d+)?)?"
    r"\s*(?:Z|UTC|([+-]\d{2}):?(\d{2}))?$"
)
MUST = "a time: seconds, milliseconds or microseconds since 1970, or a date such as 2024-01-31"


class NotATimeError(Exception):
    """A row that does not hold a time."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


class Times(NamedTuple):
    """Times of a part: seconds since 1970, or numbers whose unit the largest of all parts tells."""

    values: NDArray[np.int64]
    are_numbers: bool

    def span(self) -> "Span":
        days = self.are_numbers and len(self.values) > 0 and _days(self.values) is not None
        ends = (int(self.values.min()), int(self.values.max())) if len(self.values) else (0, 0)
        return Span(len(self.values), self.are_numbers, days, *ends)


class Span(NamedTuple):
    """What the times of a part tell about the unit of all parts."""

    rows: int
    are_numbers: bool
    are_days: bool
    first: int
    last: int


def times_of(column: pl.Series, needed: NDArray[np.bool_]) -> Times:
    """The times of the needed rows; raises `NotATimeError` for the first one without."""
    rows = np.flatnonzero(needed)
    column = column.filter(pl.Series(needed))
    if column.dtype == pl.Object:
        column = _of_objects(column.to_list())
    found = _whole_numbers(column)
    are_numbers = found is not None
    if found is None and isinstance(column.dtype, pl.Datetime | pl.Date):
        found = column.dt.epoch("s")
    elif found is None and column.dtype == pl.String:
        found = _of_texts(column)
    elif found is None:
        found = pl.Series([None] * len(column), dtype=pl.Int64)
    for place in found.is_null().arg_true().head(1):
        raise NotATimeError(int(rows[place]))
    return Times(found.to_numpy(), are_numbers)


def unit_of(parts: list[Span]) -> str:
    """What the times of all parts are, in words; the empty ones do not matter."""
    parts = [part for part in parts if part.rows]
    kinds = {part.are_numbers for part in parts}
    if kinds <= {False}:
        return DATES
    if len(kinds) > 1:
        raise ValueError("numbers in some parts and dates in others")
    if all(part.are_days for part in parts):
        return DAYS
    largest = max(max(abs(part.first), abs(part.last)) for part in parts)
    return next(unit for unit, (below, _) in UNITS.items() if largest < below)


def to_seconds(values: NDArray[np.int64], unit: str) -> NDArray[np.int64]:
    """Times of this unit in seconds since 1970."""
    if unit == DATES or len(values) == 0:
        return values
    if unit == DAYS:
        days = _days(values)
        assert days is not None
        return days
    return values // UNITS[unit][1]


def days_between(seconds: NDArray[np.int64]) -> str:
    """The first and the last day of these times."""
    ends = pl.Series([seconds.min(), seconds.max()]).cast(pl.Int64)
    first, last = pl.from_epoch(ends, time_unit="s").dt.strftime("%Y-%m-%d").to_list()
    return first if first == last else f"{first} … {last}"


def _whole_numbers(column: pl.Series) -> pl.Series | None:
    """Whole numbers, null where there is none; None where the column does not begin with one."""
    if column.dtype == pl.String:
        numbers = column.str.strip_chars().cast(pl.Float64, strict=False)
        if len(numbers) and numbers[0] is None:
            return None
        column = numbers
    if not column.dtype.is_numeric():
        return None
    if not column.dtype.is_integer():
        column = column.cast(pl.Float64).round(0)
        column = column.set(~column.is_finite().fill_null(False), None)
    return column.cast(pl.Int64, strict=False)


def _of_objects(values: list[Any]) -> pl.Series:
    """Dates and datetimes of Python as seconds; one without a time zone is taken for UTC."""
    if any(isinstance(value, date) for value in values):
        found = pl.Series([_epoch(value) for value in values], dtype=pl.Int64)
        return (found * 1_000_000).cast(pl.Datetime("us"))
    return pl.Series([None if v is None else str(v) for v in values], dtype=pl.String)


def _epoch(value: Any) -> int | None:
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time())
    if not isinstance(value, datetime) or value != value:  # NaT of pandas is not itself
        return None
    return int((value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() // 1)


def _of_texts(column: pl.Series) -> pl.Series:
    parts = column.str.strip_chars().str.extract_groups(ISO).struct.unnest()
    clock = pl.col("2").fill_null("00:00")
    clock = pl.when(clock.str.len_bytes() == 5).then(clock + ":00").otherwise(clock)
    text = pl.col("1").str.replace_all("/", "-", literal=True) + " " + clock
    local = text.str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False, time_unit="us").dt.epoch("s")
    sign = pl.when(pl.col("3").str.starts_with("-")).then(-1).otherwise(1)
    minutes = pl.col("3").fill_null("+0").cast(pl.Int64) * 60
    minutes += sign * pl.col("4").fill_null("0").cast(pl.Int64)
    return parts.select(local - minutes * 60).to_series()


def _days(values: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Days written as one number, 20240131, or None where the numbers are not days."""
    if values.min() < 19000101 or values.max() > 21991231:
        return None
    distinct, place = np.unique(values, return_inverse=True)
    days = pl.Series(distinct).cast(pl.String).str.to_date("%Y%m%d", strict=False)
    return None if days.null_count() else days.dt.epoch("s").to_numpy()[place]
