"""Fold in users who come after training: learn their vectors, change nothing else.

A user's vector, with its bias, is learned as training would have learned it with the items fixed
at their final values: by Adam on this user's clicks, for as many epochs as the model kept. An
epoch's clicks, each with its drawn items, are spread over as many batches as training had; the
clicks of one batch make one step, numbered as in training. So negatives, weight decay, step size
and early stopping are the same as in training, and there is nothing to tune. A user's vector
depends on their clicks only.

This works for every loss and needs no pass over the catalogue.
"""

from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unexposed.compiled import CORES
from unexposed.data.clicks import Clicks, check_clicks
from unexposed.data.features import Features
from unexposed.data.ids import Ids, joined, match
from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.objective import Objective, Optimiser
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.maths.losses import kernel_of
from unexposed.maths.relevance import Relevance
from unexposed.model.filters import entries
from unexposed.sampling.draw import EVEN, Chances
from unexposed.sampling.samples import Drawing, samples_alone
from unexposed.training.side import feature_rows

if TYPE_CHECKING:
    from unexposed.model.model import Model

Array = NDArray[Any]
SEED = 1  # of the drawn samples, the same for every user: users do not affect each other
PAIRS = 1_000_000  # about the pairs that a thread learns from at a time


@dataclass(frozen=True, eq=False)
class NewUsers:
    """Users to fold in, with what is known of the training that made the model."""

    clicks: Clicks
    trained_on: Clicks
    epochs: int
    features: Array | None = None  # a row for each user


def fold_in(
    model: "Model", clicks: Clicks, features: Features | NDArray[Any] | None = None
) -> "Model":
    """The model with these users added; known users are learned again from all their clicks.

    Users without a click on a known item are left out. Features give each user an exposure of
    their own; without them it is the mean over the model's users.
    """
    check_clicks(clicks, of=model.method.name)
    given = clicks.user_ids
    clicks = known_clicks(model, clicks)
    rows = user_rows(model, clicks, features_of(clicks, given, features))
    at = match(clicks.user_ids, model.user_ids)
    new = at < 0
    at[new] = len(model.user_ids) + np.arange(new.sum())
    parameters = dict(model.parameters)
    for name, values in rows.items():
        parameters[name] = np.concatenate([parameters[name], values[new]])
        parameters[name][at] = values
    others = model.clicks.pick(~np.isin(model.clicks.users, at))
    both = Clicks.from_pairs(
        np.concatenate([others.users, at[clicks.users]]),
        np.concatenate([others.items, clicks.items]),
        counts=np.concatenate([others.counts, clicks.counts]),
        user_ids=joined(model.user_ids, clicks.user_ids, new),
        item_ids=model.item_ids,
    )
    return replace(model, parameters=parameters, clicks=both, checkpoint=None)


def known_clicks(model: "Model", clicks: Clicks) -> Clicks:
    """The clicks on known items, together with the users' earlier clicks."""
    check_clicks(clicks, of=model.method.name)
    items = match(clicks.item_ids, model.item_ids)[clicks.items]
    known = items >= 0
    at = match(clicks.user_ids, model.user_ids)
    returning = np.flatnonzero(at >= 0)
    start, end = (model.clicks.user_start[at[returning] + one] for one in (0, 1))
    rows, earlier = entries(start, end, model.clicks.items)
    users = np.concatenate([clicks.users[known], returning[rows]])
    kept = np.bincount(users, minlength=clicks.n_users) > 0
    if not kept.any():
        raise InputError("none of these users has a click on an item that the model knows")
    counts = entries(start, end, model.clicks.counts)[1]
    return Clicks.from_pairs(
        (np.cumsum(kept) - 1)[users],
        np.concatenate([items[known], earlier]),
        counts=np.concatenate([clicks.counts[known], counts]),
        user_ids=Ids(clicks.user_ids.values[kept]),
        item_ids=model.item_ids,
    )


def user_of(model: "Model", items: Sequence[Hashable] | Array) -> "Model":
    """A model of one user with these clicks."""
    found = model.item_ids.index(items)
    if not (found >= 0).any():
        raise InputError(f"the model knows none of the {len(found)} clicked items")
    found = found[found >= 0]
    clicks = Clicks.from_pairs(
        np.zeros(len(found), dtype=np.int32),
        found,
        user_ids=Ids.range(1),
        item_ids=model.item_ids,
    )
    return of_users(model, clicks)


