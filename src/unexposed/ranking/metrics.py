"""Metrics of a ranking: each reading of DCG, MAP, … under its own name, one value per user.

A metric is a pure function of a ranking and k; k = None takes the whole ranking. A user without a
relevant item scores 0 (`auc`: nan); the protocol decides whether such users count, by
`Ranking.has_relevant`. Only the functions named `ips_…` and `snips_…` use the weights.

One user with relevant items at ranks 2, 3 and 5 shows why the names differ:

>>> one = Ranking.from_pairs([0, 0, 0], [2, 3, 5], [7, 8, 9], n_candidates=[6])
>>> [float(round(METRICS[name](one, 3)[0], 2)) for name in METRICS if name.startswith("dcg")]
[1.13, 1.63, 0.54]
>>> [float(round(METRICS[name](one, 3)[0], 2)) for name in METRICS if name.startswith("map")]
[0.58, 1.17, 0.39, 0.39]
"""

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unexposed.errors import InputError, did_you_mean

PerUser = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Ranking:
    """The ranks of each user's relevant items among its candidates."""

    start: NDArray[np.int64]  # (n_users + 1): user n's relevant items are at start[n]:start[n + 1]
    ranks: NDArray[np.int64]  # (n_relevant): from 1, ascending within a user
    items: NDArray[np.int32]  # (n_relevant): the items themselves
    n_candidates: NDArray[np.int64]  # (n_users): how many items were ranked for the user
    weights: NDArray[np.float64]  # (n_relevant): 1, or inverse propensities
    above: NDArray[np.float64] | None = None  # (n_relevant): share of other candidates' mass above

    @staticmethod
    def from_pairs(
        users: ArrayLike,
        ranks: ArrayLike,
        items: ArrayLike,
        *,
        n_candidates: ArrayLike,
        weights: ArrayLike | None = None,
        above: ArrayLike | None = None,
    ) -> "Ranking":
        """Build a ranking from the user, rank and item of each relevant item, in any order."""
        users, ranks = np.asarray(users, dtype=np.int64), np.asarray(ranks, dtype=np.int64)
        n_candidates = np.asarray(n_candidates, dtype=np.int64)
        weights = np.ones(len(users)) if weights is None else weights
        order = np.lexsort((ranks, users))
        counts = np.bincount(users, minlength=len(n_candidates))
        return Ranking(
            np.concatenate([[0], np.cumsum(counts)]),
            ranks[order],
            np.asarray(items, dtype=np.int32)[order],
            n_candidates,
            np.asarray(weights, dtype=np.float64)[order],
            None if above is None else np.asarray(above, dtype=np.float64)[order],
        )

    @property
    def n_users(self) -> int:
        return len(self.n_candidates)

    @cached_property
    def n_relevant(self) -> NDArray[np.int64]:
        """Number of relevant items of each user."""
        return np.diff(self.start)

    @property
    def has_relevant(self) -> NDArray[np.bool_]:
        """Mask of the users with a relevant item."""
        return self.n_relevant > 0

    @cached_property
    def users(self) -> NDArray[np.int64]:
        """The user of each relevant item."""
        return np.repeat(np.arange(self.n_users), self.n_relevant)

    @cached_property
    def position(self) -> NDArray[np.int64]:
        """Number of relevant items of the same user above each one."""
        return np.arange(len(self.ranks)) - self.start[self.users]

    def sum_by_user(self, values: NDArray[np.float64] | NDArray[np.bool_]) -> PerUser:
        """Sum one value per relevant item within each user."""
        totals = np.bincount(self.users, weights=values, minlength=self.n_users)
        return totals.astype(np.float64, copy=False)


Metric = Callable[[Ranking, int | None], PerUser]


def dcg(ranking: Ranking, k: int | None) -> PerUser:
    """Discounted cumulative gain: Σ 1 / log2(rank + 1) over the relevant items in the top k.

    The discount of Burges et al. (2005), not normalised: the DCG of CJMF (Zhu et al. 2020) and UBO
    (Chen et al. 2022). Rivals under the same name: `dcg_saito`, `dcg_saito_per_relevant`, `ndcg`.
    """
    return ranking.sum_by_user(_gain(ranking, k))


