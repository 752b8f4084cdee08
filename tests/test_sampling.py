import numpy as np
import pytest

from unexposed.data import Clicks, Ids
from unexposed.sampling import all_pairs, draw_unclicked, sampled_pairs, sampled_triples


@pytest.fixture
def log() -> Clicks:
    """Three users and six items: one click, four clicks, all six."""
    users = np.array([0] + [1] * 4 + [2] * 6)
    items = np.array([3, 0, 1, 2, 3, *range(6)])
    return Clicks.from_pairs(users, items, user_ids=Ids.range(3), item_ids=Ids.range(6))


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


def test_the_order_is_shuffled_and_follows_the_seed(log):
    one, two, other = (
        sampled_pairs(log, negatives=1, weighting="none", rng=np.random.default_rng(s))
        for s in (0, 0, 1)
    )
    assert one.items.tolist() == two.items.tolist()
    assert one.items.tolist() != other.items.tolist()
    assert (np.diff(one.users) < 0).any()


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
