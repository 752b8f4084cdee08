"""An evaluation as plain data: every metric with its interval, by strata, and the lists."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.data.ids import match
from unexposed.data.labelled import Impressions, Judgements
from unexposed.data.pairs import Indices, among, pair_keys, same_ids
from unexposed.evaluation import among_ranks, beside, off_policy
from unexposed.evaluation import significance as statistics
from unexposed.evaluation.protocols import (
    Protocol,
    apply,
    eligible,
    evaluate,
    impressions,
    judgements,
    rank,
)
from unexposed.model.model import Model
from unexposed.ranking import catalogue, metrics
from unexposed.ranking.metrics import Ranking

LIST = 10  # items of each list that `recommended` describes
EXPOSURE = ("seldom", "sometimes", "often")  # shown: a third of the relevant pairs each


def describe(
    model: Model,
    judged: Judgements | Impressions,
    by: Protocol,
    *,
    logged: Impressions | None = None,
) -> dict[str, Any]:
    """Evaluate as plain data: every metric, overall, by popularity and exposure, and the lists."""
    if by.candidates == "logged":
        log = off_policy.logged(model, impressions(judged, by))
        found = off_policy.describe(log, by.metrics, clip=by.clip)
        return {
            "protocol": by.name,
            "method": model.method.name,
            **found,
            **_beside(model, evaluate(model, judged, by).values, judged, by),
            "recommended": recommended(model, log.users),
        }
    users, ranking = _ranked(model, judgements(judged, by), by)
    values = apply(ranking, by)
    exposed = _by_exposure(model, users, ranking, by, logged)
    return {
        "protocol": by.name,
        "method": model.method.name,
        "users": len(users),
        "metrics": {
            name: {"mean": _mean(v), "ci95": list(statistics.bootstrap_interval(v, seed=0))}
            for name, v in values.items()
        },
        **_beside(model, values, judged, by),
        "by_popularity": _by_popularity(model, ranking, by),
        **({} if exposed is None else {"by_exposure": exposed}),
        "recommended": recommended(model, users),
    }


def _beside(
    model: Model,
    values: dict[str, NDArray[np.float64]],
    judged: Judgements | Impressions,
    by: Protocol,
) -> dict[str, Any]:
    """The gain over each rival by every metric; nothing for the popular list itself."""

    def of(rival: Model) -> dict[str, NDArray[np.float64]]:
        if isinstance(judged, Impressions):
            return evaluate(rival, judged, by).values
        return apply(_ranked(rival, judged, by)[1], by)

    found = {
        name: beside.gains(values, of(rival), name)
        for name, rival in beside.rivals_of(model).items()
    }
    return {"beside": found} if found else {}


def _ranked(model: Model, judged: Judgements, by: Protocol) -> tuple[Indices, Ranking]:
    """The users that the protocol evaluates, and the ranks of their relevant items."""
    own = among_ranks.own(eligible(judged, model.clicks, by))
    return among_ranks.joined(np.unique(own.users), rank(model, own, by))


def by_popularity(model: Model, judged: Judgements, by: Protocol) -> dict[str, Any]:
    """Compute every metric on the relevant items of each popularity stratum, as plain data."""
    return _by_popularity(model, _ranked(model, judged, by)[1], by)


def _by_popularity(model: Model, ranking: Ranking, by: Protocol) -> dict[str, Any]:
    stratum = catalogue.strata(model.clicks.item_counts)
    found = {}
    for number, name in enumerate(("head", "middle", "tail")):
        part = metrics.restrict(ranking, stratum == number)
        found[name] = {"items": int((stratum == number).sum()), **_of_part(part, by)}
    return found


def by_exposure(
    model: Model, judged: Judgements, by: Protocol, *, logged: Impressions | None = None
) -> dict[str, Any] | None:
    """Compute every metric on thirds of the relevant pairs by exposure, as plain data.

    Exposure is what was logged, where that is given: the propensity of a pair, else how often it
    was shown, 0 for one that never was. Otherwise it is the model's own; None without any.
    Equally exposed pairs stay together, so that thirds are rough where many are.
    """
    return _by_exposure(model, *_ranked(model, judged, by), by, logged)


def _by_exposure(
    model: Model, users: Indices, ranking: Ranking, by: Protocol, logged: Impressions | None
) -> dict[str, Any] | None:
    if logged is None and not model.has_exposure:
        return None
    exposure = _exposure(model, users[ranking.users], ranking.items, logged)
    third = np.searchsorted(np.quantile(exposure, [1 / 3, 2 / 3]), exposure, side="left")
    found = {}
    for number, name in enumerate(EXPOSURE):
        here = third == number
        limits = [float(exposure[here].min()), float(exposure[here].max())] if here.any() else None
        part = metrics.keep(ranking, here)
        found[name] = {"pairs": int(here.sum()), "exposure": limits, **_of_part(part, by)}
    return found


def _exposure(
    model: Model, users: Indices, items: Indices, logged: Impressions | None
) -> NDArray[np.float64]:
    if logged is None:
        return model.method.pair_exposure(model.parameters, users, items).astype(np.float64)
    known_users, known_items = logged.users, logged.items
    if not same_ids(logged, model):
        known_users = match(logged.user_ids, model.user_ids)[known_users]
        known_items = match(logged.item_ids, model.item_ids)[known_items]
    known = (known_users >= 0) & (known_items >= 0)
    n_items = len(model.item_ids)
    keys = pair_keys(known_users[known], known_items[known], n_items)
    values = (logged.shown if logged.propensity is None else logged.propensity)[known]
    order = np.argsort(keys)
    there = among(keys[order], users, items, n_items)
    place = np.searchsorted(keys, pair_keys(users, items, n_items), sorter=order)
    exposure = np.zeros(len(users))
    exposure[there] = values[order[place[there]]]
    return exposure


def _of_part(part: Ranking, by: Protocol) -> dict[str, Any]:
    """Mean of every metric over the users with a relevant item in this part."""
    some = metrics.without_empty(part)
    return {
        "users": some.n_users,
        "metrics": {name: _mean(values) for name, values in apply(some, by).items()},
    }


def recommended(model: Model, users: Indices) -> dict[str, Any]:
    """Describe how the lists of these users spread over the catalogue, as plain data."""
    k = min(LIST, len(model.item_ids))
    own = among_ranks.own_users(users)
    lists = among_ranks.joined_lists(own, model.top(own, k)[0])
    counts = model.clicks.item_counts
    return {
        "k": k,
        "coverage": catalogue.coverage(lists, len(counts)),
        "gini": catalogue.gini(lists, len(counts)),
        "mean_popularity": catalogue.mean_popularity(lists, counts),
    }


def _mean(values: NDArray[np.float64]) -> float | None:
    return float(values.mean()) if len(values) else None
