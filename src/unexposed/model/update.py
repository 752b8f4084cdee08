"""Update a model with newer clicks, which may bring new users and items."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unexposed import progress as show
from unexposed.data.clicks import Clicks, check_clicks
from unexposed.data.ids import Ids, joined, match
from unexposed.errors import InputError, Interrupted
from unexposed.model.fold_in import epochs_of, user_rows
from unexposed.settings import known, values
from unexposed.training.side import HELD_OUT_FRACTION, Parameters, Side, aligned

if TYPE_CHECKING:
    from unexposed.model.model import Model
    from unexposed.model.recommender import Recommender

SHARE_OF_EPOCHS = 0.1  # of a full training: the model is already near its optimum


def update(
    model: "Model",
    clicks: Clicks,
    *,
    epochs: int | None = None,
    seed: int = 0,
    side: Side | None = None,
    progress: show.Progress | None = None,
) -> "Model":
    """Train for some epochs on all clicks, older and newer, from the model's parameters.

    New users start with the vectors of `fold_in`, new items with the method's initial ones. A tenth
    of the newer clicks is held out to choose the epoch: the model has already seen the older ones.
    """
    check_clicks(clicks, of=model.method.name)
    method = model.method
    if "start" not in method.takes:
        raise InputError(f"{method.name} cannot be updated: fit it again on all clicks")
    side = side or Side()
    for part in sorted(set(model.facts.get("side", [])) - side.given()):
        option = f" (--{part.replace('_', '-')})" if part.endswith("features") else ""
        raise InputError(
            f"the model was trained with {part}: give it again, side=Side({part}=…){option}"
        )
    for role, encoding in side.encodings().items():
        if encoding != model.encoding(role):
            raise InputError(
                f"{role}_features are encoded in another way than in the model's training: read "
                f"them with encoding=model.encoding({role!r})"
            )
    older, newer = together(model, clicks)
    given = sorted(side.given() - {"start"})
    side = _aligned(side, clicks, newer, uses=method.takes | method.accepts)
    seen = older.contain(newer.users, newer.items)
    train, held_out = newer.pick(~seen).hold_out(fraction=HELD_OUT_FRACTION, seed=seed)

    def updated(fitted: "Model") -> "Model":
        facts = fitted.facts | {
            "epochs_before": epochs_of(model.facts),
            "updates": int(model.facts.get("updates", 0)) + 1,
            "side": given,
        }
        if not given:
            del facts["side"]
        return replace(fitted, method=model.method, facts=facts)

    try:
        return updated(
            _shorter(method, epochs).fit(
                older.union(newer.pick(seen)).union(train),
                held_out,
                seed=seed,
                side=replace(side, start=start(model, newer)),
                progress=progress,
            )
        )
    except Interrupted as stopped:
        raise Interrupted(updated(stopped.result)) from None


def _aligned(side: Side, clicks: Clicks, newer: Clicks, *, uses: frozenset[str]) -> Side:
    """The inputs with impressions and traffic in the indices of old and new ids together.

    A model keeps no row of its older impressions: those of the newer log are used.
    """
    given: dict[str, Any] = {
        part: clicks.shown for part in ("impressions", "passed_over") if part in uses
    }
    given |= {part: getattr(side, part) for part in side.given() & {*given, "traffic"}}
    rows = {part: aligned(rows, newer) for part, rows in given.items() if rows is not None}
    return replace(side, **rows)


def _shorter(method: "Recommender", epochs: int | None) -> "Recommender":
    """The method with this many epochs, or a share of its own; unchanged if it has no epochs."""
    if "epochs" not in known(type(method)):
        return method
    most = epochs or max(1, round(SHARE_OF_EPOCHS * values(method)["epochs"]))
    return replace(method, **{"epochs": most})


def together(model: "Model", clicks: Clicks) -> tuple[Clicks, Clicks]:
    """The model's clicks and the newer ones, with common ids that begin with the model's."""
    user_at = match(clicks.user_ids, model.user_ids)
    item_at = match(clicks.item_ids, model.item_ids)
    user_ids = joined(model.user_ids, clicks.user_ids, user_at < 0)
    item_ids = joined(model.item_ids, clicks.item_ids, item_at < 0)
    for at, old in ((user_at, model.user_ids), (item_at, model.item_ids)):
        at[at < 0] = len(old) + np.arange((at < 0).sum())
    newer = Clicks.from_pairs(
        user_at[clicks.users],
        item_at[clicks.items],
        counts=clicks.counts,
        user_ids=user_ids,
        item_ids=item_ids,
    )
    return replace(model.clicks, user_ids=user_ids, item_ids=item_ids), newer


def start(model: "Model", newer: Clicks) -> Parameters:
    """The model's parameters with rows for the new users, from their clicks on known items.

    The vector of a user without such clicks is zero.
    """
    n_old = len(model.user_ids)
    if newer.n_users == n_old:
        return model.parameters
    here = (newer.users >= n_old) & (newer.items < len(model.item_ids))
    clicks = Clicks.from_pairs(
        newer.users[here] - n_old,
        newer.items[here],
        user_ids=Ids(newer.user_ids.values[n_old:]),
        item_ids=model.item_ids,
    )
    rows = user_rows(model, clicks)
    return model.parameters | {
        name: np.concatenate([model.parameters[name], values]) for name, values in rows.items()
    }
