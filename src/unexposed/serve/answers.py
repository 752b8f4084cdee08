"""The answers of the service: pure functions from a model and a request to what JSON can hold."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from unexposed.errors import InputError
from unexposed.serve.held import Chosen, Held, Role

EXACT = 2**53  # a whole number beyond it is not exact in JavaScript, so it is given as text
MOST_CLICKS = 500  # of a user that are shown

Answer = dict[str, Any]


def health(held: Held) -> Answer:
    model, verdict = held.model, held.model.verdict
    return {
        "status": "ok",
        "model": {
            "method": model.method.name,
            "users": model.clicks.n_users,
            "items": model.clicks.n_items,
            "clicks": len(model.clicks),
            "has_exposure": held.has_exposure,
            "scale": model.method.scale,
            "folds_in": held.folds_in,
            "saved": held.saved,
            "generation": held.generation,
            "titles": held.titles is not None,
            "verdict": None if verdict is None else str(verdict),
        },
    }


def listed(held: Held, user: Any, found: Chosen, *, known: bool) -> Answer:
    """One user's list."""
    return {"user": shown(user), "known": known, "items": entries(held, found)}


def folded_in(held: Held, found: Chosen, known: int, unknown: Iterable[Any]) -> Answer:
    """The list of an imagined user."""
    return {
        "known_clicks": known,
        "unknown_items": [shown(raw) for raw in unknown],
        "items": entries(held, found),
    }


def entries(held: Held, found: Chosen) -> list[Answer]:
    """The items of a list, best first."""
    return [
        {**about, "rank": rank, **figures}
        for rank, (about, figures) in enumerate(
            zip(_abouts(held, found.items), _figures(found), strict=True), start=1
        )
    ]


def similar(held: Held, role: Role, raw: Any, k: int) -> Answer:
    """The items or users whose vectors point the same way."""
    index, n = held.known(raw, role), len(held.ids(role))
    if n == 1:
        raise InputError(f"the model knows one {role} only, so none is like it")
    own = held.ids(role).values[[index]].tolist()[0]
    like = held.model.similar_items if role == "item" else held.model.similar_users
    table = like(own, min(k, n - 1))
    others = np.array([held.index(other, role) for other in table[role].to_list()], dtype=np.int32)
    cosines = table["similarity"].to_list()
    if role == "user":
        found = [{"user": other} for other in _raw(held, others, "user")]
        rows = [{**one, "similarity": c} for one, c in zip(found, cosines, strict=True)]
        return {"user": shown(own), "users": rows}
    rows = [
        {**about, "similarity": c} for about, c in zip(_abouts(held, others), cosines, strict=True)
    ]
    return {"item": shown(own), "items": rows}


def exposure(held: Held, user: Any, items: list[Any]) -> Answer:
    """Relevance and exposure of a user's pairs."""
    if not held.has_exposure:
        raise InputError(f"{held.model.method.name} has no exposure model")
    row = held.known(user, "user")
    indices = np.array([held.known(item, "item") for item in items], dtype=np.int32)
    found, clicks = held.pairs(row, indices), held.model.clicks
    clicked = set(clicks.items[slice(*clicks.user_start[[row, row + 1]])].tolist())
    rows = [
        {**about, **figures, "clicked": index in clicked}
        for about, figures, index in zip(
            _abouts(held, indices), _figures(found), indices.tolist(), strict=True
        )
    ]
    return {"user": _raw(held, np.array([row]), "user")[0], "items": rows}


def user(held: Held, raw: Any) -> Answer:
    """What a user clicked."""
    row = held.known(raw, "user")
    clicks = held.model.clicks
    here = slice(*clicks.user_start[[row, row + 1]].tolist())
    part = slice(here.start, min(here.stop, here.start + MOST_CLICKS))
    items, counts = np.asarray(clicks.items[part]), clicks.counts[part].tolist()
    figures = _figures(held.pairs(row, items))
    rows = [
        {
            **about,
            "count": count,
            "relevance": figure["relevance"],
            "exposure": figure["exposure"],
        }
        for about, count, figure in zip(_abouts(held, items), counts, figures, strict=True)
    ]
    own = _raw(held, np.array([row]), "user")[0]
    return {"user": own, "n_clicks": here.stop - here.start, "clicks": rows}


def search(held: Held, query: str, role: Role, limit: int) -> Answer:
    """Users or items by the beginning of their id, or a piece of their title."""
    found = np.array(held.search(query, role, limit), dtype=np.int32)
    if role == "item":
        return {"items": list(_abouts(held, found))}
    clicks = held.model.clicks.user_counts[found].tolist()
    pairs = zip(_raw(held, found, "user"), clicks, strict=True)
    return {"users": [{"user": raw, "clicks": n} for raw, n in pairs]}


def shown(raw: Any) -> Any:
    """A raw id as JSON holds it: a tuple as a list, what JSON has no exact number for as text."""
    if isinstance(raw, tuple):
        return [shown(part) for part in raw]
    if isinstance(raw, np.generic):
        raw = raw.item()
    inexact = type(raw) is int and not -EXACT < raw < EXACT
    if inexact or (isinstance(raw, float) and not math.isfinite(raw)):
        return str(raw)
    return raw


def _raw(held: Held, indices: Any, role: Role) -> list[Any]:
    return [shown(raw) for raw in held.ids(role).values[indices].tolist()]


def _abouts(held: Held, items: Any) -> Iterable[Answer]:
    """Id, title and clicks of each item."""
    titles = held.titles or {}
    counts = held.model.clicks.item_counts[items].tolist()
    rows = zip(_raw(held, items, "item"), items.tolist(), counts, strict=True)
    return ({"item": raw, "title": titles.get(at), "clicks": n} for raw, at, n in rows)


def _figures(found: Chosen) -> Iterable[Answer]:
    n = len(found.items)
    relevances = [None] * n if found.relevance is None else found.relevance.tolist()
    exposures = [None] * n if found.exposure is None else found.exposure.tolist()
    rows = zip(found.scores.tolist(), relevances, exposures, strict=True)
    return [{"score": s, "relevance": r, "exposure": e} for s, r, e in rows]
