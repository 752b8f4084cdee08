"""Splits by time never look ahead, and no click is in both parts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import unexposed as ux
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.labelled import Impressions, Judgements
from unexposed.data.split import Split
from unexposed.errors import InputError

DAY = 86_400
IDS = {"user_ids": Ids.range(6), "item_ids": Ids.range(8)}
HOW = {"random": "random:0.3", "time": "time:0.7", "last": "last", "date": "date:1970-01-04"}


def log(*clicks: tuple[int, int, int], **more) -> Clicks:
    users, items, days = np.array(clicks).T
    return Clicks.from_pairs(users, items, times=days * DAY, **IDS, **more)


def pairs(clicks: Clicks) -> list[tuple[int, int]]:
    return list(zip(clicks.users.tolist(), clicks.items.tolist(), strict=True))


@st.composite
def logs(draw) -> Clicks:
    """Clicks of the first days of 1970, many of them on the same day."""
    click = st.tuples(st.integers(0, 5), st.integers(0, 7), st.integers(0, 6))
    return log(*draw(st.lists(click, min_size=1, max_size=30)))


@pytest.mark.parametrize("how", HOW.values())
@given(clicks=logs(), seed=st.integers(0, 3))
def test_every_click_is_in_exactly_one_part_with_its_count_and_time(how, clicks, seed):
    try:
        train, held_out = ux.split(clicks, how, seed=seed)
    except InputError:  # an empty part
        return
    assert len(train)
    assert len(held_out)
    assert sorted(pairs(train) + pairs(held_out)) == pairs(clicks)
    both = train.union(held_out)
    assert both.counts.tolist() == clicks.counts.tolist()
    assert both.times.tolist() == clicks.times.tolist()
    Split(train, held_out, Judgements.from_clicks(held_out))  # refuses a click in both parts


@given(clicks=logs(), share=st.floats(0.05, 0.95))
def test_training_ends_before_the_held_out_clicks_begin(clicks, share):
    try:
        train, held_out = ux.split(clicks, f"time:{share}")
    except InputError:
        assert len(np.unique(clicks.times)) == 1
        return
    assert train.times.max() < held_out.times.min()
    # no other change of time comes nearer to the share
    sizes = [(clicks.times < t).sum() for t in np.unique(clicks.times)[1:]]
    wanted = share * len(clicks)
    assert abs(len(train) - wanted) == min(abs(size - wanted) for size in sizes)


@given(clicks=logs(), seed=st.integers(0, 3))
def test_each_user_with_two_clicks_loses_its_last_one_and_nobody_another(clicks, seed):
    try:
        train, held_out = ux.split(clicks, "last", seed=seed)
    except InputError:
        assert clicks.user_counts.max() == 1
        return
    assert held_out.user_counts.tolist() == (clicks.user_counts > 1).astype(int).tolist()
    for user, time in zip(held_out.users, held_out.times, strict=True):
        assert time == clicks.times[clicks.users == user].max()
    assert (train.user_counts > 0).tolist() == (clicks.user_counts > 0).tolist()


def test_the_lot_decides_which_of_several_last_clicks_is_held_out():
    clicks = log(*((0, item, 5) for item in range(4)), (1, 0, 1), (1, 1, 2))
    found = {tuple(pairs(ux.split(clicks, "last", seed=seed)[1])) for seed in range(30)}
    assert found == {((0, item), (1, 1)) for item in range(4)}


def test_a_date_is_midnight_in_utc_unless_it_says_otherwise():
    clicks = log((0, 0, 0), (0, 1, 1), (1, 0, 2))
    assert pairs(ux.split(clicks, "date:1970-01-02")[1]) == [(0, 1), (1, 0)]
    assert pairs(ux.split(clicks, "date:1970-01-02T00:00:01")[1]) == [(1, 0)]
    assert pairs(ux.split(clicks, "date:1970-01-02T00:00-05:00")[1]) == [(1, 0)]


def test_training_does_not_see_the_impressions_of_held_out_clicks():
    users, items = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 2])
    shown = Impressions.from_pairs(users, items, clicked=np.array([1, 1, 1, 0]), **IDS)
    train, held_out = ux.split(log((0, 0, 0), (0, 1, 5), (1, 0, 1), shown=shown), "time:0.7")
    assert pairs(held_out) == [(0, 1)]
    assert list(zip(train.shown.users, train.shown.items, strict=True)) == [(0, 0), (1, 0), (1, 2)]


TIMELESS = Clicks.from_pairs(np.array([0, 0, 1]), np.array([0, 1, 0]), **IDS)
SAME = log((0, 0, 3), (1, 1, 3), (1, 2, 3))
REFUSED = {
    "week:2": (SAME, "no split 'week:2'"),
    "tiem:0.8": (SAME, "did you mean 'time'"),
    "time": (SAME, "a share between 0 and 1"),
    "time:80": (SAME, "a share between 0 and 1"),
    "random:nan": (SAME, "a share between 0 and 1"),
    "last:2": (SAME, "takes no value"),
    "date:May": (SAME, "date:2024-05-01, got 'May'"),
    "time:0.5": (SAME, "all clicks have the same time"),
    "random:0.1": (SAME, "holds out none of 3 clicks"),
    "date:1970-01-04": (SAME, "no click lies before 1970-01-04: the log runs from 1970-01-04 to"),
    "date:1971-01-01": (SAME, "no click lies after 1971-01-01: the log runs"),
    "last": (log((0, 0, 1), (1, 1, 2)), "holds out none of 2 clicks"),
    "time:0.8": (TIMELESS, r"the log has no times: name the column with time= \(--time\)"),
    "date:2024-05-01": (TIMELESS, "has no times"),
}


@pytest.mark.parametrize("how", REFUSED)
def test_a_split_that_cannot_be_made_is_refused_with_its_cure(how):
    clicks, words = REFUSED[how]
    with pytest.raises(InputError, match=words):
        ux.split(clicks, how)
