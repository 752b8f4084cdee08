"""Protocols, which name every choice that moves a number; rank once, apply every metric."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from unexposed.cards import Card, HasCard
from unexposed.data.clicks import Clicks, Ratings
from unexposed.data.labelled import Impressions, Judgements
from unexposed.data.pairs import Indices
from unexposed.data.split import Split
from unexposed.errors import InputError, did_you_mean
from unexposed.evaluation import off_policy
from unexposed.model.model import Model
from unexposed.ranking import metrics
from unexposed.ranking.blocks import Scores, blocks, parts
from unexposed.ranking.metrics import Ranking
from unexposed.ranking.rank import rank_catalogue, rank_judged

if TYPE_CHECKING:
    from unexposed.data.worlds.simulate import World


@dataclass(frozen=True)
class Protocol(HasCard):
    """Every choice that moves a number, under one name."""

    name: str
    about: str
    candidates: Literal["judged", "catalogue", "logged"]  # logged: impressions judge, not pairs
    metrics: dict[str, str]  # name shown → its reading in `ranking.metrics`, or in `off_policy`
    threshold: float = 4.0  # a rating of at least this is a click, or relevant
    held_out: float = 0.1  # share of the clicks that chooses epoch and settings
    exponent: float = -1.0  # of the propensity: −1 gives every relevant item the same weight
    clip: float = 10.0  # largest weight of an impression in `clipped_ips`

    def __repr__(self) -> str:
        return f"Protocol({self.name!r}: {', '.join(self.metrics)})"

    def card(self) -> Card:
        """What it evaluates, and by which metrics."""
        facts = {"ranks": self.about, "candidates": self.candidates}
        return Card(f"Protocol: {self.name}", facts | {"metrics": ", ".join(self.metrics)})

    @property
    def takes_clicks(self) -> bool:
        """Whether later clicks can judge: pairs that are all relevant."""
        return self.candidates == "catalogue"


def _at(names: dict[str, str], ks: tuple[int, ...]) -> dict[str, str]:
    return {f"{shown}@{k}": f"{reading}@{k}" for shown, reading in names.items() for k in ks}


PROTOCOLS = {
    p.name: p
    for p in (
        Protocol(
            "ubo-ijcai22",
            "judged items of users with a click, a relevant and an irrelevant one; items "
            "never clicked are left out; DCG not normalised, MAP over the hits in the list",
            candidates="judged",
            metrics=_at({"dcg": "dcg", "map": "map_hits"}, (1, 2, 3)),
        ),
        Protocol(
            "judged",
            "the same judged items, by the usual readings",
            candidates="judged",
            metrics=_at({"ndcg": "ndcg", "recall": "recall", "precision": "precision"}, (3, 5))
            | {"mrr@10": "reciprocal_rank@10", "auc": "auc"},
        ),
        Protocol(
            "catalogue",
            "relevant items among all that the user has not clicked",
            candidates="catalogue",
            metrics=_at({"ndcg": "ndcg", "recall": "recall", "hit_rate": "hit_rate"}, (10, 50)),
        ),
        Protocol(
            "snips",
            "as catalogue, each relevant item weighted by its inverse propensity, "
            "self-normalised for each user (Yang et al. 2018)",
            candidates="catalogue",
            metrics=_at({"snips_dcg": "snips_dcg", "snips_recall": "snips_recall"}, (10, 50)),
            exponent=2.0,
        ),
        Protocol(
            "ips",
            "as snips, without the normaliser",
            candidates="catalogue",
            metrics=_at({"ips_dcg": "ips_dcg"}, (10, 50)),
            exponent=2.0,
        ),
        Protocol(
            "ure",
            "for a few pairs judged at random: relevant ones among all items that the user has "
            "not clicked, a hit if above the score at place k + 1: an unbiased estimate of the "
            "recall of all relevant items (Wang et al. 2025)",
            candidates="catalogue",
            metrics=_at({"recall": "recall", "recall_pooled": "recall_pooled"}, (1, 3, 5, 10, 50)),
        ),
        Protocol(
            "off_policy",
            "for impressions with logged propensities: the click rate if each had shown one of "
            "the model's top k items, by inverse propensities, self-normalised, and clipped",
            candidates="logged",
            metrics=_at({name: name for name in off_policy.ESTIMATORS}, (1, 3, 10)),
        ),
    )
}
PAPER = "ubo-ijcai22"  # for data sets whose judged part was collected for it
DEFAULT = "catalogue"  # takes any relevant pairs, later clicks among them


def choice(judged: Judgements, by: Protocol) -> str | None:
    """Say which protocol was taken where another would use irrelevant pairs; else None."""
    if not by.takes_clicks or judged.relevant.all():
        return None
    return (
        f"evaluated by protocol {by.name}: {by.about}, so irrelevant pairs are not used; "
        "--protocol judged ranks among a user's judged items instead"
    )


def protocol(name: str | Protocol) -> Protocol:
    """Look up a protocol by name; a protocol is taken as it is."""
    if isinstance(name, Protocol):
        return name
    if not isinstance(name, str) or name not in PROTOCOLS:
        raise InputError(f"no protocol {name!r}; {did_you_mean(name, PROTOCOLS)}")
    return PROTOCOLS[name]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One value per user for every metric."""

    users: Indices
    values: dict[str, NDArray[np.float64]]

    def means(self) -> dict[str, float]:
        return {name: float(v.mean()) for name, v in self.values.items()}


