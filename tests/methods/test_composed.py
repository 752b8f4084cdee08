"""Settings that composed methods share: how their negatives are drawn, on any engine."""

import numpy as np
import pytest

from small import COMPOSED, POINTWISE, clicks_of, fitted
from unexposed.data.clicks import Clicks
from unexposed.methods import make

PAIRWISE = sorted(set(COMPOSED) - set(POINTWISE))


def unlike_items() -> Clicks:
    """Item i was clicked by 11 − i users, so that popularity differs."""
    return clicks_of(np.tril(np.ones((12, 12), dtype=int), -1))


@pytest.mark.parametrize("name", COMPOSED)
def test_a_method_draws_by_its_exponent(name):
    drawing = make(name, negatives_exponent=0.5).composition().drawing
    assert drawing.exponent == 0.5
    assert make(name).composition().drawing.exponent == 0
    assert drawing.samples(unlike_items(), np.random.default_rng(0)).item_weight is None


@pytest.mark.parametrize("name", POINTWISE)
def test_unbiased_draws_by_popularity_have_item_weights(name):
    given = {"negatives_exponent": 1.0, "weighting": "unbiased", "negatives_from": "catalogue"}
    drawing = make(name, **given).composition().drawing
    assert drawing.source == "unclicked"
    clicks = unlike_items()
    weight = drawing.samples(clicks, np.random.default_rng(0)).item_weight
    counts = np.maximum(clicks.item_counts, 1)
    np.testing.assert_allclose(weight * counts, counts.sum() / 12, rtol=1e-6)  # 1/(M·q)


@pytest.mark.parametrize("name", PAIRWISE)
def test_pairwise_losses_draw_by_popularity_and_weigh_all_alike(name):
    clicks = unlike_items()
    drawing = make(name, negatives=500, negatives_exponent=1.0).composition().drawing
    pairs = drawing.samples(clicks, np.random.default_rng(0)).pairs()
    assert (pairs.weight == 1).all()
    mine = (pairs.users == 1) & (pairs.click == 0)  # who clicked item 0
    count = np.bincount(pairs.items[mine], minlength=12)
    expected = np.array([0, *range(10, 0, -1), 1])
    np.testing.assert_allclose(count / 500, expected / expected.sum(), atol=0.09)  # 5 sd


@pytest.mark.parametrize("name", ["umf", "ubo"])
def test_engines_agree_on_a_training_with_item_weights(name, small_world):
    given = {"weighting": "unbiased", "negatives_exponent": 0.5, "epochs": 2, "refit": False}
    clicks = small_world.clicks(0)
    cpu, reference = (
        fitted(name, clicks, engine=engine, **given).parameters for engine in ("cpu", "reference")
    )
    for key, table in reference.items():
        np.testing.assert_allclose(cpu[key], table, rtol=1e-3, atol=1e-5)
    without = fitted(name, clicks, engine="cpu", **given | {"negatives_exponent": 0.0}).parameters
    assert np.abs(cpu["item_factors"] - without["item_factors"]).max() > 1e-3
