"""Columns as ids, numbers and times; a value that is none is refused with its row."""

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from unexposed.data.columns import Table
from unexposed.data.ids import Ids
from unexposed.data.pairs import Indices
from unexposed.data.text import joined
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


class Span(NamedTuple):
    """What the times of a part tell about the unit of all parts."""

    are_numbers: bool
    are_days: bool
    first: int
    last: int


def times_of(column: pl.Series, needed: NDArray[np.bool_]) -> tuple[NDArray[np.int64], Span | None]:
    """The times of the needed rows, as seconds or in a unit that all parts tell, and their span.

    Raises `NotATimeError` for the first row without a time.
    """
    rows = np.flatnonzero(needed)
    column = column.filter(pl.Series(needed))
    if column.dtype == pl.Object:
        column = _of_objects(column.to_list())
    found, are_numbers = _whole_numbers(column), True
    if found is None:
        are_numbers = False
        if isinstance(column.dtype, pl.Datetime | pl.Date):
            found = column.dt.epoch("s")
        elif column.dtype == pl.String:
            found = _of_texts(column)
        else:
            found = pl.Series([None] * len(column), dtype=pl.Int64)
    for place in found.is_null().arg_true().head(1):
        raise NotATimeError(int(rows[place]))
    times = found.to_numpy()
    if len(times) == 0:
        return times, None
    days = are_numbers and _days(times) is not None
    return times, Span(are_numbers, days, int(times.min()), int(times.max()))


def unit_of(parts: list[Span]) -> str:
    """What the times of all parts are, in words."""
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


# Ids


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
