"""Open a saved model: memory-mapped, and checked before use."""

from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from unexposed import ranks, settings
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.partitions import PARTITIONS, owned
from unexposed.data.share import Share
from unexposed.errors import InputError, as_path
from unexposed.files import archive
from unexposed.files.claims import check_facts, is_count
from unexposed.model.checks import check_shapes, check_values, part, stored_clicks
from unexposed.model.model import Model
from unexposed.model.partitions import Partitions
from unexposed.model.recommender import Recommender
from unexposed.model.save import MODEL
from unexposed.training.checkpoint import differences, fingerprint, side_fingerprint
from unexposed.training.side import HELD_OUT_FRACTION, Side

Make = Callable[..., Recommender]  # `methods.make`
MOST_USERS = 2**31 - 1  # their indices are int32
USUAL_SPLIT = f"random:{HELD_OUT_FRACTION}"


def load(folder: str | PathLike[str], make: Make, *, verify: bool = False) -> Model:
    """The model saved in this folder, memory-mapped.

    `make` is `methods.make`. With `verify`, all of it is read now and checked.
    """
    folder = as_path(folder, "the folder of a saved model")
    found = archive.read(MODEL, folder)
    about = found.about
    if found.parts:
        return _partitions(found, folder, make).whole(verify=verify)
    with archive.refusing(MODEL, folder / archive.ARRAYS):
        clicks = stored_clicks(found.arrays, Ids.unpacked(part(found.arrays, "ids.items.")))
        parameters = part(found.arrays, "parameters.")
    with archive.refusing(MODEL, folder / MODEL.about):
        method = make(about["method"], **about["settings"])
        model = Model(method, parameters, clicks, check_facts(about["facts"]))
    with archive.refusing(MODEL, folder / archive.ARRAYS):
        check_shapes(model)

    def check_all() -> None:
        found.verify()
        with archive.refusing(MODEL, folder / archive.ARRAYS):
            check_values(model)

    if not verify:
        return replace(model, verify=check_all)
    check_all()
    return model


def load_partitions(folder: str | PathLike[str], make: Make) -> Partitions:
    """The partitions of a model that was saved by partitions; `make` is `methods.make`."""
    folder = as_path(folder, "the folder of a saved model")
    found = archive.read(MODEL, folder)
    if not found.parts:
        raise InputError(
            f"{folder} is saved as a whole: load it, and save it with partitioned=True first"
        )
    return _partitions(found, folder, make)


def is_parted(folder: str | PathLike[str]) -> bool:
    """Whether a model was saved by partitions; refuses a folder that holds no model."""
    return bool(archive.read(MODEL, as_path(folder, "the folder of a saved model")).parts)


def _partitions(found: archive.Archive, folder: Path, make: Make) -> Partitions:
    about = found.about
    with archive.refusing(MODEL, folder / archive.ARRAYS):
        counts = found.arrays["clicks.item_counts"]
        item_ids = Ids.unpacked(part(found.arrays, "ids.items."))
        if counts.dtype != np.int64 or counts.shape != (len(item_ids),):
            raise ValueError("it does not count the clicks of its items")
    with archive.refusing(MODEL, folder / MODEL.about):
        method = make(about["method"], **about["settings"])
        if len(found.parts) != PARTITIONS:
            raise ValueError(f"it has {len(found.parts)} partitions, not {PARTITIONS}")
        if not (is_count(about["users"], MOST_USERS) and is_count(about["clicks"])):
            raise ValueError("it does not say how many users and clicks it has")
        nobody = np.zeros(0, dtype=np.int64)
        share = Share(about["users"], about["clicks"], nobody, nobody, counts)
        none = nobody.astype(np.int32)
        clicks = Clicks(none, none, none, Ids(nobody), item_ids, share=share)
        facts = check_facts(about["facts"])
        shared = Model(method, part(found.arrays, "parameters."), clicks, facts)
    return Partitions(shared, found.parts, folder, found.verify)


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
        model, about, refused = *_own(folder, make), ""
    except InputError as error:
        refused = str(error)
    others = ranks.current()
    for one in [refused] if others is None else others.every(refused):
        if one:
            return [one]
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


def _own(folder: Path, make: Make) -> tuple[Model, dict[str, Any]]:
    """The saved model with the users of this rank, and what its folder says."""
    about = archive.read(MODEL, folder).about
    if ranks.current() is None:
        return load(folder, make), about
    return load_partitions(folder, make).join(owned()), about


def _given(method: Recommender, clicks: Clicks, seed: Any) -> dict[str, Any]:
    parted = ranks.current() is not None
    return fingerprint(method, clicks, clicks, seed=seed, side=Side(), parted=parted)


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
        "bytes": sum(a.nbytes for held in (arrays, *found.parts) for a in held.values()),
    }
