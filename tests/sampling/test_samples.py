"""Samples: every click once, drawn items uniform, weights unbiased, batches whole."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.sampling import draw
from unexposed.sampling.samples import Drawing, Samples, drawn, every_pair


def first_items(n_items: int, *counts: int) -> Clicks:
    """User after user, this many clicks on the first items."""
    users = np.repeat(np.arange(len(counts)), counts)
    items = np.concatenate([np.arange(c) for c in counts])
    return Clicks.from_pairs(
        users, items, user_ids=Ids.range(len(counts)), item_ids=Ids.range(n_items)
    )


LOG = first_items(6, 1, 4, 6)


def columns(samples: Samples) -> list[list[float]]:
    return [column.tolist() for column in vars(samples).values() if isinstance(column, np.ndarray)]


def each_click(samples: Samples) -> Iterator[tuple[int, int, list[int]]]:
    """The user of each click, the clicked item, and the items drawn for it."""
    for user, (begin, end) in zip(samples.users.tolist(), pairwise(samples.start), strict=True):
        clicked, *others = samples.items[begin:end].tolist()
        yield user, clicked, others


def clicked_pairs(samples: Samples) -> list[tuple[int, int]]:
    return sorted((user, item) for user, item, _ in each_click(samples))


def pairs_of(clicks: Clicks) -> list[tuple[int, int]]:
    return list(zip(clicks.users.tolist(), clicks.items.tolist(), strict=True))


def drawn_counts(samples: Samples, clicks: Clicks) -> np.ndarray:
    """How often each item was drawn for each user."""
    pairs = samples.pairs()
    count = np.zeros((clicks.n_users, clicks.n_items))
    np.add.at(count, (pairs.users, pairs.items), pairs.click == 0)
    return count


# the epoch


def test_an_epoch_holds_every_click_once_and_unclicked_items_for_each():
    samples = drawn(LOG, negatives=3, rng=np.random.default_rng(1))
    assert clicked_pairs(samples) == pairs_of(LOG)
    # user 2 has clicked everything: nothing can be drawn
    n_drawn = {user: len(others) for user, _, others in each_click(samples)}
    assert n_drawn == {0: 3, 1: 3, 2: 0}
    assert not drawn_counts(samples, LOG)[LOG.users, LOG.items].any()
    assert (samples.weight == 1).all()


@pytest.mark.parametrize("clicked", [1, 11, 12, 13, 22])  # of 24: drawn again, then from a list
def test_negatives_are_uniform_however_much_of_the_catalogue_a_user_clicked(clicked):
    clicks = first_items(24, clicked)
    n = 240_000
    count = drawn_counts(
        drawn(clicks, negatives=n // clicked, rng=np.random.default_rng(0)), clicks
    )
    n, left = count.sum(), 24 - clicked
    assert not count[0, :clicked].any()
    chi_squared = ((count[0, clicked:] - n / left) ** 2 / (n / left)).sum()
    assert chi_squared < left - 1 + 5 * np.sqrt(2 * left)


@pytest.mark.parametrize(
    "drawing", [Drawing(2), Drawing(2, every_pair=True), Drawing(2, source="catalogue")], ids=str
)
def test_the_order_is_shuffled_and_follows_the_seed(drawing):
    rng = np.random.default_rng(0)
    one, next_epoch = (drawing.samples(LOG, rng) for _ in range(2))
    again, other = (drawing.samples(LOG, np.random.default_rng(seed)) for seed in (0, 1))
    assert columns(one) == columns(again)
    assert columns(one) != columns(other)
    assert columns(one) != columns(next_epoch)
    assert (np.diff(one.users) < 0).any()


@pytest.mark.parametrize("everything", [False, True])
def test_any_number_of_threads_gives_the_same_samples(everything):
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 60, size=3000)
    counts[[0, 7, -1]] = 60, 0, 60  # everything, and nothing
    clicks = first_items(60, *counts)
    log = (clicks.items, clicks.user_start, 60)
    one, *others = (
        draw.samples(*log, 3, everything, seed=np.uint64(1), threads=threads)
        for threads in (1, 2, 3, 7)
    )
    assert one[1].size > 7 * draw.PART  # enough for each to have a part
    for other in others:
        assert (one[0] == other[0]).all()
        assert (one[1] == other[1]).all()


def test_every_order_of_the_clicks_is_as_likely():
    clicks = first_items(4, 4)  # nothing to draw: four clicks to put in order
    rng = np.random.default_rng(0)
    n = 12_000
    orders: dict[tuple[int, ...], int] = {}
    for _ in range(n):
        order = tuple(drawn(clicks, negatives=1, rng=rng).items.tolist())
        orders[order] = orders.get(order, 0) + 1
    assert len(orders) == 24
    assert sum((count - n / 24) ** 2 / (n / 24) for count in orders.values()) < 60  # χ², 23 d.f.


@pytest.mark.parametrize(
    ("n_items", "counts", "n_pairs"),
    [
        (1, (1,), 1),  # all is clicked
        (1, (0, 1), 1),  # a user without clicks, and all is clicked
        (2, (1,), 1 + 3),
        (2, (2, 1, 0), 2 + 1 + 3),
        (3, (0, 0), 0),
    ],
)
@pytest.mark.parametrize("weighting", ["none", "unbiased"])
def test_the_smallest_logs_have_their_samples(n_items, counts, n_pairs, weighting):
    clicks = first_items(n_items, *counts)
    samples = Drawing(3, weighting).samples(clicks, np.random.default_rng(0))
    assert (len(samples), len(samples.items)) == (sum(counts), n_pairs)
    kinds = [np.int32, np.int64, np.int32, np.float32]
    assert [c.dtype for c in vars(samples).values() if isinstance(c, np.ndarray)] == kinds
    pairs = samples.pairs()
    assert clicks.contain(pairs.users, pairs.items).tolist() == (pairs.click == 1).tolist()
    assert np.isfinite(pairs.weight).all()
    assert (pairs.weight[pairs.click == 1] == 1).all()


# weights


def test_single_pairs_carry_the_weights_of_their_click_and_item():
    samples = Samples(
        np.array([4, 7], dtype=np.int32),
        np.array([0, 3, 4]),
        np.array([0, 1, 2, 3], dtype=np.int32),
        np.array([0.5, 9], dtype=np.float32),  # of the drawn; the second click has none
    )
    found = columns(samples.pairs())  # users, items, click, weight
    assert found == [[4, 4, 4, 7], [0, 1, 2, 3], [1, 0, 0, 1], [1, 0.5, 0.5, 1]]
    by_item = replace(samples, item_weight=np.array([5, 6, 7, 8], dtype=np.float32))
    for pairs in (by_item.pairs(), next(by_item.batches(2)).pairs()):
        assert columns(pairs) == [*found[:3], [1, 3, 3.5, 1]]


# every pair


def test_every_pair_of_a_user_with_a_click_comes_once():
    clicks = first_items(7, 1, 3, 0, 6, 7)
    pairs = every_pair(clicks, rng=np.random.default_rng(0)).pairs()
    keys = pairs.users * 7 + pairs.items
    assert sorted(keys.tolist()) == [u * 7 + i for u in (0, 1, 3, 4) for i in range(7)]
    assert clicks.contain(pairs.users, pairs.items).tolist() == (pairs.click == 1).tolist()
    assert (pairs.weight == 1).all()


@given(clicked=st.integers(1, 40), n_items=st.integers(1, 40))
def test_the_unclicked_items_of_a_user_are_dealt_out_evenly(clicked, n_items):
    clicks = first_items(max(n_items, clicked), clicked, 1)
    samples = every_pair(clicks, rng=np.random.default_rng(clicked))
    shares = [len(others) for user, _, others in each_click(samples) if user == 0]
    assert sum(shares) == clicks.n_items - clicked
    assert max(shares) - min(shares) <= 1


# batches


@given(lengths=st.lists(st.integers(1, 5), max_size=40), size=st.integers(1, 50))
def test_batches_of_any_size_keep_the_order_and_each_click_with_its_items(lengths, size):
    rng, n = np.random.default_rng(0), len(lengths)
    samples = Samples(
        rng.integers(9, size=n, dtype=np.int32),
        np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]),
        rng.integers(9, size=sum(lengths), dtype=np.int32),
        rng.random(n, dtype=np.float32),
    )
    parts = list(samples.batches(size))
    assert all(len(part) == size for part in parts[:-1])
    assert all(0 < len(part) <= size for part in parts)
    for part in parts:  # each can stand alone
        assert (part.start[0], part.start[-1]) == (0, len(part.items))
        assert len(part.start) == len(part) + 1
    clicks = [click for part in parts for click in each_click(part)]
    assert clicks == list(each_click(samples))
    assert [w for part in parts for w in part.weight.tolist()] == samples.weight.tolist()


@pytest.mark.parametrize(
    "drawing",
    [
        Drawing(3),
        Drawing(3, source="catalogue"),
        Drawing(3, "unbiased"),
        Drawing(3, every_pair=True),
    ],
    ids=["unclicked", "catalogue", "unbiased", "every pair"],
)
def test_the_log_odds_are_of_a_click_among_the_weighted_pairs_of_an_epoch(drawing):
    clicks = first_items(6, 1, 4, 6, 0)
    pairs = drawing.samples(clicks, np.random.default_rng(0)).pairs()
    odds = len(clicks) / pairs.weight[pairs.click == 0].sum()
    assert drawing.log_odds(clicks) == pytest.approx(np.log(odds), rel=1e-6)
    assert np.isfinite(drawing.log_odds(first_items(2, 2, 2)))  # nothing is left to draw


# the expected weight of an unclicked pair


@pytest.mark.parametrize(
    "drawing",
    [
        Drawing(3),
        Drawing(3, exponent=0.5),
        Drawing(2, source="catalogue"),
        Drawing(2, source="catalogue", exponent=1.0),
        Drawing(3, "unbiased"),
        Drawing(3, "unbiased", exponent=0.5),
        Drawing(3, every_pair=True),
        Drawing(3, "unbiased", every_pair=True, exponent=0.5),
    ],
    ids=str,
)
def test_the_expected_weight_of_an_unclicked_pair_is_its_mean_weight_over_epochs(drawing):
    users = np.array([1, 0])  # any, in any order
    epochs, rng = 4000, np.random.default_rng(0)
    sampler = drawing.sampler(LOG)
    values = np.zeros((epochs, 2, LOG.n_items))
    for number in range(epochs):
        pairs = sampler.draw(rng).pairs()
        total = np.zeros((LOG.n_users, LOG.n_items))
        np.add.at(total, (pairs.users, pairs.items), pairs.weight * (pairs.click == 0))
        values[number] = total[users]
    found = np.broadcast_to(drawing.expected_weight(LOG, users), (2, LOG.n_items))
    unclicked = ~LOG.contain(*np.indices((LOG.n_users, LOG.n_items)).reshape(2, -1))
    unclicked = unclicked.reshape(LOG.n_users, LOG.n_items)[users]
    error = values.std(axis=0) / np.sqrt(epochs)
    apart = np.abs(found - values.mean(axis=0))[unclicked]
    assert (apart <= 4.5 * error[unclicked] + 1e-5).all()
    weighs_all = drawing.weighting == "unbiased" or drawing.every_pair
    assert (found == 1).all() == weighs_all
    assert np.isfinite(drawing.expected_weight(LOG, np.array([2]))).all()  # it clicked everything
