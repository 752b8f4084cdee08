"""A few users in detail: what they clicked, what they are recommended, and why."""

from typing import Any

import numpy as np

from unexposed.model.model import Model
from unexposed.report.page import Names
from unexposed.report.sampled import Sample, exposure_of, relevance_of, scores_of

CLICKED, RECOMMENDED = 12, 8  # about as tall: a recommendation has two lines


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
