"""Gradients of an exposure that is the same for all users, against differences and autograd."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from unexposed.maths.item_level import (
    FORMS,
    MOST,
    Block,
    Factors,
    hypergradient,
    log_share,
    train_gradient,
    validation_gradient,
    validation_losses,
)
from unexposed.maths.losses import low_variance

N_USERS, N_ITEMS, DIM = 7, 5, 4
FIXED = (DIM - 1, DIM - 2)  # rows [ω_u, b_u, 1] and [ω_i, 1, b_i]
Array = NDArray[np.float64]


class Pairs(NamedTuple):
    users: torch.Tensor
    items: torch.Tensor
    click: torch.Tensor
    weight: torch.Tensor


class Problem(NamedTuple):
    """A small factor model in float64 with a log, weights and validation pairs, some twice."""

    factors: Factors
    exposure: Array  # (n_items,)
    clicked: NDArray[np.bool_]  # (n_users, n_items)
    weight: Array  # of an unclicked pair, (n_users, n_items)
    validation: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]

    def block(self, users: slice = slice(None)) -> Block:
        rows, items = np.nonzero(self.clicked[users])
        return Block(users, (rows, items), self.weight[users])

    def direction(self, *, fixed: bool) -> Factors:
        found = validation_gradient(self.factors, *self.validation)
        for table, column in zip(found, FIXED, strict=True):
            if fixed:
                table[:, column] = 0.0
        return found

    def pairs(self) -> Pairs:
        """All pairs of users and items; a click weighs 1."""
        users, items = (torch.as_tensor(a.ravel()) for a in np.indices(self.clicked.shape))
        click = torch.as_tensor(self.clicked.ravel()).double()
        weight = torch.as_tensor(np.where(self.clicked, 1.0, self.weight).ravel())
        return Pairs(users, items, click, weight)

    def validation_pairs(self) -> Pairs:
        users, items, relevant = (torch.as_tensor(a) for a in self.validation)
        return Pairs(users, items, relevant.double(), torch.ones(len(users)).double())

    def omega(self) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.as_tensor(self.factors.users), torch.as_tensor(self.factors.items)


@pytest.fixture(params=range(2))
def problem(request) -> Problem:
    rng = np.random.default_rng(request.param)
    factors = Factors(rng.normal(size=(N_USERS, DIM)), rng.normal(size=(N_ITEMS, DIM)))
    for table, column in zip(factors, FIXED, strict=True):
        table[:, column] = 1.0
    pairs = rng.integers(N_USERS, size=20), rng.integers(N_ITEMS, size=20), rng.random(20) < 0.4
    return Problem(
        factors,
        rng.uniform(0.1, 0.9, N_ITEMS),
        rng.random((N_USERS, N_ITEMS)) < 0.3,
        rng.uniform(0.5, 2, (N_USERS, N_ITEMS)),
        pairs,
    )


def loss_of(omega: tuple[torch.Tensor, torch.Tensor], pairs: Pairs, m: torch.Tensor):
    logit = (omega[0][pairs.users] * omega[1][pairs.items]).sum(-1)
    return (pairs.weight * low_variance(logit, pairs.click, m)).sum()


def after_step(problem: Problem, m: torch.Tensor, *, lookahead: float, fixed: bool):
    """L_val(ω′) as a function of m."""
    omega = tuple(t.clone().requires_grad_() for t in problem.omega())
    batch, validation = problem.pairs(), problem.validation_pairs()
    loss = loss_of(omega, batch, m[batch.items])
    steps = torch.autograd.grad(loss, omega, create_graph=True)
    masks = [torch.ones(DIM).double() for _ in steps]
    for mask, column in zip(masks, FIXED, strict=True):
        mask[column] = 0.0 if fixed else 1.0
    ahead = tuple(t - lookahead * mask * s for t, mask, s in zip(omega, masks, steps, strict=True))
    return loss_of(ahead, validation, torch.ones(len(validation.users)).double())


def central(function, at: Array, step: float = 1e-5) -> Array:
    """The derivative of a function of several numbers, each column by one of them."""
    columns = []
    for place in np.eye(len(at)) * step:
        columns.append((function(at + place) - function(at - place)) / (2 * step))
    return np.stack(columns, axis=-1)


def assert_near(found, expected, *, error: float) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    assert np.abs(expected).max() > 1e-3, "a vanishing gradient proves nothing"
    np.testing.assert_allclose(found, expected, rtol=0, atol=error * np.abs(expected).max())


# the hypergradient


@pytest.mark.parametrize("fixed", [False, True])
def test_the_hypergradient_is_the_one_of_autograd_and_of_differences(problem, fixed):
    found = hypergradient(
        problem.factors, problem.direction(fixed=fixed), problem.exposure, problem.block()
    )
    m, tiny = torch.as_tensor(problem.exposure), 1e-7
    leaf = m.clone().requires_grad_()
    value = after_step(problem, leaf, lookahead=tiny, fixed=fixed)
    (by_autograd,) = torch.autograd.grad(value, leaf)
    assert_near(found, by_autograd.numpy() / tiny, error=1e-5)

    eta = 1e-4  # smaller, and rounding hides the change of L_val

    def ahead(m: Array):
        value = after_step(problem, torch.as_tensor(m), lookahead=eta, fixed=fixed)
        return value.detach().numpy() / eta

    assert_near(found, central(ahead, problem.exposure, 1e-4), error=1e-2)


def test_a_click_adds_exactly_nothing_to_the_hypergradient(problem):
    of = problem.factors, problem.direction(fixed=False), problem.exposure
    everything = problem._replace(clicked=np.ones_like(problem.clicked))
    assert (hypergradient(*of, everything.block()) == 0).all()
    # what is clicked may weigh what it likes
    heavier = np.where(problem.clicked, 1e9, problem.weight)
    np.testing.assert_array_equal(
        hypergradient(*of, problem.block()),
        hypergradient(*of, problem._replace(weight=heavier).block()),
    )


def test_the_validation_gradient_is_the_one_of_the_validation_loss(problem):
    found = validation_gradient(problem.factors, *problem.validation)
    for name in Factors._fields:
        start = getattr(problem.factors, name)

        def loss(flat: Array, name: str = name, start: Array = start):
            factors = problem.factors._replace(**{name: flat.reshape(start.shape)})
            return float(validation_losses(factors, *problem.validation).sum())

        expected = central(loss, start.ravel()).reshape(start.shape)
        assert_near(getattr(found, name), expected, error=1e-8)
    shown = torch.ones(20).double()
    total = loss_of(problem.omega(), problem.validation_pairs(), shown)
    losses = validation_losses(problem.factors, *problem.validation)
    assert losses.sum() == pytest.approx(float(total))


def test_the_training_gradient_is_the_one_of_the_weighted_loss(problem):
    pairs = problem.pairs()

    def loss(m: Array):
        return loss_of(problem.omega(), pairs, torch.as_tensor(m)[pairs.items]).numpy()

    found = train_gradient(problem.factors, problem.exposure, problem.block())
    assert_near(found, central(loss, problem.exposure), error=1e-7)


# the forms


COUNTS = np.array([40, 7, 0, 1, 19])
THETA = np.array([1.0, 0.42, 0.01, 0.16, 0.69], dtype=np.float32)  # (n / max n)^.5, floor .01


@pytest.mark.parametrize("form", FORMS)
def test_a_gradient_on_exposure_is_carried_as_differences_say(form):
    rng, share = np.random.default_rng(0), log_share(COUNTS)
    size = len(FORMS[form].start(THETA, share))
    for _ in range(3):
        alpha, on_items = rng.normal(size=size), rng.normal(size=len(COUNTS))
        slopes = central(lambda a: FORMS[form].table(a, share), alpha)  # (items, numbers)
        assert_near(FORMS[form].carry(on_items, alpha, share), on_items @ slopes, error=1e-8)


@pytest.mark.parametrize("exponent", [0.25, 1.0])
def test_a_level_and_an_exponent_start_at_the_exponent_of_popularity(exponent):
    form, share = FORMS["popularity"], log_share(COUNTS)
    found = form.table(form.start(np.exp(exponent * share), share), share)
    np.testing.assert_allclose(found, MOST * np.exp(exponent * share), rtol=1e-6)
    assert np.isfinite(form.start(np.ones(5, dtype=np.float32), np.zeros(5))).all()
