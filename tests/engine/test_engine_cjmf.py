"""A step of CJMF: the losses, and which sub-model learns from which pair."""

import numpy as np
import pytest
import torch
from engine_problem import clicks_with
from torch import sigmoid
from torch.nn.functional import logsigmoid

from unexposed.engine import cjmf
from unexposed.engine.cjmf import LEAST, MOST, JointRates, Learner, PartedSamples, Rates

USERS, ITEMS, DIM = 6, 5, 3
FLOAT64 = {"dtype": torch.float64}
SUBMODEL = ("submodel_user_factors", "submodel_item_factors")
RESIDUAL = ("residual_user_factors", "residual_item_factors")
STILL = Rates(1e-3, 0.0)


def start(n_models, *, residual=False, seed=0, scale=0.7, sizes=(USERS, ITEMS, DIM)):
    """Random tables of every kind, far from all bounds."""
    rng = np.random.default_rng(seed)
    n_users, n_items, dim = sizes
    shapes = {
        "submodel_user_factors": (n_users, n_models, dim),
        "submodel_item_factors": (n_items, n_models, dim),
        "exposure_weight": (n_models, 3, dim),
        "exposure_bias": (n_models, 3),
    }
    if residual:
        shapes["residual_user_factors"] = (n_users, n_models, dim)
        shapes["residual_item_factors"] = (n_items, n_models, dim)
    return {name: rng.normal(0, scale, shape) for name, shape in shapes.items()}


def learner(tables, popularity=None, submodel=STILL, exposure=STILL, residual=None):
    popularity = np.linspace(0.2, 1, ITEMS) if popularity is None else popularity
    return Learner(JointRates(submodel, exposure, residual), tables, popularity, **FLOAT64)


def batch(users, items, part):
    """Clicks with the items of each, the clicked one first."""
    return PartedSamples(clicks_with(users, items), np.array(part, dtype=np.int32))


# exposure


def test_exposure_is_the_gated_mixture_to_a_learned_power():
    q, popularity = [0.5, -1.0], 0.3
    a, b, c, d, e, f = [0.2, 0.1], 0.4, [1.0, -0.5], -0.2, [-0.3, 0.8], 0.1

    def unit(weight, bias):
        return 1 / (1 + np.exp(-(np.dot(weight, q) + bias)))

    gate = unit(a, b)
    expected = (gate * unit(c, d) + (1 - gate) * popularity) ** unit(e, f)
    computed = cjmf.item_exposure(
        torch.tensor([[q]], **FLOAT64),
        torch.tensor([[a, c, e]], **FLOAT64),
        torch.tensor([[b, d, f]], **FLOAT64),
        torch.tensor([popularity], **FLOAT64),
    )
    assert computed.shape == (1, 1)
    assert float(computed) == pytest.approx(expected, rel=1e-12)


def test_exposure_and_relevance_stay_in_bounds():
    far = torch.tensor([[-60.0, -60.0, 60.0], [60.0, 60.0, 60.0]])  # of the two sub-models
    shown = cjmf.item_exposure(
        torch.zeros(1, 2, DIM), torch.zeros(2, 3, DIM), far, torch.tensor([1e-4])
    )
    torch.testing.assert_close(shown, torch.tensor([[LEAST, MOST]]))
    p = sigmoid(cjmf.bounded(torch.tensor([-80.0, 0.0, 80.0])))
    torch.testing.assert_close(p, torch.tensor([LEAST, 0.5, MOST]))


# weights


@pytest.mark.parametrize("click", [1.0, 0.0])  # an unclicked pair has no weight
def test_each_loss_is_l1_weighted_by_the_other_quantity_of_the_held_out_sub_model(click):
    logit = torch.tensor([[0.3, -1.0], [0.9, 0.2]], **FLOAT64)
    shown = torch.tensor([[0.6, 0.25], [0.5, 0.35]], **FLOAT64)
    part = torch.tensor([1, 0])
    loss = cjmf.joint_loss(logit, shown, torch.full((2,), click, **FLOAT64), part)
    for pair, held_out in enumerate(part):
        m, p = shown[pair, held_out], sigmoid(logit[pair, held_out])
        for model in range(2):
            x, mine = logit[pair, model], shown[pair, model]
            relevance = -(click / m * logsigmoid(x) + (1 - click / m) * logsigmoid(-x))
            exposure = -(click / p * torch.log(mine) + (1 - click / p) * torch.log(1 - mine))
            torch.testing.assert_close(loss[pair, model], relevance + exposure)


# steps


