"""Recommendations under rules agree with a full sort of all scores."""

import numpy as np
import polars as pl
import pytest
from scipy.special import expit, logit

from small import make_with
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.worlds.simulate import world
from unexposed.errors import InputError
from unexposed.methods import METHODS, make
from unexposed.model import recommend as serving
from unexposed.model.filters import Rules
from unexposed.model.model import Model
from unexposed.progress import Silent
from unexposed.ranking.blocks import tie_break

N_USERS, N_ITEMS = 40, 30


@pytest.fixture(scope="module")
def clicks() -> Clicks:
    found = world(N_USERS, N_ITEMS, seed=1).clicks(0)
    return Clicks(
        found.users,
        found.items,
        found.counts,
        user_ids=Ids.of(f"user {u}" for u in range(N_USERS)),
        item_ids=Ids.of(f"item {i}" for i in range(N_ITEMS)),
    )


@pytest.fixture(scope="module")
def model(clicks) -> Model:
    return make("ubo", dim=4, epochs=60, patience=0, learning_rate=0.05).fit(
        clicks, progress=Silent()
    )


ALL = np.arange(N_USERS, dtype=np.int32)


def best_by_sorting(value, k):
    """(user, item, rank) of the k greatest finite values of each row, by a full sort."""
    rows = []
    for user, row in enumerate(value):
        order = np.lexsort((tie_break(np.full(len(row), user), np.arange(len(row))), -row))
        best = [i for i in order if np.isfinite(row[i])][:k]
        rows += [(f"user {user}", f"item {i}", rank + 1) for rank, i in enumerate(best)]
    return rows


def unclicked(model):
    value = model.scores(ALL).astype(np.float64)
    value[model.clicks.users, model.clicks.items] = -np.inf
    return value


def chosen(table):
    return list(zip(table["user"], table["item"], table["rank"], strict=True))


def recommended(model, k=5, **rules):
    return model.recommend(model.user_ids.values.tolist(), k, rules=Rules(**rules))


def test_every_rule_leaves_out_what_it_says_and_nothing_else(model):
    value = unclicked(model)
    shown = model.method.exposure(model.parameters, ALL)
    items = np.arange(N_ITEMS)
    everything = model.scores(ALL)
    at_least = float(shown[0, value[0].argmax()])  # of a pair that is recommended, and stays
    cases = [
        ({}, value),
        ({"hide_clicked": False}, everything),
        ({"allow": ["item 3", "item 9", "new"]}, np.where(np.isin(items, [3, 9]), value, -np.inf)),
        ({"deny": ["item 3", "new"]}, np.where(items == 3, -np.inf, value)),
        ({"minimum_exposure": at_least}, np.where(shown >= at_least, value, -np.inf)),
    ]
    for rules, expected in cases:
        assert chosen(recommended(model, **rules)) == best_by_sorting(expected, 5), rules


def test_the_popularity_penalty_lowers_scores_but_not_relevance(model):
    value = unclicked(model) - 0.7 * np.log1p(model.clicks.item_counts)
    table = recommended(model, popularity_penalty=0.7)
    assert chosen(table) == best_by_sorting(value, 5)
    users, items = table["user"].to_list(), table["item"].to_list()
    score = model.score(users, items)
    np.testing.assert_allclose(table["relevance"], expit(score), rtol=1e-5)
    n = model.clicks.item_counts[model.item_ids.index(items)]
    np.testing.assert_allclose(table["score"], score - 0.7 * np.log1p(n), rtol=1e-4, atol=1e-6)
    assert chosen(table) != chosen(recommended(model))


def test_candidates_limit_each_user_to_their_own(model):
    pairs = Clicks.from_pairs(
        np.array([0, 0, 0, 1, 2]),
        np.array([0, 1, 2, 1, 3]),
        user_ids=Ids.of(["user 4", "user 2", "ghost"]),
        item_ids=Ids.of(["item 6", "item 1", "new", "item 2"]),
    )
    table = recommended(model, candidates=pairs, hide_clicked=False)
    assert set(zip(table["user"], table["item"], strict=True)) == {
        ("user 4", "item 6"),
        ("user 4", "item 1"),
        ("user 2", "item 1"),
    }
    rules = Rules(candidates=pairs, unknown="popular")
    assert model.recommend(["ghost"], 3, rules=rules)["item"].to_list() == ["item 2"]