def dcg_saito(ranking: Ranking, k: int | None) -> PerUser:
    """DCG with ranks 1 and 2 both undiscounted: Σ 1 / max(1, log2 rank) in the top k.

    Järvelin and Kekäläinen's (2002) own discount with base 2, not normalised: the DCG in the code
    of RelMF (Saito et al., WSDM 2020). Rivals: `dcg`, `dcg_saito_per_relevant`, `ndcg`.
    """
    return ranking.sum_by_user(_in_top(ranking, k) / np.maximum(np.log2(ranking.ranks), 1))


def dcg_saito_per_relevant(ranking: Ranking, k: int | None) -> PerUser:
    """`dcg_saito` divided by the user's number of relevant items, in the top k or not.

    The DCG in the code of UBPR (Saito, ICTIR 2020). A perfect ranking scores 1 for one or
    two relevant items only.
    """
    return _ratio(dcg_saito(ranking, k), ranking.n_relevant)


def ndcg(ranking: Ranking, k: int | None) -> PerUser:
    """`dcg` divided by the most that the user's relevant items could have given it in k places.

    The code of BISER (Lee et al., SIGIR 2022) calls this DCG. Its rival under the same name takes
    the ideal over all relevant items, so that a perfect top k falls short of 1 when there are more.
    """
    n_ideal = np.minimum(ranking.n_relevant, _places(ranking, k))
    gains = 1 / np.log2(np.arange(1, n_ideal.max(initial=0) + 1) + 1)
    ideal = np.concatenate([[0.0], np.cumsum(gains)])
    return _ratio(dcg(ranking, k), ideal[n_ideal])


def map_hits(ranking: Ranking, k: int | None) -> PerUser:
    """Mean precision at the hits in the top k; 0 without a hit.

    The MAP of CJMF and UBO. It equals `dcg` at k = 1. A second hit can lower it: hits at ranks 1
    and 3 score less than a hit at rank 1 alone. Rivals under the same name: `map_sum`,
    `map_per_relevant`, `map_truncated`.
    """
    return _ratio(map_sum(ranking, k), _n_hits(ranking, k))


def map_sum(ranking: Ranking, k: int | None) -> PerUser:
    """The bare sum of the precisions at the hits in the top k, which can exceed 1.

    The MAP in the code of RelMF (Saito et al., WSDM 2020). The other readings divide it.
    """
    precision_there = (ranking.position + 1) / ranking.ranks
    return ranking.sum_by_user(precision_there * _in_top(ranking, k))


def map_per_relevant(ranking: Ranking, k: int | None) -> PerUser:
    """`map_sum` divided by the user's number of relevant items, in the top k or not.

    The AP@k of trec_eval, and the MAP in the code of UBPR and BISER. With more than k relevant
    items even a perfect ranking scores below 1; `map_truncated` mends that.
    """
    return _ratio(map_sum(ranking, k), ranking.n_relevant)


def map_truncated(ranking: Ranking, k: int | None) -> PerUser:
    """`map_sum` divided by the most hits there could be, min(k, number of relevant items).

    The MAP@k of competitions and of many libraries. Rival: `map_per_relevant`.
    """
    return _ratio(map_sum(ranking, k), np.minimum(ranking.n_relevant, _places(ranking, k)))


def recall(ranking: Ranking, k: int | None) -> PerUser:
    """The share of the relevant items that are in the top k. Rival: `recall_truncated`."""
    return _ratio(_n_hits(ranking, k), ranking.n_relevant)


def recall_pooled(ranking: Ranking, k: int | None) -> PerUser:
    """Hits in the top k divided by the mean over users of their number of relevant items.

    Its mean over users is the share of all relevant pairs that are in the top k. A user without a
    relevant item adds nothing to either sum, so that leaving such users out, which a small judged
    set makes many, does not bias it; users with many count for more. Rival: `recall`.
    """
    mean_relevant = len(ranking.ranks) / max(ranking.n_users, 1)
    return _ratio(_n_hits(ranking, k), np.full(ranking.n_users, mean_relevant))


def recall_truncated(ranking: Ranking, k: int | None) -> PerUser:
    """Hits in the top k divided by the most there could be, min(k, number of relevant items).

    The Recall@k of Liang et al. (WWW 2018) and the code built on theirs. Rival: `recall`.
    """
    return _ratio(_n_hits(ranking, k), np.minimum(ranking.n_relevant, _places(ranking, k)))


