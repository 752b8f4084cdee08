"""Each metric by brute force and against ir_measures; weights in a known world."""

import doctest
from itertools import product
from math import log2

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import AP, RR, P, Qrel, R, ScoredDoc, Success, nDCG

from unexposed.errors import InputError
from unexposed.ranking import metrics
from unexposed.ranking.metrics import METRICS, Ranking
from unexposed.ranking.rank import propensity

checked = settings(max_examples=60)

WEIGHTED = ["ips_dcg", "snips_dcg", "snips_dcg_pooled", "snips_recall"]
POOLED = ["recall_pooled"]  # a user's value depends on the others
UNWEIGHTED = [name for name in METRICS if name not in WEIGHTED + POOLED]


def ranking_of(*ranks, n_candidates, weights=None):
    """A ranking from one list of ranks for each user, items numbered in order."""
    users = np.repeat(np.arange(len(ranks)), [len(r) for r in ranks])
    flat = [rank for user_ranks in ranks for rank in user_ranks]
    return Ranking.from_pairs(
        users, flat, np.arange(len(flat)), n_candidates=n_candidates, weights=weights
    )


def relevance_lists(ranking):
    """For each user, 0 or 1 for each candidate from the top."""
    lists = [np.zeros(n, dtype=int) for n in ranking.n_candidates]
    for user, rank in zip(ranking.users, ranking.ranks, strict=True):
        lists[user][rank - 1] = 1
    return lists


def random_ranking(seed, *, n_users, max_candidates=30):
    """A random ranking in which every user has a relevant item."""
    generator = np.random.default_rng(seed)
    n_candidates = generator.integers(1, max_candidates + 1, size=n_users)
    ranks = [
        generator.choice(n, size=generator.integers(1, n + 1), replace=False) + 1
        for n in n_candidates
    ]
    return ranking_of(*ranks, n_candidates=n_candidates)


@st.composite
def rankings(draw, *, min_relevant=0):
    ranks, n_candidates, weights = [], [], []
    for _ in range(draw(st.integers(1, 5))):
        n = draw(st.integers(1, 12))
        chosen = draw(st.sets(st.integers(1, n), min_size=min_relevant))
        ranks.append(sorted(chosen))
        n_candidates.append(n)
        weights += draw(st.lists(st.floats(0.1, 50), min_size=len(chosen), max_size=len(chosen)))
    return ranking_of(*ranks, n_candidates=n_candidates, weights=weights)


def test_the_docstring_runs():
    assert doctest.testmod(metrics).failed == 0
    assert doctest.testmod(metrics).attempted > 0


# brute force


def by_brute_force(relevance, k):
    """Compute one user's values from its list of 0 and 1, word by word from the definitions."""
    hits = [place for place, r in enumerate(relevance[:k], start=1) if r]
    n = sum(relevance)
    dcg = sum(1 / log2(rank + 1) for rank in hits)
    saito = sum(1 if rank == 1 else 1 / log2(rank) for rank in hits)
    precisions = sum(sum(relevance[:rank]) / rank for rank in hits)
    ideal = sum(1 / log2(rank + 1) for rank in range(1, min(k, n) + 1))
    ratios = {
        "dcg": (dcg, 1),
        "dcg_saito": (saito, 1),
        "dcg_saito_per_relevant": (saito, n),
        "ndcg": (dcg, ideal),
        "map_hits": (precisions, len(hits)),
        "map_sum": (precisions, 1),
        "map_per_relevant": (precisions, n),
        "map_truncated": (precisions, min(k, n)),
        "recall": (len(hits), n),
        "recall_truncated": (len(hits), min(k, n)),
        "precision": (len(hits), k),
        "hit_rate": (bool(hits), 1),
        "reciprocal_rank": (1 / hits[0] if hits else 0, 1),
    }
    return {name: value / by if by else 0 for name, (value, by) in ratios.items()}


