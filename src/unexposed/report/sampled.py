"""What a model says of a sample of users and of pairs they did not click, in one pass by blocks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from unexposed.data.clicks import Clicks, Indices
from unexposed.methods.expomf import ExpoMF
from unexposed.model.filters import hide
from unexposed.model.model import Model
from unexposed.ranking.blocks import Block, blocks
from unexposed.ranking.top import best_first

USERS = 400
PAIRS = 200  # of each user, unclicked
LIST = 10


@dataclass(frozen=True, eq=False)
class Sample:
    """Users of the log, their lists, and pairs without a click."""

    users: Indices
    lists: Indices  # (users, k): what the model recommends, −1 for none
    popular: Indices  # (users, k): the most clicked items that the user has not clicked
    pair_users: Indices
    pair_items: Indices
    score: NDArray[np.float64]
    relevance: NDArray[np.float64] | None  # P(click | exposed), where the method has one
    exposure: NDArray[np.float64] | None
    unexposed: NDArray[np.float64] | None  # P(not exposed | no click)


def draw(model: Model, *, seed: int = 0) -> Sample:
    """A sample of the users who clicked anything, each with some items it did not click."""
    rng = np.random.default_rng(seed)
    clicks = model.clicks
    active = np.flatnonzero(clicks.user_counts > 0).astype(np.int32)
    users = np.sort(rng.choice(active, min(USERS, len(active)), replace=False))
    k = min(LIST, clicks.n_items)
    lists = np.full((len(users), k), -1, dtype=np.int32)
    rows, items, scores, exposures = [], [], [], []
    for part, block in model.blocks(users):
        here = users[part]
        shown = model.method.exposure(model.parameters, here)
        at, columns = _unclicked(clicks, here, rng)
        rows.append(here[at])
        items.append(columns)
        scores.append(block[at, columns])
        if shown is not None:
            exposures.append(shown[at, columns])
        lists[part] = _best(block, clicks, here, k)
    pair_users, pair_items = np.concatenate(rows), np.concatenate(items)
    score = np.concatenate(scores).astype(np.float64)
    exposure = np.concatenate(exposures).astype(np.float64) if exposures else None
    relevance = relevance_of(model, score)
    return Sample(
        users,
        lists,
        _popular(clicks, users, k),
        pair_users,
        pair_items,
        score,
        relevance,
        exposure,
        never_shown(model, relevance, exposure),
    )


def relevance_of(model: Model, score: NDArray[Any]) -> NDArray[np.float64] | None:
    """P(click | exposed) from a score; None for a method whose scores only order items."""
    if model.method.scale == "logit":
        return expit(score.astype(np.float64))
    if model.method.scale == "probability":
        return score.astype(np.float64)
    if isinstance(model.method, ExpoMF):  # the mean of a click once exposed
        return score.astype(np.float64).clip(0, 1)
    return None


def never_shown(
    model: Model, relevance: NDArray[np.float64] | None, exposure: NDArray[np.float64] | None
) -> NDArray[np.float64] | None:
    """P(not exposed | no click) = (1 − m) / (1 − m·p)."""
    if exposure is None or relevance is None:
        return None
    if isinstance(model.method, ExpoMF):  # its exposure is that of an unclicked pair already
        return 1 - exposure
    return (1 - exposure) / np.maximum(1 - exposure * relevance, 1e-12)


def exposure_of(model: Model, users: Indices, items: Indices) -> NDArray[np.float64] | None:
    """The exposure of each user's own items, (users, k); None where the method has none."""
    method = model.method
    if method.exposure(model.parameters, users[:0]) is None:
        return None
    out = np.empty(items.shape)
    for part, block in blocks(lambda u: method.exposure(model.parameters, u), users, model.clicks):
        out[part] = np.take_along_axis(block, items[part].clip(min=0), axis=1)
    return out


def _best(block: Block, clicks: Clicks, users: Indices, k: int) -> Indices:
    block = block.copy()
    hide(block, clicks, users)
    best = best_first(block, users, k)
    best[np.isneginf(np.take_along_axis(block, best, axis=1))] = -1
    return best


def _unclicked(
    clicks: Clicks, users: Indices, rng: np.random.Generator
) -> tuple[NDArray[np.int64], Indices]:
    """Rows and items of drawn pairs; those that were clicked fall out."""
    rows = np.repeat(np.arange(len(users)), PAIRS)
    items = rng.integers(clicks.n_items, size=len(rows), dtype=np.int32)
    kept = ~clicks.contain(users[rows], items)
    return rows[kept], items[kept]


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
