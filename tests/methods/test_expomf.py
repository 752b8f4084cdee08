"""ExpoMF: exposure as a hidden variable, and an EM that never goes down."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logit
from scipy.stats import norm

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.errors import InputError
from unexposed.methods import expomf
from unexposed.methods.expomf import ExpoMF
from unexposed.progress import Silent

USERS, ITEMS, DIM = 23, 17, 4


def clicks_of(matrix):
    users, items = np.nonzero(matrix)
    n_users, n_items = matrix.shape
    return Clicks.from_pairs(users, items, user_ids=Ids.range(n_users), item_ids=Ids.range(n_items))


def problem(seed, *, scale=0.5):
    """Random clicks, vectors and μ, in float64; some items nobody clicked, and one everybody."""
    rng = np.random.default_rng(seed)
    matrix = (rng.random((USERS, ITEMS)) < rng.random(ITEMS) ** 2).astype(np.float64)
    matrix[:, 3], matrix[:, 4] = 0, 1
    state = {
        "user_factors": rng.normal(0, scale, (USERS, DIM)),
        "item_factors": rng.normal(0, scale, (ITEMS, DIM)),
        "prior_exposure": rng.uniform(0.05, 0.95, ITEMS),
    }
    return matrix, state


def sweep(method, matrix, state):
    return method.sweep(sp.csr_array(matrix), sp.csr_array(matrix.T), state)


def direct_posterior(matrix, state, precision):
    """P(exposed | click or none), by Bayes, pair by pair with scipy's normal density."""
    score = state["user_factors"] @ state["item_factors"].T
    shown = state["prior_exposure"] * norm.pdf(0, loc=score, scale=precision**-0.5)
    return np.where(matrix > 0, 1, shown / (shown + 1 - state["prior_exposure"]))


def direct_objective(method, matrix, state):
    """log p(click, ω, μ) with exposure summed out, by the densities themselves."""
    score = state["user_factors"] @ state["item_factors"].T
    mu, scale = state["prior_exposure"], method.click_precision**-0.5
    likelihood = mu * norm.pdf(matrix, loc=score, scale=scale) + (1 - mu) * (matrix == 0)
    squares = np.sum(state["user_factors"] ** 2) + np.sum(state["item_factors"] ** 2)
    beta = (method.prior_exposed - 1) * np.log(mu) + (method.prior_unexposed - 1) * np.log(1 - mu)
    return np.log(likelihood).sum() - method.regularisation / 2 * squares + beta.sum()


METHODS = [
    ExpoMF(dim=DIM),
    ExpoMF(dim=DIM, click_precision=8.0, regularisation=0.01),
    ExpoMF(dim=DIM, click_precision=0.3, regularisation=3.0, prior_exposed=3, prior_unexposed=7),
]


# the posterior of exposure


@pytest.mark.parametrize("precision", [0.2, 1.0, 2 * np.pi, 30.0])
def test_exposure_without_a_click_follows_bayes(precision):
    matrix, state = problem(0, scale=1.0)
    computed = expomf.exposure_given_no_click(
        state["user_factors"] @ state["item_factors"].T,
        logit(state["prior_exposure"]),
        precision=precision,
    )
    expected = direct_posterior(0 * matrix, state, precision)
    np.testing.assert_allclose(computed, expected, rtol=1e-11)


def test_the_normal_density_integrates_to_one():
    # ∫ N(0 | s, 1/λ) ds = 1; posterior odds over prior odds are that density
    score = np.linspace(-40, 40, 200_001)
    p = expomf.exposure_given_no_click(score, logit(np.float64(0.3)), precision=0.7)
    density = p / (1 - p) / (0.3 / 0.7)
    assert np.trapezoid(density, score) == pytest.approx(1, abs=1e-9)


def test_an_item_that_would_have_been_clicked_was_less_likely_exposed():
    p = expomf.exposure_given_no_click(
        np.array([0.0, 0.5, 1.0]), logit(np.float64(0.5)), precision=4
    )
    assert p[0] > p[1] > p[2]


# the sweeps


@pytest.mark.parametrize("method", METHODS)
def test_the_objective_is_the_log_posterior_with_exposure_summed_out(method):
    matrix, state = problem(1)
    before = state.copy()
    value = sweep(method, matrix, state)
    moved = {**state, "prior_exposure": before["prior_exposure"]}  # just before μ moves
    assert value == pytest.approx(direct_objective(method, matrix, moved), rel=1e-10)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(5))
def test_no_part_of_a_sweep_lowers_the_log_posterior(method, seed):
    matrix, state = problem(seed)
    clicks, by_item = sp.csr_array(matrix), sp.csr_array(matrix.T)
    weights = {"precision": method.click_precision, "regularisation": method.regularisation}
    values = [direct_objective(method, matrix, state)]
    for _ in range(25):
        odds = logit(state["prior_exposure"])
        users, items = state["user_factors"], state["item_factors"]
        state["user_factors"] = users = expomf.regress(clicks, users, items, odds, **weights)
        values.append(direct_objective(method, matrix, state))
        state["item_factors"] = expomf.regress(by_item, items, users, odds[:, None], **weights)
        values.append(direct_objective(method, matrix, state))
        exposed = direct_posterior(matrix, state, method.click_precision).sum(axis=0)
        state["prior_exposure"] = method.prior(exposed, USERS)
        values.append(direct_objective(method, matrix, state))
    assert np.diff(values).min() > -1e-8
    assert values[-1] > values[0] + 1


