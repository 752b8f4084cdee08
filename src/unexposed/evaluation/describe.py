"""An evaluation as plain data: metrics with intervals, by strata, beside rivals, and the lists."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.data.ids import match
from unexposed.data.labelled import Impressions, Judgements
from unexposed.data.pairs import Indices, among, pair_keys, same_ids
from unexposed.errors import InputError
from unexposed.evaluation import off_policy
from unexposed.evaluation.protocols import (
    Protocol,
    apply,
    eligible,
    evaluate,
    impressions,
    judgements,
    rank,
)
from unexposed.evaluation.significance import bootstrap_interval
from unexposed.methods.popularity import Popularity, popular_list
from unexposed.model.model import Model
from unexposed.ranking import catalogue, metrics, verdict
from unexposed.ranking.metrics import Ranking
from unexposed.ranking.verdict import RIVAL, Values, Verdict
from unexposed.workers import Workers, together

LIST = 10  # items of each list that `recommended` describes
EXPOSURE = ("seldom", "sometimes", "often")  # shown: a third of the relevant pairs each


def describe(
    model: Model,
    judged: Judgements | Impressions,
    by: Protocol,
    *,
    logged: Impressions | None = None,
    rivals: Mapping[str, Model] | None = None,
) -> dict[str, Any]:
    """Evaluate as plain data: every metric, overall, by popularity and exposure, and the lists.

    The model stands beside the popular list of its own clicks, and beside the rivals by label.
    Thirds by exposure go by what was `logged`, where that is given: the propensity of a pair, else
    how often it was shown, 0 for one that never was. Otherwise they go by the model's own exposure.
    """
    head = {"protocol": by.name, "method": model.method.name}
    if by.candidates == "logged":
        log = off_policy.logged(model, impressions(judged, by))
        values = evaluate(model, judged, by).values
        return {
            **head,
            **off_policy.describe(log, by.metrics, clip=by.clip),
            **_beside(model, values, judged, by, rivals or {}),
            "recommended": recommended(model, log.users),
        }
    judged = judgements(judged, by)
    users, ranking = _ranked(model, judged, by)
    values = apply(ranking, by)
    return {
        **head,
        "users": len(users),
        "metrics": {
            name: {"mean": _mean(v), "ci95": list(bootstrap_interval(v, seed=0))}
            for name, v in values.items()
        },
        **_beside(model, values, judged, by, rivals or {}),
        "by_popularity": _by_popularity(model, ranking, by),
        **_by_exposure(model, users, ranking, by, logged),
        "recommended": recommended(model, users),
    }


def _beside(
    model: Model,
    values: Values,
    judged: Judgements | Impressions,
    by: Protocol,
    rivals: Mapping[str, Model],
) -> dict[str, Any]:
    """The gain over each rival by every metric; the popular list is none of its own.

    A rival ranks for the users of the model, and among what they have not clicked there.
    """
    for name, rival in rivals.items():
        if not same_ids(rival, model):
            raise InputError(f"the rival {name!r} knows other users or items than the model")
    if not isinstance(model.method, Popularity):
        rivals = {RIVAL: popular_list(model.clicks), **rivals}

    def of(rival: Model) -> Values:
        rival = replace(rival, clicks=model.clicks)
        if isinstance(judged, Impressions):
            return evaluate(rival, judged, by).values
        return apply(_ranked(rival, judged, by)[1], by)

    gains = {name: verdict.gains(values, of(rival)) for name, rival in rivals.items()}
    found = verdict.to_json(gains)
    return {"beside": found} if found else {}


def headline(metrics: Iterable[str]) -> str:
    """The metric that a verdict goes by: dcg@3 as in the paper, or else the first."""
    names = list(metrics)
    return "dcg@3" if "dcg@3" in names else names[0]


def each_of_document(document: Mapping[str, Any]) -> list[Verdict]:
    """The verdict on judged pairs beside each rival, from what `describe` gives."""
    where = f"on judged pairs ({document['protocol']})"
    said = []
    for rival, gains in verdict.from_json(document.get("beside", {})).items():
        metric = headline(gains)
        leading, readings = {metric: gains[metric]}, {metric: metric}
        said.append(
            verdict.verdict(
                document["method"], leading, where=where, readings=readings, rival=rival
            )
        )
    return said


def of_document(document: Mapping[str, Any]) -> Verdict | None:
    """The verdict on judged pairs beside all rivals; None where there is none."""
    return verdict.joined(each_of_document(document))


def _ranked(model: Model, judged: Judgements, by: Protocol) -> tuple[Indices, Ranking]:
    """The users that the protocol evaluates, and the ranks of their relevant items."""
    with together() as workers:
        own = _own(eligible(judged, model.clicks, by), workers)
        return _joined(np.unique(own.users), rank(model, own, by), workers)


def by_popularity(model: Model, judged: Judgements, by: Protocol) -> dict[str, Any]:
    """Compute every metric on the relevant items of each popularity stratum, as plain data."""
    return _by_popularity(model, _ranked(model, judged, by)[1], by)


def _by_popularity(model: Model, ranking: Ranking, by: Protocol) -> dict[str, Any]:
    stratum = catalogue.strata(model.clicks.item_counts)
    found = {}
    for number, name in enumerate(("head", "middle", "tail")):
        part = metrics.keep(ranking, (stratum == number)[ranking.items])
        found[name] = {"items": int((stratum == number).sum()), **_of_part(part, by)}
    return found


def _by_exposure(
    model: Model, users: Indices, ranking: Ranking, by: Protocol, logged: Impressions | None
) -> dict[str, Any]:
    """Every metric on thirds of the relevant pairs; equally exposed pairs stay together."""
    if logged is None and not model.has_exposure:
        return {}
    pairs = users[ranking.users], ranking.items
    exposure = (
        model.method.pair_exposure(model.parameters, *pairs).astype(np.float64)
        if logged is None
        else _logged_exposure(model, *pairs, logged)
    )
    third = np.searchsorted(np.quantile(exposure, [1 / 3, 2 / 3]), exposure, side="left")
    found = {}
    for number, name in enumerate(EXPOSURE):
        here = third == number
        limits = [float(exposure[here].min()), float(exposure[here].max())] if here.any() else None
        part = metrics.keep(ranking, here)
        found[name] = {"pairs": int(here.sum()), "exposure": limits, **_of_part(part, by)}
    return {"by_exposure": found}


def _logged_exposure(
    model: Model, users: Indices, items: Indices, logged: Impressions
) -> NDArray[np.float64]:
    rows, columns = logged.users, logged.items
    if not same_ids(logged, model):
        rows = match(logged.user_ids, model.user_ids)[rows]
        columns = match(logged.item_ids, model.item_ids)[columns]
    known = (rows >= 0) & (columns >= 0)
    n_items = len(model.item_ids)
    keys = pair_keys(rows[known], columns[known], n_items)
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
    means = {name: _mean(values) for name, values in apply(some, by).items()}
    return {"users": some.n_users, "metrics": means}


def recommended(model: Model, users: Indices) -> dict[str, Any]:
    """Describe how the lists of these users spread over the catalogue, as plain data."""
    k = min(LIST, len(model.item_ids))
    with together() as workers:
        own = _own_users(users, workers)
        lists = _joined_lists(own, model.top(own, k)[0], workers)
    counts = model.clicks.item_counts
    return {
        "k": k,
        "coverage": catalogue.coverage(lists, len(counts)),
        "gini": catalogue.gini(lists, len(counts)),
        "mean_popularity": catalogue.mean_popularity(lists, counts),
    }


def _mean(values: NDArray[np.float64]) -> float | None:
    return float(values.mean()) if len(values) else None


# Judged users divided among processes: each ranks items for some, and all know the result


def _own(judged: Judgements, workers: Workers | None) -> Judgements:
    """The judgements of this worker's users."""
    return judged if workers is None else judged.pick(judged.users % workers.size == workers.number)