@checked
@given(ranking=rankings(), k=st.integers(1, 14))
def test_many_users_at_once_equal_one_user_at_a_time(ranking, k):
    expected = [by_brute_force(r.tolist(), k) for r in relevance_lists(ranking)]
    assert set(expected[0]) == set(UNWEIGHTED) - {"auc"}
    for name in expected[0]:
        by_user = [values[name] for values in expected]
        assert METRICS[name](ranking, k) == pytest.approx(by_user), name


@pytest.mark.parametrize("k", [1, 3, 10])
def test_measures_that_ir_measures_defines_agree_with_it(k):
    ours = {
        nDCG @ k: metrics.ndcg,
        AP @ k: metrics.map_per_relevant,
        P @ k: metrics.precision,
        R @ k: metrics.recall,
        RR @ k: metrics.reciprocal_rank,
        Success @ k: metrics.hit_rate,
    }
    ranking = random_ranking(k, n_users=60)
    lists = relevance_lists(ranking)
    qrels = [
        Qrel(str(user), f"{place:02d}", 1)
        for user, relevance in enumerate(lists)
        for place in np.flatnonzero(relevance)
    ]
    run = [
        ScoredDoc(str(user), f"{place:02d}", float(-place))
        for user, relevance in enumerate(lists)
        for place in range(len(relevance))
    ]
    theirs = {measure: np.full(ranking.n_users, np.nan) for measure in ours}
    for result in ir_measures.iter_calc(list(ours), qrels, run):
        theirs[result.measure][int(result.query_id)] = result.value
    for measure, metric in ours.items():
        assert metric(ranking, k) == pytest.approx(theirs[measure], abs=1e-9), measure


@checked
@given(rankings())
def test_auc_is_the_share_of_pairs_in_the_right_order_whatever_k(ranking):
    np.testing.assert_array_equal(metrics.auc(ranking, 1), metrics.auc(ranking, None))
    for relevance, value in zip(relevance_lists(ranking), metrics.auc(ranking), strict=True):
        pairs = [
            above < below
            for above in np.flatnonzero(relevance == 1)
            for below in np.flatnonzero(relevance == 0)
        ]
        assert value == pytest.approx(np.mean(pairs) if pairs else np.nan, nan_ok=True)


# properties


@pytest.mark.parametrize("name", [n for n in METRICS if n != "auc"])
def test_a_user_without_a_relevant_item_scores_0(name):
    ranking = ranking_of([], [2], [], n_candidates=[3, 3, 0])
    assert METRICS[name](ranking, 2)[[0, 2]].tolist() == [0, 0]
    assert METRICS[name](ranking, None)[[0, 2]].tolist() == [0, 0]
    assert METRICS[name](ranking, 2)[1] > 0
    assert METRICS[name](ranking_of(n_candidates=[]), 3).shape == (0,)


# weights


def test_weighted_metrics_by_hand():
    ranking = ranking_of([1, 3], [3], n_candidates=[4, 4], weights=[1, 3, 2])
    assert metrics.ips_dcg(ranking, 3) == pytest.approx([1 * 1 + 3 * 0.5, 2 * 0.5])
    assert metrics.snips_dcg(ranking, 3) == pytest.approx([2.5 / 4, 1 / 2])
    assert metrics.snips_recall(ranking, 2) == pytest.approx([1 / 4, 0])
    assert metrics.snips_dcg_pooled(ranking, 3).mean() == pytest.approx((2.5 + 1) / (4 + 2))


class World:
    """Taste is uniform, but items ranked high are seen more often: missing not at random."""

    def __init__(self, *, n_users, n_items, like, most_seen):
        generator = np.random.default_rng(3)
        self.seen = np.linspace(most_seen, most_seen / 20, n_items)
        liked = generator.random((n_users, n_items)) < like
        clicked = liked & (generator.random((n_users, n_items)) < self.seen)
        self.liked, self.clicked = self._ranking(liked), self._ranking(clicked)

    def _ranking(self, chosen):
        users, items = np.nonzero(chosen)
        n_users, n_items = chosen.shape
        return Ranking.from_pairs(
            users,
            items + 1,
            items,
            n_candidates=np.full(n_users, n_items),
            weights=1 / self.seen[items],
        )


