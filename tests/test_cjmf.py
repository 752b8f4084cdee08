"""CJMF: sub-models that weigh each other's clicks."""

import numpy as np
import pytest
import torch
from torch import sigmoid
from torch.nn.functional import logsigmoid

from unexposed.data import Clicks, Ids
from unexposed.methods import cjmf
from unexposed.methods.cjmf import CJMF, Learner, Samples
from unexposed.progress import Silent

USERS, ITEMS, DIM = 6, 5, 3
FLOAT64 = {"dtype": torch.float64}
SUBMODEL = ("submodel_user_factors", "submodel_item_factors")


def world(n_users=USERS, n_items=ITEMS, density=0.4, seed=0):
    matrix = np.random.default_rng(seed).random((n_users, n_items)) < density
    matrix[0, 0] = True
    return clicks_of(matrix)


def clicks_of(matrix):
    users, items = np.nonzero(matrix)
    n_users, n_items = matrix.shape
    return Clicks.from_pairs(users, items, user_ids=Ids.range(n_users), item_ids=Ids.range(n_items))


def start(method, seed=0, scale=0.7):
    """Random parameters of every kind, the residual's too, far from all bounds."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.normal(0, scale, table.shape)
        for name, table in method.initial(world(), rng).items()
    }


def learner(method, parameters, popularity=None):
    popularity = np.linspace(0.2, 1, ITEMS) if popularity is None else popularity
    return Learner(method, parameters, popularity, **FLOAT64)


def tables(learner):
    return {name: table.clone() for name, table in learner._tables.items()}


def batch(users, items, click, part):
    return Samples(
        torch.tensor(users),
        torch.tensor(items),
        torch.tensor(click, dtype=torch.float64),
        torch.tensor(part),
    )


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


def test_exposure_stays_in_bounds():
    far = torch.tensor([[-60.0, -60.0, 60.0], [60.0, 60.0, 60.0]])  # of the two sub-models
    shown = cjmf.item_exposure(
        torch.zeros(1, 2, DIM), torch.zeros(2, 3, DIM), far, torch.tensor([1e-4])
    )
    torch.testing.assert_close(shown, torch.tensor([[0.01, 0.99]]))


def test_relevance_stays_in_bounds():
    p = sigmoid(cjmf.bounded_logit(torch.tensor([-80.0, 0.0, 80.0])))
    torch.testing.assert_close(p, torch.tensor([0.01, 0.5, 0.99]))


# weights


def test_weights_of_a_pair_come_from_the_sub_model_that_did_not_see_it():
    said = torch.tensor([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]], requires_grad=True)
    weights = cjmf.weights(said, torch.tensor([2, 0]))
    assert weights.tolist() == said.detach()[[0, 1], [2, 0]][:, None].tolist()
    assert not weights.requires_grad


def test_each_loss_is_l1_weighted_by_what_the_held_out_sub_model_says_of_the_other():
    logit = torch.tensor([[0.3, -1.0], [0.9, 0.2]], **FLOAT64)
    shown = torch.tensor([[0.6, 0.25], [0.5, 0.35]], **FLOAT64)
    part = torch.tensor([1, 0])
    loss = cjmf.joint_loss(logit, shown, torch.ones(2, **FLOAT64), part)
    for pair, held_out in enumerate(part):
        m, p = shown[pair, held_out], sigmoid(logit[pair, held_out])
        for model in range(2):
            x, mine = logit[pair, model], shown[pair, model]
            relevance = -(1 / m * logsigmoid(x) + (1 - 1 / m) * logsigmoid(-x))
            exposure = -(1 / p * torch.log(mine) + (1 - 1 / p) * torch.log(1 - mine))
            torch.testing.assert_close(loss[pair, model], relevance + exposure)


def test_an_unclicked_pair_has_no_weight():
    logit = torch.tensor([[0.3, -1.0]], **FLOAT64)
    shown = torch.tensor([[0.6, 0.25]], **FLOAT64)
    for part in (0, 1):
        loss = cjmf.joint_loss(logit, shown, torch.zeros(1, **FLOAT64), torch.tensor([part]))
        torch.testing.assert_close(loss, -torch.log(sigmoid(-logit)) - torch.log(1 - shown))


# steps


def test_one_sub_model_without_residual_is_joint_learning_on_its_own_weights():
    # Adam's first step is −learning_rate·sign(gradient): compare signs with the formulas' slopes,
    # ∂/∂x = p − c/m for the relevance and ∂/∂m = (m − c/p)/(m(1 − m)) for the exposure
    method = CJMF(n_models=1, dim=DIM, residual=False, weight_decay=0, exposure_weight_decay=0)
    parameters = start(method)
    popularity = np.linspace(0.2, 1, ITEMS)
    one = learner(method, parameters, popularity)
    users, items, click = [0, 1, 2], [3, 3, 1], [1.0, 0.0, 1.0]
    one.step(batch(users, items, click, [0, 0, 0]))

    user, item = parameters[SUBMODEL[0]][users, 0], parameters[SUBMODEL[1]][items, 0]
    p = 1 / (1 + np.exp(-(user * item).sum(1)))
    terms = item @ parameters["exposure_weight"][0].T + parameters["exposure_bias"][0]
    gate, own, power = (1 / (1 + np.exp(-terms))).T
    mixed = gate * own + (1 - gate) * popularity[items]
    m = mixed**power
    by_logit = p - np.array(click) / m
    by_exposure = (m - np.array(click) / p) / (m * (1 - m))
    # m = x^y: ∂m/∂x = y·m/x, ∂m/∂y = m·log x; σ′ = σ(1 − σ)
    by_mixed = by_exposure * power * m / mixed
    by_term = np.stack(
        [
            by_mixed * (own - popularity[items]) * gate * (1 - gate),
            by_mixed * gate * own * (1 - own),
            by_exposure * m * np.log(mixed) * power * (1 - power),
        ],
        axis=1,
    )
    gradients = {name: np.zeros_like(table) for name, table in parameters.items()}
    np.add.at(gradients[SUBMODEL[0]][:, 0], users, by_logit[:, None] * item)
    np.add.at(gradients[SUBMODEL[1]][:, 0], items, by_logit[:, None] * user)
    gradients["exposure_weight"][0] = by_term.T @ item
    gradients["exposure_bias"][0] = by_term.sum(0)
    for name, after in tables(one).items():
        moved = after.numpy() - parameters[name]
        step = -method.learning_rate * np.sign(gradients[name])
        np.testing.assert_allclose(moved, step, rtol=1e-4, atol=1e-12, err_msg=name)


def test_a_step_follows_the_gradient_of_the_masked_loss():
    # two steps: Adam's second depends on the sizes of both gradients, not on their signs alone
    method = CJMF(n_models=3, dim=DIM, residual=False, weight_decay=0.02, exposure_weight_decay=0.1)
    parameters = start(method)
    popularity = torch.linspace(0.2, 1, ITEMS, **FLOAT64)
    many = learner(method, parameters, popularity.numpy())
    samples = batch([0, 1, 1, 4], [3, 3, 1, 0], [1.0, 0.0, 1.0, 1.0], [2, 2, 0, 1])
    leaves = {n: torch.tensor(t, requires_grad=True) for n, t in parameters.items()}
    trained = [leaf for name, leaf in leaves.items() if not name.startswith("residual")]
    adam = torch.optim.Adam(
        [
            {"params": trained[:2], "weight_decay": method.weight_decay},
            {"params": trained[2:], "weight_decay": method.exposure_weight_decay},
        ],
        lr=method.learning_rate,
    )
    reached = {}
    for kind, rows in (("user", samples.users), ("item", samples.items)):
        grid = torch.zeros(len(leaves[f"submodel_{kind}_factors"]), 3, dtype=torch.bool)
        for row, part in zip(rows, samples.part, strict=True):
            grid[row, torch.arange(3) != part] = True
        reached[f"submodel_{kind}_factors"] = grid
    for _ in range(2):
        many.step(samples)
        adam.zero_grad()
        total = torch.zeros((), **FLOAT64)
        for user, item, click, part in zip(
            samples.users, samples.items, samples.click, samples.part, strict=True
        ):
            logit = (leaves[SUBMODEL[0]][user] * leaves[SUBMODEL[1]][item]).sum(-1)
            shown = cjmf.item_exposure(
                leaves[SUBMODEL[1]][item],
                leaves["exposure_weight"],
                leaves["exposure_bias"],
                popularity[item],
            )
            loss = cjmf.joint_loss(logit[None], shown[None], click[None], part[None])[0]
            total = total + loss[torch.arange(3) != part].sum() / 4
        total.backward()
        adam.step()
        for name, grid in reached.items():  # torch's Adam decays the others too
            leaves[name].data[~grid] = torch.tensor(parameters[name])[~grid]
    for name, after in tables(many).items():
        torch.testing.assert_close(after, leaves[name].detach(), rtol=1e-9, atol=1e-12)


def test_a_sub_model_learns_nothing_from_its_own_part():
    method = CJMF(n_models=3, dim=DIM, residual=False, weight_decay=0.1, exposure_weight_decay=0.1)
    parameters = start(method)
    many = learner(method, parameters)
    for _ in range(3):
        many.step(batch([0, 1, 1], [2, 2, 4], [1.0, 0.0, 1.0], [1, 1, 1]))
    after = tables(many)
    for name in SUBMODEL:
        assert np.array_equal(after[name][:, 1], parameters[name][:, 1])
        assert not np.array_equal(after[name][:, 0], parameters[name][:, 0])
        assert not np.array_equal(after[name][:, 2], parameters[name][:, 2])
    for name in ("exposure_weight", "exposure_bias"):
        assert np.array_equal(after[name][1], parameters[name][1])
        assert (after[name][[0, 2]].numpy() != parameters[name][[0, 2]]).all()


def test_a_click_of_part_c_reaches_the_others_through_sub_model_c_alone():
    # a change in a sub-model that neither learns nor weighs changes no other sub-model
    method = CJMF(n_models=3, dim=DIM, residual=False)
    samples = batch([0], [2], [1.0], [1])

    def second_after(changed):
        parameters = start(method)
        for name in SUBMODEL:
            parameters[name][:, changed] *= 1.5
        many = learner(method, parameters)
        for _ in range(2):
            many.step(samples)
        return tables(many)

    same, weigher = second_after(0), second_after(1)
    plain = learner(method, start(method))
    for _ in range(2):
        plain.step(samples)
    for name in SUBMODEL:
        before = tables(plain)[name][:, 2]
        assert torch.equal(same[name][:, 2], before)
        assert not torch.equal(weigher[name][:, 2], before)


# the residual


def test_the_residual_follows_the_product_likelihood_of_all_pairs():
    # three steps against torch's Adam, the sub-models held at what they are before each
    method = CJMF(n_models=2, dim=DIM, residual_learning_rate=0.03, learning_rate=0.05)
    many = learner(method, start(method, scale=0.5))
    pairs = (torch.tensor(range(USERS)), torch.tensor([0, 1, 2, 3, 4, 4]))  # all rows are touched
    samples = batch(
        *(t.tolist() for t in pairs), [1.0, 0.0, 1.0, 0.0, 0.0, 1.0], [0, 1, 1, 0, 1, 0]
    )
    names = ("residual_user_factors", "residual_item_factors")
    user_leaf, item_leaf = leaves = [tables(many)[name].requires_grad_() for name in names]
    decay = method.residual_weight_decay
    adam = torch.optim.Adam(leaves, lr=method.residual_learning_rate, weight_decay=decay)
    for _ in range(3):
        now = tables(many)
        many.step(samples)
        adam.zero_grad()
        user_vectors = (now[SUBMODEL[0]] + user_leaf[:, None])[samples.users]
        item_vectors = (now[SUBMODEL[1]] + item_leaf[:, None])[samples.items]
        p = sigmoid((user_vectors * item_vectors).sum(-1)).mean(1)
        popularity = torch.linspace(0.2, 1, ITEMS, **FLOAT64)
        shown = cjmf.item_exposure(
            now[SUBMODEL[1]], now["exposure_weight"], now["exposure_bias"], popularity
        )
        chance = shown.mean(1)[samples.items] * p  # of a click
        torch.where(samples.click > 0, -chance.log(), -(1 - chance).log()).mean().backward()
        adam.step()
    for name, leaf in zip(names, leaves, strict=True):
        torch.testing.assert_close(tables(many)[name], leaf.detach(), rtol=1e-9, atol=1e-12)


def test_sub_models_learn_the_same_with_a_residual_as_without():
    # what weighs the clicks of part c has not seen them: the residual, which has, stays out of it
    def after(residual):
        method = CJMF(n_models=2, dim=DIM, residual=residual, residual_learning_rate=0.1)
        many = learner(method, start(method))
        for _ in range(3):
            many.step(batch([0, 1, 1], [3, 3, 1], [1.0, 0.0, 1.0], [0, 1, 1]))
        return tables(many)

    with_residual, without = after(True), after(False)
    for name in without:
        same = torch.equal(with_residual[name], without[name])
        assert same != name.startswith("residual"), name


# samples


def test_parts_are_even_and_negatives_share_the_part_of_their_click():
    clicks = world(12, 30, 0.2)
    rng = np.random.default_rng(0)
    part = cjmf.split(len(clicks), 4, rng)
    sizes = np.bincount(part, minlength=4)
    assert sizes.max() - sizes.min() <= 1
    samples = cjmf.draw(clicks, part, negatives=3, rng=rng)
    clicked = samples.click == 1
    assert torch.equal(clicks_in(clicks, samples), clicked)  # and so no negative is a click
    for user in range(12):
        mine = samples.users == user
        drawn_for = torch.bincount(samples.part[mine & ~clicked], minlength=4)
        own = torch.bincount(samples.part[mine & clicked], minlength=4)
        assert torch.equal(drawn_for, 3 * own)


def clicks_in(clicks, samples):
    return torch.from_numpy(clicks.contain(samples.users.numpy(), samples.items.numpy()))


def test_batches_hold_every_sample_once_in_order():
    clicks = world()
    rng = np.random.default_rng(0)
    samples = cjmf.draw(clicks, cjmf.split(len(clicks), 2, rng), negatives=2, rng=rng)
    parts = list(samples.batches(7))
    for field in ("users", "items", "click", "part"):
        joined = torch.cat([getattr(p, field) for p in parts])
        assert torch.equal(joined, getattr(samples, field))


def test_a_user_who_clicked_everything_gets_no_negatives():
    clicks = clicks_of(np.array([[1, 1, 1], [1, 0, 0]]))
    rng = np.random.default_rng(0)
    samples = cjmf.draw(clicks, cjmf.split(4, 2, rng), negatives=2, rng=rng)
    assert (samples.users == 0).sum() == 3


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
    np.testing.assert_allclose(model.method.scores(model.parameters, chosen), p.mean(2), rtol=1e-5)


def test_a_model_keeps_the_residual_in_its_vectors_and_the_mean_exposure():
    method = CJMF(n_models=2, dim=DIM)
    parameters = start(method)
    kept = learner(method, parameters).parameters()
    for kind in ("user", "item"):
        expected = parameters[f"submodel_{kind}_factors"]
        expected = expected + parameters[f"residual_{kind}_factors"][:, None]
        np.testing.assert_allclose(kept[f"submodel_{kind}_factors"], expected)
    shown = cjmf.item_exposure(
        *(torch.tensor(parameters[n]) for n in (SUBMODEL[1], "exposure_weight", "exposure_bias")),
        torch.linspace(0.2, 1, ITEMS, **FLOAT64),
    )
    np.testing.assert_allclose(kept["exposure"], shown.mean(1))
    block = method.exposure(kept, np.array([1, 1, 0], dtype=np.int32))
    np.testing.assert_array_equal(block, [kept["exposure"]] * 3)


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
