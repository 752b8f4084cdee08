"""Rank wanted items among a user's judged items, or in the whole catalogue."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Impressions, Judgements
from unexposed.errors import InputError
from unexposed.ranking import metrics, top
from unexposed.ranking.blocks import Scores, blocks, in_whole, pairs_from_rows, tie_break
from unexposed.ranking.metrics import Ranking


def rank_judged(scores: Scores, judged: Judgements, clicks: Clicks) -> Ranking:
    """Rank the relevant items of each user among its judged items."""
    _, row = np.unique(judged.users, return_inverse=True)
    score = pairs_from_rows(scores, judged.users, judged.items)
    _refuse_nan(score)
    ties = tie_break(in_whole(clicks, judged.users), judged.items)
    order = np.lexsort((ties, -score, row))
    counts = np.bincount(row)
    first = np.cumsum(counts) - counts
    rank = np.arange(len(judged)) - first[row] + 1  # row is sorted, as the judgements are
    relevant = judged.relevant[order]
    return Ranking.from_pairs(
        row[relevant], rank[relevant], judged.items[order][relevant], n_candidates=counts
    )


def rank_catalogue(
    scores: Scores,
    wanted: Judgements,
    clicks: Clicks,
    *,
    exponent: float = -1.0,
    mass: NDArray[np.int64] | None = None,
) -> Ranking:
    """Rank the wanted pairs among all items their users have not clicked.

    With a mass for each item, find also which share of the other candidates' mass stands above.
    """
    clicks = clicks.checked()  # compiled loops read them
    if clicks.contain(wanted.users, wanted.items).any():
        raise InputError("a wanted pair was clicked, so it is not a candidate to rank")
    users, row = np.unique(wanted.users, return_inverse=True)
    rank = np.empty(len(wanted), dtype=np.int64)
    share = None if mass is None else np.empty(len(wanted))
    for part, block in blocks(scores, users, clicks):
        here = slice(*np.searchsorted(row, (part.start, part.stop)))  # row is sorted
        rows = row[here] - part.start
        _refuse_nan(block)
        block = np.require(block, requirements=["C", "W"])  # the only layout compiled
        of = users[part], in_whole(clicks, users[part])
        given = block, rows, wanted.items[here], *of, clicks.user_start, clicks.items
        rank[here] = top.ranks(*given)
        if share is not None:
            above, others = top.masses_above(*given, mass).T
            share[here] = above / np.maximum(others, 1)
    return Ranking.from_pairs(
        row,
        rank,
        wanted.items,
        n_candidates=clicks.n_items - clicks.user_counts[users],
        weights=1 / metrics.propensity(clicks.item_counts, exponent=exponent)[wanted.items],
        above=share,
    )


def rank_among(
    scores: Scores,
    wanted: Judgements,
    others: Impressions,
    clicks: Clicks,
    *,
    exponent: float = -1.0,
) -> Ranking:
    """Rank the wanted pairs among other items of their users; users without any are left out.

    The share above a wanted item counts the other items alone.
    """
    n_others = np.bincount(others.users, minlength=clicks.n_users)
    wanted = wanted.pick(n_others[wanted.users] > 0)
    users, row = np.unique(wanted.users, return_inverse=True)
    others = others.pick(np.isin(others.users, users))
    n_others, n_wanted = n_others[users], np.bincount(row, minlength=len(users))
    rows = np.concatenate([row, np.searchsorted(users, others.users)])
    items = np.concatenate([wanted.items, others.items])
    score = pairs_from_rows(scores, users[rows], items)
    _refuse_nan(score)
    order = np.lexsort((tie_break(in_whole(clicks, users[rows]), items), -score, rows))
    is_wanted = order < len(wanted)
    found = order[is_wanted]  # by user and rank
    before, first = (np.cumsum(n) - n for n in (n_others, n_wanted))  # of earlier users
    above = np.cumsum(~is_wanted)[is_wanted] - before[row[found]]
    rank = above + np.arange(len(found)) - first[row[found]] + 1
    return Ranking.from_pairs(
        row[found],
        rank,
        wanted.items[found],
        n_candidates=n_others + n_wanted,
        weights=1 / metrics.propensity(clicks.item_counts, exponent=exponent)[wanted.items[found]],
        above=above / n_others[row[found]],
    )


def _refuse_nan(scores: NDArray[Any]) -> None:
    if np.isnan(scores).any():
        raise InputError("the model gives scores that are not numbers; train it again")
