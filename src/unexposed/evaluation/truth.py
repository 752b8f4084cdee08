"""Evaluation by the true relevance γ of a world: what many random experiments show on average."""

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.worlds.simulate import World
from unexposed.evaluation.protocols import Evaluation, Protocol
from unexposed.ranking.blocks import Scores, parts

DRAWS, CANDIDATES, K = 20, 10, 3  # sets of items of each user, their size, the list

TRUE_RELEVANCE = Protocol(
    "true-relevance",
    "the true relevance of the top three among ten random items that anyone clicked, mean over "
    "twenty such sets: only for a world",
    candidates="judged",
    metrics={"dcg@3": "dcg@3"},
)


def by_truth(scores: Scores, world: World, clicks: Clicks, *, seed: int = 0) -> Evaluation:
    """DCG@3 of γ among ten random items, of every user with a click.

    γ in place of a drawn R makes the values less noisy, and rewards nobody for remembering the
    clicks.
    """
    rng = np.random.default_rng(seed)
    items = np.flatnonzero(clicks.item_counts)
    users = np.flatnonzero(clicks.user_counts).astype(np.int32)
    discount = 1 / np.log2(np.arange(K) + 2)
    found: list[NDArray[np.float64]] = []
    for part in parts(len(users), clicks.n_items):
        here = users[part]
        drawn = items[rng.integers(len(items), size=(len(here), DRAWS * CANDIDATES))]
        score, relevance = (
            np.take_along_axis(block, drawn, axis=1).reshape(-1, CANDIDATES)
            for block in (scores(here), world.relevance(here))
        )
        # a set is in random order, so a stable sort breaks ties by lot
        top = np.argsort(-score, axis=1, kind="stable")[:, :K]
        gain = np.take_along_axis(relevance, top, axis=1) @ discount
        found.append(gain.reshape(len(here), DRAWS).mean(axis=1))
    return Evaluation(users, {"dcg@3": np.concatenate(found)})
