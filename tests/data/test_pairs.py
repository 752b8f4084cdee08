"""Clicks, judgements, ratings, impressions and traffic as types."""

from dataclasses import replace

import numpy as np
import pytest

from unexposed.data.clicks import Clicks, Ratings
from unexposed.data.ids import Ids
from unexposed.data.labelled import Impressions, Judgements
from unexposed.data.split import Split
from unexposed.errors import InputError

USERS, ITEMS = Ids.of(["a", "b", "c"]), Ids.of([10, 20])


def clicks(*pairs: tuple[int, int]) -> Clicks:
    users, items = np.array(pairs, dtype=int).reshape(-1, 2).T
    return Clicks.from_pairs(users, items, user_ids=USERS, item_ids=ITEMS)


def test_repeated_pairs_are_merged_counted_and_ordered():
    log = clicks((2, 0), (0, 1), (2, 0), (0, 0))
    assert log.users.tolist() == [0, 0, 2]
    assert log.items.tolist() == [0, 1, 0]
    assert log.counts.tolist() == [1, 1, 2]
    assert log.item_counts.tolist() == [2, 1]
    assert log.user_counts.tolist() == [2, 0, 1]
    assert log.user_start.tolist() == [0, 2, 2, 3]


def test_contain_knows_exactly_the_clicked_pairs():
    log = clicks((0, 1), (2, 0))
    users, items = np.repeat([0, 1, 2], 2), np.tile([0, 1], 3)
    assert log.contain(users, items).tolist() == [False, True, False, False, True, False]
    assert log.matrix().toarray().tolist() == [[0, 1], [0, 0], [1, 0]]
    assert not clicks().contain(users, items).any()
    assert log.union(clicks((0, 1), (1, 0))).counts.tolist() == [2, 1, 1]


def test_hold_out_parts_the_clicks_and_rounds_down():
    n = 19
    log = Clicks.from_pairs(np.arange(n), np.zeros(n), user_ids=Ids.range(n), item_ids=Ids.range(2))
    train, held = log.hold_out(fraction=0.1, seed=4)
    assert (len(train), len(held)) == (18, 1)
    assert len(train.union(held)) == n
    assert not train.contain(held.users, held.items).any()
    again = log.hold_out(fraction=0.1, seed=4)[1]
    assert again.users.tolist() == held.users.tolist()
    picked = {int(log.hold_out(fraction=0.1, seed=s)[1].users[0]) for s in range(20)}
    assert len(picked) > 5
    with pytest.raises(InputError, match="fraction"):
        log.hold_out(fraction=1.0, seed=0)


@pytest.mark.parametrize(
    ("users", "items", "complaint"),
    [
        ([0, 3], [0, 0], "user index outside 0 … 2"),
        ([-1, 0], [0, 0], "user index"),
        ([0, 1], [0, 2], "item index outside 0 … 1"),
        ([1, 0], [0, 0], "ordered by user and item"),
        ([0, 0], [1, 1], "without repeats"),
        ([0], [0, 1], "as many users as items"),
    ],
)
def test_clicks_are_checked_at_the_door(users, items, complaint):
    users, items = np.array(users, dtype=np.int32), np.array(items, dtype=np.int32)
    with pytest.raises(InputError, match=complaint):
        Clicks(users, items, np.ones_like(users), USERS, ITEMS)
    with pytest.raises(InputError, match=complaint):
        Judgements(users, items, np.ones(len(users), dtype=bool), USERS, ITEMS)


def test_a_pair_judged_twice_is_relevant_if_it_ever_was():
    judged = Judgements.from_pairs(
        np.array([1, 0, 1]),
        np.array([0, 0, 0]),
        np.array([False, False, True]),
        user_ids=USERS,
        item_ids=ITEMS,
    )
    assert judged.users.tolist() == [0, 1]
    assert judged.relevant.tolist() == [False, True]


@pytest.mark.parametrize(
    ("damaged", "complaint"),
    [(1, "item index outside"), (2, "count of at least 1"), (3, "begin for each user")],
)
def test_stored_clicks_are_checked_before_all_of_them_are_used(damaged, complaint):
    log = clicks((0, 1), (2, 0))
    columns = [log.users, log.items, log.counts, log.user_start]

    def stored():
        return Clicks.stored(*columns, user_ids=USERS, item_ids=ITEMS)

    assert stored().checked().keys.tolist() == log.keys.tolist()
    columns[damaged] = columns[damaged].copy()
    columns[damaged][0] = -1
    for use in (Clicks.checked, Clicks.matrix, lambda c: c.keys, lambda c: c.item_counts):
        with pytest.raises(InputError, match=complaint):
            use(stored())


@pytest.mark.parametrize(
    ("held_out", "item_ids", "complaint"),
    [
        ((1, 0), ITEMS, "must not be among the training clicks"),
        ((1, 1), Ids.of([10, 21]), "same users and items"),
    ],
)
def test_a_split_whose_parts_do_not_fit_is_refused(held_out, item_ids, complaint):
    judged = Judgements.from_pairs(
        np.array([0]), np.array([0]), np.array([True]), user_ids=USERS, item_ids=item_ids
    )
    with pytest.raises(InputError, match=complaint):
        Split(clicks((0, 0), (1, 0)), clicks(held_out), judged)


def shown_ratings(n: int = 60) -> Ratings:
    users, items = np.divmod(np.arange(n, dtype=np.int32), 10)
    ids = Ids.range(n // 10), Ids.range(10)
    shown = np.arange(n, dtype=np.int32) % 4 + 1
    impressions = Impressions(users, items, shown, shown // 2, *ids)
    values = (shown // 2).astype(np.float32)
    times = np.arange(n, dtype=np.int64)
    return Ratings(users, items, values, *ids, threshold=1.0, times=times, shown=impressions)


def test_ratings_with_a_threshold_of_their_own_keep_it_whatever_is_asked():
    ratings = shown_ratings()
    clicks = ratings.clicks(threshold=4.0)
    np.testing.assert_array_equal(clicks.keys, np.flatnonzero(ratings.values >= 1))
    np.testing.assert_array_equal(clicks.counts, ratings.values[ratings.values >= 1])
    np.testing.assert_array_equal(clicks.times, clicks.keys)
    assert clicks.shown is ratings.shown
    traffic, judged = ratings.traffic(threshold=4.0), ratings.judgements(threshold=4.0)
    np.testing.assert_array_equal(traffic.relevant, ratings.values >= 1)
    np.testing.assert_array_equal(judged.relevant, traffic.relevant)


# Impressions and random traffic

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
