"""A saved model as plain data: its log, training, exposure, lists, and a few of its users."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed import settings
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.labelled import Judgements
from unexposed.data.pairs import Indices
from unexposed.errors import plain
from unexposed.evaluation.describe import describe, each_of_document, headline
from unexposed.evaluation.protocols import DEFAULT, PROTOCOLS, Protocol
from unexposed.model import recommend
from unexposed.model.model import Model
from unexposed.ranking import catalogue
from unexposed.ranking.blocks import pairs_from_rows
from unexposed.ranking.verdict import RIVALS, gains_of_facts

LONGEST = 60  # characters of a name
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
USERS = 400  # sampled
PAIRS = 200  # without a click, for each of them
LIST = 10
CLICKED, RECOMMENDED = 12, 8  # about as tall: a recommendation has two lines


def short(raw: Any) -> str:
    """An id or a title on one line, its control characters spelled out, cut where it is long."""
    return plain(str(raw)[: 2 * LONGEST], LONGEST)


class Names:
    """Short names of a model's users and items: the title of an item where it has one."""

    def __init__(self, user_ids: Ids, item_ids: Ids, titles: Mapping[int, str]) -> None:
        self._users, self._items, self._titles = user_ids, item_ids, titles

    def user(self, index: int) -> str:
        return short(self._users.values[index])

    def item(self, index: int) -> str:
        """The item's title, or else its id."""
        return short(self._titles.get(index, self._items.values[index]))


@dataclass(frozen=True, eq=False)
class Sample:
    """Users of the log, their lists, and pairs without a click."""

    users: Indices
    lists: Indices  # (users, k): what the model recommends, −1 for none
    popular: Indices  # (users, k): the most clicked items that the user has not clicked
    pair_users: Indices
    pair_items: Indices
    relevance: NDArray[np.float64] | None  # P(click | exposed), where a score is or gives one
    exposure: NDArray[np.float64] | None
    unexposed: NDArray[np.float64] | None  # P(not exposed | no click)

    def shared(self) -> NDArray[np.float64]:
        """The share of each user's list that is on the user's popular list, too."""
        both = [
            np.isin(ours[ours >= 0], popular).sum() / max((ours >= 0).sum(), 1)
            for ours, popular in zip(self.lists, self.popular, strict=True)
        ]
        return np.array(both, dtype=np.float64)


def draw(model: Model, *, seed: int = 0) -> Sample:
    """Sample users who clicked anything, each with some items they did not click."""
    rng = np.random.default_rng(seed)
    clicks = model.clicks
    active = np.flatnonzero(clicks.user_counts > 0).astype(np.int32)
    users = np.sort(rng.choice(active, min(USERS, len(active)), replace=False))
    k = min(LIST, clicks.n_items)
    pair_users, pair_items = _unclicked(clicks, users, rng)
    relevance = relevance_of(model, scores_of(model, pair_users, pair_items))
    exposure = exposure_of(model, pair_users, pair_items)
    return Sample(
        users,
        model.top(users, k)[0],
        _popular(clicks, users, k),
        pair_users,
        pair_items,
        relevance,
        exposure,
        never_shown(model, relevance, exposure),
    )


def scores_of(model: Model, users: Indices, items: Indices) -> NDArray[np.float64]:
    """The score of each pair."""
    score = pairs_from_rows(model.scores, users, items)
    return score.astype(np.float64)


def relevance_of(model: Model, score: NDArray[Any]) -> NDArray[np.float64] | None:
    """P(click | exposed) from scores; None for a method whose scores only order items."""
    found = recommend.relevance(model.method, score)
    return None if found is None else found.astype(np.float64)


def exposure_of(model: Model, users: Indices, items: Indices) -> NDArray[np.float64] | None:
    """The exposure of each pair; None where the method has no exposure model."""
    if model.method.exposure(model.parameters, users[:0]) is None:
        return None
    return model.method.pair_exposure(model.parameters, users, items).astype(np.float64)


def never_shown(
    model: Model, relevance: NDArray[np.float64] | None, exposure: NDArray[np.float64] | None
) -> NDArray[np.float64] | None:
    """P(not exposed | no click) = (1 − m) / (1 − m·p)."""
    if exposure is None:
        return None
    if model.method.posterior_exposure:
        return 1 - exposure
    if relevance is None:
        return None
    return (1 - exposure) / np.maximum(1 - exposure * relevance, 1e-12)


