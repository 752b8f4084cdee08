"""The hypergradient three ways: closed form, autograd, and central differences."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, sigmoid

from unexposed.maths.bilevel import (
    Fixed,
    Pairs,
    factor_exposure_gradient,
    factor_hypergradient,
    factor_hypergradient_on_batch,
    hypergradient,
    hypergradient_on_batch,
)
from unexposed.maths.exposure import gated
from unexposed.maths.losses import low_variance

ETA = 0.05
Tensors = tuple[Tensor, ...]
every_seed = pytest.mark.parametrize("seed", range(2))


class Problem(NamedTuple):
    """A small random factor model in float64 whose batch repeats users, items and pairs."""

    omega: tuple[Tensor, Tensor]  # user factors, item factors
    alpha: tuple[Tensor, Tensor, Tensor]  # e, w, b
    popularity: Tensor
    batch: Pairs
    validation: Pairs
    fixed: Fixed = (None, None)  # columns of ones

    def exposure(self, alpha: Tensors, item_factors: Tensor | None = None) -> Tensor:
        """m of the batch, at ω by default."""
        items = (self.omega[1] if item_factors is None else item_factors)[self.batch.items]
        e, w, b = alpha
        theta = self.popularity[self.batch.items]
        return gated(e[self.batch.users], items, w, b, theta, offset=0.8)

    def validation_loss(self, omega: Tensors) -> Tensor:
        one = torch.ones_like(self.validation.weight)
        return factor_loss(held(omega, self.fixed), self.validation, one)

    def closed_form(self, m: Tensor) -> Tensor:
        return factor_hypergradient(
            *self.omega, self.batch, m, self.validation, lookahead=ETA, fixed=self.fixed
        )

    def carried(self, on_pairs: Tensor) -> Tensors:
        """A gradient on m, carried into α."""
        e, w, b = self.alpha
        return factor_exposure_gradient(
            on_pairs, self.batch, e, self.omega[1], w, b, self.popularity, offset=0.8
        )


def random_problem(seed: int, n_users: int = 6, n_items: int = 5, dim: int = 3) -> Problem:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64)

    def pairs(size: int) -> Pairs:
        users = torch.randint(n_users, (size,), generator=generator)
        items = torch.randint(n_items, (size,), generator=generator)
        return Pairs(users, items, (uniform(size) < 0.4).double(), 0.5 + uniform(size))

    return Problem(
        omega=(normal(n_users, dim), normal(n_items, dim)),
        alpha=(normal(n_users, dim), normal(dim), normal()),
        popularity=0.1 + 0.9 * uniform(n_items),
        batch=pairs(40),  # of 30 possible ones: some come twice
        validation=pairs(12),
    )


def with_biases(problem: Problem) -> Problem:
    """The problem with rows [ω_u, b_u, 1] and [ω_i, 1, b_i]."""
    last = problem.omega[0].shape[1] - 1
    fixed = (last, last - 1)
    return problem._replace(omega=held(problem.omega, fixed), fixed=fixed)


def held(omega: Tensors, fixed: Fixed) -> Tensors:
    """ω with ones in its fixed columns, whatever it holds there."""
    columns = (torch.arange(table.shape[1]) for table in omega)
    return tuple(
        torch.where(column == -1 if at is None else column == at, 1.0, table)
        for table, column, at in zip(omega, columns, fixed, strict=True)
    )


def factor_loss(omega: Tensors, pairs: Pairs, exposure: Tensor) -> Tensor:
    user_factors, item_factors = omega
    logit = (user_factors[pairs.users] * item_factors[pairs.items]).sum(-1)
    return (pairs.weight * low_variance(logit, pairs.click, exposure)).sum()


def stepped(train_loss, omega: Tensors, alpha: Tensors) -> Tensors:
    """ω′ as a plain function of α."""
    omega = tuple(t.detach().requires_grad_() for t in omega)
    gradients = torch.autograd.grad(
        train_loss(omega, alpha), omega, allow_unused=True, materialize_grads=True
    )
    return tuple((t - ETA * g).detach() for t, g in zip(omega, gradients, strict=True))


def central(function, parameters: Tensors, step: float = 1e-5) -> Tensors:
    """The derivative of a scalar function by every number in its parameters, one by one."""
    result = tuple(torch.zeros_like(p) for p in parameters)
    for which, parameter in enumerate(parameters):
        for place in range(parameter.numel()):
            up, down = ([p.clone() for p in parameters] for _ in range(2))
            up[which].view(-1)[place] += step
            down[which].view(-1)[place] -= step
            slope = (function(tuple(up)) - function(tuple(down))) / (2 * step)
            result[which].view(-1)[place] = slope
    return result


def assert_same(got: Tensors, want: Tensors, *, error: float) -> None:
    """Each gradient within this error, relative to its own largest entry."""
    for a, b in zip(got, want, strict=True):
        assert a.shape == b.shape
        assert b.abs().max() > 1e-6, "a vanishing gradient proves nothing"
        assert (a - b).abs().max() <= error * b.abs().max()


# appendices B and C


def test_a_clicked_pair_has_exactly_no_hypergradient():
    problem = random_problem(seed=0)
    m, clicked = problem.exposure(problem.alpha), problem.batch.click == 1
    (general,) = hypergradient(
        lambda omega, alpha: factor_loss(omega, problem.batch, alpha[0]),
        problem.validation_loss,
        problem.omega,
        (m,),
        lookahead=ETA,
    )
    for gradient in (problem.closed_form(m), general):
        assert (gradient[clicked] == 0).all()
        assert (gradient[~clicked] != 0).all()


def test_hypergradient_is_the_one_of_appendix_c():
    # u = 0, u₁ = 1, u₂ = 2; i = 0, i₁ = 1, i₂ = 2; the batch is the unclicked pair (u, i)
    generator = torch.Generator().manual_seed(2)
    users, items = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64)
    one = torch.ones(4, dtype=torch.float64)
    batch = Pairs(torch.tensor([0]), torch.tensor([0]), 0 * one[:1], one[:1])
    likes = torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64)
    validation = Pairs(torch.tensor([0, 0, 1, 2]), torch.tensor([1, 2, 0, 0]), likes, one)
    m = 0.6 * one[:1]
    x = users[0] @ items[0]
    p = sigmoid(x)
    push = ETA * m * p * sigmoid(-x) / (1 - m * p)
    user, item = users[0] - push * items[0], items[0] - push * users[0]  # ωᵤ(m), ωᵢ(m)
    bracket = (
        items[1] @ items[0] * sigmoid(-user @ items[1])
        - items[2] @ items[0] * sigmoid(user @ items[2])
        + users[1] @ users[0] * sigmoid(-users[1] @ item)
        - users[2] @ users[0] * sigmoid(users[2] @ item)
    )
    paper = ETA * p * sigmoid(-x) / (1 - m * p) ** 2 * bracket  # Eq. "analysis"
    closed = factor_hypergradient(users, items, batch, m, validation, lookahead=ETA)
    torch.testing.assert_close(closed, paper, rtol=1e-12, atol=0)


def test_an_unclicked_item_like_a_liked_one_was_probably_not_shown():
    # the paper's reading: ω_i₁ = ω_i and u likes i₁, so m of (u, i) must fall
    user, item = torch.tensor([[1.0, 0.5]]), torch.tensor([[0.8, 0.2], [0.8, 0.2]])
    batch = Pairs(torch.tensor([0]), torch.tensor([0]), torch.zeros(1), torch.ones(1))
    liked = Pairs(torch.tensor([0]), torch.tensor([1]), torch.ones(1), torch.ones(1))
    disliked = liked._replace(click=torch.zeros(1))
    m = torch.tensor([0.5])
    assert factor_hypergradient(user, item, batch, m, liked, lookahead=ETA) > 0
    assert factor_hypergradient(user, item, batch, m, disliked, lookahead=ETA) < 0


# closed form = autograd = central differences


@every_seed
@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("by", ["exposure model", "pair", "batch"])
def test_closed_form_is_autograd_is_differences(seed, by, biases):
    problem = with_biases(random_problem(seed, dim=5)) if biases else random_problem(seed)
    m = problem.exposure(problem.alpha)
    alpha = (m,) if by == "pair" else problem.alpha

    def train_loss(omega, alpha):
        omega = held(omega, problem.fixed)
        if by == "pair":
            return factor_loss(omega, problem.batch, alpha[0])
        # on the batch, both steps see one m, taken at ω; otherwise gated() detaches ω in it
        items = None if by == "batch" else omega[1]
        return factor_loss(omega, problem.batch, problem.exposure(alpha, items))

    def after_step(alpha):
        omega = stepped(train_loss, problem.omega, alpha)
        return train_loss(omega, alpha) if by == "batch" else problem.validation_loss(omega)

    if by == "batch":
        on_pairs = factor_hypergradient_on_batch(
            *problem.omega, problem.batch, m, lookahead=ETA, fixed=problem.fixed
        )
        general = hypergradient_on_batch(train_loss, problem.omega, alpha, lookahead=ETA)
    else:
        on_pairs = problem.closed_form(m)
        general = hypergradient(
            train_loss, problem.validation_loss, problem.omega, alpha, lookahead=ETA
        )
    closed = (on_pairs,) if by == "pair" else problem.carried(on_pairs)
    assert_same(closed, general, error=1e-8)
    assert_same(closed, central(after_step, alpha), error=1e-6)


def test_closed_form_is_finite_in_float32_where_exposure_is_one_and_logits_are_large():
    users, items = torch.tensor([[1.0], [-1.0]]), torch.tensor([[40.0], [-40.0]])
    every = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])  # logits ±40
    one = torch.ones(4)
    for click in (0 * one, one):
        batch = Pairs(*every, click, one)
        for validation in (batch, batch._replace(click=1 - click)):
            gradient = factor_hypergradient(users, items, batch, one, validation, lookahead=1e-3)
            assert torch.isfinite(gradient).all()


# any differentiable model