def of_users(model: "Model", clicks: Clicks, rows: Array | None = None) -> "Model":
    """A model of only the users of these clicks, which are on known items.

    `rows` are the features of these users.
    """
    parameters = model.parameters | user_rows(model, clicks, rows)
    return replace(model, parameters=parameters, clicks=clicks, checkpoint=None)


def user_rows(model: "Model", clicks: Clicks, rows: Array | None = None) -> dict[str, Array]:
    """The parameters of the users of these clicks, by name; `rows` are their features."""
    method = model.method
    if rows is not None and "user_features" not in method.takes:
        raise InputError(f"{method.name} cannot use user_features")
    new = NewUsers(clicks, model.clicks, epochs_of(model.facts), rows)
    return method.user_rows(model.parameters, new)


def features_of(
    clicks: Clicks, given: Ids, features: Features | NDArray[Any] | None
) -> Array | None:
    """The features of the users of these clicks, who are some of those given."""
    rows = feature_rows(features, given, "user")
    return None if rows is None else rows[given.index(clicks.user_ids.values)]


def of_part(clicks: Clicks, part: slice) -> Clicks:
    """The clicks of a slice of the users."""
    here = slice(*clicks.user_start[[part.start, part.stop]])
    ids = Ids(clicks.user_ids.values[part]), clicks.item_ids
    return Clicks(clicks.users[here] - part.start, clicks.items[here], clicks.counts[here], *ids)


def epochs_of(facts: dict[str, Any]) -> int:
    """The epochs that made the parameters, including those before an update."""
    return int(facts.get("best_epoch", 0)) + int(facts.get("epochs_before", 0))


def solve(
    parameters: dict[str, Array],
    clicks: Clicks,
    loss: str,
    optimiser: Optimiser,
    *,
    exposure: Array | None,  # (items,) or (users, items); None: the loss needs none
    drawing: Drawing,
    law: Chances = EVEN,  # of the drawn items
    counted: Array | None = None,  # whether an item counts when drawn; None: each does
    n_clicks: int,  # of the training
    batch_size: int,
    epochs: int,
    relevance: Relevance,
    threads: int = CORES,
) -> dict[str, Array]:
    """The rows of the users of these clicks in each users' table, with all other tables held."""
    start = relevance.new_users(parameters, clicks.n_users)
    held = {n: parameters[n] for n, table in relevance.tables.items() if table.rows != "users"}
    is_fast = relevance.kernel is not None and kernel_of(loss) is not None
    by_item = drawing.item_weight(law)
    if counted is not None:
        by_item = (counted * (1 if by_item is None else by_item)).astype(np.float32)
    steps, size = -(-n_clicks // batch_size), min(batch_size, n_clicks)

    def solved(part: slice) -> dict[str, Array]:
        times: dict[str, Any] = {"epochs": epochs, "steps": steps, "batch_size": size}
        samples, batches = samples_alone(of_part(clicks, part), drawing, law, seed=SEED, **times)
        samples = replace(samples, item_weight=by_item)
        tables = held | {name: rows[part] for name, rows in start.items()}
        shown = exposure if exposure is None or exposure.ndim == 1 else exposure[part]
        given: dict[str, Any] = {"relevance": relevance, "held": True}
        engine: CpuEngine | ReferenceEngine
        if is_fast:
            rows, items = np.unique(samples.items, return_inverse=True)  # a request needs few
            samples = replace(samples, items=items.astype(np.int32))
            if by_item is not None:
                samples = replace(samples, item_weight=by_item[rows])
            tables["item_factors"] = tables["item_factors"][rows]
            given |= {"exposure": None if shown is None else shown[..., rows], "threads": 1}
            engine = CpuEngine(Objective(loss), optimiser, tables, **given)
        else:
            engine = ReferenceEngine(Objective(loss), optimiser, tables, exposure=shown, **given)
        engine.learn(samples, batches)
        return {name: engine.parameters()[name].astype(np.float32) for name in start}

    each = clicks.n_items if drawing.every_pair else len(clicks) / clicks.n_users
    pairs = epochs * clicks.n_users * each * (1 + drawing.negatives)
    n_parts = min(clicks.n_users, 1 + int(pairs // PAIRS))
    bounds = [clicks.n_users * number // n_parts for number in range(n_parts + 1)]
    with ThreadPoolExecutor(threads if is_fast else 1) as pool:
        every = list(pool.map(solved, map(slice, bounds[:-1], bounds[1:])))
    return {name: np.concatenate([one[name] for one in every]) for name in start}
