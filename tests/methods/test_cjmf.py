"""CJMF: sub-models that weigh each other's clicks."""

import numpy as np
import pytest

from small import clicks_of
from unexposed.methods import cjmf
from unexposed.methods.cjmf import CJMF
from unexposed.progress import Silent

SUBMODEL = ("submodel_user_factors", "submodel_item_factors")


def world(n_users=6, n_items=5, density=0.4, seed=0):
    matrix = np.random.default_rng(seed).random((n_users, n_items)) < density
    matrix[0, 0] = True
    return clicks_of(matrix)


# samples


def test_parts_are_even_and_a_click_keeps_its_part():
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


# the method


def fitted(**settings):
    liked = (np.arange(40)[:, None] + np.arange(40)) % 2 == 0
    clicks = clicks_of(liked & (np.random.default_rng(0).random((40, 40)) < 0.5))
    small = {"dim": 4, "epochs": 8, "batch_size": 64, "n_models": 3, "learning_rate": 0.02}
    return CJMF(**(small | settings)).fit(clicks, progress=Silent())


def test_scores_are_the_mean_relevance_of_the_sub_models():
    model = fitted()
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


def test_parameters_stay_finite_at_a_high_learning_rate():
    model = fitted(learning_rate=1.0, exposure_learning_rate=1.0, residual_learning_rate=1.0)
    assert all(np.isfinite(table).all() for table in model.parameters.values())
    assert np.isfinite(model.facts["losses"]).all()
    exposure = model.parameters["exposure"]
    assert exposure.min() >= np.float32(0.01)
    assert exposure.max() <= np.float32(0.99)
