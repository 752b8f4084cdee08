"""What the rows of a log become: clicks, impressions or nothing, and a line that says so."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from reading import log, pairs, refusal
from unexposed.data.clicks import Clicks
from unexposed.data.log import read_log
from unexposed.errors import LogWarning

SHOP = {"user": ["ada", "ada", "bob", "bob"], "item": ["x", "y", "x", "x"]}


def shown(clicks: Clicks) -> dict[tuple[str, str], tuple[int, int]]:
    """Raw user and item → how often shown, and clicked."""
    seen = clicks.shown
    assert seen is not None
    rows = zip(seen.users, seen.items, seen.shown, seen.clicked, strict=True)
    return {
        (clicks.user_ids.values[u], clicks.item_ids.values[i]): (int(s), int(c))
        for u, i, s, c in rows
    }


# Columns and ratings


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        ("userId,movieId", "user = userId, item = movieId"),
        ("Customer ID,Product-ID", "user = Customer ID, item = Product-ID"),
        ("sku,visitor_id", "user = visitor_id, item = sku"),
        ("uid,user_id,user,item", "user = user, item = item"),
        ("User,user,item", "user = user, item = item"),
    ],
)
def test_columns_are_recognised_by_name(header, taken):
    names = header.split(",")
    read = log({name: [1, 2] for name in names}).read
    assert str(read) == f"the frame: {taken}; every row is a click; 2 rows: 2 clicks"


@pytest.mark.parametrize(
    ("source", "user", "item"),
    [
        ({"user": [1, 2], "item": [1, 2], "buyer": [7, 8], "thing": ["a", "b"]}, "buyer", "thing"),
        (pl.DataFrame({"^.*$": [7, 8], "*": ["a", "b"], "c": [5, 6]}), "^.*$", "*"),
        (pd.DataFrame([[7, "a"], [8, "b"]]), "0", "1"),
    ],
    ids=["other names", "names like patterns", "names that are numbers"],
)
def test_columns_can_be_given(source, user, item):
    assert pairs(log(source, user=user, item=item)) == {(7, "a"): 1, (8, "b"): 1}


def test_a_click_is_a_rating_of_at_least_the_threshold():
    ids = {"customer": ["ada", "bob", "bob", "cy"], "sku": ["x", "y", "x", "z"]}
    clicks = log(ids | {"stars": [5, 4, 3.9, 0]})
    assert pairs(clicks) == {("ada", "x"): 1, ("bob", "y"): 1}
    assert str(clicks.read) == (
        "the frame: user = customer, item = sku, rating = stars; a click is stars ≥ 4; "
        "4 rows: 2 clicks, 2 dropped; threshold 4 is assumed: give threshold= (--threshold)"
    )
    clicks = log(ids | {"stars": [5, 4, 3.9, 0]}, threshold=4.5)
    assert pairs(clicks) == {("ada", "x"): 1}
    assert clicks.user_ids.values.tolist() == ["ada", "bob", "cy"]  # also those without a click
    assert clicks.item_ids.values.tolist() == ["x", "y", "z"]
    assert len(log(ids | {"stars": [5, 4, 3.9, 0]}, threshold=0)) == 4


@pytest.mark.parametrize(
    "ratings",
    [
        [5, "4.1", " 3 "],
        pd.array([5, 4.1, 3], dtype="Float64"),
        np.array([5, 4.1, 3], dtype=np.float32),  # whose 4.1 is below 4.1 in double precision
        pl.Series(["5", "4.1", "3"], dtype=pl.Categorical),
        pl.Series(["5", "4.1", "3"]).cast(pl.Decimal(5, 1)),
    ],
    ids=str,
)
def test_ratings_may_be_of_any_type_that_reads_as_a_number(ratings):
    source = {"user": ["a", "b", "c"], "item": ["x", "y", "z"], "rating": ratings}
    assert pairs(log(source, threshold=4.1)) == {("a", "x"): 1, ("b", "y"): 1}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"item": "itme"}, "did you mean 'item'?"),
        ({"rating": "rating"}, "rating= (--rating)"),
        ({"user": "user", "item": "user"}, "give two columns"),
        ({"rating": "user"}, "user= and rating= both name 'user'"),
        ({"rating": "count", "threshold": 6}, "count ≥ 6, and none is; lower threshold="),
        ({"threshold": float("nan")}, "threshold must be a finite number of at least 0"),
        ({"threshold": -1}, "threshold must be a finite number of at least 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, told):
    assert told in refusal({"user": ["a", "b"], "item": [1, 2], "count": [5, 4]}, **settings)


# Click columns


@pytest.mark.parametrize("name", ["click", "Clicked", "is_click", "label"])
@pytest.mark.parametrize(
    "values",
    [
        [1, 0, 0, 1],
        [True, False, False, True],
        ["true", "false", "False", "TRUE"],
        [1.0, 0.0, 0, 1],
    ],
    ids=["integers", "booleans", "words", "floats"],
)
def test_the_ones_of_a_click_column_are_clicks_and_its_zeros_impressions(name, values):
    clicks = log(SHOP | {name: values})
    assert pairs(clicks) == {("ada", "x"): 1, ("bob", "x"): 1}
    assert shown(clicks) == {("ada", "x"): (1, 1), ("ada", "y"): (1, 0), ("bob", "x"): (2, 1)}
    assert str(clicks.read) == (
        f"the frame: user = user, item = item, click = {name}; a click is {name} = 1, "
        "every other row an impression; 4 rows: 2 clicks, 2 impressions"
    )


def test_a_click_column_of_other_values_is_refused_with_the_cure():
    said = refusal(SHOP | {"label": [0, 1, 2, 0]})
    assert said.startswith("the frame, row 2: the label '2' is not 0 or 1; ")
    for cure in ("rating='label' (--rating)", "count='label' (--count)", "click='' (--click '')"):
        assert cure in said


def test_a_click_column_goes_before_a_rating_column_and_the_line_says_so():
    clicks = log(SHOP | {"rating": [5, 1, 1, 1], "clicked": [0, 1, 0, 0]})
    assert pairs(clicks) == {("ada", "y"): 1}
    assert "rating is not used" in str(clicks.read)
    assert pairs(log(SHOP | {"rating": [5, 1, 1, 1], "clicked": [0, 1, 0, 0]}, threshold=4)) == {
        ("ada", "x"): 1
    }


# Event columns

EVENTS = SHOP | {"event": ["view", "purchase", "impression", "view"]}


def test_an_event_column_is_not_guessed_at():
    said = refusal(EVENTS)
    assert "column 'event' holds view (2), " in said
    assert "purchase (1)" in said
    assert "--click purchase --shown view,impression" in said
    assert "--click" in refusal(EVENTS, event="event")
    assert "--click" in refusal(EVENTS | {"clicked": [1, 0, 0, 0]})


def test_the_events_named_are_clicks_and_impressions():
    for given in ({"shown": "view, impression"}, {"shown": ["view", "impression"]}):
        clicks = log(EVENTS, click="purchase", **given)
        assert pairs(clicks) == {("ada", "y"): 1}
        assert shown(clicks) == {("ada", "x"): (1, 0), ("ada", "y"): (1, 1), ("bob", "x"): (2, 0)}
        assert clicks.read is not None
        assert clicks.read.rule == (
            "a click is event = purchase, an impression event = view or impression"
        )
        assert (clicks.read.clicks, clicks.read.shown, clicks.read.dropped) == (1, 3, 0)
        assert clicks.read.doubts == ()


def test_a_pair_is_shown_as_often_as_its_views_or_its_clicks_say():
    rows = [("a", "x", e) for e in ("view", "view", "buy")]
    rows += [("b", "y", e) for e in ("view", "buy", "buy")]
    frame = pl.DataFrame(rows, schema=["user", "item", "event"], orient="row")
    assert shown(log(frame, click="buy", shown="view")) == {
        ("a", "x"): (2, 1),
        ("b", "y"): (2, 2),
    }


def test_events_that_nobody_names_are_dropped_with_their_ids_and_said():
    rows = EVENTS["user"], EVENTS["item"], EVENTS["event"]
    searched = {
        name: [*column, more]
        for name, column, more in zip(
            ("user", "item", "event"), rows, ("cy", None, "search"), strict=True
        )
    }
    with pytest.warns(LogWarning, match=r"dropped view \(2\), impression \(1\), search \(1\)"):
        clicks = read_log(searched, click="purchase", any_size=True)
    assert clicks.read is not None
    assert (clicks.read.rows, clicks.read.clicks, clicks.read.dropped) == (5, 1, 4)
    assert clicks.shown is None
    assert clicks.user_ids.values.tolist() == ["ada"]
    said = refusal(searched, click="search", shown="view")
    assert "the frame, row 4: the id in column 'item' is missing" in said


def test_one_event_needs_no_word_and_an_event_that_never_comes_is_refused():
    clicks = log(SHOP | {"event": ["buy"] * 4})
    assert len(clicks) == 3
    assert "event is always buy" in str(clicks.read)
    assert "no event is bought" in refusal(EVENTS, click="bought")
    assert "holds view (2)" in refusal(EVENTS, click="bought")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"shown": "view"}, "needs click="),
        ({"click": "view", "shown": "view"}, "'view' is named by click= and by shown="),
        ({"click": "purchase", "rating": "item"}, "rating= and threshold= exclude click="),
        ({"click": "item", "shown": "view"}, "names values of an event column"),
        ({"click": "purchase", "event": "evnt"}, "did you mean 'event'?"),
        ({"click": "purchase", "count": "item", "time": "item"}, "both name 'item'"),
    ],
)
def test_words_that_exclude_each_other_are_refused(given, told):
    assert told in refusal(EVENTS, **given)


# Counts


@pytest.mark.parametrize("name", ["plays", "quantity", "count", "n"])
def test_counts_are_kept_and_those_of_repeated_rows_added_up(name):
    clicks = log(SHOP | {name: [3, 1, 2, 5]})
    assert pairs(clicks) == {("ada", "x"): 3, ("ada", "y"): 1, ("bob", "x"): 7}
    assert f"count = {name}" in str(clicks.read)
    assert "4 clicks on 3 pairs" in str(clicks.read)
    assert pairs(log(SHOP | {name: [3, 1, 2, 5]}, count="")) == pairs(log(SHOP))


WORDS = {
    "rating": "correct it or leave the row out",
    "plays": "is not a whole number of 0 to 2,147,483,647",
    "propensity": "is not a chance above 0 and at most 1",
}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        *(("rating", value) for value in (None, "x", "4,5", "true", float("nan"), -1.0, "1e999")),
        *(("plays", value) for value in (1.5, -1, None, "many", 2**31, float("nan"))),
        *(("propensity", value) for value in (0, 1.01, -0.1, None, float("nan"))),
    ],
)
def test_a_value_that_is_none_is_refused_with_its_row(column, value):
    said = refusal(SHOP | {column: [1, 1, value, 1]})
    assert f"the frame, row 2: the {column} '" in said
    assert WORDS[column] in said
    role = {"plays": "count"}.get(column, column)
    assert len(log(SHOP | {column: [1, 1, value, 1]}, **{role: ""})) == 3


def test_a_count_of_zero_is_no_click_and_said():
    with pytest.warns(LogWarning, match="dropped 1 rows whose plays is 0"):
        clicks = read_log(SHOP | {"plays": [3, 0, 2, 5]})
    assert pairs(clicks) == {("ada", "x"): 3, ("bob", "x"): 7}
    assert len(clicks.item_ids) == 2  # also without a click


def test_counts_add_up_to_an_int32_or_are_refused():
    said = refusal(SHOP | {"n": [1, 1, 2**31 - 1, 2]})
    assert "clicked 2147483649 times" in said


# Propensities


def test_logged_propensities_go_with_the_impressions():
    rows = SHOP | {"clicked": [1, 0, 0, 1], "propensity": [0.5, 0.25, 0.2, 0.4]}
    seen = log(rows).shown
    assert seen is not None
    assert seen.propensity is not None
    assert seen.propensity.tolist() == pytest.approx([0.5, 0.25, 0.3])  # the mean over rows
    of_clicks = log(SHOP | {"p": [0.5, 0.25, 0.2, 0.4]}, propensity="p")
    assert shown(of_clicks)["bob", "x"] == (2, 2)


# Times


def test_times_are_those_of_the_last_click_of_a_pair():
    clicks = log(SHOP | {"timestamp": [1_700_000_000, 5, 1_700_000_009, 1_700_000_003]})
    assert clicks.times is not None
    assert clicks.times.tolist() == [1_700_000_000, 5, 1_700_000_009]
    assert "timestamp is in seconds, 1970-01-01 … 2023-11-14" in str(clicks.read)


def test_a_column_that_only_sounds_like_times_is_left_out_and_a_given_one_refused():
    odd = SHOP | {"time": ["noon", "2024-01-01", "", ""]}
    clicks = log(odd)
    assert clicks.times is None
    said = "time is not used: in the frame, row 0, the time 'noon' is not a time: seconds,"
    assert said in str(clicks.read)
    assert "time = time" not in str(clicks.read)
    assert "the frame, row 0: the time 'noon' is not a time" in refusal(odd, time="time")


# What is said


def test_an_assumed_threshold_is_warned_of_and_a_given_one_is_not():
    rated = SHOP | {"rating": [5, 3, 4, 1]}
    with pytest.warns(LogWarning, match=r"threshold 4 is assumed: give threshold="):
        clicks = read_log(rated)
    assert clicks.read is not None
    assert clicks.read.dropped == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read_log(rated, threshold=4)) == 2
        assert len(read_log(rated, rating="")) == 3


def test_ratings_below_the_threshold_are_impressions_where_they_are_asked_for():
    rated = SHOP | {"rating": [5, 3, 4, 1]}
    for given in ({"rating": "rating"}, {}):  # the column is recognised by its name, too
        clicks = log(rated, threshold=4, shown="below", **given)
        assert set(pairs(clicks)) == {("ada", "x"), ("bob", "x")}
        assert shown(clicks) == {("ada", "x"): (1, 1), ("ada", "y"): (1, 0), ("bob", "x"): (2, 1)}
        assert "a click is rating ≥ 4, every other row an impression" in str(clicks.read)
        assert clicks.read.dropped == 0
    assert log(rated, threshold=4).shown is None
    assert "unless shown=below" in refusal(rated, threshold=4, shown="view")
    assert "has no rating column" in refusal(SHOP, shown="below")


def test_the_warning_points_at_the_caller():
    with pytest.warns(LogWarning) as caught:
        read_log(SHOP | {"stars": [5, 1, 1, 5]})
    assert Path(caught[0].filename) == Path(__file__)
