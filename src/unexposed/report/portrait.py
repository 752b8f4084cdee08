"""A saved model as plain data: its log, training, exposure, lists, and a few of its users."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed import settings
from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Judgements
from unexposed.evaluation.describe import describe, each_of_document, headline
from unexposed.evaluation.protocols import DEFAULT, PROTOCOLS, Protocol
from unexposed.model.model import Model
from unexposed.ranking import catalogue
from unexposed.ranking.verdict import RIVALS, gains_of_facts
from unexposed.report import sampled
from unexposed.report.closeups import closeups
from unexposed.report.page import Names
from unexposed.report.sampled import Sample

STRATA = ("head", "middle", "tail")
ACTIVITY = ("few clicks", "some clicks", "many clicks")
POINTS = 200  # on a curve
BINS = 8  # of popularity
LIFTED = 10
FACTS = (
    *("seed", "epochs_run", "best_epoch", "ended", "losses", "held_out", "seconds", "engine"),
    "refitted_on",
)
PROTOCOL = PROTOCOLS[DEFAULT]


def document(
    model: Model,
    names: Names,
    judged: Judgements | None = None,
    *,
    by: Protocol = PROTOCOL,
    seed: int = 0,
) -> dict[str, Any]:
    """Everything on a model's page."""
    model = replace(model, clicks=model.clicks.checked())
    sample = sampled.draw(model, seed=seed)
    found = None if judged is None else describe(model, judged, by)
    return {
        "method": model.method.name,
        "settings": settings.values(model.method),
        "facts": {name: model.facts[name] for name in FACTS if name in model.facts},
        "verdict": verdict(model, found),
        "log": log(model.clicks),
        "relations": relations(model, sample),
        "lists": lists(model.clicks, sample),
        "lifted": lifted(model.clicks, sample, names),
        "judged": found,
        "users": closeups(model, sample, names),
    }


def verdict(model: Model, judged: dict[str, Any] | None) -> dict[str, Any]:
    """The model beside each rival, on held-out clicks and on judged pairs, and in words."""
    said = [*model.verdicts, *(each_of_document(judged) if judged else [])]
    held_out, pairs = gains_of_facts(model.facts), (judged or {}).get("beside", {})
    beside = {}
    for rival in RIVALS:
        readings = {n: gain.to_json(rival) for n, gain in held_out.get(rival, {}).items()}
        found = pairs.get(rival, {})
        leading = {headline(found): found[headline(found)]} if found else {}
        if readings or leading:
            beside[rival] = {"held_out": readings, "judged": leading}
    return {
        "beside": beside,
        "warns": any(one.warns for one in said),
        "says": [str(one) for one in said],
    }