def evaluate(model: Model, judged: Judgements | Impressions, by: Protocol) -> Evaluation:
    """Compute every metric of the protocol for every user it evaluates.

    Protocol `off_policy` takes impressions with propensities, the others judgements. The mean of
    an estimate over users is the estimate over all impressions.
    """
    if by.candidates == "logged":
        logged = off_policy.logged(model, impressions(judged, by))
        return Evaluation(logged.users, off_policy.per_user(logged, by.metrics, clip=by.clip))
    judged = eligible(judgements(judged, by), model.clicks, by)
    return Evaluation(np.unique(judged.users), apply(rank(model, judged, by), by))


def judgements(judged: Judgements | Impressions, by: Protocol) -> Judgements:
    """Refuse impressions for a protocol that needs judged pairs."""
    if isinstance(judged, Judgements):
        return judged
    raise InputError(f"protocol {by.name!r} needs judgements, got {type(judged).__name__}")


def impressions(judged: Judgements | Impressions, by: Protocol) -> Impressions:
    """Refuse judged pairs for a protocol that needs impressions."""
    if isinstance(judged, Impressions):
        return judged
    raise InputError(
        f"protocol {by.name!r} needs impressions with propensities, which judged pairs are not: "
        "use evaluate with a log that has a column for --propensity"
    )


def rank(model: Model, judged: Judgements, by: Protocol) -> Ranking:
    """Rank the relevant items of eligible judgements among the protocol's candidates."""
    if by.candidates == "judged":
        return rank_judged(model.scores, judged, model.clicks)
    return rank_catalogue(model.scores, judged, model.clicks, exponent=by.exponent)


def apply(ranking: Ranking, by: Protocol) -> dict[str, NDArray[np.float64]]:
    """Every metric of the protocol, one value per user."""
    values = {}
    for shown, reading in by.metrics.items():
        name, k = metrics.parse(reading)
        values[shown] = metrics.METRICS[name](ranking, k)
    return values


def eligible(judged: Judgements, clicks: Clicks, by: Protocol) -> Judgements:
    """Keep the judgements of the users and items that the protocol evaluates.

    Judged set: an item needs a click by anyone; a user needs a click, a relevant judged item and
    an irrelevant one. Catalogue: relevant pairs that were not clicked.
    """
    if by.candidates == "catalogue":
        wanted = judged.relevant & ~clicks.contain(judged.users, judged.items)
        return _not_empty(judged.pick(wanted), by, "no relevant pair that was not clicked")
    judged = judged.pick(
        (clicks.item_counts[judged.items] > 0) & (clicks.user_counts[judged.users] > 0)
    )
    n_users = clicks.n_users
    liked = np.bincount(judged.users[judged.relevant], minlength=n_users)
    disliked = np.bincount(judged.users[~judged.relevant], minlength=n_users)
    both = (liked > 0) & (disliked > 0)
    return _not_empty(
        judged.pick(both[judged.users]), by, "no user with both a relevant and an irrelevant item"
    )


