"""A small log that says what was shown, and random traffic of the same users and items."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.labelled import Impressions, Traffic

N_USERS, N_ITEMS = 80, 30
IDS = {"user_ids": Ids.range(N_USERS), "item_ids": Ids.range(N_ITEMS)}


class ShownLog(NamedTuple):
    clicks: Clicks  # with its impressions
    traffic: Traffic
    relevance: NDArray[np.float64]  # of every pair


def shown_log(seed: int = 0, *, a: float = 0.5, clicks_only: bool = False) -> ShownLog:
    """Items are shown 0, 1, … times; a shown item is seen with chance a, then clicked if liked.

    With `clicks_only` the impressions leave out the clicked rows.
    """
    rng = np.random.default_rng(seed)
    relevance = rng.beta(1, 2, (N_USERS, N_ITEMS))
    times = rng.poisson(rng.gamma(1, 1.2, (1, N_ITEMS)), (N_USERS, N_ITEMS))
    liked = rng.random(relevance.shape) < relevance
    clicked = liked & (rng.random(relevance.shape) < 1 - (1 - a) ** times)
    users, items = np.nonzero(times)
    shown, ever = times[users, items], clicked[users, items]
    listed = shown > ever if clicks_only else shown > 0
    impressions = Impressions.from_pairs(
        users[listed],
        items[listed],
        shown=(shown - ever)[listed] if clicks_only else shown[listed],
        clicked=None if clicks_only else ever[listed],
        propensity=rng.uniform(0.1, 1, listed.sum()),
        **IDS,
    )
    log = Clicks.from_pairs(*np.nonzero(clicked), shown=impressions, **IDS)
    return ShownLog(log, _traffic(liked, rng), relevance)


def _traffic(liked: NDArray[np.bool_], rng: np.random.Generator) -> Traffic:
    users, items = np.nonzero(rng.random(liked.shape) < 0.15)
    return Traffic(users.astype(np.int32), items.astype(np.int32), liked[users, items], **IDS)
