"""Describe how recommendations spread over the catalogue: strata, coverage, evenness."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unexposed.errors import InputError


def strata(item_counts: ArrayLike) -> NDArray[np.int8]:
    """Assign items to popularity strata: 0 head, 1 middle, 2 tail, with a third of clicks each.

    Items are sorted by clicks, most clicked first, ties by lower index. An item is in the head if
    fewer than a third of all clicks went to the items before it, in the middle if fewer than two
    thirds did. The thirds are rough where few items hold most clicks. Items without clicks are in
    the tail.
    """
    counts = np.asarray(item_counts, dtype=np.int64)
    order = np.argsort(-counts, kind="stable")
    before = np.cumsum(counts[order]) - counts[order]
    stratum = np.full(len(counts), 2, dtype=np.int8)
    stratum[order] = np.minimum(3 * before // max(counts.sum(), 1), 2)
    stratum[counts == 0] = 2
    return stratum


def coverage(lists: NDArray[np.integer], n_items: int) -> float:
    """Share of the catalogue that is recommended to anyone. Lists: users × k, −1 for empty."""
    return float((_list_counts(lists, n_items) > 0).mean())


def gini(lists: NDArray[np.integer], n_items: int) -> float:
    """Measure how unevenly recommendations spread: 0 for equal shares, near 1 for a single item.

    Lists: users × k, −1 for empty. With x ascending: Σ (2j − n − 1) x_j / (n Σ x), j from 1. Items
    never recommended are included; a rival convention leaves them out. 0 when nothing is
    recommended.
    """
    counts = np.sort(_list_counts(lists, n_items))
    place = 2 * np.arange(1, n_items + 1) - n_items - 1
    return float((place * counts).sum() / (n_items * max(counts.sum(), 1)))


def mean_popularity(lists: NDArray[np.integer], item_counts: ArrayLike) -> float:
    """Mean number of clicks of the items in a list, averaged over the users who have one.

    Lists: users × k, −1 for empty. Yin et al. (VLDB 2012), average recommendation popularity.
    """
    counts = np.asarray(item_counts, dtype=np.float64)
    filled = lists >= 0
    n_filled = filled.sum(axis=1)
    if not n_filled.any():
        raise InputError("no list holds an item, so there is no popularity to average")
    clicks = np.where(filled, counts[lists], 0).sum(axis=1)
    return float((clicks[n_filled > 0] / n_filled[n_filled > 0]).mean())


def _list_counts(lists: NDArray[np.integer], n_items: int) -> NDArray[np.int64]:
    """Count how often each item is recommended."""
    return np.bincount(lists[lists >= 0], minlength=n_items)
