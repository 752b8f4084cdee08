"""Worlds keep their truth, log what it implies, and turn as their dials say."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, logit
from scipy.stats import chi2

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.split import Split
from unexposed.data.worlds import simulate
from unexposed.data.worlds.simulate import Factors, World, world
from unexposed.errors import InputError


def everyone(of: World) -> NDArray[np.int64]:
    return np.arange(of.n_users)


def same_clicks(one: Clicks, other: Clicks) -> bool:
    return np.array_equal(one.keys, other.keys)


def same_split(one: Split, other: Split) -> bool:
    return (
        same_clicks(one.train, other.train)
        and same_clicks(one.held_out, other.held_out)
        and np.array_equal(one.judged.items, other.judged.items)
        and np.array_equal(one.judged.relevant, other.judged.relevant)
    )


def within_user_correlation(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Pearson's r over the items, averaged over the users."""
    return float(np.mean([np.corrcoef(x, y)[0, 1] for x, y in zip(a, b, strict=True)]))


# The truth, and what is drawn from it


def test_truth_is_the_logistic_of_the_factors_by_hand():
    by_hand = World(
        exposure_factors=Factors(
            np.array([[1.0], [0.0]], dtype=np.float32),
            np.array([[2.0], [0.0], [-2.0]], dtype=np.float32),
            np.array([0.0, 1.0], dtype=np.float32),
            np.array([0.0, 0.0, 1.0], dtype=np.float32),
        ),
        relevance_factors=Factors(
            *(np.zeros(shape, dtype=np.float32) for shape in ((2, 1), (3, 1))),
            np.array([-9.0, 9.0], dtype=np.float32),
            np.zeros(3, dtype=np.float32),
        ),
        user_ids=Ids.range(2),
        item_ids=Ids.range(3),
        exposure_power=2.0,
        relevance_range=(-4.0, 0.0),
    )
    scores = np.array([[2.0, 0.0, -1.0], [1.0, 1.0, 2.0]])
    exposure, relevance = by_hand.truth(np.array([0, 1]))
    np.testing.assert_allclose(exposure, expit(scores) ** 2, rtol=1e-5)
    np.testing.assert_allclose(relevance, expit([[-4.0] * 3, [0.0] * 3]), rtol=1e-5)
    np.testing.assert_allclose(by_hand.exposure(np.array([1]))[0], exposure[1], rtol=1e-6)


def test_clicks_come_as_often_as_exposure_times_relevance():
    small, n_draws = world(60, 40), 400
    frequency = sum(small.clicks(seed).matrix().toarray() for seed in range(n_draws)) / n_draws
    exposure, relevance = (block.astype(np.float64) for block in small.truth(everyone(small)))
    chance = exposure * relevance
    z = (frequency - chance) / np.sqrt(chance * (1 - chance) / n_draws)
    assert abs(z.mean()) < 5 / np.sqrt(z.size)
    assert np.mean(z**2) == pytest.approx(1, abs=0.15)


def test_a_seed_gives_the_same_bits_and_another_one_other_clicks():
    one, again, other = world(seed=1), world(seed=1), world(seed=2)
    for block, same, different in zip(
        *(w.truth(everyone(w)) for w in (one, again, other)), strict=True
    ):
        np.testing.assert_array_equal(block, same)
        assert not np.array_equal(block, different)
    assert same_split(one.split(seed=5), again.split(seed=5))
    assert not same_clicks(one.clicks(5), one.clicks(6))


def test_a_draw_does_not_depend_on_the_size_of_the_blocks(monkeypatch):
    small = world(60, 41)
    split = small.split(seed=3)
    monkeypatch.setattr(simulate, "_PAIRS_AT_ONCE", 7 * 41)
    assert same_split(split, small.split(seed=3))


# The split


@pytest.mark.parametrize("asked", [1, 12, 30])
def test_each_user_has_as_many_judged_items_as_asked_and_likes_the_clicked_ones(asked):
    split = world(50, 30, exposure_rate=0.5).split(seed=0, judged_per_user=asked)
    judged = split.judged
    assert (np.bincount(judged.users) == asked).all()
    assert len(judged) == 50 * asked  # from_pairs merges repeats
    clicked = split.train.contain(judged.users, judged.items)
    assert clicked.any()
    assert judged.relevant[clicked].all()


def test_judged_items_are_a_uniform_sample_whatever_was_shown_or_clicked():
    n_users, n_items, asked, n_seeds = 200, 50, 10, 20
    biased = world(n_users, n_items, popularity_bias=1, relevance_bias=1)
    exposure = biased.exposure(everyone(biased)).mean(axis=0)
    counts, clicked = np.zeros(n_items), []
    for seed in range(n_seeds):
        judged = biased.split(seed=seed, judged_per_user=asked).judged
        counts += np.bincount(judged.items, minlength=n_items)
        clicks = biased.clicks(seed)
        clicked.append(clicks.contain(judged.users, judged.items).sum() / len(clicks))
    share, trials = asked / n_items, n_users * n_seeds
    # counts of a sample without replacement: variance trials·share·(1 − share), sum fixed
    statistic = ((counts - trials * share) ** 2).sum() / (trials * share * (1 - share))
    assert chi2.sf(statistic * (n_items - 1) / n_items, n_items - 1) > 1e-3
    assert abs(np.corrcoef(counts, exposure)[0, 1]) < 4 / np.sqrt(n_items)
    # a clicked pair is as likely to be judged as any other
    assert np.mean(clicked) == pytest.approx(share, abs=0.02)