def test_ips_and_snips_recover_what_the_plain_mean_over_clicks_overstates():
    world = World(n_users=1500, n_items=200, like=0.5, most_seen=0.9)
    clicked, liked = world.clicked, world.liked
    truth = (metrics.dcg(liked, 20) / liked.n_relevant).mean()
    plain = (metrics.dcg(clicked, 20) / clicked.n_relevant).mean()
    assert plain > 1.5 * truth
    assert metrics.snips_dcg(clicked, 20).mean() == pytest.approx(truth, rel=0.05)
    assert metrics.recall(clicked, 20).mean() > 1.5 * metrics.recall(liked, 20).mean()
    assert metrics.snips_recall(clicked, 20).mean() == pytest.approx(
        metrics.recall(liked, 20).mean(), rel=0.05
    )
    error = metrics.ips_dcg(clicked, 20) - metrics.dcg(liked, 20)
    assert abs(error.mean()) < 4 * error.std() / np.sqrt(len(error))


@pytest.mark.parametrize("k", [1, 3, None])
def test_snips_of_few_is_the_mean_over_all_draws_of_the_other_candidates(k):
    rank, n_items, candidates = 3, 6, 4
    one = Ranking.from_pairs([0], [rank], [0], n_candidates=[n_items])
    gains = []
    for drawn in product([r for r in range(1, n_items + 1) if r != rank], repeat=candidates - 1):
        place = 1 + sum(other < rank for other in drawn)
        gains.append(1 / log2(place + 1) if place <= (k or candidates) else 0)
    assert metrics.snips_dcg_of_few(one, k, candidates=candidates) == pytest.approx(np.mean(gains))


def test_propensity_is_a_power_of_popularity_relative_to_the_most_clicked():
    counts = [4, 0, 1, 16]
    assert propensity(counts, exponent=1) == pytest.approx([1 / 4, 1 / 16, 1 / 16, 1])
    assert propensity(counts, exponent=2) == pytest.approx([1 / 8, 1 / 64, 1 / 64, 1])
    assert propensity(counts, exponent=-1) == pytest.approx([1, 1, 1, 1])
    assert propensity([0, 0], exponent=2).tolist() == [1, 1]
    assert propensity([], exponent=1).shape == (0,)


# names


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: metrics.parse("recal@5"), r"no metric 'recal'; did you mean 'recall'\?"),
        (lambda: metrics.parse("dcg@0"), "as in 'dcg@3'"),
        (lambda: metrics.parse("auc@3"), "without a k"),
        (lambda: propensity([1, 2], exponent=-1.5), "at least -1"),
        (lambda: propensity([1, 2], exponent=float("nan")), "at least -1"),
    ],
)
def test_impossible_arguments_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
    assert metrics.parse("map_hits@10") == ("map_hits", 10)
    assert metrics.parse("mrr@10") == ("reciprocal_rank", 10)  # as protocols call it
    assert metrics.parse("auc") == ("auc", None)


def test_a_ranking_restricted_to_a_stratum_keeps_ranks_and_users():
    ranking = Ranking.from_pairs(
        [0, 0, 0, 1], [1, 2, 4, 1], [3, 0, 1, 3], n_candidates=[5, 5], weights=[1, 2, 3, 4]
    )
    kept = metrics.keep(ranking, ranking.items < 2)
    assert kept.start.tolist() == [0, 2, 2]
    assert kept.ranks.tolist() == [2, 4]
    assert kept.items.tolist() == [0, 1]
    assert kept.weights.tolist() == [2, 3]
    assert kept.n_candidates.tolist() == [5, 5]
    assert kept.has_relevant.tolist() == [True, False]
    left = metrics.without_empty(kept)
    assert (left.start.tolist(), left.n_users) == ([0, 2], 1)
    assert left.ranks.tolist() == [2, 4]
