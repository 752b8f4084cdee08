"""EASE: the closed form minimises what it says, with and without inverse-propensity weights."""

from itertools import product

import numpy as np
import pytest

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.errors import InputError
from unexposed.methods import make
from unexposed.methods.ease import MOST_ITEMS
from unexposed.training.side import Side


@pytest.fixture(scope="module")
def clicks(small_world):
    return small_world.clicks(0)


@pytest.mark.parametrize("exponent", [0.0, 0.5])
def test_the_weights_are_where_the_gradient_of_the_objective_is_zero(clicks, exponent):
    penalty = 7.0
    method = make("ease", regularisation=penalty, popularity_exponent=exponent)
    parameters = method.fit(clicks).parameters
    weights = parameters["item_weights"].astype(np.float64)
    shown = parameters.get("exposure", np.ones(clicks.n_items))
    assert (np.ptp(shown) > 0) == (exponent > 0)
    matrix = clicks.matrix().toarray().astype(np.float64)
    gram = matrix.T @ matrix
    # half of ∂/∂B of Σ (XB)² − 2·X/m·XB + λ|B|²
    gradient = gram @ weights - gram / shown + penalty * weights
    off_diagonal = ~np.eye(len(gram), dtype=bool)
    assert np.abs(gradient[off_diagonal]).max() < 1e-4 * np.abs(gram).max()
    assert (np.diag(weights) == 0).all()
    assert np.abs(weights).max() > 0.01


def test_the_weighted_error_has_the_expectation_of_the_error_towards_relevance():
    """Over every outcome of exposure and relevance, whatever is predicted."""
    m, gamma = 0.3, 0.6
    for score in (-0.5, 0.2, 1.7):
        expected = sum(
            (m if seen else 1 - m)
            * (gamma if liked else 1 - gamma)
            * (score**2 - 2 * click * score)
            for seen, liked in product((0, 1), repeat=2)
            for click in [seen * liked / m]
        )
        towards_relevance = gamma * (1 - score) ** 2 + (1 - gamma) * score**2
        assert expected == pytest.approx(towards_relevance - gamma)


def test_held_out_clicks_are_learned_from_only_after_the_choice(clicks):
    train, held_out = clicks.hold_out(fraction=0.2, seed=0)
    chosen = make("ease", refit=False).fit(train, held_out).parameters["item_weights"]
    np.testing.assert_array_equal(
        chosen, make("ease").fit(train, train.pick(slice(0, 0))).parameters["item_weights"]
    )
    final = make("ease").fit(train, held_out).parameters["item_weights"]
    everything = make("ease").fit(clicks, clicks.pick(slice(0, 0))).parameters["item_weights"]
    np.testing.assert_array_equal(final, everything)
    assert not np.array_equal(chosen, final)


def test_more_items_than_it_can_hold_and_exposure_of_pairs_are_refused(clicks):
    wide = Clicks.from_pairs(
        np.zeros(1), np.zeros(1), user_ids=Ids.range(1), item_ids=Ids.range(MOST_ITEMS + 1)
    )
    with pytest.raises(InputError, match="at most 20,000 items.*has 20,001; leave out rare items"):
        make("ease").fit(wide)
    table = np.full((clicks.n_users, clicks.n_items), 0.5)
    with pytest.raises(InputError, match="one exposure for each item"):
        make("ease").fit(clicks, side=Side(exposure=table))
