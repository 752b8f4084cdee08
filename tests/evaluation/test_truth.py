"""Tests of the evaluation by true relevance."""

import numpy as np
import pytest

from unexposed.data.worlds.simulate import world
from unexposed.evaluation.protocols import by_truth
from unexposed.methods import make
from unexposed.progress import Silent


def quality(scores, made, clicks):
    return by_truth(scores, made, clicks).means()["dcg@3"]


def test_knowing_relevance_beats_chance_and_chance_is_its_mean():
    made = world(150, 40, seed=0)
    clicks = made.clicks(0)
    best = quality(made.relevance, made, clicks)
    chance = make("random").fit(clicks, seed=0, progress=Silent())
    by_lot = quality(chance.scores, made, clicks)
    worst = quality(lambda users: -made.relevance(users), made, clicks)
    # every rank has the mean relevance: Σ 1 / log2(rank + 1) of three ranks
    users, items = np.flatnonzero(clicks.user_counts), np.flatnonzero(clicks.item_counts)
    mean = made.relevance(users)[:, items].mean() * (1 + 1 / np.log2(3) + 1 / 2)
    assert by_lot == pytest.approx(mean, rel=0.05)
    assert best > 1.3 * by_lot > by_lot > 1.3 * worst
    tied = quality(lambda users: np.zeros((len(users), 40)), made, clicks)
    assert tied == pytest.approx(mean, rel=0.05)
