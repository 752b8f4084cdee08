"""Worlds made from ratings follow them, by either generator."""

import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import logit

from unexposed.data.clicks import Ratings
from unexposed.data.datasets import load, locate
from unexposed.data.ids import Ids
from unexposed.data.worlds import simulate
from unexposed.data.worlds.semi_synthetic import GENERATORS, converged, saito, trim
from unexposed.data.worlds.simulate import World

every_generator = pytest.mark.parametrize("generator", GENERATORS.values(), ids=list(GENERATORS))


def everyone(of: World) -> NDArray[np.int64]:
    return np.arange(of.n_users)


def popularity_correlation(of: World) -> float:
    """Correlation of θ = (clicks / most clicks)^½ with the true m over items, mean over users."""
    popularity = of.clicks(0).item_counts ** 0.5
    return float(np.mean([np.corrcoef(popularity, row)[0, 1] for row in of.exposure(everyone(of))]))


def real_ratings(name: str) -> Ratings:
    """The ratings of a real data set, or a skipped test where it is not at hand."""
    if locate(name) is None:
        pytest.skip(f"{name} is not here: put its files under $UNEXPOSED_DATA")
    return load(name, download=False).logged


@pytest.fixture(scope="module")
def ratings() -> Ratings:
    """Ratings of a known rank-one taste, popular items rated more often; item 0 by nobody."""
    rng = np.random.default_rng(0)
    n_users, n_items = 120, 80
    taste = np.outer(rng.normal(size=n_users), rng.normal(size=n_items))
    full = np.clip(3 + taste, 1, 5).astype(np.float32)
    chance = np.linspace(0, 0.8, n_items)
    users, items = np.nonzero(rng.random((n_users, n_items)) < chance)
    ids = Ids.range(n_users), Ids.range(n_items)
    return Ratings(users.astype(np.int32), items.astype(np.int32), full[users, items], *ids)


@pytest.fixture(scope="module")
def groups() -> Ratings:
    """Few ratings of popular items, each user rating one half of the items far more often."""
    rng = np.random.default_rng(0)
    n_users, n_items = 400, 300
    popularity = 0.9 / np.arange(1, n_items + 1) ** 0.5
    ours = np.arange(n_users)[:, None] % 2 == np.arange(n_items) % 2
    users, items = np.nonzero(rng.random((n_users, n_items)) < popularity * np.where(ours, 1, 0.05))
    values = rng.integers(3, 6, len(users)).astype(np.float32)
    ids = Ids.range(n_users), Ids.range(n_items)
    return Ratings(users.astype(np.int32), items.astype(np.int32), values, *ids)


# Both generators


@every_generator
def test_a_world_keeps_the_ids_and_is_set_by_its_seed(ratings, generator):
    made, again, other = (generator(ratings, seed=seed) for seed in (0, 0, 1))
    assert (made.user_ids, made.item_ids) == (ratings.user_ids, ratings.item_ids)
    for block, same, different in zip(
        *(w.truth(everyone(w)) for w in (made, again, other)), strict=True
    ):
        np.testing.assert_array_equal(block, same)
        assert not np.array_equal(block, different)


@every_generator
def test_exposure_is_raised_to_the_power(ratings, generator):
    some, one, two = (
        (w := generator(ratings, power=power)).exposure(everyone(w)) for power in (0.5, 1, 2)
    )
    np.testing.assert_allclose(some**2, one, rtol=1e-3)
    np.testing.assert_allclose(one**2, two, rtol=1e-3)
    assert some.mean() > one.mean() > two.mean()