def _own_users(users: Indices, workers: Workers | None) -> Indices:
    """The users of this worker, of all that are evaluated."""
    return users if workers is None else users[users % workers.size == workers.number]


def _joined(users: Indices, ranking: Ranking, workers: Workers | None) -> tuple[Indices, Ranking]:
    """The users of all workers, ascending, and the ranks of their relevant items."""
    if workers is None:
        return users, ranking
    found = workers.every((users, ranking))
    every = np.concatenate([one for one, _ in found])
    place = [np.searchsorted(np.sort(every), one) for one, _ in found]
    parts = [part for _, part in found]
    return np.sort(every), Ranking.from_pairs(
        np.concatenate([at[part.users] for at, part in zip(place, parts, strict=True)]),
        np.concatenate([part.ranks for part in parts]),
        np.concatenate([part.items for part in parts]),
        n_candidates=np.concatenate([part.n_candidates for part in parts])[np.argsort(every)],
        weights=np.concatenate([part.weights for part in parts]),
    )


def _joined_lists(users: Indices, lists: Indices, workers: Workers | None) -> Indices:
    """The lists of all workers, (users, k), in the order of their users."""
    if workers is None:
        return lists
    found = workers.every((users, lists))
    order = np.argsort(np.concatenate([one for one, _ in found]))
    return np.concatenate([rows for _, rows in found])[order]