@pytest.mark.parametrize("seed", range(3))
def test_the_reported_objective_never_goes_down(seed):
    matrix, state = problem(seed)
    values = [sweep(METHODS[0], matrix, state) for _ in range(40)]
    assert np.diff(values).min() > -1e-8


def ridge(method, others, p, clicked):
    left = method.click_precision * (others.T * p) @ others + method.regularisation * np.eye(DIM)
    return np.linalg.solve(left, method.click_precision * others.T @ clicked)


def test_vectors_are_ridge_regressions_weighted_by_the_posterior():
    matrix, state = problem(2)
    method = METHODS[1]
    before = state.copy()
    sweep(method, matrix, state)
    p = direct_posterior(matrix, before, method.click_precision)
    users = [ridge(method, before["item_factors"], p[u], matrix[u]) for u in range(USERS)]
    np.testing.assert_allclose(state["user_factors"], users, rtol=1e-8, atol=1e-11)
    # the posterior is brought up to date with the new users before the items move
    halfway = {**before, "user_factors": state["user_factors"]}
    p = direct_posterior(matrix, halfway, method.click_precision)
    items = [ridge(method, state["user_factors"], p[:, i], matrix[:, i]) for i in range(ITEMS)]
    np.testing.assert_allclose(state["item_factors"], items, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize("method", METHODS)
def test_the_prior_is_the_mode_of_its_beta_posterior(method):
    matrix, state = problem(3)
    sweep(method, matrix, after := state.copy())
    moved = {**after, "prior_exposure": state["prior_exposure"]}  # p comes before μ moves
    exposed = direct_posterior(matrix, moved, method.click_precision).sum(axis=0)
    a, b = method.prior_exposed, method.prior_unexposed
    expected = (a + exposed - 1) / (a + b + USERS - 2)
    np.testing.assert_allclose(after["prior_exposure"], expected.clip(1e-6, 1 - 1e-6), rtol=1e-12)


def test_blocks_give_what_one_block_gives(monkeypatch):
    method = METHODS[2]
    matrix, whole = problem(4)
    parts = whole.copy()
    values = [sweep(method, matrix, whole) for _ in range(3)]
    monkeypatch.setattr(expomf, "BLOCK_ROWS", 5)
    in_blocks = [sweep(method, matrix, parts) for _ in range(3)]
    np.testing.assert_allclose(in_blocks, values, rtol=1e-12)
    for name in whole:
        np.testing.assert_allclose(parts[name], whole[name], rtol=1e-9, atol=1e-12)


def test_a_long_vector_makes_smaller_blocks(monkeypatch):
    matrix, whole = problem(5)
    parts = whole.copy()
    sweep(METHODS[0], matrix, whole)
    monkeypatch.setattr(expomf, "BLOCK_PRODUCTS", 3 * DIM * (DIM + 1) // 2)  # 3 rows a block
    sweep(METHODS[0], matrix, parts)
    np.testing.assert_allclose(parts["item_factors"], whole["item_factors"], rtol=1e-9, atol=1e-12)


# the method


def checkerboard(n=40):
    """A user likes the items of its own colour; of each colour half is clicked."""
    rng = np.random.default_rng(0)
    liked = (np.arange(n)[:, None] + np.arange(n)) % 2 == 0
    return liked, liked & (rng.random((n, n)) < 0.5)


def fitted(seed=0, **settings):
    liked, matrix = checkerboard()
    settings = {"dim": 4, "epochs": 10} | settings
    return liked, ExpoMF(**settings).fit(clicks_of(matrix), seed=seed, progress=Silent())


def test_the_checkerboard_is_learned():
    liked, model = fitted()
    top, _ = model.top(np.arange(40, dtype=np.int32), 5)
    assert np.take_along_axis(liked, top, axis=1).mean() > 0.95


def test_the_loss_falls_in_training():
    _, model = fitted(patience=0)
    losses = model.facts["losses"]
    assert np.diff(losses).max() < 1e-3  # float32
    assert losses[-1] < losses[0]


def test_exposure_of_a_model_is_the_posterior_without_a_click():
    _, model = fitted(click_precision=3.0)
    parameters = model.parameters
    users = np.array([5, 0, 39], dtype=np.int32)
    state = parameters | {"user_factors": parameters["user_factors"][users]}
    expected = direct_posterior(np.zeros((3, 40)), state, 3.0)
    block = model.method.exposure(parameters, users)
    np.testing.assert_allclose(block, expected, rtol=1e-4)
    assert block.dtype == np.float32


def test_the_same_seed_gives_the_same_bits_and_another_does_not():
    first, same, other = (fitted(seed=s)[1].parameters for s in (1, 1, 2))
    assert all(np.array_equal(first[name], same[name]) for name in first)
    assert not np.array_equal(first["user_factors"], other["user_factors"])
    assert {a.dtype for a in first.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("name", "value"),
    [("click_precision", 0.0), ("prior_exposed", 0.5), ("initial_exposure", 1.0)],
)
def test_settings_out_of_bounds_are_refused(name, value):
    with pytest.raises(InputError, match=name):
        ExpoMF(**{name: value})