@every_generator
def test_a_world_of_ratings_makes_no_array_of_users_by_items(monkeypatch, generator):
    n_users, n_items = 1500, 1000
    monkeypatch.setattr(simulate, "_PAIRS_AT_ONCE", 50 * n_items)
    diagonal = np.arange(n_items, dtype=np.int32)
    values = np.full(n_items, 4, dtype=np.float32)
    few = Ratings(diagonal, diagonal, values, Ids.range(n_users), Ids.range(n_items))
    tracemalloc.start()
    generator(few, dim=2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < n_users * n_items  # not even one byte a pair


# Saito's


def test_saitos_exposure_is_nearly_of_rank_one_and_a_converged_one_is_not(groups):
    def first_share(of: World) -> float:
        values = np.linalg.svd(of.exposure_factors.block(slice(None)), compute_uv=False)
        return float(values[0] ** 2 / (values**2).sum())

    assert first_share(saito(groups)) > 0.99
    assert first_share(converged(groups)) < 0.95


# The converged one


def test_converged_exposure_before_the_power_is_item_popularity(ratings):
    plain = converged(ratings, power=1)
    exposure = plain.exposure(everyone(plain))
    popularity = np.bincount(ratings.items, minlength=plain.n_items)
    np.testing.assert_allclose(exposure.sum(axis=0), popularity, atol=3)
    assert exposure.mean() == pytest.approx(len(ratings) / exposure.size, rel=0.02)
    assert exposure[:, 0].min() > 0  # item 0 is rated by nobody


def test_relevance_is_the_logistic_of_the_completed_clipped_rating(ratings):
    hidden = np.random.default_rng(1).random(len(ratings)) < 0.1
    seen = Ratings(
        *(part[~hidden] for part in (ratings.users, ratings.items, ratings.values)),
        ratings.user_ids,
        ratings.item_ids,
    )
    for epsilon in (5.0, 6.0):
        made = converged(seen, epsilon=epsilon, ridge=1.0)
        relevance = made.relevance(everyone(made)).astype(np.float64)
        rating = epsilon + logit(relevance)
        assert rating.min() > 1 - 1e-3
        assert rating.max() < 5 + 1e-3
        error = rating[ratings.users, ratings.items] - ratings.values
        spread = ratings.values.std()
        assert np.sqrt(np.mean(error[~hidden] ** 2)) < 0.3 * spread
        assert np.sqrt(np.mean(error[hidden] ** 2)) < 0.5 * spread


# The paper's cut


def by_hand(pairs: list[tuple[int, int]]) -> Ratings:
    users, items = np.array(pairs, dtype=np.int32).reshape(-1, 2).T
    values = np.arange(len(pairs), dtype=np.float32)
    return Ratings(users, items, values, Ids.of("abcde"), Ids.of("vwxyz"))


@pytest.mark.parametrize(
    ("pairs", "cut", "users", "items", "values"),
    [
        # user b and item w are rare
        ([(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 2)], (2, 2, 9, 9), "ac", "vx", "0245"),
        # item v stays: its ratings are counted before the rare user b is removed
        ([(0, 0), (0, 1), (1, 0), (2, 1), (2, 2)], (2, 2, 9, 9), "ac", "vw", "013"),
        # user a is rare; b and c are the first of the others
        ([(0, 4), (1, 1), (1, 2), (2, 2), (2, 3), (3, 2)], (2, 1, 2, 2), "bc", "wx", "123"),
    ],
)
def test_trim_keeps_ratings_of_the_first_frequent_users_and_items(pairs, cut, users, items, values):
    names = ("min_user_ratings", "min_item_ratings", "n_users", "n_items")
    kept = trim(by_hand(pairs), **dict(zip(names, cut, strict=True)))
    assert (kept.user_ids, kept.item_ids) == (Ids.of(users), Ids.of(items))
    assert kept.values.tolist() == [int(value) for value in values]
    raw = [("abcde"[u], "vwxyz"[i]) for u, i in (pairs[int(value)] for value in values)]
    assert [(users[u], items[i]) for u, i in zip(kept.users, kept.items, strict=True)] == raw


# On real ratings


@pytest.mark.data
def test_the_papers_cut_of_the_amazon_ratings():
    amazon = real_ratings("amazon_cds")
    if len(amazon) > 1_000_000:
        pytest.skip("the figure is known for the 30 % sample only")
    cut = trim(amazon)
    assert 27_000 < len(cut) < 28_500
    assert (len(cut.user_ids), len(cut.item_ids)) == (3_000, 3_000)


@pytest.mark.data
@pytest.mark.parametrize("seed", [0, 1])
def test_popularity_tells_exposure_on_movielens_as_in_the_worlds_of_the_paper(seed):
    movies = real_ratings("ml_100k")
    for power in (0.5, 1):
        made = saito(movies, power=power, seed=seed)
        assert popularity_correlation(made) == pytest.approx(0.83, abs=0.03)
    assert 0.6 < popularity_correlation(converged(movies)) < 0.7
