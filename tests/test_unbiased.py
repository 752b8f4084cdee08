"""The point of it all: given the exposure, the log's bias towards exposed items is gone."""

import numpy as np
import pytest
from scipy.special import expit, logit

from unexposed.evaluation import exposure_correlation
from unexposed.methods import make
from unexposed.progress import Silent
from unexposed.recommender import Side
from unexposed.simulate import world

# exposure follows a long tail that is drawn by lot: it says nothing of relevance
WORLD = world(
    600, 80, popularity_bias=1.0, relevance_bias=0.0, exposure_rate=0.3, relevance_rate=0.4, seed=11
)
USERS = np.arange(WORLD.n_users, dtype=np.int32)
SETTINGS = {
    "dim": 4,
    "epochs": 60,
    "learning_rate": 0.02,
    "weight_decay": 1e-6,
    "pairs": "all",
    "patience": 0,
}


@pytest.fixture(scope="module")
def errors() -> dict[str, np.ndarray]:
    """For each item how far the mean estimated relevance is off, on the logit scale."""
    clicks = WORLD.clicks(seed=0)
    true_exposure = WORLD.exposure(USERS)
    nothing_held_out = clicks.pick(np.zeros(len(clicks), dtype=bool))
    models = {
        "plain": make("mf", **SETTINGS).fit(clicks, nothing_held_out, progress=Silent()),
        "given the truth": make("umf", **SETTINGS).fit(
            clicks, nothing_held_out, side=Side(exposure=true_exposure), progress=Silent()
        ),
    }
    true = WORLD.relevance(USERS).mean(axis=0)
    estimates = {
        name: expit(model.method.scores(model.parameters, USERS)).mean(axis=0)
        for name, model in models.items()
    }
    return {name: logit(estimate) - logit(true) for name, estimate in estimates.items()}


def test_in_this_world_exposure_is_unrelated_to_relevance():
    exposure, relevance = WORLD.exposure(USERS).mean(axis=0), WORLD.relevance(USERS).mean(axis=0)
    assert abs(np.corrcoef(exposure, relevance)[0, 1]) < 0.2


def test_a_plain_model_takes_exposed_items_for_relevant_ones(errors):
    exposure = WORLD.exposure(USERS).mean(axis=0)
    assert np.corrcoef(errors["plain"], np.log(exposure))[0, 1] > 0.8


def test_the_true_exposure_given_to_the_low_variance_loss_removes_the_bias(errors):
    exposure = WORLD.exposure(USERS).mean(axis=0)
    bias = np.corrcoef(errors["given the truth"], np.log(exposure))[0, 1]
    assert abs(bias) < 0.3
    assert np.abs(errors["given the truth"]).mean() < 0.25 * np.abs(errors["plain"]).mean()


def test_the_true_exposure_recovers_relevance_better_than_plain_factorisation():
    clicks = WORLD.clicks(seed=1)
    settings = SETTINGS | {"epochs": 30}
    plain = make("mf", **settings).fit(clicks, seed=0, progress=Silent())
    truth = make("umf", **settings).fit(
        clicks, seed=0, side=Side(exposure=WORLD.exposure(USERS)), progress=Silent()
    )
    relevance = WORLD.relevance(USERS)

    def recovered(model):
        scores = model.method.scores(model.parameters, USERS)
        return np.mean([np.corrcoef(scores[u], relevance[u])[0, 1] for u in USERS])

    assert recovered(truth) > recovered(plain) + 0.05


def test_ubo_learns_an_exposure_that_correlates_with_the_truth():
    split = WORLD.split(seed=0)
    model = make("ubo", dim=8, epochs=30, learning_rate=5e-3).fit(
        split.train, split.held_out, seed=0, progress=Silent()
    )
    assert exposure_correlation(model, WORLD.exposure) > 0.7