def test_an_unknown_user_gets_the_items_of_the_greatest_mean_relevance(model):
    table = model.recommend(["ghost", "user 2"], 4, rules=Rules(unknown="popular"))
    assert table["known"].to_list() == [False] * 4 + [True] * 4
    mean = expit(model.scores(ALL)).mean(axis=0)
    best = np.argsort(-mean)[:4]
    popular = table.filter(pl.col("user") == "ghost")
    assert popular["item"].to_list() == [f"item {i}" for i in best]
    np.testing.assert_allclose(popular["relevance"], mean[best], rtol=1e-5)
    np.testing.assert_allclose(popular["score"], logit(mean[best]), rtol=1e-4, atol=1e-5)
    shown = model.method.exposure(model.parameters, ALL).mean(axis=0)
    np.testing.assert_allclose(popular["exposure"], shown[best], rtol=1e-5)


def test_what_is_written_is_what_is_recommended(model, tmp_path, monkeypatch):
    monkeypatch.setattr(serving, "SERVED_ENTRIES", 7 * N_ITEMS)
    assert model.write_recommendations(tmp_path / "all.parquet", k=3) == 3 * N_USERS
    assert pl.read_parquet(tmp_path / "all.parquet").equals(recommended(model, k=3))
    model.write_recommendations(tmp_path / "some.csv", ["user 5"], 2)
    assert pl.read_csv(tmp_path / "some.csv")["item"].to_list() == (
        model.recommend(["user 5"], 2)["item"].to_list()
    )


@pytest.mark.parametrize("name", METHODS)
def test_every_method_serves_unknown_users_with_the_columns_it_has(name, clicks):
    fitted = make_with(name, {"epochs": 1, "dim": 3}).fit(clicks, progress=Silent())
    table = fitted.recommend(["ghost", "user 0"], 3, rules=Rules(unknown="popular"))
    assert table["user"].to_list() == ["ghost"] * 3 + ["user 0"] * 3
    assert table["score"].is_finite().all()
    relevance = ["relevance"] if fitted.method.scale != "order" else []
    exposure = ["exposure"] if fitted.has_exposure else []
    shared = ["user", "item", "rank", "score"]
    assert table.columns == [*shared, *relevance, *exposure, "known"]


def test_similar_items_are_at_the_smallest_angle(model):
    vectors = model.parameters["item_factors"]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine = unit @ unit[3]
    order = [n for n in np.argsort(-cosine) if n != 3][:4]
    table = model.similar_items("item 3", 4)
    assert table["item"].to_list() == [f"item {n}" for n in order]
    np.testing.assert_allclose(table["similarity"], cosine[order], rtol=1e-5)
    with pytest.raises(InputError, match=f"between 1 and {len(vectors) - 1} other items"):
        model.similar_items("item 3", len(vectors))
    with pytest.raises(InputError, match="never trained on item 'ghost'"):
        model.similar_items("ghost")


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"minimum_exposure": 1.5}, r"minimum_exposure must lie in \[0, 1\], got 1.5"),
        ({"minimum_exposure": float("nan")}, "minimum_exposure"),
        ({"popularity_penalty": -1}, "popularity_penalty must be a finite number of at least 0"),
        ({"popularity_penalty": float("inf")}, "popularity_penalty"),
        ({"unknown": "guess"}, "refuse, skip, popular, got 'guess'"),
        ({"deny": "item 1"}, "deny must be a list"),
        ({"allow": ["x", "y"]}, "knows none of the 2 items to allow"),
    ],
)
def test_impossible_rules_are_refused(rules, said, model):
    with pytest.raises(InputError, match=said):
        recommended(model, **rules)


def test_impossible_requests_are_refused(model, clicks):
    for k in (0, N_ITEMS + 1):
        with pytest.raises(InputError, match="k must be between 1 and 30 items"):
            model.recommend(["user 0"], k=k)
    with pytest.raises(InputError, match="never trained on user 'nobody'"):
        model.recommend(["user 0", "nobody"])
    with pytest.raises(InputError, match="never trained on item 'nothing'"):
        model.score(["user 0"], ["nothing"])
    with pytest.raises(InputError, match="give a list of user ids"):
        model.recommend("user 0")
    popularity = make("popularity").fit(clicks, progress=Silent())
    with pytest.raises(InputError, match="popularity has no exposure model"):
        recommended(popularity, minimum_exposure=0.1)
    with pytest.raises(InputError, match="popularity has no item vectors"):
        popularity.similar_items("item 4")