def _not_empty(judged: Judgements, by: Protocol, lack: str) -> Judgements:
    if len(judged) == 0:
        raise InputError(f"the judged set has {lack}: protocol {by.name!r} evaluates nobody")
    return judged


def exposure_correlation(model: Model, truth: Scores) -> float:
    """PCC: Pearson's correlation of estimated and true exposure over all items, mean over users.

    Users whose exposure does not vary over items have no correlation and are left out; if no user
    remains the result is NaN.
    """
    users = np.arange(len(model.user_ids), dtype=np.int32)
    values = []
    for part, true in blocks(truth, users, model.clicks):
        estimate = model.method.exposure(model.parameters, users[part])
        if estimate is None:
            raise InputError(f"{model.method.name} has no exposure model")
        a = true - true.mean(axis=1, keepdims=True, dtype=np.float64)
        b = estimate - estimate.mean(axis=1, keepdims=True, dtype=np.float64)
        spread = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
        varies = spread > 0
        values.append((a * b).sum(axis=1)[varies] / spread[varies])
    found = np.concatenate(values)
    return float(found.mean()) if len(found) else math.nan


def split_ratings(logged: Ratings, random: Ratings | None, by: Protocol, *, seed: int) -> Split:
    """Split a rating data set into training clicks, clicks held out by seed, and judgements."""
    clicks, judged = clicks_and_judgements(logged, random, by)
    return Split(*clicks.hold_out(fraction=by.held_out, seed=seed), judged)


def clicks_and_judgements(
    logged: Ratings, random: Ratings | None, by: Protocol
) -> tuple[Clicks, Judgements]:
    """Turn the ratings of a data set into clicks and judgements by the protocol's threshold.

    Without a random part a fifth of the clicks, the same for every seed, serve as judgements.
    """
    clicks = logged.clicks(threshold=by.threshold)
    if random is not None:
        return clicks, random.judgements(threshold=by.threshold)
    if by.candidates != "catalogue":
        raise InputError(
            f"the data set has no judged part, which protocol {by.name!r} needs; "
            "use --protocol catalogue, or make a world from it with unexposed simulate"
        )
    clicks, test = clicks.hold_out(fraction=0.2, seed=0)
    return clicks, Judgements.from_clicks(test)


# True relevance of a world: what many random experiments show on average

DRAWS, CANDIDATES, K = 20, 10, 3  # sets of items of each user, their size, the list

TRUE_RELEVANCE = Protocol(
    "true-relevance",
    "the true relevance of the top three among ten random items that anyone clicked, mean over "
    "twenty such sets: only for a world",
    candidates="judged",
    metrics={"dcg@3": "dcg@3"},
)


def by_truth(scores: Scores, world: "World", clicks: Clicks, *, seed: int = 0) -> Evaluation:
    """DCG@3 of γ among ten random items, of every user with a click.

    γ in place of a drawn R makes the values less noisy, and rewards nobody for remembering the
    clicks.
    """
    rng = np.random.default_rng(seed)
    items = np.flatnonzero(clicks.item_counts)
    users = np.flatnonzero(clicks.user_counts).astype(np.int32)
    discount = 1 / np.log2(np.arange(K) + 2)
    found: list[NDArray[np.float64]] = []
    for part in parts(len(users), clicks.n_items):
        here = users[part]
        drawn = items[rng.integers(len(items), size=(len(here), DRAWS * CANDIDATES))]
        score, relevance = (
            np.take_along_axis(block, drawn, axis=1).reshape(-1, CANDIDATES)
            for block in (scores(here), world.relevance(here))
        )
        # a set is in random order, so a stable sort breaks ties by lot
        top = np.argsort(-score, axis=1, kind="stable")[:, :K]
        gain = np.take_along_axis(relevance, top, axis=1) @ discount
        found.append(gain.reshape(len(here), DRAWS).mean(axis=1))
    return Evaluation(users, {"dcg@3": np.concatenate(found)})