def precision(ranking: Ranking, k: int | None) -> PerUser:
    """Hits in the top k divided by k, also where there are fewer than k candidates.

    Its rival divides by min(k, number of candidates).
    """
    return _ratio(_n_hits(ranking, k), _places(ranking, k))


def hit_rate(ranking: Ranking, k: int | None) -> PerUser:
    """1 for a user with a hit in the top k, else 0. Others call this success.

    Its rival counts every hit, which is `recall` where each user has one relevant item.
    """
    return (_n_hits(ranking, k) > 0).astype(np.float64)


def reciprocal_rank(ranking: Ranking, k: int | None) -> PerUser:
    """1 / rank of the first relevant item, 0 if it is not in the top k; also called `mrr`.

    Its rival, in news recommendation, averages 1 / rank over all relevant items.
    """
    first = (ranking.position == 0) & _in_top(ranking, k)
    return ranking.sum_by_user(first / ranking.ranks)


def auc(ranking: Ranking, k: int | None = None) -> PerUser:
    """The chance that a relevant candidate stands above one that is not relevant.

    It has no cut-off: k is ignored. With relevant items only, or none, there is no such pair of
    candidates, and the value is nan.
    """
    del k
    wrongly_above = ranking.ranks - 1 - ranking.position  # not relevant, yet above this item
    n_pairs = ranking.n_relevant * (ranking.n_candidates - ranking.n_relevant)
    wrong = _ratio(ranking.sum_by_user(wrongly_above.astype(np.float64)), n_pairs)
    return np.where(n_pairs > 0, 1 - wrong, np.nan)


def ips_dcg(ranking: Ranking, k: int | None) -> PerUser:
    """`dcg` with each item weighted by its inverse propensity: Σ weight / log2(rank + 1).

    Yang et al. (RecSys 2018) divide by |S_u|, how many items the user likes, seen or not. No log
    tells that number, so we do not divide: with true propensities this estimates the `dcg` of all
    items the user likes without bias, with relative ones up to a common factor. Dividing by the
    number of observed clicks instead, as some code does, is biased for both.
    """
    return ranking.sum_by_user(_gain(ranking, k) * ranking.weights)


def snips_dcg(ranking: Ranking, k: int | None) -> PerUser:
    """Self-normalised `ips_dcg`: Σ weight / log2(rank + 1), divided by Σ weight.

    Yang et al. (RecSys 2018): Σ weight estimates the |S_u| of `ips_dcg`, and a common factor in
    the propensities cancels. With equal weights it is `dcg` per relevant item. Where a user has
    one relevant item its weight cancels too: on thin held-out sets little more than the unweighted
    metric is left, and `snips_dcg_pooled` is the one that corrects.
    """
    return _ratio(ips_dcg(ranking, k), ranking.sum_by_user(ranking.weights))


def snips_dcg_pooled(ranking: Ranking, k: int | None) -> PerUser:
    """`ips_dcg` divided by the mean over users of Σ weight, and not by each user's own.

    Its mean over all users is Σ weight / log2(rank + 1), divided by Σ weight, both over all
    relevant pairs. The weights act even where each user has one relevant item; users with many
    count for more. Ours; not in Yang et al. A user's value depends on the other users through the
    divisor.
    """
    mean_weight = ranking.weights.sum() / max(ranking.n_users, 1)
    return _ratio(ips_dcg(ranking, k), np.full(ranking.n_users, mean_weight))


def snips_dcg_of_few(ranking: Ranking, k: int | None, *, candidates: int) -> PerUser:
    """`snips_dcg`, expected when each item is ranked among few candidates drawn at random.

    A judged set of ten random items rewards another order than the top of a whole catalogue does:
    to be above most items, not above the very best. With a the share of the other items that stand
    above this one, and n = candidates − 1 others drawn with replacement, j of them stand above it
    with the chance C(n, j) a^j (1 − a)^(n − j), and its gain is then 1 / log2(j + 2) for j < k.
    Where the ranking has masses, others are drawn in proportion to them: a is a share of mass.
    """
    others = candidates - 1
    above = ranking.above
    if above is None:
        above = (ranking.ranks - 1) / np.maximum(ranking.n_candidates[ranking.users] - 1, 1)
    gain = np.zeros(len(above))
    for j in range(min(candidates, k or candidates)):
        gain += math.comb(others, j) * above**j * (1 - above) ** (others - j) / math.log2(j + 2)
    weight = ranking.sum_by_user(ranking.weights)
    return _ratio(ranking.sum_by_user(gain * ranking.weights), weight)


