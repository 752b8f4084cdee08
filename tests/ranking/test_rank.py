"""Ranks match sorting every user's candidates by hand, ties included."""

import numpy as np
import pytest

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.labelled import Judgements
from unexposed.errors import InputError
from unexposed.ranking import blocks
from unexposed.ranking.blocks import tie_break
from unexposed.ranking.rank import best, rank_catalogue, rank_judged


def brute_rank(score, user, item, candidates) -> int:
    keys = [
        (-score[user, c], int(tie_break(np.array([user]), np.array([c]))[0]), c) for c in candidates
    ]
    return 1 + [c for _, _, c in sorted(keys)].index(item)


def by_hand(score, wanted, candidates):
    """The rank of each wanted pair among the candidates of its user."""
    return {
        (u, i): brute_rank(score, u, i, np.flatnonzero(candidates[u]))
        for u, i in np.argwhere(wanted)
    }


def ids(shape):
    return {"user_ids": Ids.range(shape[0]), "item_ids": Ids.range(shape[1])}


def log(clicked) -> Clicks:
    return Clicks.from_pairs(*np.nonzero(clicked), **ids(clicked.shape))


def judgements(judged, relevant) -> Judgements:
    users, items = np.nonzero(judged)
    return Judgements.from_pairs(users, items, relevant[users, items], **ids(judged.shape))


def ranks(ranking, pairs):
    users = np.unique(pairs.users)[ranking.users]
    return dict(zip(zip(users, ranking.items, strict=True), ranking.ranks, strict=True))


def in_catalogue(score, wanted, clicked):
    pairs = judgements(wanted, wanted)
    ranking = rank_catalogue(lambda users: score[users], pairs, log(clicked))
    assert (ranking.n_candidates == (~clicked).sum(axis=1)[np.unique(pairs.users)]).all()
    return ranks(ranking, pairs)


@pytest.mark.parametrize("block_entries", [1, 120, 10**6])  # one user at a time, a few, all
@pytest.mark.parametrize("n_items", [3, 50])
def test_ranks_match_sorting_by_hand(n_items, block_entries, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_ENTRIES", block_entries)
    rng = np.random.default_rng(n_items)
    shape = (30, n_items)
    score = rng.choice(np.array([-np.inf, -1, 0, 0.5, np.inf], dtype=np.float32), size=shape)
    clicked = rng.random(shape) < rng.random((30, 1))  # users with few clicks and with many
    wanted = ~clicked & (rng.random(shape) < 0.5)
    assert in_catalogue(score, wanted, clicked) == by_hand(score, wanted, ~clicked)
    judged, relevant = rng.random(shape) < 0.7, rng.random(shape) < 0.5
    pairs = judgements(judged, relevant)
    ranking = rank_judged(lambda users: score[users], pairs, log(clicked))
    assert ranks(ranking, pairs) == by_hand(score, judged & relevant, judged)


def test_ties_favour_neither_popular_items_nor_low_indices():
    n_users, n_items = 4000, 10
    block = np.zeros((n_users, n_items), dtype=np.float32)
    first = best(block, np.arange(n_users, dtype=np.int32), 1)[0][:, 0]
    share = np.bincount(first, minlength=n_items) / n_users
    np.testing.assert_allclose(share, 0.1, atol=0.025)  # 5 sd


def test_a_clicked_pair_and_scores_that_are_not_numbers_are_refused():
    pair = np.arange(48).reshape(6, 8) == 9
    score = np.zeros((6, 8), dtype=np.float32)
    with pytest.raises(InputError, match="was clicked"):
        in_catalogue(score, pair, pair)
    score[1, 0] = np.nan  # of an item that is not wanted
    for clicked in (~pair, np.zeros_like(pair)):
        with pytest.raises(InputError, match="not numbers"):
            in_catalogue(score, pair, clicked)
    with pytest.raises(InputError, match="not numbers"):
        rank_judged(lambda users: np.nan * score[users], judgements(pair, pair), log(pair))


# the k best


def sorted_rows(block, users):
    """All columns of each row, best first, ties by the hash of the pair."""
    return np.array(
        [
            np.lexsort((tie_break(np.full(len(row), user), np.arange(len(row))), -row))
            for row, user in zip(block, users, strict=True)
        ]
    )


@pytest.mark.parametrize(("n_items", "k"), [(1, 1), (257, 3), (1500, 40), (1500, 1500)])
def test_the_best_items_come_in_the_order_of_a_full_sort_ties_included(n_items, k):
    rng = np.random.default_rng(n_items)
    block = rng.normal(size=(30, n_items)).round(1).astype(np.float32)  # with many ties
    block[0] = 0  # nothing but ties
    block[1] = np.sort(block[1])  # each better than all before it
    users = rng.integers(10_000, size=30).astype(np.int32)
    k = min(k, n_items)
    expected = sorted_rows(block, users)[:, :k]
    for threads in (1, 2, 5):
        items, scores = best(block, users, k, threads=threads)
        np.testing.assert_array_equal(items, expected)
        np.testing.assert_array_equal(scores, np.take_along_axis(block, expected, axis=1))


def test_minus_infinity_and_nan_are_never_among_the_best():
    block = np.full((2, 600), -np.inf, dtype=np.float32)
    block[0, [5, 300]] = [1, 2]
    block[0, 299] = np.nan
    items, scores = best(block, np.zeros(2, dtype=np.int32), 3)
    assert items.tolist() == [[300, 5, -1], [-1, -1, -1]]
    assert scores.tolist() == [[2, 1, -np.inf], [-np.inf] * 3]
