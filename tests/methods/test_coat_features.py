"""On Coat, features rank coats that nobody clicked, and give new users their exposure.

Held-out clicks of the log alone; the judged ratings are not looked at.
"""

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.datasets import RatingData, load
from unexposed.methods import make
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