def test_judged_items_are_relevant_as_often_as_the_truth_says():
    liked = world(exposure_rate=0.1, relevance_rate=0.4)  # apart: one cannot pass for the other
    relevance = liked.relevance(everyone(liked)).astype(np.float64)
    z = []
    for seed in range(10):
        judged = liked.split(seed=seed).judged
        chance = relevance[judged.users, judged.items]
        z.append((judged.relevant - chance) / np.sqrt(chance * (1 - chance)))
    assert abs(np.mean(z)) < 4 / np.sqrt(np.size(z))
    assert np.mean(np.square(z)) == pytest.approx(1, abs=0.05)


def labels_with_chance(of: World, seed: int, *, fresh: bool) -> tuple[NDArray, NDArray]:
    """The labels of the judged pairs, and γ of each."""
    judged = of.split(seed=seed, fresh=fresh, judged_per_user=min(20, of.n_items)).judged
    chance = of.relevance(everyone(of)).astype(np.float64)[judged.users, judged.items]
    return judged.relevant, chance


def test_fresh_labels_follow_the_truth_and_not_the_relevance_that_made_the_clicks():
    liked = world(exposure_rate=0.5, relevance_rate=0.4)
    assert_fresh(liked, n_seeds=5)
    # where every pair is judged, both labels of a pair come at the same place of their streams
    assert_fresh(world(4000, 1, exposure_rate=0.5, relevance_rate=0.4), n_seeds=2)


def assert_fresh(liked: World, *, n_seeds: int) -> None:
    both, old, alone = [], [], []
    for seed in range(n_seeds):
        (stale, chance), (fresh, _) = (
            labels_with_chance(liked, seed, fresh=anew) for anew in (False, True)
        )
        one, two = ((labels - chance) / np.sqrt(chance * (1 - chance)) for labels in (stale, fresh))
        both.append(one * two)
        old.append(one * one)
        alone.append(two)
    assert abs(np.mean(both)) < 4 / np.sqrt(np.size(both))  # independent of the other R
    assert np.mean(old) == pytest.approx(1, abs=0.05)  # which would show
    assert abs(np.mean(alone)) < 4 / np.sqrt(np.size(alone))
    assert np.mean(np.square(alone)) == pytest.approx(1, abs=0.05)


# The dials


@pytest.mark.parametrize(("popularity_bias", "relevance_bias"), [(0, 0), (1, 0), (0, 1), (0.5, 1)])
def test_mean_exposure_and_relevance_are_the_rates_asked_for(popularity_bias, relevance_bias):
    asked = world(
        popularity_bias=popularity_bias,
        relevance_bias=relevance_bias,
        exposure_rate=0.1,
        relevance_rate=0.35,
    )
    exposure, relevance = asked.truth(everyone(asked))
    assert exposure.mean() == pytest.approx(0.1, abs=1e-3)
    assert relevance.mean() == pytest.approx(0.35, abs=1e-3)


def test_popularity_bias_alone_gives_zipf_exposure():
    skewed = world(popularity_bias=1, relevance_bias=0)
    odds = np.sort(np.exp(logit(skewed.exposure(np.array([0]))[0].astype(np.float64))))[::-1]
    rank = np.arange(1, skewed.n_items + 1)
    np.testing.assert_allclose(odds / odds[0], 1 / rank, rtol=1e-3)


def test_relevance_bias_makes_exposure_follow_relevance():
    correlations = []
    for dial in (0.1, 0.25, 0.5, 1):
        turned = world(popularity_bias=0.5, relevance_bias=dial)
        correlations.append(within_user_correlation(*turned.truth(everyone(turned))))
    assert (np.diff(correlations) > 0.02).all()
    followed = world(popularity_bias=0, relevance_bias=1)
    assert within_user_correlation(*followed.truth(everyone(followed))) > 0.9


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n_users": 0}, "n_users must be at least 1, got 0"),
        ({"popularity_bias": 1.5}, "popularity_bias must lie in"),
        ({"relevance_bias": -0.1}, "relevance_bias must lie in"),
        ({"exposure_rate": 1.0}, "exposure_rate must lie between 0 and 1, got 1.0"),
        ({"relevance_rate": 0.0}, "relevance_rate must lie between 0 and 1, got 0.0"),
    ],
)
def test_a_world_refuses_impossible_settings(settings, said):
    with pytest.raises(InputError, match=said):
        world(**settings)
