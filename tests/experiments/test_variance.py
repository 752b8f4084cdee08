"""Gradients over redrawn clicks have the variance of the closed formulas."""

from itertools import product

import numpy as np
import pytest
import torch

import variance
from unexposed.data.worlds import simulate
from unexposed.data.worlds.simulate import World
from unexposed.maths.losses import LOSSES
from variance import VARIANCES, Factors, measure, ratios

every_loss = pytest.mark.parametrize("loss", VARIANCES)


def random_model(world: World, *, seed: int, dim: int = 3) -> Factors:
    rng = np.random.default_rng(seed)
    return Factors(rng.normal(size=(world.n_users, dim)), rng.normal(size=(world.n_items, dim)))


def surprise(found: dict[str, float]) -> float:
    """Distance of the measured variance from the formula, in standard errors."""
    return abs(found["empirical"] - found["formula"]) / found["standard_error"]


@every_loss
def test_drawn_variances_agree_with_the_formulas(loss, monkeypatch):
    monkeypatch.setattr(variance, "_ENTRIES_AT_ONCE", 500)  # a few users at a time
    world = simulate.world(50, 40, seed=1, exposure_rate=0.3, relevance_rate=0.4)
    found = measure(world, random_model(world, seed=1), loss=loss, draws=1200, seed=1)
    assert surprise(found["on_omega"]) < 4
    assert found["on_omega"]["standard_error"] < 0.02 * found["on_omega"]["formula"]
    frequent = [row for row in found["rows"] if row["clicks"] > 2000]
    assert len(frequent) >= 3
    for row in frequent:
        assert surprise(row["on_p"]) < 4, row


@every_loss
def test_total_formula_is_the_variance_over_every_possible_log(loss):
    """Two users and two items have 16 possible logs: average autograd's gradients over them."""
    world = simulate.world(2, 2, seed=4, exposure_rate=0.5, relevance_rate=0.5)
    model = random_model(world, seed=1)
    m, relevance = (part.astype(np.float64) for part in world.truth(np.arange(2)))
    gradients, chances = [], []
    for clicked in product((0.0, 1.0), repeat=4):
        click = np.array(clicked).reshape(2, 2)
        leaves = [torch.tensor(table, requires_grad=True) for table in model]
        value = LOSSES[loss].value(leaves[0] @ leaves[1].T, torch.tensor(click), torch.tensor(m))
        parts = torch.autograd.grad(value.sum(), leaves)
        gradients.append(np.concatenate([part.numpy().ravel() for part in parts]))
        chances.append(np.where(click > 0, m * relevance, 1 - m * relevance).prod())
    mean = np.average(gradients, axis=0, weights=chances)
    variance = np.average((gradients - mean) ** 2, axis=0, weights=chances).sum()
    found = measure(world, model, loss=loss, draws=4, seed=0)
    assert found["on_omega"]["formula"] == pytest.approx(variance, rel=1e-10)
    assert found["signal"] == pytest.approx((mean**2).sum(), rel=1e-10)


def test_both_losses_see_the_same_clicks_and_another_seed_draws_others(small_world):
    model = random_model(small_world, seed=0)
    one, two, other = (
        [row["clicks"] for row in measure(small_world, model, loss=loss, draws=8, seed=s)["rows"]]
        for loss, s in (("inverse_propensity", 0), ("low_variance", 0), ("low_variance", 1))
    )
    assert one == two
    assert one != other
    m, relevance = small_world.truth(np.arange(small_world.n_users))
    assert sum(one) == pytest.approx(8 * float((m * relevance).sum()), rel=0.1)


def line(arm, seed, *, empirical, formula, signal):
    on_omega = {"empirical": empirical, "formula": formula, "standard_error": 1.0}
    return {"arm": arm, "seed": seed, "on_omega": on_omega, "signal": signal}


def test_ratios_by_hand():
    lines = [
        line("inverse_propensity", 0, empirical=120.0, formula=100.0, signal=50.0),
        line("low_variance", 0, empirical=2.0, formula=4.0, signal=10.0),
        line("inverse_propensity", 1, empirical=1.0, formula=1.0, signal=1.0),  # without its L2
    ]
    assert ratios(lines) == [
        {"seed": 0, "empirical": 60.0, "formula": 25.0, "formula_over_signal": 5.0}
    ]
