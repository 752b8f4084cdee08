"""Protocol `ure`: recall from a few pairs judged at random, without bias."""

from dataclasses import replace

import numpy as np
import pytest

from known_scores import model_of
from unexposed.data.labelled import Judgements
from unexposed.evaluation.describe import describe
from unexposed.evaluation.protocols import PROTOCOLS, evaluate

URE = PROTOCOLS["ure"]
TASTES, COPIES, ITEMS, JUDGED = 15, 400, 40, 0.08
KS = (1, 3, 5, 10)


class World:
    """A few tastes with many users each; every pair is judged with the same small chance.

    The model ranks better for tastes with few relevant items, so that a mean over users that
    leaves some out is not the mean over all.
    """

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        n_relevant = np.linspace(2, 20, TASTES).astype(int)
        relevant = np.argsort(rng.random((TASTES, ITEMS)), axis=1) < n_relevant[:, None]
        score = rng.normal(size=relevant.shape) + 12 * relevant / n_relevant[:, None]
        # ranks by brute force: nothing is clicked, so all items are candidates
        rank = (-score).argsort(axis=1).argsort(axis=1) + 1
        self.recall = {k: ((rank <= k) & relevant).sum(axis=1) / n_relevant for k in KS}
        self.pooled = {k: ((rank <= k) & relevant).sum() / relevant.sum() for k in KS}
        self.model = model_of(np.repeat(score, COPIES, axis=0))
        judged = rng.random((TASTES * COPIES, ITEMS)) < JUDGED
        users, items = np.nonzero(judged)
        liked = relevant[users // COPIES, items]
        ids = {"user_ids": self.model.user_ids, "item_ids": self.model.item_ids}
        self.judged = Judgements.from_pairs(users, items, liked, **ids)


@pytest.fixture(scope="module")
def world() -> World:
    return World(0)


@pytest.mark.parametrize("k", KS)
def test_recall_of_a_user_with_a_judged_positive_is_unbiased(world, k):
    found = evaluate(world.model, world.judged, URE)
    taste = found.users // COPIES
    values = found.values[f"recall@{k}"]
    for one in range(TASTES):
        of_taste = values[taste == one]
        error = of_taste.std() / np.sqrt(len(of_taste))
        assert abs(of_taste.mean() - world.recall[k][one]) < 4 * error + 1e-9


@pytest.mark.parametrize("k", KS)
def test_pooled_recall_is_the_share_of_all_relevant_pairs_although_users_are_left_out(world, k):
    means = evaluate(world.model, world.judged, URE).means()
    assert means[f"recall_pooled@{k}"] == pytest.approx(world.pooled[k], abs=0.01)


def test_recall_among_judged_items_alone_is_far_off(world):
    n_users = TASTES * COPIES
    clicked = np.arange(n_users), np.arange(n_users) % ITEMS  # which that protocol asks for
    model = model_of(world.model.scores(slice(None)), clicked)
    judged = replace(PROTOCOLS["judged"], metrics={"recall_pooled@3": "recall_pooled@3"})
    among_judged = evaluate(model, world.judged, judged).means()["recall_pooled@3"]
    assert among_judged > world.pooled[3] + 0.5


def test_a_hit_is_a_score_above_the_one_at_place_k_plus_1_of_the_unclicked_items():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(30, 12))
    clicked = rng.random(scores.shape) < 0.2
    model = model_of(scores, np.nonzero(clicked))
    users, items = np.nonzero(~clicked & (rng.random(scores.shape) < 0.3))
    ids = {"user_ids": model.user_ids, "item_ids": model.item_ids}
    judged = Judgements.from_pairs(users, items, np.ones(len(users), dtype=bool), **ids)
    found = evaluate(model, judged, URE)
    unclicked = np.where(clicked, -np.inf, scores)
    for k in (1, 3, 5):
        threshold = -np.sort(-unclicked, axis=1)[:, k]
        hit = scores[users, items] > threshold[users]
        by_hand = [hit[users == user].mean() for user in found.users]
        np.testing.assert_allclose(found.values[f"recall@{k}"], by_hand)


def test_pooled_recall_of_a_stratum_is_a_share_too(world):
    found = describe(replace(world.model, clicks=some_clicks(world)), world.judged, URE)
    for part in found["by_popularity"].values():
        shares = [part["metrics"][f"recall_pooled@{k}"] for k in KS]
        assert 0 <= shares[0] <= shares[-1] <= 1


def some_clicks(world):
    """Clicks of a user without judgements worth mentioning, so that items differ in popularity."""
    users = np.arange(9) % 3
    return model_of(world.model.scores(slice(None)), (users, np.repeat([0, 1, 2], 3))).clicks
