"""Times of every usual kind are the same seconds since 1970."""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pytest

from unexposed.data.text import series_of
from unexposed.data.values import NotATimeError, times_of, to_seconds, unit_of

SECONDS = [1_706_698_800, 1_706_702_401]  # 2024-01-31 11:00:00 and 12:00:01 UTC
NAIVE = [dt.datetime(2024, 1, 31, 11), dt.datetime(2024, 1, 31, 12, 0, 1)]
EAST = dt.timezone(dt.timedelta(hours=5, minutes=30))


def seconds(*columns: object) -> tuple[list[int], str]:
    parts = [series_of(part) if isinstance(part, list) else pl.Series(part) for part in columns]
    found = [times_of(part, np.ones(len(part), dtype=bool)) for part in parts]
    unit = unit_of([span for _, span in found if span is not None])
    return to_seconds(np.concatenate([values for values, _ in found]), unit).tolist(), unit


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pl.Series(SECONDS), "seconds"),
        (pl.Series(SECONDS, dtype=pl.Float64), "seconds"),
        (pl.Series([n * 1000 + 999 for n in SECONDS]), "milliseconds"),
        (pl.Series([n * 1000.0 for n in SECONDS]), "milliseconds"),
        (pl.Series([n * 10**6 for n in SECONDS]), "microseconds"),
        (pl.Series([n * 10**9 for n in SECONDS]), "nanoseconds"),
        ([str(n) for n in SECONDS], "seconds"),
        (pl.Series(NAIVE), "dates"),
        (pl.Series(NAIVE).dt.cast_time_unit("ms"), "dates"),
        (pl.Series(NAIVE).dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo"), "dates"),
        (NAIVE, "dates"),
        ([n.replace(tzinfo=dt.UTC).astimezone(EAST) for n in NAIVE], "dates"),
        (list(pd.Series(NAIVE).dt.tz_localize("UTC")), "dates"),
        (["2024-01-31 11:00", " 2024-01-31T12:00:01Z"], "dates"),
        (["2024/01/31 11:00:00", "2024-01-31 12:00:01.999"], "dates"),
        (["2024-01-31T16:30:00+05:30", "2024-01-31T06:30:01-0530"], "dates"),
        (["2024-01-31 11:00:00 UTC", "2024-01-31 12:00:01,5+00:00"], "dates"),
    ],
    ids=str,
)
def test_every_usual_kind_gives_the_same_seconds(column, kind):
    assert seconds(column) == (SECONDS, kind)


@pytest.mark.parametrize(
    "column",
    [
        pl.Series([20240131, 20240201]),
        pl.Series([dt.date(2024, 1, 31), dt.date(2024, 2, 1)]),
        [dt.date(2024, 1, 31), dt.date(2024, 2, 1)],
        ["2024-01-31", "2024-02-01"],
    ],
    ids=str,
)
def test_days_are_their_midnight(column):
    assert seconds(column)[0] == [1_706_659_200, 1_706_745_600]


def test_the_largest_number_of_all_parts_tells_the_unit():
    assert seconds(pl.Series([20240131, 20240199])) == ([20240131, 20240199], "seconds")
    assert seconds(*([n * 1000] for n in (5, *SECONDS))) == ([5, *SECONDS], "milliseconds")


def test_numbers_and_dates_do_not_mix():
    with pytest.raises(ValueError, match="numbers in some parts and dates in others"):
        seconds(SECONDS, NAIVE)


@pytest.mark.parametrize(
    "column",
    [
        ["2024-01-31", "31.1.2024"],
        ["2024-01-31", "2024-02-30"],
        ["2024-01-31", None],
        ["7", "later"],
        [NAIVE[0], pd.NaT],
        [NAIVE[0], "noon"],
        pl.Series([1.0, float("nan")]),
        pl.Series([1.0, float("inf")]),
        pl.Series(NAIVE).extend(pl.Series([None], dtype=pl.Datetime("us")))[1:],
    ],
    ids=str,
)
def test_the_first_row_that_holds_no_time_is_named_unless_nobody_needs_it(column):
    column = series_of(column) if isinstance(column, list) else column
    with pytest.raises(NotATimeError) as caught:
        times_of(column, np.ones(2, dtype=bool))
    assert caught.value.row == 1
    assert len(times_of(column, np.array([True, False]))[0]) == 1


def test_times_before_1970_are_rounded_down_like_others():
    assert seconds(pl.Series([-1_500_000_000_500]))[0] == [-1_500_000_001]
    assert seconds(pl.Series([dt.datetime(1969, 12, 31, 23, 59, 58, 500_000)]))[0] == [-2]
