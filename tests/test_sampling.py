import numpy as np
import pytest

from unexposed import loops
from unexposed.data import Clicks, Ids
from unexposed.sampling import (
    Pairs,
    Triples,
    all_pairs,
    draw_unclicked,
    sampled_pairs,
    sampled_triples,
)


@pytest.fixture
def log() -> Clicks:
    """Three users and six items: one click, four clicks, all six."""
    users = np.array([0] + [1] * 4 + [2] * 6)
    items = np.array([3, 0, 1, 2, 3, *range(6)])
    return Clicks.from_pairs(users, items, user_ids=Ids.range(3), item_ids=Ids.range(6))


def first_items(n_items: int, *counts: int) -> Clicks:
    """User after user, so many clicks on the first items."""
    users = np.repeat(np.arange(len(counts)), counts)
    items = np.concatenate([np.arange(c) for c in counts])
    return Clicks.from_pairs(
        users, items, user_ids=Ids.range(len(counts)), item_ids=Ids.range(n_items)
    )


def columns(samples: Pairs | Triples) -> list[list[float]]:
    return [column.tolist() for column in vars(samples).values()]


def test_negatives_are_drawn_uniformly_from_the_unclicked_items(log):
    n = 20_000
    drawn = draw_unclicked(log, np.repeat([0, 1], n).astype(np.int32), np.random.default_rng(0))
    first = np.bincount(drawn[:n], minlength=6)
    second = np.bincount(drawn[n:], minlength=6)
    assert first[3] == 0
    assert second[:4].sum() == 0
    np.testing.assert_allclose(first[[0, 1, 2, 4, 5]] / n, 0.2, atol=0.015)  # 5 sd
    np.testing.assert_allclose(second[4:] / n, 0.5, atol=0.018)


def test_an_epoch_holds_every_click_once_and_negatives_for_each(log):
    pairs = sampled_pairs(log, negatives=3, weighting="none", rng=np.random.default_rng(1))
    clicked = pairs.click == 1
    assert sorted(zip(pairs.users[clicked], pairs.items[clicked], strict=True)) == sorted(
        zip(log.users, log.items, strict=True)
    )
    # user 2 has clicked everything: nothing can be drawn for it
    assert np.bincount(pairs.users[~clicked], minlength=3).tolist() == [3, 12, 0]
    assert not log.contain(pairs.users[~clicked], pairs.items[~clicked]).any()
    assert (pairs.weight == 1).all()


def test_an_epochs_negatives_are_uniform_on_what_each_user_left(log):
    n = 4000
    pairs = sampled_pairs(log, negatives=n, weighting="none", rng=np.random.default_rng(4))
    triples = sampled_triples(log, negatives=n, rng=np.random.default_rng(4))
    drawn = pairs.click == 0
    for users, items in (
        (pairs.users[drawn], pairs.items[drawn]),
        (triples.users, triples.negatives),
    ):
        count = np.zeros((3, 6))
        np.add.at(count, (users, items), 1)
        np.testing.assert_allclose(count[0] / n, [0.2, 0.2, 0.2, 0, 0.2, 0.2], atol=0.032)  # 5 sd
        np.testing.assert_allclose(count[1] / (4 * n), [0, 0, 0, 0, 0.5, 0.5], atol=0.02)
        assert count[2].sum() == 0


def test_the_one_item_a_user_has_not_clicked_is_found():
    clicks = first_items(1000, 999)
    triples = sampled_triples(clicks, negatives=2, rng=np.random.default_rng(0))
    assert len(triples) == 2 * 999
    assert (triples.negatives == 999).all()


@pytest.mark.parametrize("sampled", [sampled_pairs, sampled_triples])
def test_the_order_is_shuffled_and_follows_the_seed(log, sampled):
    options = {"negatives": 2} | ({"weighting": "none"} if sampled is sampled_pairs else {})

    def drawn(seed: int) -> Pairs | Triples:
        return sampled(log, **options, rng=np.random.default_rng(seed))

    one, two, other = (drawn(seed) for seed in (0, 0, 1))
    assert columns(one) == columns(two)
    assert columns(one) != columns(other)
    assert (np.diff(one.users) < 0).any()


@pytest.mark.parametrize("pairs", [True, False])
def test_any_number_of_threads_gives_the_same_samples(pairs):
    rng = np.random.default_rng(0)
    counts = rng.integers(0, 60, size=3000)
    counts[[0, 7, -1]] = 60, 0, 60  # everything, and nothing
    clicks = first_items(60, *counts)
    one, *others = (
        loops.samples(
            clicks.items, clicks.user_start, 60, 3, pairs=pairs, seed=np.uint64(1), threads=threads
        )
        for threads in (1, 2, 3, 7)
    )
    assert one.shape[1] > 7 * loops.PART  # enough for each to have a part
    for other in others:
        assert (one == other).all()


def test_one_generator_gives_every_epoch_other_samples(log):
    rng = np.random.default_rng(0)
    one, two = (sampled_triples(log, negatives=2, rng=rng) for _ in range(2))
    assert columns(one) != columns(two)


