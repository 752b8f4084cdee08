"""On Coat, features rank coats that nobody clicked, and give new users their exposure.

Held-out clicks of the log alone; the judged ratings are not looked at.
"""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.datasets import RatingData, load
from unexposed.data.ids import Ids
from unexposed.methods import make
from unexposed.model.fold_in import known_clicks
from unexposed.model.model import Model
from unexposed.progress import Silent
from unexposed.training.side import Side

pytestmark = pytest.mark.data
SEEDS = (0,)  # of the items removed


@pytest.fixture(scope="module")
def coat(data_dir) -> RatingData:
    return replace(load("coat", data_dir=data_dir), random=None)


@pytest.fixture(scope="module")
def clicks(coat) -> Clicks:
    return coat.logged.clicks(threshold=4)


def share_below(model: Model, clicks: Clicks, removed: Clicks, new: NDArray[np.bool_]) -> float:
    """The share of a user's other new items below a removed click, mean over them; chance: ½."""
    scores = model.scores(np.arange(clicks.n_users, dtype=np.int32))
    shares = []
    for user, item in zip(removed.users, removed.items, strict=True):
        rivals = new & ~clicks.contain(np.full(clicks.n_items, user), np.arange(clicks.n_items))
        others, own = scores[user, rivals], scores[user, item]
        shares.append((others < own).mean() + (others == own).mean() / 2)
    return float(np.mean(shares))


@pytest.mark.parametrize("name", ["mf"])
def test_coats_without_a_click_are_ranked_far_above_chance_by_their_features(name, coat, clicks):
    method, found = make(name, epochs=25, patience=0, refit=False, learning_rate=5e-3), []
    for seed in SEEDS:
        new = np.random.default_rng(seed).permutation(clicks.n_items) < 60  # a fifth of the coats
        gone = new[clicks.items]
        left, removed = clicks.pick(~gone), clicks.pick(gone)
        for features in (coat.item_features, None):
            side = Side(item_features=features)
            model = method.fit(left, seed=seed, side=side, progress=Silent())
            found.append(share_below(model, clicks, removed, new))
    with_features, without = found[::2], found[1::2]
    assert min(with_features) > 0.7, found
    assert max(without) < 0.6, found


def of_users(clicks: Clicks, users: NDArray[np.int64]) -> Clicks:
    here = np.isin(clicks.users, users)
    return Clicks.from_pairs(
        np.searchsorted(users, clicks.users[here]),
        clicks.items[here],
        user_ids=Ids(users),
        item_ids=clicks.item_ids,
    )


def test_the_exposure_of_new_users_from_features_is_like_what_their_clicks_teach(coat, clicks):
    """Of users' deviations from the mean exposure of each item: popularity alone correlates 0."""
    settings = {"epochs": 25, "patience": 0, "refit": False, "exposure_learning_rate": 5e-3}
    method = make("ubo", strategy="joint", **settings)
    features = coat.user_features
    assert features is not None

    def deviations(model: Model, users: NDArray[np.int32]) -> NDArray[np.float32]:
        exposure = model.method.exposure(model.parameters, users)
        assert exposure is not None
        return (exposure - exposure.mean(axis=0)).ravel()

    order = np.random.default_rng(0).permutation(clicks.n_users)
    new, old = np.sort(order[:58]), np.sort(order[58:])
    side = Side(user_features=features[old])
    model = method.fit(of_users(clicks, old), seed=0, side=side, progress=Silent())
    newer = of_users(clicks, new)
    served = model.of_users(newer, user_features=features[new])
    guessed = deviations(served, np.arange(served.clicks.n_users, dtype=np.int32))
    with_clicks = known_clicks(model, newer).user_ids.values.astype(np.int32)
    # others train on all users, from other starts
    side = Side(user_features=features)
    learned = method.fit(clicks, seed=1, side=side, progress=Silent())
    free = method.fit(clicks, seed=2, progress=Silent())
    by_features, by_clicks = (
        np.corrcoef(guessed, deviations(m, with_clicks))[0, 1] for m in (learned, free)
    )
    assert by_features > 0.7
    assert by_clicks > 0.4  # every user's own e_u, which knows no features
