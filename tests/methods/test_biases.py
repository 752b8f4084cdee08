"""Biases carry the base rates of users and items, in every method that has them and its models."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from small import COMPOSED, clicks_of, fitted
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.errors import InputError
from unexposed.maths.relevance import DotProduct
from unexposed.methods import make
from unexposed.model.export import export_model
from unexposed.model.model import Model
from unexposed.progress import Silent
from unexposed.training.side import Side

N_USERS, N_ITEMS = 300, 100
USERS = np.arange(N_USERS, dtype=np.int32)
NOTHING = np.zeros(0, dtype=np.int32)


def main_effects(mean: float, *, seed: int) -> np.ndarray:
    """γ of a world where users and items differ in their rates alone."""
    rng = np.random.default_rng(seed)
    return expit(mean + rng.normal(0, 0.7, (N_USERS, 1)) + rng.normal(0, 1, N_ITEMS))


def drawn(chance: np.ndarray) -> Clicks:
    return clicks_of(np.random.default_rng(0).random(chance.shape) < chance)


def fit_all(name: str, clicks: Clicks, side: Side | None = None, **settings) -> Model:
    nothing_held_out = clicks.pick(NOTHING)
    method = make(name, patience=0, engine="cpu", **settings)
    return method.fit(clicks, nothing_held_out, side=side, progress=Silent())


# what biases learn


def test_every_user_and_item_is_expected_to_click_as_often_as_it_did():
    """∂/∂b_i Σ L = Σ_u (p − R̃) at m = 1, so at the minimum the sums of p are the counts.

    The weight decay is high enough to hold ω at zero, and b too if it had any.
    """
    clicks = drawn(main_effects(-2, seed=1))
    assert clicks.user_counts.min() > 0
    assert clicks.item_counts.min() > 0
    whole = {"pairs": "all", "batch_size": len(clicks), "epochs": 400, "learning_rate": 0.05}
    model = fit_all("mf", clicks, dim=1, weight_decay=0.5, biases=True, **whole)
    relevance = expit(model.scores(USERS))
    np.testing.assert_allclose(relevance.sum(axis=1), clicks.user_counts, rtol=0.02)
    np.testing.assert_allclose(relevance.sum(axis=0), clicks.item_counts, rtol=0.02)


@pytest.mark.parametrize("name", COMPOSED)
def test_the_columns_of_ones_stay_and_every_bias_moves(name, small_world):
    clicks = small_world.clicks(0)
    model = fit_all(name, clicks, dim=6, epochs=2, biases=True)
    users, items = model.parameters["user_factors"], model.parameters["item_factors"]
    assert (users[:, -1] == 1).all()
    assert (items[clicks.item_counts > 0, -1] != 0).all()
    if users.shape[1] == 6 + 1:  # a pairwise loss: the user's bias would cancel
        assert model.method.composition().relevance.biases == "item"
        return
    assert (items[:, -2] == 1).all()
    start = model.parameters["bias_start"][0]
    assert start == pytest.approx(model.method.composition().drawing.log_odds(clicks))
    moved = users[:, -2] != start
    assert (moved == (clicks.user_counts > 0)).all()


def test_a_product_of_rows_is_the_product_of_vectors_and_both_biases():
    relevance = DotProduct(3, 0.5, "both", start=-2.0)
    start = relevance.initial(4, 5, np.random.default_rng(0))
    users, items = start["user_factors"], start["item_factors"]
    assert (users[:, 3] == -2).all()
    assert (items[:, 4] == 0).all()
    users[:, 3], items[:, 4] = np.arange(4), np.arange(5)  # b_u, b_i
    expected = users[:, :3] @ items[:, :3].T + np.arange(4)[:, None] + np.arange(5)
    scores = relevance.scores(start, np.arange(4))
    np.testing.assert_allclose(scores, expected, rtol=1e-6)


# models


@pytest.fixture(scope="module", params=["ubo", "bpr"])
def model(request, checkerboard) -> Model:
    return fitted(request.param, checkerboard[0], epochs=10, biases=True)


NEWCOMERS = Clicks.from_pairs(
    np.array([0, 0, 1]),
    np.array([0, 1, 2]),
    user_ids=Ids.of(["new", "newer"]),
    item_ids=Ids.of(["item 0", "item 6", "item 3"]),
)


def test_folded_in_users_have_a_bias_of_their_own_and_the_ones(model):
    rows = model.fold_in(NEWCOMERS).parameters["user_factors"][-2:]
    assert (rows[:, -1] == 1).all()
    if model.method.name == "ubo":
        assert (rows[:, -2] != model.parameters["bias_start"]).all()


def test_an_update_goes_on_from_the_biases_of_the_model(model):
    strange = Clicks.from_pairs(
        np.array([0, 0]),
        np.array([0, 1]),
        user_ids=Ids.of(["stranger"]),
        item_ids=Ids.of(["strange", "stranger"]),
    )  # of which the model knows nothing: the user's row starts as any
    updated = replace(model, method=replace(model.method, learning_rate=1e-6)).update(
        strange, epochs=1
    )
    for name, table in tables(model).items():
        found = updated.parameters[name]
        np.testing.assert_allclose(found[: len(table)], table, atol=1e-4)
    assert (updated.parameters["user_factors"][:, -1] == 1).all()
    np.testing.assert_allclose(updated.parameters["item_factors"][-2:, -1], 0, atol=1e-4)
    if model.method.name == "ubo":
        assert (updated.parameters["item_factors"][:, -2] == 1).all()
        bias = updated.parameters["user_factors"][-1, -2]
        assert bias == pytest.approx(model.parameters["bias_start"][0], abs=1e-4)


def test_a_model_without_biases_is_not_continued_with_them_nor_the_other_way(model, checkerboard):
    clicks, width = checkerboard[0], model.parameters["item_factors"].shape[1]
    plain = fitted(model.method.name, clicks, epochs=1, dim=width)
    for method, start in ((model.method, plain), (plain.method, model)):
        with pytest.raises(InputError, match="trained with biases=.*: continue it with the same"):
            method.fit(clicks, side=Side(start=start.parameters))
    wider = {name: np.pad(table, ((0, 0), (0, 1))) for name, table in tables(model).items()}
    side = Side(start=model.parameters | wider)
    with pytest.raises(InputError, match=f"{width + 1} columns, here they have {width}"):
        model.method.fit(clicks, side=side)


def tables(model: Model) -> dict[str, np.ndarray]:
    return {name: model.parameters[name] for name in ("user_factors", "item_factors")}


def test_exports_score_as_the_model_does(model, tmp_path):
    about = export_model(model, tmp_path / "scorer", kind="onnx")  # compares, or refuses
    assert "score" in about["outputs"]
    export_model(model, tmp_path / "vectors", kind="npy")
    users, items = (np.load(tmp_path / "vectors" / f"{n}_vectors.npy") for n in ("user", "item"))
    everyone = np.arange(len(users), dtype=np.int32)
    np.testing.assert_allclose(users @ items.T, model.scores(everyone), rtol=1e-5, atol=1e-6)
