"""A model as a folder: model.json says what it is, arrays.safetensors holds what it learned."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unexposed import archive, settings
from unexposed.checkpoint import differences, fingerprint
from unexposed.claims import check_facts
from unexposed.data import Clicks, Ids
from unexposed.errors import InputError
from unexposed.ids import to_json
from unexposed.recommender import Model, Recommender, Side
from unexposed.tensors import Arrays

MODEL = archive.Kind("model", version=3, cure="take it from a copy, or train it again")
CLICKS = {"users": np.int32, "items": np.int32, "counts": np.int32, "user_start": np.int64}


def save(model: Model, folder: Path) -> None:
    """Write the model beside its place, then swap it in: whole or not at all.

    What lies in the file of another model is compared with its checksums first: a damaged array
    must not get a new one.
    """
    check_place(folder)
    model.verify()
    clicks = model.clicks
    arrays = {f"parameters.{name}": array for name, array in model.parameters.items()}
    arrays |= {f"clicks.{name}": getattr(clicks, name) for name in CLICKS}
    arrays |= {f"ids.users.{name}": array for name, array in clicks.user_ids.packed().items()}
    arrays |= {f"ids.items.{name}": array for name, array in clicks.item_ids.packed().items()}
    about = {
        "method": model.method.name,
        "settings": settings.values(model.method),
        "facts": model.facts,
    }
    try:
        archive.write(MODEL, folder, about, arrays)
    except OSError as error:
        raise InputError(
            f"cannot write a model to {folder}: {error.strerror or error}; make room there, "
            "or choose another place"
        ) from error


def check_place(folder: Path) -> None:
    """Refuse a place that no model can be written to, or that holds anything else than one."""
    archive.check_place(MODEL, folder)


def check_ids(clicks: Clicks) -> None:
    """Refuse ids that cannot be saved, before the work begins."""
    for ids in (clicks.user_ids, clicks.item_ids):
        if not ids.are_sortable:
            ids_as_json(ids)


def ids_as_json(ids: Ids) -> list[Any]:
    """Raw ids by index, as JSON can hold them: a tuple is {"tuple": […]}."""
    return [to_json(raw) for raw in ids.values.tolist()]


def load(folder: str | Path, *, verify: bool = False) -> Model:
    """The model that was saved in this folder, mapped: it is read where it is used.

    With `verify` all of it is read now, compared with its checksums, and looked through.
    """
    from unexposed.methods import make

    folder = Path(folder)
    found = archive.read(MODEL, folder)
    about = found.about
    with archive.refusing(MODEL, folder / archive.ARRAYS):
        clicks, parameters = _clicks(found.arrays), _part(found.arrays, "parameters.")
    with archive.refusing(MODEL, folder / MODEL.about):
        method = make(about["method"], **about["settings"])
        model = Model(method, parameters, clicks, check_facts(about["facts"]))
    with archive.refusing(MODEL, folder / archive.ARRAYS):
        _check_shapes(model)

    def look_through() -> None:
        found.verify()
        with archive.refusing(MODEL, folder / archive.ARRAYS):
            _check_values(model)

    if not verify:
        return replace(model, verify=look_through)
    look_through()
    return model


def unlike(folder: Path, method: Recommender, clicks: Clicks, *, seed: int) -> list[str]:
    """In what the training of the model saved here differs from this one, in words.

    Nothing means that it is this training, and that it came to its end.
    """
    try:
        model, about = load(folder), archive.read(MODEL, folder).about
    except InputError as error:
        return [str(error)]
    facts = model.facts
    if facts.get("ended") == "interrupted":
        return [f"it was interrupted after epoch {facts.get('epochs_run')}"]
    if "updates" in facts or "side" in facts:
        return ["it was given more than a log"]
    ran_on = facts.get("engine")
    asked = settings.values(method).get("engine", "auto")
    then = _given(model.method, model.clicks, facts.get("seed")) | {
        "unexposed": about["written_by"],
        "the engine": ran_on,
    }
    now = _given(method, clicks, seed) | {"the engine": ran_on if asked == "auto" else asked}
    return differences(then, now)


def _given(method: Recommender, clicks: Clicks, seed: Any) -> dict[str, Any]:
    return fingerprint(method, clicks, clicks, seed=seed, side=Side())


def describe(folder: Path) -> dict[str, Any]:
    """What a model folder holds, having verified all of it."""
    model = load(folder, verify=True)
    found = archive.read(MODEL, folder)
    about, arrays = found.about, found.arrays
    return {
        "folder": str(folder),
        "format": about["version"],
        "written_by": about["written_by"],
        "method": about["method"],
        "settings": about["settings"],
        "facts": {k: v for k, v in model.facts.items() if not isinstance(v, list)},
        "users": model.clicks.n_users,
        "items": model.clicks.n_items,
        "clicks": len(model.clicks),
        "parameters": {name: list(array.shape) for name, array in model.parameters.items()},
        "bytes": sum(array.nbytes for array in arrays.values()),
    }


def _clicks(arrays: Arrays) -> Clicks:
    """Clicks that begin and end where they should; what lies between is read when used."""
    columns = _part(arrays, "clicks.")
    if {name: column.dtype for name, column in columns.items()} != CLICKS:
        raise ValueError("its clicks are not those of a model")
    ids = {f"{role}_ids": Ids.unpacked(_part(arrays, f"ids.{role}s.")) for role in ("user", "item")}
    clicks = Clicks.stored(**columns, **ids)  # type: ignore[arg-type]
    n, start = len(clicks.items), columns["user_start"]
    lengths = dict.fromkeys(CLICKS, (n,)) | {"user_start": (clicks.n_users + 1,)}
    if {name: column.shape for name, column in columns.items()} != lengths:
        raise ValueError("its clicks are not as many as they should be")
    if start[0] != 0 or start[-1] != n:
        raise ValueError("its clicks do not begin and end with its users")
    return clicks


def _check_shapes(model: Model) -> None:
    """Refuse parameters that do not fit the users, the items or each other; reads none of them."""
    rows = {"user_factors": model.clicks.n_users, "item_factors": model.clicks.n_items}
    for name, array in model.parameters.items():
        for ending, n in rows.items():
            if name.endswith(ending) and len(array) != n:
                raise ValueError(f"{name} has {len(array)} rows for {n}")
        dim = getattr(model.method, "dim", None)
        if name.endswith("_factors") and dim not in (None, array.shape[-1]):
            raise ValueError(f"{name} has {array.shape[-1]} columns for {dim}")
    nobody = np.zeros(0, dtype=np.int32)
    method, parameters = model.method, model.parameters
    blocks = [method.scores(parameters, nobody)]
    exposure = method.exposure(parameters, nobody)
    if exposure is not None:
        blocks += [exposure, method.pair_exposure(parameters, nobody, nobody)[:, None]]
    for block, width in zip(blocks, (model.clicks.n_items, model.clicks.n_items, 1), strict=False):
        if block.shape != (0, width):
            raise ValueError("its parameters do not score all items")


def _check_values(model: Model) -> None:
    """Refuse clicks out of order, ids given twice, parameters that are no numbers."""
    model.clicks.checked()
    for ids in (model.user_ids, model.item_ids):
        values = np.asarray(ids.values)
        ordered = values if ids.order is None else values[ids.order]
        if len(set(ordered.tolist())) != len(values):
            raise ValueError("an id is there twice")
        if ids.are_sortable and (ordered[1:] < ordered[:-1]).any():
            raise ValueError("the order of its ids is not theirs")
    for name, array in model.parameters.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds what is no finite number")


def _part(arrays: Arrays, prefix: str) -> Arrays:
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
