"""CJMF: sub-models that weigh each other's clicks."""

import numpy as np
import pytest

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.methods import cjmf
from unexposed.methods.cjmf import CJMF
from unexposed.progress import Silent

SUBMODEL = ("submodel_user_factors", "submodel_item_factors")


def world(n_users=6, n_items=5, density=0.4, seed=0):
    matrix = np.random.default_rng(seed).random((n_users, n_items)) < density
    matrix[0, 0] = True
    return clicks_of(matrix)


def clicks_of(matrix):
    users, items = np.nonzero(matrix)
    n_users, n_items = matrix.shape
    return Clicks.from_pairs(users, items, user_ids=Ids.range(n_users), item_ids=Ids.range(n_items))


# samples


def test_parts_are_even_and_a_click_keeps_its_part_wherever_it_comes():
    clicks = world(12, 30, 0.2)
    rng = np.random.default_rng(0)
    part = cjmf.split(len(clicks), 4, rng)
    sizes = np.bincount(part, minlength=4)
    assert sizes.max() - sizes.min() <= 1
    samples = cjmf.draw(clicks, part, negatives=3, rng=rng)
    drawn = samples.drawn
    assert np.array_equal(np.diff(drawn.start), np.full(len(clicks), 4))
    clicked = drawn.items[drawn.start[:-1]]
    for user, item, found in zip(drawn.users, clicked, samples.part, strict=True):
        assert found == part[(clicks.users == user) & (clicks.items == item)]


def test_batches_hold_every_click_once_in_order_with_its_items():
    clicks = world()
    rng = np.random.default_rng(0)
    samples = cjmf.draw(clicks, cjmf.split(len(clicks), 2, rng), negatives=2, rng=rng)
    batches = list(samples.batches(3))
    assert [len(b) for b in batches] == [3] * (len(clicks) // 3) + [len(clicks) % 3]
    for field in ("users", "items"):
        joined = np.concatenate([getattr(b.drawn, field) for b in batches])
        assert np.array_equal(joined, getattr(samples.drawn, field))
    assert np.array_equal(np.concatenate([b.part for b in batches]), samples.part)


def test_a_user_who_clicked_everything_gets_no_negatives():
    clicks = clicks_of(np.array([[1, 1, 1], [1, 0, 0]]))
    rng = np.random.default_rng(0)
    drawn = cjmf.draw(clicks, cjmf.split(4, 2, rng), negatives=2, rng=rng).drawn
    assert np.array_equal(np.diff(drawn.start), np.where(drawn.users == 0, 1, 3))


# the method


def checkerboard(n=40):
    """A user likes the items of its own colour; of each colour half is clicked."""
    rng = np.random.default_rng(0)
    liked = (np.arange(n)[:, None] + np.arange(n)) % 2 == 0
    return liked, liked & (rng.random((n, n)) < 0.5)


def fitted(seed=0, **settings):
    liked, matrix = checkerboard()
    small = {"dim": 4, "epochs": 8, "batch_size": 64, "n_models": 3, "learning_rate": 0.02}
    method = CJMF(**(small | settings))
    return liked, method.fit(clicks_of(matrix), seed=seed, progress=Silent())


@pytest.mark.parametrize("n_models", [1, 3])
def test_the_checkerboard_is_learned(n_models):
    liked, model = fitted(n_models=n_models)
    top, _ = model.top(np.arange(40, dtype=np.int32), 5)
    assert np.take_along_axis(liked, top, axis=1).mean() > 0.9


def test_scores_are_the_mean_relevance_of_the_sub_models():
    _, model = fitted()
    users, items = (model.parameters[name] for name in SUBMODEL)
    chosen = np.array([7, 0], dtype=np.int32)
    p = 1 / (1 + np.exp(-np.einsum("ucd,icd->uic", users[chosen], items)))
    np.testing.assert_allclose(model.scores(chosen), p.mean(2), rtol=1e-5)


def random_tables(method):
    rng = np.random.default_rng(0)
    tables = method.initial(world(), rng)
    return {n: rng.normal(0, 0.7, t.shape).astype(np.float32) for n, t in tables.items()}


@pytest.mark.parametrize("residual", [True, False])
def test_a_model_keeps_the_residual_in_its_vectors_and_the_mean_exposure(residual):
    method = CJMF(n_models=2, dim=3, residual=residual)
    tables, popularity = random_tables(method), np.linspace(0.2, 1, 5)
    kept = cjmf.kept({name: table.copy() for name, table in tables.items()}, popularity)
    for kind in ("user", "item"):
        expected = tables[f"submodel_{kind}_factors"]
        if residual:
            expected = expected + tables[f"residual_{kind}_factors"]
        np.testing.assert_allclose(kept[f"submodel_{kind}_factors"], expected)
    items = tables["submodel_item_factors"]  # the residual stays out of the exposure
    terms = np.einsum("icd,ckd->ick", items, tables["exposure_weight"]) + tables["exposure_bias"]
    gate, own, power = np.moveaxis(1 / (1 + np.exp(-terms)), 2, 0)
    shown = (gate * own + (1 - gate) * popularity[:, None]) ** power
    np.testing.assert_allclose(kept["exposure"], shown.mean(1), rtol=1e-5)
    block = method.exposure(kept, np.array([1, 1, 0], dtype=np.int32))
    np.testing.assert_array_equal(block, [kept["exposure"]] * 3)


def test_training_starts_with_an_exposure_between_a_quarter_and_popularity():
    # the gate, both σ at ½: m = (¼ + θ/2)^½
    clicks = world()
    method = CJMF(n_models=2, dim=3, initial_scale=1e-6)
    popularity = method.popularity(clicks)
    shown = cjmf.kept(method.initial(clicks, np.random.default_rng(0)), popularity)["exposure"]
    np.testing.assert_allclose(shown, np.sqrt(0.25 + popularity / 2), rtol=1e-4)


@pytest.mark.parametrize("residual", [True, False])
def test_engines_train_the_same_model(residual):
    one, other = (
        fitted(engine=name, epochs=2, residual=residual)[1] for name in ("cpu", "reference")
    )
    assert (one.facts["engine"], other.facts["engine"]) == ("cpu", "reference")
    for name, table in other.parameters.items():
        np.testing.assert_allclose(one.parameters[name], table, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(one.facts["losses"], other.facts["losses"], rtol=1e-5)


def test_what_is_learned_stays_finite_at_a_high_learning_rate():
    _, model = fitted(learning_rate=1.0, exposure_learning_rate=1.0, residual_learning_rate=1.0)
    assert all(np.isfinite(table).all() for table in model.parameters.values())
    assert np.isfinite(model.facts["losses"]).all()
    exposure = model.parameters["exposure"]
    assert exposure.min() >= np.float32(0.01)
    assert exposure.max() <= np.float32(0.99)


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    first, same, other = (fitted(seed=s, epochs=2)[1].parameters for s in (1, 1, 2))
    assert all(np.array_equal(first[name], same[name]) for name in first)
    assert not np.array_equal(first[SUBMODEL[0]], other[SUBMODEL[0]])
    assert {a.dtype for a in first.values()} == {np.dtype(np.float32)}
