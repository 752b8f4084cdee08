"""Impressions and random traffic as types."""

from dataclasses import replace

import numpy as np
import pytest

from unexposed import Clicks, Impressions, InputError, Traffic
from unexposed.data.ids import Ids

IDS = {"user_ids": Ids.range(3), "item_ids": Ids.range(4)}


def impressions() -> Impressions:
    return Impressions.from_pairs(
        np.array([2, 0, 2, 1]),
        np.array([3, 1, 3, 0]),
        clicked=np.array([1, 0, 0, 1]),
        propensity=np.array([0.5, 0.1, 0.25, 1.0]),
        **IDS,
    )


def test_rows_of_one_pair_are_added_up():
    found = impressions()
    assert found.users.tolist() == [0, 1, 2]
    assert found.items.tolist() == [1, 0, 3]
    assert found.shown.tolist() == [1, 1, 2]
    assert found.clicked.tolist() == [0, 1, 1]
    np.testing.assert_allclose(found.propensity, [0.1, 1, 0.375])
    assert found.contain(np.array([2, 2]), np.array([3, 0])).tolist() == [True, False]
    assert found.pick(found.clicked > 0).items.tolist() == [0, 3]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"shown": np.array([1, 1, 0], np.int32)}, "at least once"),
        ({"clicked": np.array([2, 0, 0], np.int32)}, "more often than shown"),
        ({"clicked": np.array([0, 0], np.int32)}, "for each pair"),
        ({"propensity": np.array([0.1, 0, 1], np.float32)}, r"in \(0, 1\]"),
        ({"items": np.array([1, 4, 3], np.int32)}, "item index outside"),
    ],
)
def test_impossible_impressions_are_refused(change, says):
    with pytest.raises(InputError, match=says):
        replace(impressions(), **change)


def test_traffic_needs_a_bool_for_each_distinct_pair():
    users, items = np.array([0, 1], np.int32), np.array([1, 0], np.int32)
    traffic = Traffic(users, items, np.array([True, False]), **IDS)
    assert traffic.pick(traffic.relevant).users.tolist() == [0]
    with pytest.raises(InputError, match="one bool"):
        Traffic(users, items, np.array([1, 0]), **IDS)
    with pytest.raises(InputError, match="without repeats"):
        Traffic(users[[0, 0]], items[[0, 0]], np.array([True, False]), **IDS)


def test_clicks_keep_the_last_time_of_a_pair_and_their_impressions():
    clicks = Clicks.from_pairs(
        np.array([1, 0, 1]),
        np.array([0, 1, 0]),
        times=np.array([5, 7, 3]),
        shown=impressions(),
        **IDS,
    )
    assert clicks.times.tolist() == [7, 5]
    kept, out = clicks.hold_out(fraction=0.5, seed=0)
    assert sorted([*kept.times, *out.times]) == [5, 7]
    both = kept.union(out)
    assert both.times.tolist() == [7, 5]
    assert both.shown is clicks.shown
    alone = clicks.pairs_alone()
    assert alone.times is None
    assert alone.shown is None


def test_impressions_of_other_users_are_refused():
    with pytest.raises(InputError, match="same users and items"):
        Clicks.from_pairs(
            np.array([0]),
            np.array([0]),
            shown=impressions(),
            user_ids=Ids.range(4),
            item_ids=Ids.range(4),
        )
