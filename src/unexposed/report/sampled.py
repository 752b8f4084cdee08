"""Sample users, and pairs without a click with the model's relevance and exposure."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.pairs import Indices
from unexposed.model import recommend
from unexposed.model.model import Model
from unexposed.ranking.blocks import pairs_from_rows

USERS = 400
PAIRS = 200  # for each user
LIST = 10


@dataclass(frozen=True, eq=False)
class Sample:
    """Users of the log, their lists, and pairs without a click."""

    users: Indices
    lists: Indices  # (users, k): what the model recommends, −1 for none
    popular: Indices  # (users, k): the most clicked items that the user has not clicked
    pair_users: Indices
    pair_items: Indices
    relevance: NDArray[np.float64] | None  # P(click | exposed), where a score is or gives one
    exposure: NDArray[np.float64] | None
    unexposed: NDArray[np.float64] | None  # P(not exposed | no click)

    def shared(self) -> NDArray[np.float64]:
        """The share of each user's list that is on the user's popular list, too."""
        both = [
            np.isin(ours[ours >= 0], popular).sum() / max((ours >= 0).sum(), 1)
            for ours, popular in zip(self.lists, self.popular, strict=True)
        ]
        return np.array(both, dtype=np.float64)


def draw(model: Model, *, seed: int = 0) -> Sample:
    """Sample users who clicked anything, each with some items they did not click."""
    rng = np.random.default_rng(seed)
    clicks = model.clicks
    active = np.flatnonzero(clicks.user_counts > 0).astype(np.int32)
    users = np.sort(rng.choice(active, min(USERS, len(active)), replace=False))
    k = min(LIST, clicks.n_items)
    pair_users, pair_items = _unclicked(clicks, users, rng)
    relevance = relevance_of(model, scores_of(model, pair_users, pair_items))
    exposure = exposure_of(model, pair_users, pair_items)
    return Sample(
        users,
        model.top(users, k)[0],
        _popular(clicks, users, k),
        pair_users,
        pair_items,
        relevance,
        exposure,
        never_shown(model, relevance, exposure),
    )


def scores_of(model: Model, users: Indices, items: Indices) -> NDArray[np.float64]:
    """The score of each pair."""
    score = pairs_from_rows(model.scores, users, items)
    return score.astype(np.float64)


def relevance_of(model: Model, score: NDArray[Any]) -> NDArray[np.float64] | None:
    """P(click | exposed) from scores; None for a method whose scores only order items."""
    found = recommend.relevance(model.method, score)
    return None if found is None else found.astype(np.float64)


def exposure_of(model: Model, users: Indices, items: Indices) -> NDArray[np.float64] | None:
    """The exposure of each pair; None where the method has no exposure model."""
    if model.method.exposure(model.parameters, users[:0]) is None:
        return None
    return model.method.pair_exposure(model.parameters, users, items).astype(np.float64)


def never_shown(
    model: Model, relevance: NDArray[np.float64] | None, exposure: NDArray[np.float64] | None
) -> NDArray[np.float64] | None:
    """P(not exposed | no click) = (1 − m) / (1 − m·p)."""
    if exposure is None:
        return None
    if model.method.posterior_exposure:
        return 1 - exposure
    if relevance is None:
        return None
    return (1 - exposure) / np.maximum(1 - exposure * relevance, 1e-12)


def _unclicked(clicks: Clicks, users: Indices, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Drawn pairs of users and items, less the clicked ones."""
    drawn = np.repeat(users, PAIRS)
    items = rng.integers(clicks.n_items, size=len(drawn), dtype=np.int32)
    kept = ~clicks.contain(drawn, items)
    return drawn[kept], items[kept]


def _popular(clicks: Clicks, users: Indices, k: int) -> Indices:
    """The k most clicked items that each user has not clicked, −1 for none."""
    order = np.argsort(-clicks.item_counts, kind="stable").astype(np.int32)
    out = np.full((len(users), k), -1, dtype=np.int32)
    for row, user in enumerate(users.tolist()):
        clicked = clicks.items[clicks.user_start[user] : clicks.user_start[user + 1]]
        head = order[: k + len(clicked)]  # holds k unclicked items, if there are any
        left = head[~np.isin(head, clicked)][:k]
        out[row, : len(left)] = left
    return out
