"""How likely a shown item is seen: 1 − (1 − a)^n after n showings, a being the attention.

A seen item is clicked if it is relevant, so that

    P(ever clicked | shown n times) = r_i·(1 − (1 − a)^n)

with r_i the share of those shown item i who like it. Pairs that were shown several times tell a
from r_i: with n the chance of a click rises by the first, whatever the second is.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

Array = NDArray[np.float64]

LEAST = 1e-3  # attention that is considered
HALVINGS = 40  # of the interval that holds r_i


def seen(shown: NDArray[Any], attention: float) -> Array:
    """1 − (1 − a)^n, without a loss of digits where a is small."""
    if attention == 1:
        return np.ones(len(shown))
    found: Array = -np.expm1(np.asarray(shown, dtype=np.float64) * np.log1p(-attention))
    return found


def learned(items: NDArray[Any], shown: NDArray[Any], clicked: NDArray[Any]) -> float:
    """The attention of greatest likelihood, from pairs: their item, times shown, ever clicked.

    Where no pair was shown twice, or none was clicked, the log says nothing of it: then it is 1,
    and relevance means liking what is shown.
    """
    cells = _Cells.of(items, shown, clicked)
    if cells is None:
        return 1.0
    found = minimize_scalar(
        lambda log_a: -cells.log_likelihood(float(np.exp(log_a))),
        bounds=(np.log(LEAST), 0.0),
        method="bounded",
        options={"xatol": 1e-4},
    )
    best = float(np.exp(found.x))
    return best if cells.log_likelihood(best) > cells.log_likelihood(1.0) else 1.0


class _Cells:
    """Pairs counted by item and times shown, of items that were ever clicked."""

    def __init__(self, item: NDArray[Any], shown: NDArray[Any], n: Array, clicks: Array) -> None:
        self._item, self._shown, self._missed, self._clicks = item, shown, n - clicks, clicks
        self._item_clicks = np.bincount(item, weights=clicks)

    @staticmethod
    def of(items: NDArray[Any], shown: NDArray[Any], clicked: NDArray[Any]) -> "_Cells | None":
        """None: nothing can be told from these pairs."""
        ever = np.isin(items, np.unique(items[clicked]))
        if not ever.any() or shown[ever].max() < 2:
            return None
        base = int(shown.max()) + 1
        keys, place = np.unique(
            items[ever].astype(np.int64) * base + shown[ever], return_inverse=True
        )
        item, times = keys // base, keys % base
        n = np.bincount(place).astype(np.float64)
        clicks = np.bincount(place, weights=clicked[ever]).astype(np.float64)
        return _Cells(np.unique(item, return_inverse=True)[1], times, n, clicks)

    def log_likelihood(self, attention: float) -> float:
        """The log-likelihood at the best r of each item."""
        chance = seen(self._shown, attention)
        click = self._best_share(chance)[self._item] * chance
        missed = np.where(self._missed > 0, self._missed * np.log1p(-np.minimum(click, 1)), 0)
        return float(np.sum(self._clicks * np.log(click) + missed))

    def _best_share(self, chance: Array) -> Array:
        """r_i: the root of clicks/r − Σ missed·A/(1 − r·A), which falls with r; at most 1."""
        low = np.zeros(len(self._item_clicks))
        high = np.full(len(self._item_clicks), 1 - 1e-9)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            pull = self._missed * chance / (1 - middle[self._item] * chance)
            rises = self._item_clicks / middle > np.bincount(self._item, weights=pull)
            low, high = np.where(rises, middle, low), np.where(rises, high, middle)
        return (low + high) / 2