@pytest.mark.parametrize("n_models", [1, 3])
def test_a_step_follows_the_gradient_of_the_masked_loss(n_models):
    # two steps: Adam's second depends on the sizes of both gradients, not on their signs alone
    rates = {"submodel": Rates(1e-3, 0.02), "exposure": Rates(1e-3, 0.1)}
    parameters = start(n_models)
    popularity = torch.linspace(0.2, 1, ITEMS, **FLOAT64)
    many = learner(parameters, popularity.numpy(), **rates)
    part = np.array([2, 2, 0, 1]) % n_models
    samples = batch([0, 1, 1, 4], [[3, 2], [3], [1, 4, 4], [0]], part)
    pairs = samples.drawn.pairs()
    users, items = (torch.from_numpy(rows).long() for rows in (pairs.users, pairs.items))
    part = torch.from_numpy(part.repeat(np.diff(samples.drawn.start)))
    learns = torch.arange(n_models) != part[:, None]  # (pairs, sub-models)
    learns |= n_models == 1  # the only one weighs its own clicks
    leaves = {n: torch.tensor(t, requires_grad=True) for n, t in parameters.items()}
    trained = list(leaves.values())
    adam = torch.optim.Adam(
        [
            {"params": trained[:2], "weight_decay": rates["submodel"].weight_decay},
            {"params": trained[2:], "weight_decay": rates["exposure"].weight_decay},
        ],
        lr=1e-3,
    )
    for _ in range(2):
        many.step(samples)
        adam.zero_grad()
        user_vectors, item_vectors = leaves[SUBMODEL[0]][users], leaves[SUBMODEL[1]][items]
        shown = cjmf.item_exposure(
            item_vectors, leaves["exposure_weight"], leaves["exposure_bias"], popularity[items]
        )
        logit, click = (user_vectors * item_vectors).sum(-1), torch.tensor(pairs.click, **FLOAT64)
        loss = cjmf.joint_loss(logit, shown, click, part)
        (loss[learns].sum() / 4).backward()  # clicks, not pairs
        adam.step()
        for name, rows in zip(SUBMODEL, (users, items), strict=True):
            reached = torch.zeros(leaves[name].shape[:2], dtype=torch.bool)
            for row, learn in zip(rows, learns, strict=True):
                reached[row] |= learn
            # torch's Adam decays the other rows too
            leaves[name].data[~reached] = torch.tensor(parameters[name])[~reached]
    for name, after in many.tables().items():
        np.testing.assert_allclose(after, leaves[name].detach(), rtol=1e-9, atol=1e-12)


# the residual


def test_the_residual_follows_the_product_likelihood_of_all_pairs():
    # three steps against torch's Adam, the sub-models held at what they are before each
    rates = Rates(0.03, 1e-5)
    many = learner(start(2, residual=True, scale=0.5), submodel=Rates(0.05, 0.0), residual=rates)
    # all rows are touched
    samples = batch(range(USERS), [[0, 1], [2, 3], [4], [1, 3], [2], [4, 0, 2]], [0, 1, 1, 0, 1, 0])
    pairs = samples.drawn.pairs()
    clicked = torch.tensor(pairs.click)[:, None] > 0
    user_leaf, item_leaf = leaves = [
        torch.tensor(many.tables()[name], requires_grad=True) for name in RESIDUAL
    ]
    decay = {"weight_decay": rates.weight_decay}
    adam = torch.optim.Adam(leaves, lr=rates.learning_rate, **decay)
    for _ in range(3):
        now = {name: torch.tensor(table) for name, table in many.tables().items()}
        many.step(samples)
        adam.zero_grad()
        user_vectors = (now[SUBMODEL[0]] + user_leaf)[pairs.users]
        item_vectors = (now[SUBMODEL[1]] + item_leaf)[pairs.items]
        p = sigmoid((user_vectors * item_vectors).sum(-1))  # (11, 2)
        popularity = torch.linspace(0.2, 1, ITEMS, **FLOAT64)
        shown = cjmf.item_exposure(
            now[SUBMODEL[1]], now["exposure_weight"], now["exposure_bias"], popularity
        )
        chance = shown.mean(1)[pairs.items][:, None] * p  # of a click
        losses = torch.where(clicked, -chance.log(), -(1 - chance).log())
        (losses.sum() / len(samples)).backward()
        adam.step()
    for name, leaf in zip(RESIDUAL, leaves, strict=True):
        np.testing.assert_allclose(many.tables()[name], leaf.detach(), rtol=1e-9, atol=1e-12)


def test_sub_models_learn_the_same_with_a_residual_as_without():
    # what weighs the clicks of part c has not seen them: the residual, which has, stays out of it
    with_residual = start(2, residual=True)
    without = {n: t for n, t in with_residual.items() if not n.startswith("residual")}
    both = learner(with_residual, residual=Rates(0.1, 0.0)), learner(without)
    for one in both:
        for _ in range(3):
            one.step(batch([0, 1], [[3, 2], [1, 3]], [0, 1]))
    after, plain = (one.tables() for one in both)
    for name, table in plain.items():
        np.testing.assert_allclose(after[name], table, rtol=1e-14, err_msg=name)
    assert not np.array_equal(after[RESIDUAL[0]], with_residual[RESIDUAL[0]])


def test_products_are_differentiated_as_plain_autograd_does():
    generator = torch.Generator().manual_seed(0)

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    users, items = normal(4, 3, 2).requires_grad_(), normal(5, 3, 2).requires_grad_()
    user_at, item_at = torch.tensor([2, 0, 2]), torch.tensor([[1, 4], [3, 3], [0, 1]])
    slope, grid = normal(3, 2, 3), cjmf.Grid(user_at, item_at, (4, 5, 3))
    plain = (users[user_at][:, None] * items[item_at]).sum(-1)
    fast = cjmf.logits(users, items, grid)
    torch.testing.assert_close(fast, plain)
    expected = torch.autograd.grad((plain * slope).sum(), (users, items))
    found = torch.autograd.grad((fast * slope).sum(), (users, items))
    torch.testing.assert_close(found, expected)


def test_a_restored_learner_continues_with_the_same_bits():
    tables, samples = start(3, residual=True), batch([0, 1, 4], [[3, 2], [1], [0, 4]], [0, 2, 1])
    whole, other = (learner(tables, residual=Rates(0.1, 0.0)) for _ in range(2))
    whole.epoch(samples, batch_size=2)
    other.restore({name: array.copy() for name, array in whole.state().items()})
    assert whole.epoch(samples, batch_size=2) == other.epoch(samples, batch_size=2)
    for name, table in whole.tables().items():
        assert table.tobytes() == other.tables()[name].tobytes(), name
    with pytest.raises(ValueError, match="shape"):
        other.restore(learner(start(2, residual=True), residual=Rates(0.1, 0.0)).state())
