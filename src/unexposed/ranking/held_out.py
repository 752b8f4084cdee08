"""Quality of a ranking on held-out clicks, which chooses epochs and settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Impressions, Judgements, Traffic
from unexposed.data.share import smallest
from unexposed.errors import InputError, did_you_mean
from unexposed.ranking import metrics
from unexposed.ranking.blocks import Scores, in_whole, pair_hash
from unexposed.ranking.rank import rank_among, rank_catalogue, rank_judged
from unexposed.workers import Workers, moments

Draw = Literal["all", "wtd"]
Among = Literal["unclicked", "shown"]
Rated = dict[str, list[float]]  # criterion → quality, its standard error

DRAWN = 0.5  # share of the held-out clicks that a weighted draw keeps


@dataclass(frozen=True)
class Criterion:
    """How held-out clicks are read as a quality; the defaults suit ten random judged items."""

    about: str
    exponent: float = 1.5  # how strongly clicks on popular items are weighed down; −1: not at all
    k: int = 3  # length of the list that counts; 0: the whole ranking
    candidates: int = 10  # items that a held-out click is ranked among; 0: all that there are
    candidates_exponent: float = 0.0  # they are drawn in proportion to clicks^exponent
    draw: Draw = "all"  # which held-out clicks count; wtd: half, as if exposure had been uniform
    among: Among = "unclicked"  # or items that its user was shown and did not click
    pooled: bool = False  # every held-out click counts alike, and not every user with one


DEFAULT = "uniform"
CRITERIA: dict[str, Criterion] = {
    DEFAULT: Criterion("SNIPS among ten uniform candidates"),
    "popular": Criterion(
        "SNIPS among ten candidates drawn by popularity^¼", candidates_exponent=0.25
    ),
    "popular_half": Criterion(
        "SNIPS among ten candidates drawn by popularity^½", candidates_exponent=0.5
    ),
    "plain": Criterion("every click alike, among ten uniform candidates", exponent=-1.0),
    "wtd": Criterion(
        "half of the clicks, drawn as if exposure had been uniform, among ten uniform candidates",
        exponent=-1.0,
        draw="wtd",
    ),
    "catalogue": Criterion("SNIPS in the whole catalogue, DCG@20", k=20, candidates=0),
    "shown": Criterion(
        "every click alike, among ten items that its user was shown and did not click",
        exponent=-1.0,
        among="shown",
        pooled=True,
    ),
}
NOTHING_SHOWN = (
    "the criterion shown needs impressions: no user with a held-out click is known to have been "
    "shown an item without a click; a log of ratings has some with shown=below (--shown below), "
    "or give another criterion"
)


def criterion(name: str) -> Criterion:
    """Look up a criterion by name."""
    if not isinstance(name, str) or name not in CRITERIA:
        raise InputError(f"no criterion {name!r}; {did_you_mean(name, CRITERIA)}")
    return CRITERIA[name]


def held_out_quality(
    scores: Scores,
    clicks: Clicks,
    held_out: Clicks,
    by: Criterion,
    others: Impressions | None = None,
) -> float:
    """Estimate DCG@k by SNIPS on held-out clicks, among the candidates of the criterion.

    With a number of candidates, the expected value when each held-out item is ranked among so many
    of them, each drawn in proportion to its clicks^`candidates_exponent`.
    """
    return float(quality_of_users(scores, clicks, held_out, by, others).mean())


def quality_of_users(
    scores: Scores,
    clicks: Clicks,
    held_out: Clicks,
    by: Criterion,
    others: Impressions | None = None,
    workers: Workers | None = None,
) -> metrics.PerUser:
    """The estimate of `held_out_quality` for each user with a held-out click that counts.

    `others` are what `passed_over` gives, for a criterion that asks what was shown.
    """
    return quality(ranked(scores, clicks, held_out, by, others, workers), by)


def passed_over(shown: Impressions | None, clicks: Clicks, held_out: Clicks) -> Impressions | None:
    """What users with a held-out click were shown and did not click; None: nothing is known."""
    if shown is None:
        return None
    found = shown.pick((shown.clicked == 0) & (held_out.user_counts > 0)[shown.users])
    clicked = clicks.contain(found.users, found.items) | held_out.contain(found.users, found.items)
    found = found.pick(~clicked)
    return found if len(found) else None


def ranked(
    scores: Scores,
    clicks: Clicks,
    held_out: Clicks,
    by: Criterion,
    others: Impressions | None = None,
    workers: Workers | None = None,
) -> metrics.Ranking:
    """Rank the held-out clicks that count among the criterion's candidates.

    These are all items not clicked in training, or those shown to the user and not clicked.
    """
    wanted = Judgements.from_clicks(held_out)
    if by.draw == "wtd":
        wanted = wanted.pick(as_if_uniform(clicks, held_out, workers))
    if by.among == "shown":
        if others is None:
            raise InputError(NOTHING_SHOWN)
        return rank_among(scores, wanted, others, clicks, exponent=by.exponent)
    mass = None
    if by.candidates and by.candidates_exponent:
        mass = candidate_mass(clicks.item_counts, exponent=by.candidates_exponent)
    return rank_catalogue(scores, wanted, clicks, exponent=by.exponent, mass=mass)


def quality(ranking: metrics.Ranking, by: Criterion) -> metrics.PerUser:
    """Read a ranking of held-out clicks by a criterion; the mean over users is the quality.

    Where clicks are pooled, a user's value counts by the weight of its clicks.
    """
    if by.candidates:
        found = metrics.snips_dcg_of_few(ranking, by.k or None, candidates=by.candidates)
    else:
        found = metrics.snips_dcg(ranking, by.k or None)
    if not by.pooled:
        return found
    weight = ranking.sum_by_user(ranking.weights)
    return found * weight / weight.mean()


def qualities(
    scores: Scores,
    clicks: Clicks,
    held_out: Clicks,
    others: Impressions | None = None,
    workers: Workers | None = None,
) -> Rated:
    """The held-out quality by each criterion that can judge, and its standard error over users.

    `others` are what `passed_over` gives; without them no criterion asks what was shown.
    """
    able = {n: by for n, by in CRITERIA.items() if by.among != "shown" or others is not None}
    parts = scores, clicks, held_out
    values = [quality_of_users(*parts, by, others, workers) for by in able.values()]
    return {
        name: [found.mean, float(found.deviation / np.sqrt(found.n))]
        for name, found in zip(able, moments(*values, workers=workers), strict=True)
    }


def dissent(rated: Mapping[str, Rated], chosen: str) -> dict[str, str]:
    """What each criterion prefers to the chosen one, where that is more than chance may do.

    A criterion dissents if its favourite is better by more than the standard error of the chosen.
    """
    found = {}
    for name, (value, error) in rated[chosen].items():
        favourite = max(rated, key=lambda label: rated[label][name][0])
        if rated[favourite][name][0] > value + error:
            found[name] = favourite
    return found


def candidate_mass(item_counts: NDArray[Any], *, exponent: float) -> NDArray[np.int64]:
    """How often each item is drawn as a candidate: clicks^exponent, as whole numbers.

    Sums of whole numbers are exact in any order. An item without clicks counts as if it had one.
    """
    counts = np.maximum(item_counts, 1)
    return np.rint((counts / counts.max(initial=1)) ** exponent * 2.0**31).astype(np.int64)


def as_if_uniform(
    clicks: Clicks, held_out: Clicks, workers: Workers | None = None
) -> NDArray[np.bool_]:
    """A draw of half of the held-out clicks that looks as if exposure had been uniform.

    Carraro and Bridge (SAC 2020), WTD_H: a click is drawn, without replacement, with a weight of
    1 / (popularity of its item · activity of its user), so that items and users come near to
    equal shares. They count both in the held-out set. We count them in the whole log: in a
    tenth of a small log nearly every count is 1, and the weights would say nothing.
    """
    items = (clicks.item_counts + held_out.item_counts)[held_out.items]
    users = (clicks.user_counts + held_out.user_counts)[held_out.users]
    pairs = in_whole(held_out, held_out.users), held_out.items
    lot = pair_hash(*pairs, salt=0xD1CE).astype(np.float64) / 2.0**64
    # the largest lot^(1/weight) win (Efraimidis and Spirakis 2006): the smallest −log(lot)/weight
    late = -np.log(np.maximum(lot, 2.0**-64)) * items * users
    wanted = int(np.ceil(held_out.n_clicks * DRAWN))
    if held_out.share is not None:
        # the bits of floats from 0 on ascend as they do; + 0.0: −0 has other bits
        return smallest((late + 0.0).view(np.uint64), held_out.numbers, wanted, workers)
    drawn = np.zeros(len(held_out), dtype=bool)
    drawn[np.argsort(late, kind="stable")[:wanted]] = True
    return drawn


@dataclass(frozen=True, eq=False)
class ByTraffic:
    """DCG@k of the relevant items among the random traffic of each user, mean over users.

    Only users with a relevant and an irrelevant pair say anything of a ranking.
    """

    pairs: Judgements
    clicks: Clicks
    k: int | None

    @staticmethod
    def of(traffic: Traffic, clicks: Clicks, *, k: int | None) -> "ByTraffic":
        """Judge by the traffic on pairs that were not clicked: what was learned is no test."""
        fresh = traffic.pick(~clicks.contain(traffic.users, traffic.items))
        liked, disliked = (
            np.bincount(fresh.users[fresh.relevant == one], minlength=clicks.n_users) > 0
            for one in (True, False)
        )
        kept = fresh.pick((liked & disliked)[fresh.users])
        if len(kept) == 0:
            raise InputError(
                "the random traffic has no user with both a relevant and an irrelevant pair "
                "without a click, so it cannot choose: give more of it"
            )
        ids = traffic.user_ids, traffic.item_ids
        return ByTraffic(Judgements(kept.users, kept.items, kept.relevant, *ids), clicks, k)

    def __call__(self, scores: Scores) -> float:
        return float(metrics.dcg(rank_judged(scores, self.pairs, self.clicks), self.k).mean())
