"""ExpoMF: exposure as a hidden variable, and an EM that never lowers its objective."""

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logit
from scipy.stats import norm

from unexposed.methods import expomf
from unexposed.methods.expomf import ExpoMF

USERS, ITEMS, DIM = 23, 17, 4


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


# the sweeps


@pytest.mark.parametrize("method", METHODS)
def test_the_objective_is_the_log_posterior_with_exposure_summed_out(method):
    matrix, state = problem(1)
    before = state.copy()
    value = sweep(method, matrix, state)
    moved = {**state, "prior_exposure": before["prior_exposure"]}  # just before μ moves
    assert value == pytest.approx(direct_objective(method, matrix, moved), rel=1e-10)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(3))
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
    # the posterior is updated with the new users before the items move
    halfway = {**before, "user_factors": state["user_factors"]}
    p = direct_posterior(matrix, halfway, method.click_precision)
    items = [ridge(method, state["user_factors"], p[:, i], matrix[:, i]) for i in range(ITEMS)]
    np.testing.assert_allclose(state["item_factors"], items, rtol=1e-8, atol=1e-11)


@pytest.mark.parametrize(("name", "size"), [("BLOCK_ROWS", 5), ("BLOCK_PRODUCTS", 30)])
def test_smaller_blocks_give_the_same_sweeps(name, size, monkeypatch):
    method = METHODS[2]
    matrix, whole = problem(4)
    parts = whole.copy()
    values = [sweep(method, matrix, whole) for _ in range(3)]
    assert np.diff(values).min() > -1e-8  # the reported objective never goes down either
    monkeypatch.setattr(expomf, name, size)
    in_blocks = [sweep(method, matrix, parts) for _ in range(3)]
    np.testing.assert_allclose(in_blocks, values, rtol=1e-12)
    for table in whole:
        np.testing.assert_allclose(parts[table], whole[table], rtol=1e-9, atol=1e-12)
