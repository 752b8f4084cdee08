"""Rank wanted items among a user's judged items, or in the whole catalogue; find the best items."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unexposed.compiled import CORES, STEP, Array, compiled, mix
from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Impressions, Judgements
from unexposed.errors import InputError
from unexposed.ranking.blocks import Scores, blocks, in_whole, pairs_from_rows, tie_break
from unexposed.ranking.metrics import Ranking

CHUNK = 256  # scores compared at a time: most chunks hold none that is good enough
# the constants of `blocks.pair_hash`
ITEM_STEP = np.uint64(0xD1B54A32D192ED03)
SALT = np.uint64(0x5EED * 0x8CB92BA72F3D8DD7 % 2**64)


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
        rank[here] = places(*given)
        if share is not None:
            above, others = masses_above(*given, mass).T
            share[here] = above / np.maximum(others, 1)
    return Ranking.from_pairs(
        row,
        rank,
        wanted.items,
        n_candidates=clicks.n_items - clicks.user_counts[users],
        weights=1 / propensity(clicks.item_counts, exponent=exponent)[wanted.items],
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
        weights=1 / propensity(clicks.item_counts, exponent=exponent)[wanted.items[found]],
        above=above / n_others[row[found]],
    )


def propensity(item_counts: ArrayLike, *, exponent: float) -> NDArray[np.float64]:
    """Propensity of a click on a liked item, relative to the most clicked: (n / max n)^((γ+1)/2).

    Yang et al. (RecSys 2018), with γ the exponent; γ = −1 weighs all items alike. An item without
    clicks counts as if it had one, so that its inverse stays finite.
    """
    if not (np.isfinite(exponent) and exponent >= -1):
        raise InputError(f"the exponent of a propensity must be at least -1, got {exponent}")
    counts = np.maximum(np.asarray(item_counts, dtype=np.float64), 1)
    return (counts / counts.max(initial=1)) ** ((exponent + 1) / 2)


def _refuse_nan(scores: NDArray[Any]) -> None:
    if np.isnan(scores).any():
        raise InputError("the model gives scores that are not numbers; train it again")


# Compiled loops over the rows of a block


@compiled
def hash_of(user: int, item: int) -> Any:
    """`blocks.tie_break` of one pair, compiled."""
    return mix(np.uint64(user) * STEP + np.uint64(item) * ITEM_STEP + SALT)


@compiled
def places(
    block: Array,
    rows: Array,
    items: Array,
    users: Array,
    names: Array,  # by which ties are broken: the index of each user in the whole log
    user_start: Array,
    clicked: Array,
) -> Array:
    """Rank each wanted item in its row, among all items that the row's user has not clicked.

    The rank is 1 + all items that stand before it − the clicked ones that do.
    """
    found = np.empty(len(rows), dtype=np.int64)
    for n in range(len(rows)):
        row, item = block[rows[n]], items[n]
        user, name = users[rows[n]], names[rows[n]]
        score = row[item]
        before = equal = 0
        for rival in range(len(row)):
            before += row[rival] > score
            equal += row[rival] == score
        first, stop = user_start[user], user_start[user + 1]
        if equal == 1:  # only the item itself
            for click in range(first, stop):
                before -= row[clicked[click]] > score
        else:
            before = 0
            for rival in range(len(row)):
                before += follows(item, score, rival, row[rival], name)
            for click in range(first, stop):
                rival = clicked[click]
                before -= follows(item, score, rival, row[rival], name)
        found[n] = 1 + before
    return found


@compiled
def masses_above(
    block: Array,
    rows: Array,
    items: Array,
    users: Array,
    names: Array,
    user_start: Array,
    clicked: Array,
    mass: Array,
) -> Array:
    """Sum the mass of the items before each wanted item, and of all others: (wanted, 2).

    Clicked items and the wanted item itself do not count. Masses are whole numbers: their sums
    are exact, and the loop over all items is vectorised.
    """
    found = np.empty((len(rows), 2), dtype=np.int64)
    total = mass.sum()
    for n in range(len(rows)):
        row, item = block[rows[n]], items[n]
        user, name = users[rows[n]], names[rows[n]]
        score = row[item]
        above = equal = others = 0
        for rival in range(len(row)):
            above += mass[rival] * (row[rival] > score)
            equal += row[rival] == score
        if equal > 1:
            for rival in range(len(row)):
                if row[rival] == score and follows(item, score, rival, score, name):
                    above += mass[rival]
        others = total - mass[item]
        for click in range(user_start[user], user_start[user + 1]):
            rival = clicked[click]
            others -= mass[rival]
            if follows(item, score, rival, row[rival], name):
                above -= mass[rival]
        found[n, 0], found[n, 1] = above, others
    return found


def best(block: Array, users: Array, k: int, *, threads: int | None = None) -> tuple[Array, Array]:
    """Find the k best columns of each row, best first, and their scores.

    Where only −∞ is left the column is −1. NaN is never among the best.
    """
    items = np.full((len(block), k), -1, dtype=np.int32)
    scores = np.full((len(block), k), -np.inf, dtype=np.float32)
    threads = max(1, min(threads or CORES, len(block)))
    bounds = [len(block) * share // threads for share in range(threads + 1)]

    def share(number: int) -> None:
        fill_best(items, scores, block, users, *bounds[number : number + 2])

    if threads == 1:
        share(0)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(share, range(threads)))
    return items, scores


@compiled
def fill_best(
    items: Array, scores: Array, block: Array, users: Array, first: int, stop: int
) -> None:
    """Fill in the best of these rows: a heap with its worst entry at the root, then sorted."""
    k = items.shape[1]
    for number in range(first, stop):
        row, user, heap, worth = block[number], users[number], items[number], scores[number]
        size = 0
        for begin in range(0, len(row), CHUNK):
            chunk = row[begin : begin + CHUNK]  # a slice: its loop is vectorised
            if size == k:
                good = 0
                for at in range(len(chunk)):
                    good += chunk[at] >= worth[0]
                if good == 0:
                    continue
            for at in range(len(chunk)):
                score, item = chunk[at], begin + at
                if size < k and score > -np.inf:
                    heap[size], worth[size] = item, score
                    rise(heap, worth, size, user)
                    size += 1
                elif size == k and follows(heap[0], worth[0], item, score, user):
                    heap[0], worth[0] = item, score
                    sink(heap, worth, k, user)
        for last in range(size - 1, 0, -1):
            swap(heap, worth, 0, last)
            sink(heap, worth, last, user)


@compiled
def follows(item: int, score: float, rival: int, rival_score: float, user: int) -> bool:
    """Say whether the item ranks below the rival."""
    return score < rival_score or (
        score == rival_score and hash_of(user, item) > hash_of(user, rival)
    )


@compiled
def rise(heap: Array, worth: Array, at: int, user: int) -> None:
    """Move the entry up until its parent is worse."""
    while at > 0:
        parent = (at - 1) // 2
        if not follows(heap[at], worth[at], heap[parent], worth[parent], user):
            return
        swap(heap, worth, at, parent)
        at = parent


@compiled
def sink(heap: Array, worth: Array, size: int, user: int) -> None:
    """Move the root down until both of its children are better."""
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and follows(
            heap[child + 1], worth[child + 1], heap[child], worth[child], user
        ):
            child += 1
        if not follows(heap[child], worth[child], heap[at], worth[at], user):
            return
        swap(heap, worth, at, child)
        at = child


@compiled
def swap(heap: Array, worth: Array, one: int, other: int) -> None:
    heap[one], heap[other] = heap[other], heap[one]
    worth[one], worth[other] = worth[other], worth[one]
