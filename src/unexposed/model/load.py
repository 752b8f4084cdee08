"""Open a saved model: memory-mapped, and checked before use."""

from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from unexposed import settings
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.errors import InputError, as_path
from unexposed.files import archive
from unexposed.files.archive import Arrays
from unexposed.files.claims import check_facts
from unexposed.model.model import Model
from unexposed.model.recommender import Recommender
from unexposed.model.save import CLICKS, MODEL
from unexposed.training.checkpoint import differences, fingerprint, side_fingerprint
from unexposed.training.given import HELD_OUT_FRACTION, Side

Make = Callable[..., Recommender]  # `methods.make`
USUAL_SPLIT = f"random:{HELD_OUT_FRACTION}"


def load(folder: str | PathLike[str], make: Make, *, verify: bool = False) -> Model:
    """The model saved in this folder, memory-mapped.

    `make` is `methods.make`. With `verify`, all of it is read now and checked.
    """
    folder = as_path(folder, "the folder of a saved model")
    found = archive.read(MODEL, folder)
    about = found.about
    with archive.refusing(MODEL, folder / archive.ARRAYS):
        clicks, parameters = _clicks(found.arrays), _part(found.arrays, "parameters.")
    with archive.refusing(MODEL, folder / MODEL.about):
        method = make(about["method"], **about["settings"])
        model = Model(method, parameters, clicks, check_facts(about["facts"]))
    with archive.refusing(MODEL, folder / archive.ARRAYS):
        _check_shapes(model)

    def check_all() -> None:
        found.verify()
        with archive.refusing(MODEL, folder / archive.ARRAYS):
            _check_values(model)

    if not verify:
        return replace(model, verify=check_all)
    check_all()
    return model


def unlike(
    folder: Path,
    make: Make,
    method: Recommender,
    clicks: Clicks,
    *,
    seed: int,
    split: str | None = None,
    alone: bool = True,
) -> list[str]:
    """The differences between this training and the one that made the saved model, in words.

    An empty list means that the saved model is the finished result of this training. A training
    that is given more than these clicks `alone` differs from any: a model keeps no row of it.
    """
    try:
        model, about = load(folder, make), archive.read(MODEL, folder).about
    except InputError as error:
        return [str(error)]
    facts = model.facts
    if facts.get("ended") == "interrupted":
        return [f"it was interrupted after epoch {facts.get('epochs_run')}"]
    if "updates" in facts or "side" in facts or not alone:
        return ["it was given more than a log"]
    ran_on = facts.get("engine")
    asked = settings.values(method).get("engine", "auto")
    then = _given(model.method, model.clicks, facts.get("seed")) | {
        "unexposed": about["written_by"],
        "the engine": ran_on,
        "the split": facts.get("split", USUAL_SPLIT),
        "the impressions": facts.get("log_impressions"),
    }
    now = _given(method, clicks, seed) | {
        "the engine": ran_on if asked == "auto" else asked,
        "the split": split or USUAL_SPLIT,
    }
    if clicks.shown is not None and "impressions" in method.takes:
        now["the impressions"] = side_fingerprint(Side(impressions=clicks.shown))["impressions"]
    return differences(then, now)


def _given(method: Recommender, clicks: Clicks, seed: Any) -> dict[str, Any]:
    return fingerprint(method, clicks, clicks, seed=seed, side=Side())


def describe(folder: Path, make: Make) -> dict[str, Any]:
    """Verify a model folder and describe its contents."""
    model = load(folder, make, verify=True)
    found = archive.read(MODEL, folder)
    about, arrays = found.about, found.arrays
    return {
        "folder": str(folder),
        "format": about["version"],
        "written_by": about["written_by"],
        "method": about["method"],
        "settings": about["settings"],
        "facts": {k: v for k, v in model.facts.items() if not isinstance(v, list | dict)},
        "users": model.clicks.n_users,
        "items": model.clicks.n_items,
        "clicks": len(model.clicks),
        "parameters": {name: list(array.shape) for name, array in model.parameters.items()},
        "bytes": sum(array.nbytes for array in arrays.values()),
    }


def _clicks(arrays: Arrays) -> Clicks:
    """The clicks; checks only their number and bounds, the rest when used."""
    columns = _part(arrays, "clicks.")
    if {name: column.dtype for name, column in columns.items()} != CLICKS:
        raise ValueError("its clicks have other columns than a model has")
    ids = {f"{role}_ids": Ids.unpacked(_part(arrays, f"ids.{role}s.")) for role in ("user", "item")}
    clicks = Clicks.stored(**columns, **ids)  # type: ignore[arg-type]
    n, start = len(clicks.items), columns["user_start"]
    lengths = dict.fromkeys(CLICKS, (n,)) | {"user_start": (clicks.n_users + 1,)}
    if {name: column.shape for name, column in columns.items()} != lengths:
        raise ValueError("its columns of clicks differ in length")
    if start[0] != 0 or start[-1] != n:
        raise ValueError("its clicks do not begin and end with its users")
    return clicks


def _check_shapes(model: Model) -> None:
    """Refuse parameters of the wrong shape, without reading them."""
    rows = {"user_factors": model.clicks.n_users, "item_factors": model.clicks.n_items}
    for name, array in model.parameters.items():
        for ending, n in rows.items():
            if name.endswith(ending) and len(array) != n:
                raise ValueError(f"{name} has {len(array)} rows for {n}")
        width = getattr(model.method, "width", None)
        if name.endswith("_factors") and width not in (None, array.shape[-1]):
            raise ValueError(f"{name} has {array.shape[-1]} columns for {width}")
    nobody = np.zeros(0, dtype=np.int32)
    method, parameters = model.method, model.parameters
    blocks = [model.scores(nobody)]
    exposure = method.exposure(parameters, nobody)
    if exposure is not None:
        blocks += [exposure, method.pair_exposure(parameters, nobody, nobody)[:, None]]
    for block, width in zip(blocks, (model.clicks.n_items, model.clicks.n_items, 1), strict=False):
        if block.shape != (0, width):
            raise ValueError("its parameters do not score all items")


def _check_values(model: Model) -> None:
    """Refuse unordered clicks, repeated ids and parameters that are not finite."""
    model.clicks.checked()
    for ids in (model.user_ids, model.item_ids):
        values = np.asarray(ids.values)
        ordered = values if ids.order is None else values[ids.order]
        if len(set(ordered.tolist())) != len(values):
            raise ValueError("an id occurs twice")
        if ids.are_sortable and (ordered[1:] < ordered[:-1]).any():
            raise ValueError("its ids are not in their stated order")
    for name, array in model.parameters.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds values that are not finite")


def _part(arrays: Arrays, prefix: str) -> Arrays:
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