def test_every_order_of_the_samples_is_as_likely():
    clicks = first_items(4, 4)  # nothing to draw: four clicks to put in order
    rng = np.random.default_rng(0)
    n = 24_000
    orders: dict[tuple[int, ...], int] = {}
    for _ in range(n):
        order = tuple(sampled_pairs(clicks, negatives=1, weighting="none", rng=rng).items.tolist())
        orders[order] = orders.get(order, 0) + 1
    assert len(orders) == 24
    assert sum((count - n / 24) ** 2 / (n / 24) for count in orders.values()) < 60  # χ², 23 d.f.


def test_samples_of_a_long_epoch_land_anywhere_in_it():
    n = 200_000  # several of the parts that are shuffled one at a time
    clicks = first_items(n, n)
    came_from = sampled_pairs(
        clicks, negatives=1, weighting="none", rng=np.random.default_rng(0)
    ).items
    assert sorted(came_from.tolist()) == list(range(n))
    moves = np.zeros((10, 10))  # from which tenth to which
    np.add.at(moves, (came_from * 10 // n, np.arange(n) * 10 // n), 1)
    np.testing.assert_allclose(moves / (n / 100), 1, atol=0.11)  # 5 sd
    neighbours = np.abs(np.diff(came_from.astype(float)))
    assert neighbours.mean() == pytest.approx(n / 3, rel=0.01)


def test_negatives_of_a_long_epoch_are_drawn_independently():
    n_items, draws = 1_000_000, 200_000
    clicks = first_items(n_items, *[1] * (draws // 5))
    drawn = sampled_triples(clicks, negatives=5, rng=np.random.default_rng(0)).negatives
    assert len(drawn) == draws
    expected = n_items * (1 - np.exp(-draws / n_items))  # distinct ones, give or take 130
    assert abs(len(np.unique(drawn)) - expected) < 650


@pytest.mark.parametrize(
    ("n_items", "counts", "n_pairs", "n_triples"),
    [
        (1, (1,), 1, 0),  # all is clicked
        (1, (0, 1), 1, 0),  # a user without clicks, and all is clicked
        (2, (1,), 4, 3),
        (2, (2, 1, 0), 2 + 4, 3),
        (3, (0, 0), 0, 0),
    ],
)
@pytest.mark.parametrize("weighting", ["none", "unbiased"])
def test_the_smallest_logs_have_their_samples(n_items, counts, n_pairs, n_triples, weighting):
    clicks = first_items(n_items, *counts)
    pairs = sampled_pairs(clicks, negatives=3, weighting=weighting, rng=np.random.default_rng(0))
    triples = sampled_triples(clicks, negatives=3, rng=np.random.default_rng(0))
    assert (len(pairs), len(triples)) == (n_pairs, n_triples)
    assert clicks.contain(pairs.users, pairs.items).tolist() == (pairs.click == 1).tolist()
    assert [c.dtype for c in vars(pairs).values()] == [np.int32, np.int32, np.float32, np.float32]
    assert [c.dtype for c in vars(triples).values()] == [np.int32] * 3
    assert np.isfinite(pairs.weight).all()
    assert (pairs.weight[pairs.click == 1] == 1).all()


def test_unbiased_weights_make_the_sampled_sum_estimate_the_sum_over_all_pairs(log):
    value = np.random.default_rng(5).normal(size=(3, 6))  # what each pair costs
    everything = value.sum()
    rng = np.random.default_rng(6)
    sums = []
    plain = []
    for _ in range(3000):
        pairs = sampled_pairs(log, negatives=2, weighting="unbiased", rng=rng)
        cost = value[pairs.users, pairs.items]
        sums.append((pairs.weight * cost).sum())
        plain.append(cost.sum())
    error = np.std(sums) / np.sqrt(len(sums))
    assert abs(np.mean(sums) - everything) < 4 * error
    assert abs(np.mean(plain) - everything) > 10 * error


def test_unbiased_weights_of_a_users_negatives_add_up_to_its_unclicked_items(log):
    pairs = sampled_pairs(log, negatives=3, weighting="unbiased", rng=np.random.default_rng(0))
    drawn = pairs.click == 0
    total = np.bincount(pairs.users[drawn], weights=pairs.weight[drawn], minlength=3)
    np.testing.assert_allclose(total, [5, 2, 0], rtol=1e-6)
    assert (pairs.weight[~drawn] == 1).all()


def test_triples_pair_each_click_with_unclicked_items_of_its_user(log):
    triples = sampled_triples(log, negatives=2, rng=np.random.default_rng(2))
    assert len(triples) == 2 * 5  # user 2 has nothing unclicked
    assert log.contain(triples.users, triples.items).all()
    assert not log.contain(triples.users, triples.negatives).any()


def test_all_pairs_visits_the_whole_matrix_once(log):
    pairs = all_pairs(log, rng=np.random.default_rng(0))
    keys = pairs.users * 6 + pairs.items
    assert sorted(keys.tolist()) == list(range(18))
    assert pairs.click.sum() == len(log)
    assert log.contain(pairs.users, pairs.items).tolist() == (pairs.click == 1).tolist()


def test_batches_cover_an_epoch_in_order_with_a_short_last_one(log):
    pairs = sampled_pairs(log, negatives=1, weighting="none", rng=np.random.default_rng(0))
    parts = list(pairs.batches(6))
    assert [len(p) for p in parts] == [6, 6, 4]
    assert np.concatenate([p.items for p in parts]).tolist() == pairs.items.tolist()
