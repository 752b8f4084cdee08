"""Columns of time as seconds since 1970: dates, ISO 8601 texts, and numbers of any usual unit."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from math import inf
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from unexposed.data.delimited import Column

# Below how many units after 1970 a number counts in that unit; 10¹¹ s is the year 5138.
UNITS = {
    "seconds": (1e11, 1),
    "milliseconds": (1e14, 10**3),
    "microseconds": (1e17, 10**6),
    "nanoseconds": (inf, 10**9),
}
DATES, DAYS = "dates", "days as 20240131"
ISO = (
    r"^(\d{4}[-/]\d{2}[-/]\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2})?)(?:[.,]\d+)?)?"
    r"\s*(?:Z|UTC|([+-]\d{2}):?(\d{2}))?$"
)
MUST = "a time: seconds, milliseconds or microseconds since 1970, or a date such as 2024-01-31"


@dataclass(frozen=True)
class Moments:
    """Times of rows: seconds since 1970, or numbers whose unit the largest of all parts tells."""

    values: NDArray[np.int64]
    are_numbers: bool


class NotATimeError(Exception):
    """A row that does not hold a time."""

    def __init__(self, row: int) -> None:
        super().__init__(row)
        self.row = row


def moments(column: Column, needed: NDArray[np.bool_]) -> Moments:
    """The times of the needed rows; raises `NotATimeError` for the first one without."""
    rows = np.flatnonzero(needed)
    if isinstance(column, list):
        column = _of_objects([column[row] for row in rows])
    else:
        column = column.filter(pl.Series(needed))
    numbers = _numbers(column)
    if numbers is not None:
        found = numbers
    elif isinstance(column.dtype, pl.Datetime | pl.Date):
        found = column.dt.epoch("s")
    elif column.dtype == pl.String:
        found = _of_texts(column)
    else:
        found = pl.Series([None] * len(column), dtype=pl.Int64)
    for place in found.is_null().arg_true().head(1):
        raise NotATimeError(int(rows[place]))
    return Moments(found.to_numpy(), numbers is not None)


def _numbers(column: pl.Series) -> pl.Series | None:
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


@dataclass(frozen=True)
class Span:
    """What the times of a part tell about the unit of all parts."""

    rows: int
    are_numbers: bool
    first: int = 0
    last: int = 0
    are_days: bool = False

    @staticmethod
    def of(part: Moments) -> "Span":
        values = part.values
        if len(values) == 0:
            return Span(0, part.are_numbers)
        days = part.are_numbers and _of_days(values) is not None
        return Span(len(values), part.are_numbers, int(values.min()), int(values.max()), days)


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
        days = _of_days(values)
        assert days is not None
        return days
    return values // UNITS[unit][1]


def in_seconds(parts: list[Moments]) -> tuple[NDArray[np.int64], str]:
    """The times of all parts in seconds, and what was taken for what in words."""
    unit = unit_of([Span.of(part) for part in parts])
    return to_seconds(np.concatenate([part.values for part in parts]), unit), unit


def spoken(seconds: NDArray[np.int64]) -> str:
    """The first and the last day of these times."""
    ends = pl.Series([seconds.min(), seconds.max()]).cast(pl.Int64)
    first, last = pl.from_epoch(ends, time_unit="s").dt.strftime("%Y-%m-%d").to_list()
    return first if first == last else f"{first} … {last}"


def _of_objects(column: list[Any]) -> pl.Series:
    """Dates and datetimes of Python as seconds; one without a time zone is taken for UTC."""
    if any(isinstance(value, date) for value in column):
        found = pl.Series([_epoch(value) for value in column], dtype=pl.Int64)
        return (found * 1_000_000).cast(pl.Datetime("us"))
    texts = [None if value is None else str(value) for value in column]
    return pl.Series(texts, dtype=pl.String)


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


def _of_days(values: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Days written as one number, 20240131, or None where the numbers are not days."""
    if values.min() < 19000101 or values.max() > 21991231:
        return None
    distinct, place = np.unique(values, return_inverse=True)
    days = pl.Series(distinct).cast(pl.String).str.to_date("%Y%m%d", strict=False)
    return None if days.null_count() else days.dt.epoch("s").to_numpy()[place]
