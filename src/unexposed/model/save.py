"""Save a model as one file, or with a shard for each partition of its users.

By partitions, what users share stands in the file itself, and a user's rows, clicks and raw id in
the shard of the user's partition, with the user's place in the whole log.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unexposed import settings, tensors
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids, to_json
from unexposed.data.share import Share, own_rows
from unexposed.errors import InputError, as_path
from unexposed.model.filters import entries
from unexposed.tensors import Arrays, Kind
from unexposed.workers import Workers, together

if TYPE_CHECKING:
    from unexposed.model.model import Model

MODEL = Kind("model", version=5, cure="take it from a copy, or train it again")
COLUMNS = {"users": np.int32, "items": np.int32, "counts": np.int32, "user_start": np.int64}


def model_path(name: str | PathLike[str]) -> Path:
    """The file of a model: `shop` is `shop.safetensors`."""
    return tensors.path_of(as_path(name, "the file of a model"))


def identity(name: str | PathLike[str]) -> tuple[int, ...] | None:
    """What changes whenever the model at this place is replaced; None: there is no model.

    It reads nothing: a server that reloads asks for it often.
    """
    return tensors.identity(model_path(name))


def check_place(name: str | PathLike[str]) -> None:
    """Refuse a place that no model can be written to, before the training begins."""
    tensors.check_place(MODEL, model_path(name))


def check_ids(clicks: Clicks) -> None:
    """Refuse ids that cannot be saved, before training begins."""
    for ids in (clicks.user_ids, clicks.item_ids):
        if not ids.are_sortable:
            ids_as_json(ids)


def ids_as_json(ids: Ids) -> list[Any]:
    """Raw ids by index, as JSON can hold them: a tuple is {"tuple": […]}."""
    return [to_json(raw) for raw in ids.values.tolist()]


def save(model: "Model", name: str | PathLike[str], *, partitioned: bool | None = None) -> None:
    """Write a model in one step; workers that divide it call this together."""
    path, share = model_path(name), model.clicks.share
    document: dict[str, Any] = {
        "method": model.method.name,
        "settings": settings.values(model.method),
        "facts": model.facts,
    }
    if not partitioned and share is None:
        check_place(path)
        arrays = _named("parameters", model.parameters)
        arrays |= {f"clicks.{name}": getattr(model.clicks, name) for name in COLUMNS}
        arrays |= _named("ids.users", model.user_ids.packed())
        arrays |= _named("ids.items", model.item_ids.packed())
        return tensors.write_tensors(MODEL, path, document, arrays)
    if partitioned is False:
        raise InputError("a model that workers divide is saved by partitions: `whole` gathers it")
    with together() as workers:
        if workers is None and share is not None:
            raise InputError(
                f"this model holds {model.clicks.n_users:,} of {share.n_users:,} users: save the "
                "whole one"
            )
        if workers is None or workers.number == 0:
            check_place(path)
        shared = without_users(model)
        log = share_of(shared)
        document |= {"users": log.n_users, "clicks": log.n_clicks}
        arrays = _named("parameters", shared.parameters)
        arrays |= _named("ids.items", shared.item_ids.packed())
        arrays["clicks.item_counts"] = log.item_counts.astype(np.int64)
        shards = own_shards(model, workers)
        return tensors.write_tensors(MODEL, path, document, arrays, shards, workers=workers)


def _named(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    return {f"{prefix}.{name}": array for name, array in arrays.items()}


def own_shards(model: "Model", workers: Workers | None) -> Iterator[tuple[int, Arrays]]:
    """The arrays of each partition of this worker, one in memory at a time."""
    return ((number, cut(model, rows)) for number, rows in own_rows(model.user_ids, workers))


def cut(model: "Model", rows: NDArray[np.int64]) -> Arrays:
    """What these users have of their own: parameters, clicks, ids, and places in the whole log."""
    clicks, share = model.clicks, model.clicks.share
    start, end = clicks.user_start[rows], clicks.user_start[rows + 1]
    users, items = entries(start, end, clicks.items)
    user_tables = model.method.user_tables(model.parameters)
    found = _named("parameters", {name: model.parameters[name][rows] for name in user_tables})
    found |= _named("ids.users", Ids(clicks.user_ids.values[rows]).packed())
    return found | {
        "clicks.users": users.astype(np.int32),
        "clicks.items": items,
        "clicks.counts": entries(start, end, clicks.counts)[1],
        "clicks.user_start": np.concatenate([[0], np.cumsum(end - start)]).astype(np.int64),
        "share.users": (rows if share is None else share.users[rows]).astype(np.int64),
        "share.first_click": (start if share is None else share.first_click[rows]).astype(np.int64),
    }


def without_users(model: "Model") -> "Model":
    """What users share of a model."""
    log, none = model.clicks, np.zeros(0, dtype=np.int32)
    n_users, n_clicks = log.n_users, len(log)
    if log.share is not None:
        n_users, n_clicks = log.share.n_users, log.share.n_clicks
    nobody = none.astype(np.int64)
    share = Share(n_users, n_clicks, nobody, nobody, log.item_counts)
    clicks = Clicks(none, none, none, Ids(log.user_ids.values[:0]), log.item_ids, share=share)
    own = model.method.user_tables(model.parameters)
    shared = {name: table for name, table in model.parameters.items() if name not in own}
    return replace(model, parameters=shared, clicks=clicks)


def share_of(model: "Model") -> Share:
    """Where the users of a partition stand in the whole log."""
    assert model.clicks.share is not None, "a partition knows its place"
    return model.clicks.share
