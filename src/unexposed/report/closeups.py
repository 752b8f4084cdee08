"""A few users looked at closely: what they clicked, what they are recommended, and why."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Indices
from unexposed.model.model import Model
from unexposed.report.names import Names
from unexposed.report.sampled import Sample, exposure_of, relevance_of

CLICKED, RECOMMENDED = 8, 8


def closeups(model: Model, sample: Sample, names: Names) -> list[dict[str, Any]]:
    """Users from the sample: of much, middling and little activity, and the least usual list."""
    chosen = _chosen(model, sample)
    users = sample.users[[row for row, _ in chosen]]
    items = sample.lists[[row for row, _ in chosen]][:, :RECOMMENDED]
    exposure = exposure_of(model, users, items)
    scores = _scores(model, users, items)
    relevance = relevance_of(model, scores)
    return [
        {
            "user": names.user(int(user)),
            "why": why,
            "clicks": int(model.clicks.user_counts[user]),
            "clicked": _clicked(model, int(user), names),
            "recommended": [
                {
                    "item": names.item(int(item)),
                    "clicks": int(model.clicks.item_counts[item]),
                    "score": float(scores[at, rank]),
                    "relevance": None if relevance is None else float(relevance[at, rank]),
                    "exposure": None if exposure is None else float(exposure[at, rank]),
                    "like": _like(model, int(user), int(item), names),
                    "popular": int(item) in sample.popular[chosen[at][0]].tolist(),
                }
                for rank, item in enumerate(items[at].tolist())
                if item >= 0
            ],
        }
        for at, (user, (_, why)) in enumerate(zip(users.tolist(), chosen, strict=True))
    ]


def _chosen(model: Model, sample: Sample) -> list[tuple[int, str]]:
    """Rows of the sample, each once, and what is special about them."""
    counts = model.clicks.user_counts[sample.users]
    by_activity = np.argsort(counts, kind="stable")
    shared = np.array(
        [np.isin(a[a >= 0], b).sum() for a, b in zip(sample.lists, sample.popular, strict=True)]
    )
    last = len(by_activity) - 1
    wanted = [
        (int(by_activity[round(0.95 * last)]), "among the most active"),
        (int(by_activity[round(0.5 * last)]), "of middling activity"),
        (int(by_activity[round(0.05 * last)]), "among the least active"),
        (int(np.argmin(shared)), "whose list is least like the popular one"),
    ]
    found: dict[int, str] = {}
    for row, why in wanted:
        found.setdefault(row, why)
    return list(found.items())


def _clicked(model: Model, user: int, names: Names) -> list[dict[str, Any]]:
    """Items it clicked, evenly from the most to the least popular: some known, some telling."""
    clicks = model.clicks
    items = clicks.items[clicks.user_start[user] : clicks.user_start[user + 1]]
    items = items[np.argsort(-clicks.item_counts[items], kind="stable")]
    some = items[np.unique(np.linspace(0, len(items) - 1, CLICKED).round().astype(int))]
    return [{"item": names.item(i), "clicks": int(clicks.item_counts[i])} for i in some.tolist()]


def _scores(model: Model, users: Indices, items: Indices) -> NDArray[np.float32]:
    out = np.empty(items.shape, dtype=np.float32)
    for part, block in model.blocks(users):
        out[part] = np.take_along_axis(block, items[part].clip(min=0), axis=1)
    return out


def _like(model: Model, user: int, item: int, names: Names) -> str | None:
    """The clicked item whose vector points most nearly the same way, where there are vectors."""
    vectors = model.parameters.get("item_factors")
    if vectors is None:
        return None
    clicks = model.clicks
    clicked = clicks.items[clicks.user_start[user] : clicks.user_start[user + 1]]
    own = vectors[clicked]
    lengths = np.linalg.norm(own, axis=1) * np.linalg.norm(vectors[item])
    similarity = own @ vectors[item] / np.maximum(lengths, 1e-12)
    return names.item(int(clicked[int(np.argmax(similarity))]))
