"""The hypergradient is the paper's, and the derivative of the outer loss one step ahead."""

from typing import NamedTuple, get_args

import pytest
import torch
from torch import Tensor, sigmoid

from unexposed.engine.objective import Strategy
from unexposed.maths.bilevel import STRATEGIES, hypergradient, hypergradient_on_batch
from unexposed.maths.exposure import gated
from unexposed.maths.losses import low_variance

ETA = 0.05
Tensors = tuple[Tensor, ...]


class Pairs(NamedTuple):
    """User-item pairs, (B,) each; users, items and pairs may repeat."""

    users: Tensor
    items: Tensor
    click: Tensor  # in a validation set: whether relevant
    weight: Tensor


def loss_of(omega: Tensors, pairs: Pairs, m: Tensor) -> Tensor:
    logit = (omega[0][pairs.users] * omega[1][pairs.items]).sum(-1)
    return (pairs.weight * low_variance(logit, pairs.click, m)).sum()


def by_pair(omega: Tensors, batch: Pairs, validation: Pairs, m: Tensor) -> Tensor:
    """dL_val(ω′)/dm of each pair of the batch."""
    one = torch.ones_like(validation.weight)
    (found,) = hypergradient(
        lambda omega, alpha: loss_of(omega, batch, alpha[0]),
        lambda omega: loss_of(omega, validation, one),
        omega,
        (m,),
        lookahead=ETA,
    )
    return found


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


# appendices B and C


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
    found = by_pair((users, items), batch, validation, m)
    torch.testing.assert_close(found, paper, rtol=1e-12, atol=0)


def test_a_clicked_pair_has_exactly_no_hypergradient():
    problem = random_problem(seed=0)
    m, clicked = problem.exposure(problem.alpha), problem.batch.click == 1
    found = by_pair(problem.omega, problem.batch, problem.validation, m)
    assert (found[clicked] == 0).all()
    assert (found[~clicked] != 0).all()


def test_an_unclicked_item_like_a_liked_one_was_probably_not_shown():
    # the paper's reading: ω_i₁ = ω_i and u likes i₁, so m of (u, i) must fall
    omega = torch.tensor([[1.0, 0.5]]), torch.tensor([[0.8, 0.2], [0.8, 0.2]])
    batch = Pairs(torch.tensor([0]), torch.tensor([0]), torch.zeros(1), torch.ones(1))
    liked = Pairs(torch.tensor([0]), torch.tensor([1]), torch.ones(1), torch.ones(1))
    m = torch.tensor([0.5])
    assert by_pair(omega, batch, liked, m) > 0
    assert by_pair(omega, batch, liked._replace(click=torch.zeros(1)), m) < 0


# autograd = central differences


class Problem(NamedTuple):
    """A small random factor model in float64 whose batch repeats users, items and pairs."""

    omega: tuple[Tensor, Tensor]  # user factors, item factors
    alpha: tuple[Tensor, Tensor, Tensor]  # e, w, b
    popularity: Tensor
    batch: Pairs
    validation: Pairs

    def exposure(self, alpha: Tensors, item_factors: Tensor | None = None) -> Tensor:
        """m of the batch, at ω by default."""
        items = (self.omega[1] if item_factors is None else item_factors)[self.batch.items]
        e, w, b = alpha
        theta = self.popularity[self.batch.items]
        return gated(e[self.batch.users], items, w, b, theta, offset=0.8)


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


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("on_batch", [False, True])
def test_the_hypergradient_is_the_difference_of_the_outer_loss_one_step_ahead(seed, on_batch):
    problem = random_problem(seed)
    one = torch.ones_like(problem.validation.weight)

    def train_loss(omega, alpha):
        # on the batch, both steps see one m, taken at ω; otherwise gated() detaches ω in it
        items = None if on_batch else omega[1]
        return loss_of(omega, problem.batch, problem.exposure(alpha, items))

    def validation_loss(omega):
        return loss_of(omega, problem.validation, one)

    def outer_loss(alpha):
        omega = tuple(t.detach().requires_grad_() for t in problem.omega)
        slopes = torch.autograd.grad(train_loss(omega, alpha), omega)
        ahead = tuple((t - ETA * g).detach() for t, g in zip(omega, slopes, strict=True))
        return train_loss(ahead, alpha) if on_batch else validation_loss(ahead)

    if on_batch:
        found = hypergradient_on_batch(train_loss, problem.omega, problem.alpha, lookahead=ETA)
    else:
        losses = train_loss, validation_loss
        found = hypergradient(*losses, problem.omega, problem.alpha, lookahead=ETA)
    for got, want in zip(found, central(outer_loss, problem.alpha), strict=True):
        assert want.abs().max() > 1e-6, "a vanishing gradient proves nothing"
        assert (got - want).abs().max() <= 1e-6 * want.abs().max()


def test_exposure_that_nothing_depends_on_gets_zeros():
    alpha = torch.ones(4), torch.ones(5)
    for train_loss, validation_loss, used in (
        (lambda w, a: (w[0].sum() * a[0].sum()) ** 2, lambda w: w[0].sum(), True),
        (lambda w, _: w[0].sum(), lambda _: torch.tensor(1.0), False),
    ):
        with torch.no_grad():  # as a training loop may well have it
            found = hypergradient(
                train_loss, validation_loss, (torch.ones(2),), alpha, lookahead=1.0
            )
        assert (found[0] != 0).all() == used
        assert torch.equal(found[1], torch.zeros(5))


def test_the_engines_know_exactly_the_strategies_described_here():
    assert set(get_args(Strategy)) == set(STRATEGIES)
