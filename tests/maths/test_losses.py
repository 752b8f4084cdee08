"""The paper's theorems about the two estimators, and arithmetic that holds where it is hard."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from torch import Tensor

from unexposed.maths.losses import (
    LOSSES,
    PAIRWISE_LOSSES,
    inverse_propensity_gradient,
    inverse_propensity_variance,
    low_variance,
    low_variance_cross_gradient,
    low_variance_exposure_gradient,
    low_variance_gradient,
    low_variance_variance,
)

WORLDS = [(0.3, 0.6), (0.05, 0.2), (0.9, 0.95), (1.0, 0.5)]  # (exposure m, relevance γ)
ESTIMATES = torch.linspace(0.005, 0.995, 199, dtype=torch.float64)  # every p, .005 apart

every_loss = pytest.mark.parametrize("name", LOSSES)
every_world = pytest.mark.parametrize(("exposure", "relevance"), WORLDS)


def number(value: float, like: Tensor = ESTIMATES) -> Tensor:
    return torch.full_like(like, value)


def mean_loss(name: str, click_rate: float, exposure: float) -> Tensor:
    """The mean loss of each p when this share of the pairs is clicked."""
    logit, m = torch.logit(ESTIMATES), number(exposure)
    clicked, unclicked = (LOSSES[name].value(logit, number(c), m) for c in (1.0, 0.0))
    return click_rate * clicked + (1 - click_rate) * unclicked


def slopes(gradient, exposure: float, estimate: float) -> list[float]:
    """∂L/∂p of a pair without and with a click: ∂L/∂x divided by ∂p/∂x."""
    p = torch.tensor([estimate], dtype=torch.float64)
    return [
        (gradient(torch.logit(p), number(c, p), number(exposure, p)) / (p * (1 - p))).item()
        for c in (0.0, 1.0)
    ]


# unbiasedness


@every_loss
@every_world
def test_expected_loss_is_least_at_true_relevance(name, exposure, relevance):
    expected = mean_loss(name, exposure * relevance, exposure)
    assert ESTIMATES[expected.argmin()].item() == pytest.approx(relevance, abs=1e-9)


@pytest.mark.parametrize("name", ["inverse_propensity", "low_variance"])
def test_ignoring_exposure_learns_the_click_rate_instead(name):
    expected = mean_loss(name, 0.3 * 0.6, exposure=1.0)
    assert ESTIMATES[expected.argmin()].item() == pytest.approx(0.3 * 0.6, abs=1e-9)


# variance

FORMULAS = [
    (inverse_propensity_gradient, inverse_propensity_variance),
    (low_variance_gradient, low_variance_variance),
]


@pytest.mark.parametrize(("gradient", "formula"), FORMULAS)
@pytest.mark.parametrize("estimate", [0.1, 0.5, 0.8])
@every_world
def test_variance_formula_is_that_of_the_two_outcomes(
    gradient, formula, estimate, exposure, relevance
):
    without, with_click = slopes(gradient, exposure, estimate)
    rate = exposure * relevance
    enumerated = rate * (1 - rate) * (with_click - without) ** 2  # a two-valued variable
    given = (torch.tensor(v, dtype=torch.float64) for v in (relevance, exposure, estimate))
    assert formula(*given).item() == pytest.approx(enumerated, rel=1e-12)


def test_variance_of_inverse_propensity_grows_without_bound_and_of_low_variance_does_not():
    exposure = torch.logspace(-12, 0, 100, dtype=torch.float64)
    relevance, estimate = number(0.6, exposure), number(0.3, exposure)
    unbounded = inverse_propensity_variance(relevance, exposure, estimate)
    bounded = low_variance_variance(relevance, exposure, estimate)
    assert unbounded[0] * exposure[0] == pytest.approx(0.6 / (0.3 * 0.7) ** 2)  # grows as 1/m
    assert (unbounded.diff() < 0).all()
    assert bounded.max() <= 0.6 / (0.3 * 0.7) ** 2
    assert bounded[0] < 1e-10  # it even vanishes


# gradients


def random_pairs(seed: int, size: int = 200) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logit = 3 * torch.randn(size, generator=generator, dtype=torch.float64)
    click = (torch.rand(size, generator=generator) < 0.5).double()
    exposure = 0.01 + 0.99 * torch.rand(size, generator=generator, dtype=torch.float64)
    return logit, click, exposure


def central(function, x: Tensor, step: float = 1e-6) -> Tensor:
    return (function(x + step) - function(x - step)) / (2 * step)


def autograd(function, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    return torch.autograd.grad(function(x).sum(), x)[0]


def assert_is_derivative(closed: Tensor, function, x: Tensor, rtol: float = 1e-6) -> None:
    torch.testing.assert_close(closed, autograd(function, x), rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(closed, central(function, x), rtol=rtol, atol=1e-7)


@every_loss
def test_gradient_is_the_derivative_of_the_loss(name):
    logit, click, exposure = random_pairs(seed=1)
    loss = LOSSES[name]
    closed = loss.gradient(logit, click, exposure)
    assert_is_derivative(closed, lambda x: loss.value(x, click, exposure), logit)


def test_exposure_gradient_is_the_derivative_of_the_loss():
    logit, click, exposure = random_pairs(seed=2)
    closed = low_variance_exposure_gradient(logit, click, exposure)
    assert_is_derivative(closed, lambda m: low_variance(logit, click, m), exposure, rtol=1e-5)


def test_cross_gradient_is_the_derivative_of_the_gradient_both_ways():
    logit, click, exposure = random_pairs(seed=3)
    closed = low_variance_cross_gradient(logit, click, exposure)
    assert_is_derivative(closed, lambda m: low_variance_gradient(logit, click, m), exposure)
    assert_is_derivative(
        closed, lambda x: low_variance_exposure_gradient(x, click, exposure), logit
    )
    assert (closed[click == 1] == 0).all()


@pytest.mark.parametrize("name", PAIRWISE_LOSSES)
def test_a_pairwise_gradient_is_the_derivative_and_a_tie_costs_log_two(name):
    loss = PAIRWISE_LOSSES[name]
    difference, _, exposure = random_pairs(seed=4)
    closed = loss.gradient(difference, exposure)
    assert_is_derivative(closed, lambda x: loss.value(x, exposure), difference)
    assert loss.value(torch.zeros(1), torch.ones(1)).item() == pytest.approx(np.log(2))


# float32 at the edges, against the textbook formula in two hundred digits


def textbook(logit: float, click: float, exposure: float) -> dict[str, float]:
    """Everything about L2 by its plain formulas, where digits are free."""
    with localcontext() as context:
        context.prec = 200
        c, m = int(click), Decimal(exposure)
        p = 1 / (1 + (-Decimal(logit)).exp())
        no_click = 1 - m * p
        return {
            "value": float(-(m * p).ln() if c else -no_click.ln()),
            "logit": float(-(1 - p) if c else m * p * (1 - p) / no_click),
            "exposure": float(-1 / m if c else p / no_click),
            "exposure twice": float(1 / m**2 if c else (p / no_click) ** 2),
            "cross": float(0 if c else p * (1 - p) / no_click**2),
        }


HARD = [
    (logit, click, exposure)
    for logit in (-40.0, -20.0, -1.0, 0.0, 1.0, 20.0, 40.0)
    for click in (0.0, 1.0)
    for exposure in (1.0, 1 - 2.0**-24, 0.5, 2.0**-10)
]


@pytest.mark.parametrize(("logit", "click", "exposure"), HARD)
def test_low_variance_holds_its_digits_in_float32(logit, click, exposure):
    true = textbook(logit, click, exposure)
    x = torch.tensor(logit, requires_grad=True)
    m = torch.tensor(exposure, requires_grad=True)
    c = torch.tensor(click)
    value = low_variance(x, c, m)
    by_logit, by_exposure = torch.autograd.grad(value, (x, m), create_graph=True)
    (by_logit_twice,) = torch.autograd.grad(by_logit, x, retain_graph=True)
    cross, twice = torch.autograd.grad(by_exposure, (x, m))
    got = {
        "value": value,
        "logit": by_logit,
        "exposure": by_exposure,
        "exposure twice": twice,
        "cross": cross,
    }
    for what, tensor in got.items():
        assert tensor.item() == pytest.approx(true[what], rel=2e-5, abs=1e-7), what
    assert torch.isfinite(by_logit_twice)

    closed = {
        "logit": low_variance_gradient(x, c, m),
        "exposure": low_variance_exposure_gradient(x, c, m),
        "cross": low_variance_cross_gradient(x, c, m),
    }
    for what, tensor in closed.items():
        assert tensor.item() == pytest.approx(true[what], rel=2e-5, abs=1e-37), what


@every_loss
@pytest.mark.parametrize(("logit", "click", "exposure"), HARD)
def test_every_loss_is_finite_in_float32(name, logit, click, exposure):
    x = torch.tensor(logit, requires_grad=True)
    m = torch.tensor(exposure, requires_grad=True)
    value = LOSSES[name].value(x, torch.tensor(click), m)
    first = torch.autograd.grad(value, (x, m), create_graph=True, materialize_grads=True)
    second = [
        torch.autograd.grad(f, (x, m), retain_graph=True, allow_unused=True, materialize_grads=True)
        for f in first
        if f.requires_grad
    ]
    closed = LOSSES[name].gradient(x, torch.tensor(click), m)
    assert all(torch.isfinite(t) for t in (value, *first, closed))
    assert all(torch.isfinite(t) for pair in second for t in pair)
    # what σ′ = p(1 − p) loses to rounding grows with the weight c/m
    assert closed.item() == pytest.approx(first[0].item(), rel=2e-5, abs=1e-7 / exposure)