def snips_recall(ranking: Ranking, k: int | None) -> PerUser:
    """Weight of the relevant items in the top k divided by the weight of all relevant items.

    Yang et al. (RecSys 2018), as `snips_dcg`; with equal weights it is `recall`.
    """
    hits = ranking.sum_by_user(_in_top(ranking, k) * ranking.weights)
    return _ratio(hits, ranking.sum_by_user(ranking.weights))


METRICS: dict[str, Metric] = {
    "dcg": dcg,
    "dcg_saito": dcg_saito,
    "dcg_saito_per_relevant": dcg_saito_per_relevant,
    "ndcg": ndcg,
    "map_hits": map_hits,
    "map_sum": map_sum,
    "map_per_relevant": map_per_relevant,
    "map_truncated": map_truncated,
    "recall": recall,
    "recall_pooled": recall_pooled,
    "recall_truncated": recall_truncated,
    "precision": precision,
    "hit_rate": hit_rate,
    "reciprocal_rank": reciprocal_rank,
    "auc": auc,
    "ips_dcg": ips_dcg,
    "snips_dcg": snips_dcg,
    "snips_dcg_pooled": snips_dcg_pooled,
    "snips_recall": snips_recall,
}
ALSO = {"mrr": "reciprocal_rank"}  # what its mean is called


def about(name: str) -> str:
    """What a metric is: the first paragraph of its docstring."""
    text = inspect.getdoc(METRICS[name]) or ""
    return " ".join(text.partition("\n\n")[0].split())


def parse(text: str) -> tuple[str, int | None]:
    """Split a metric into name and k: `dcg@3` is ("dcg", 3), and `auc` is ("auc", None)."""
    name, at, k = text.partition("@")
    name = ALSO.get(name, name)
    if name not in METRICS:
        raise InputError(f"no metric {name!r}; {did_you_mean(name, METRICS)}")
    if not at:
        return name, None
    if METRICS[name] is auc:
        raise InputError(f"'auc' looks at the whole ranking: write it without a k, not {text!r}")
    if not re.fullmatch("[1-9][0-9]*", k):
        raise InputError(f"k must be a whole number of at least 1, as in '{name}@3', got {text!r}")
    return name, int(k)


def keep(ranking: Ranking, keep: NDArray[np.bool_]) -> Ranking:
    """Keep only the relevant items in the mask, one bool for each, at the ranks they had.

    A metric then treats the other relevant items as not relevant. Users left without any stay:
    they are the ones without `has_relevant`.
    """
    kept_before = np.concatenate([[0], np.cumsum(keep)])
    return Ranking(
        kept_before[ranking.start],
        ranking.ranks[keep],
        ranking.items[keep],
        ranking.n_candidates,
        ranking.weights[keep],
        None if ranking.above is None else ranking.above[keep],
    )


def without_empty(ranking: Ranking) -> Ranking:
    """Leave out the users without a relevant item."""
    some = ranking.has_relevant
    return replace(
        ranking,
        start=np.append(ranking.start[:-1][some], ranking.start[-1]),
        n_candidates=ranking.n_candidates[some],
    )


def _places(ranking: Ranking, k: int | None) -> NDArray[np.int64]:
    """Number of places of the ranking that count for each user."""
    return ranking.n_candidates if k is None else np.full(ranking.n_users, k)


def _in_top(ranking: Ranking, k: int | None) -> NDArray[np.bool_]:
    """Mask of the relevant items in the top k."""
    return np.ones(len(ranking.ranks), dtype=bool) if k is None else ranking.ranks <= k


def _n_hits(ranking: Ranking, k: int | None) -> PerUser:
    return ranking.sum_by_user(_in_top(ranking, k))


def _gain(ranking: Ranking, k: int | None) -> NDArray[np.float64]:
    return _in_top(ranking, k) / np.log2(ranking.ranks + 1)


def _ratio(value: PerUser, divisor: PerUser | NDArray[np.int64]) -> PerUser:
    """Divide value by divisor; 0 where the divisor is 0."""
    return np.divide(value, divisor, out=np.zeros(len(value)), where=divisor > 0)