def _unclicked(clicks: Clicks, users: Indices, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Drawn pairs of users and items, less the clicked ones."""
    drawn = np.repeat(users, PAIRS)
    items = rng.integers(clicks.n_items, size=len(drawn), dtype=np.int32)
    kept = ~clicks.contain(drawn, items)
    return drawn[kept], items[kept]


def _popular(clicks: Clicks, users: Indices, k: int) -> Indices:
    """The k most clicked items that each user has not clicked, −1 for none."""
    order = np.argsort(-clicks.item_counts, kind="stable").astype(np.int32)
    out = np.full((len(users), k), -1, dtype=np.int32)
    for row, user in enumerate(users.tolist()):
        clicked = clicks.items[clicks.user_start[user] : clicks.user_start[user + 1]]
        head = order[: k + len(clicked)]  # holds k unclicked items, if there are any
        left = head[~np.isin(head, clicked)][:k]
        out[row, : len(left)] = left
    return out


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
    sample = draw(model, seed=seed)
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


def closeups(model: Model, sample: Sample, names: Names) -> list[dict[str, Any]]:
    """Sampled users with many, some and few clicks, and the one with the least popular list."""
    return [
        _closeup(model, sample, row, names) | {"why": why} for row, why in _chosen(model, sample)
    ]


def _closeup(model: Model, sample: Sample, row: int, names: Names) -> dict[str, Any]:
    user, items = sample.users[row], sample.lists[row, :RECOMMENDED]
    items = items[items >= 0]
    users = np.full(len(items), user, dtype=np.int32)
    scores = scores_of(model, users, items)
    relevance, exposure = relevance_of(model, scores), exposure_of(model, users, items)
    return {
        "user": names.user(int(user)),
        "clicks": int(model.clicks.user_counts[user]),
        "clicked": _clicked(model, int(user), names),
        "recommended": [
            {
                "item": names.item(item),
                "clicks": int(model.clicks.item_counts[item]),
                "score": float(scores[rank]),
                "relevance": None if relevance is None else float(relevance[rank]),
                "exposure": None if exposure is None else float(exposure[rank]),
                "like": _like(model, int(user), item, names),
                "popular": item in sample.popular[row],
            }
            for rank, item in enumerate(items.tolist())
        ],
    }


def _chosen(model: Model, sample: Sample) -> list[tuple[int, str]]:
    """Rows of the sample, each once, with the reason to show them."""
    counts = model.clicks.user_counts[sample.users]
    by_activity = np.argsort(counts, kind="stable")
    last = len(by_activity) - 1
    wanted = [
        (int(by_activity[round(0.95 * last)]), "among the most active"),
        (int(by_activity[round(0.5 * last)]), "of medium activity"),
        (int(by_activity[round(0.05 * last)]), "among the least active"),
        (int(np.argmin(sample.shared())), "whose list is least like the popular one"),
    ]
    found: dict[int, str] = {}
    for row, why in wanted:
        found.setdefault(row, why)
    return list(found.items())


def _clicked(model: Model, user: int, names: Names) -> list[dict[str, Any]]:
    """Some of the user's clicked items, evenly from the most to the least popular."""
    clicks = model.clicks
    items = clicks.items[clicks.user_start[user] : clicks.user_start[user + 1]]
    items = items[np.argsort(-clicks.item_counts[items], kind="stable")]
    some = items[np.unique(np.linspace(0, len(items) - 1, CLICKED).round().astype(int))]
    return [{"item": names.item(i), "clicks": int(clicks.item_counts[i])} for i in some.tolist()]


def _like(model: Model, user: int, item: int, names: Names) -> str | None:
    """The clicked item with the most similar vector, where items have vectors."""
    found = model.method.tastes(model.parameters)
    if found is None:
        return None
    vectors = found.items
    clicks = model.clicks
    clicked = clicks.items[clicks.user_start[user] : clicks.user_start[user + 1]]
    own = vectors[clicked]
    lengths = np.linalg.norm(own, axis=1) * np.linalg.norm(vectors[item])
    similarity = own @ vectors[item] / np.maximum(lengths, 1e-12)
    return names.item(int(clicked[int(np.argmax(similarity))]))
