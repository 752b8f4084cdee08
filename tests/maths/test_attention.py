"""Attention is told from relevance by pairs that were shown several times."""

import numpy as np
import pytest

from unexposed.maths import attention


def showings(a: float, *, seed: int = 0, n_users: int = 400, n_items: int = 100):
    """Pairs of a simulated log: their item, times shown, and whether ever clicked.

    Items differ in how often they are shown and liked, and users in what they like.
    """
    rng = np.random.default_rng(seed)
    times = rng.poisson(rng.gamma(1, 1.5, (1, n_items)), (n_users, n_items))
    users, items = np.nonzero(times)
    n = times[users, items]
    liked = rng.random(len(n)) < rng.beta(1, 3, (n_users, n_items))[users, items]
    return items, n, liked & (rng.random(len(n)) < 1 - (1 - a) ** n)


@pytest.mark.parametrize("true", [0.15, 0.4, 0.8])
def test_the_likeliest_attention_is_near_the_true_one(true):
    found = [attention.learned(*showings(true, seed=seed)) for seed in range(4)]
    assert np.mean(found) == pytest.approx(true, rel=0.12)
    # what a plain mean would say: the share of clicks rises with n for relevance as well
    assert np.ptp(found) < 0.5 * true


def test_an_item_that_is_always_seen_has_attention_one():
    assert attention.learned(*showings(1.0)) > 0.95


def test_without_repeated_showings_or_clicks_attention_is_one():
    items, times, clicked = showings(0.3)
    assert attention.learned(items, np.ones_like(times), clicked) == 1
    assert attention.learned(items, times, np.zeros_like(clicked)) == 1


def test_seen_is_one_less_the_chance_of_missing_every_showing():
    times = np.array([1, 2, 7])
    np.testing.assert_allclose(attention.seen(times, 0.3), 1 - 0.7**times)
    np.testing.assert_array_equal(attention.seen(times, 1.0), 1)
    np.testing.assert_allclose(attention.seen(times, 1e-12), times * 1e-12, rtol=1e-9)
