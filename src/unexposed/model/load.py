"""Open a saved model: memory-mapped, and checked once."""

from collections.abc import Callable
from os import PathLike
from typing import Any

import numpy as np

from unexposed import tensors
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.share import Share
from unexposed.errors import InputError, as_path
from unexposed.model.model import Model
from unexposed.model.partitions import Partitions, check, stored_clicks
from unexposed.model.recommender import Recommender
from unexposed.model.save import MODEL, model_path
from unexposed.tensors import Tensors, part, refusing
from unexposed.training.fingerprint import differences

Make = Callable[..., Recommender]  # `methods.make`


def load(name: str | PathLike[str], make: Make, *, verify: bool = False) -> Model:
    """The saved model, memory-mapped; with `verify`, all of it is read now and checked."""
    stored = _read(name)
    if stored.shards:
        return _partitions(stored, make).whole(verify=verify)
    with refusing(MODEL, stored.path):
        model = _model(stored, make, stored_clicks(stored.arrays, _item_ids(stored)))
        check(model, stored, values=verify)
    return model


def load_partitions(name: str | PathLike[str], make: Make) -> Partitions:
    """The partitions of a model that was saved by partitions."""
    stored = _read(name)
    if not stored.shards:
        raise InputError(
            f"{stored.path} is saved as a whole: load it, and save it with partitioned=True first"
        )
    return _partitions(stored, make)


def is_parted(name: str | PathLike[str]) -> bool:
    """Whether a model was saved by partitions; refuses a place that holds no model."""
    return bool(_read(name).shards)


def _read(name: str | PathLike[str]) -> Tensors:
    path = model_path(name)
    if not path.is_file():
        older = as_path(name, "the file of a model")
        if (older / "model.json").is_file():
            raise InputError(
                f"{older} is a model folder of unexposed 0.2, which this version does not read: "
                "train it again"
            )
        raise InputError(f"there is no model {path}: give the file of a saved model")
    return tensors.read_tensors(MODEL, path)


def _model(stored: Tensors, make: Make, clicks: Clicks) -> Model:
    about = stored.document
    method = make(about["method"], **about["settings"])
    return Model(method, part(stored.arrays, "parameters."), clicks, dict(about["facts"]))


def _partitions(stored: Tensors, make: Make) -> Partitions:
    with refusing(MODEL, stored.path):
        about, item_ids = stored.document, _item_ids(stored)
        counts, nobody = stored.arrays["clicks.item_counts"], np.zeros(0, dtype=np.int64)
        share = Share(about["users"], about["clicks"], nobody, nobody, counts)
        none = nobody.astype(np.int32)
        clicks = Clicks(none, none, none, Ids(nobody), item_ids, share=share)
        return Partitions(_model(stored, make, clicks), stored)


def _item_ids(stored: Tensors) -> Ids:
    return Ids.unpacked(part(stored.arrays, "ids.items."))


def unlike(name: str | PathLike[str], inputs: dict[str, Any]) -> list[str]:
    """The differences between the inputs of this training and those of the saved model, in words.

    An empty list means that the saved model is the finished result of this training.
    """
    try:
        facts = _read(name).document["facts"]
    except InputError as error:
        return [str(error)]
    if facts.get("ended") == "interrupted":
        return [f"it was interrupted after epoch {facts.get('epochs_run')}"]
    if "inputs" not in facts or "updates" in facts:
        return ["it was given more than a log"]
    return differences(facts["inputs"], inputs)


def describe(name: str | PathLike[str], make: Make) -> dict[str, Any]:
    """Verify a saved model and describe its contents."""
    model, stored = load(name, make, verify=True), _read(name)
    about, files = stored.document, [stored, *stored.shards]
    return {
        "file": str(stored.path),
        "format": about["version"],
        "written_by": about["written_by"],
        "method": about["method"],
        "settings": about["settings"],
        "facts": {k: v for k, v in model.facts.items() if not isinstance(v, list | dict)},
        "users": model.clicks.n_users,
        "items": model.clicks.n_items,
        "clicks": len(model.clicks),
        "parameters": {name: list(array.shape) for name, array in model.parameters.items()},
        "bytes": sum(array.nbytes for file in files for array in file.arrays.values()),
    }