def log(clicks: Clicks) -> dict[str, Any]:
    """Size of the log, and how unevenly its clicks fall on items and users."""
    items = np.sort(clicks.item_counts)[::-1]
    users = np.sort(clicks.user_counts)[::-1]
    return {
        "users": clicks.n_users,
        "items": clicks.n_items,
        "clicks": len(clicks),
        "share_of_top_tenth": float(items[: max(1, len(items) // 10)].sum() / max(items.sum(), 1)),
        "item_curve": _curve(items),
        "user_curve": _curve(users),
    }


def _curve(counts: NDArray[np.int64]) -> dict[str, list[int]]:
    """Rank and clicks, at ranks evenly spaced on a logarithmic axis."""
    ranks = np.unique(np.geomspace(1, len(counts), POINTS).round().astype(int))
    return {"rank": ranks.tolist(), "clicks": counts[ranks - 1].tolist()}


def relations(model: Model, sample: Sample) -> dict[str, Any]:
    """Exposure and relevance of the sampled pairs, by popularity of the item."""
    stratum = catalogue.strata(model.clicks.item_counts)[sample.pair_items]
    return {
        "pairs": len(sample.pair_items),
        "exposure_is_assumed": model.has_exposure and model.method.fixed_exposure,
        "relevance_is_a_chance": sample.relevance is not None,
        "by_popularity": _by_popularity(model, sample),
        "never_shown": None if sample.unexposed is None else _mean(sample.unexposed),
        "never_shown_by_stratum": {
            name: _mean(sample.unexposed[stratum == at])
            for at, name in enumerate(STRATA)
            if sample.unexposed is not None
        },
    }


def _by_popularity(model: Model, sample: Sample) -> list[dict[str, Any]]:
    """Mean exposure and relevance by clicks of the item, for each third of user activity."""
    clicks = model.clicks
    if len(sample.pair_users) == 0:  # everything was clicked
        return []
    activity = _thirds(clicks.user_counts[sample.pair_users])
    counts = clicks.item_counts[sample.pair_items]
    edges = np.unique(np.geomspace(1, max(counts.max(initial=1), 2), BINS + 1).round())
    which = np.searchsorted(edges, counts, side="right")  # 0: never clicked
    out = []
    for third, name in enumerate(ACTIVITY):
        rows = []
        for number in np.unique(which).tolist():
            here = (which == number) & (activity == third)
            if not here.any():
                continue
            row: dict[str, Any] = {"clicks": float(counts[here].mean()), "pairs": int(here.sum())}
            for what in ("exposure", "relevance"):
                values = getattr(sample, what)
                row[what] = None if values is None else float(values[here].mean())
            rows.append(row)
        if rows:
            out.append({"users": name, "rows": rows})
    return out


def _thirds(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The third of the pairs that each count falls in: 0, 1 or 2."""
    return np.searchsorted(np.quantile(counts, [1 / 3, 2 / 3]), counts, side="left")


def _mean(values: NDArray[np.float64]) -> float | None:
    return float(values.mean()) if len(values) else None


def lists(clicks: Clicks, sample: Sample) -> dict[str, Any]:
    """Lists of the sampled users, beside the popular list and the log."""
    stratum = catalogue.strata(clicks.item_counts)
    k = sample.lists.shape[1]

    def about(items: NDArray[np.int32]) -> dict[str, Any]:
        shown = items[items >= 0]
        return {
            "coverage": catalogue.coverage(items, clicks.n_items),
            "gini": catalogue.gini(items, clicks.n_items),
            "mean_clicks": float(clicks.item_counts[shown].mean()) if len(shown) else None,
            "strata": {n: _mean((stratum[shown] == at) * 1.0) for at, n in enumerate(STRATA)},
        }

    return {
        "k": k,
        "users": len(sample.users),
        "model": about(sample.lists),
        "popular": about(sample.popular),
        "shared": _mean(sample.shared()),
        "log_strata": {
            n: _mean((stratum[clicks.items] == at) * 1.0) for at, n in enumerate(STRATA)
        },
    }


def lifted(clicks: Clicks, sample: Sample, names: Names) -> dict[str, list[dict[str, Any]]]:
    """Items in many more, or far fewer, lists than the popular list would put them in."""
    ours, popular = (
        np.bincount(items[items >= 0], minlength=clicks.n_items) / len(sample.users)
        for items in (sample.lists, sample.popular)
    )
    gain = ours - popular
    order = np.argsort(-gain, kind="stable")
    # 1 for the most clicked item
    place = np.empty(clicks.n_items, dtype=np.int64)
    place[np.argsort(-clicks.item_counts, kind="stable")] = np.arange(1, clicks.n_items + 1)

    def row(item: int) -> dict[str, Any]:
        return {
            "item": names.item(item),
            "clicks": int(clicks.item_counts[item]),
            "place": int(place[item]),
            "recommended": float(ours[item]),
            "popular": float(popular[item]),
        }

    up = [row(i) for i in order[:LIFTED].tolist() if gain[i] > 0]
    down = [row(i) for i in order[::-1][:LIFTED].tolist() if gain[i] < 0]
    return {"up": up, "down": down}
