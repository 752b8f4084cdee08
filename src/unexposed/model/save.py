"""Write a model as a folder: model.json describes it, arrays.safetensors holds its arrays."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unexposed import settings
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids, to_json
from unexposed.errors import InputError
from unexposed.files import archive

if TYPE_CHECKING:
    from unexposed.model.model import Model

MODEL = archive.Kind("model", version=3, parted=4, cure="take it from a copy, or train it again")
CLICKS = {"users": np.int32, "items": np.int32, "counts": np.int32, "user_start": np.int64}


def save(model: "Model", folder: Path) -> None:
    """Write the model atomically.

    Arrays mapped from another model's file are verified first: a damaged array must not get a
    new checksum.
    """
    check_place(folder)
    model.verify()
    clicks = model.clicks
    arrays = {f"parameters.{name}": array for name, array in model.parameters.items()}
    arrays |= {f"clicks.{name}": getattr(clicks, name) for name in CLICKS}
    arrays |= {f"ids.users.{name}": array for name, array in clicks.user_ids.packed().items()}
    arrays |= {f"ids.items.{name}": array for name, array in clicks.item_ids.packed().items()}
    with refusing(folder):
        archive.write(MODEL, folder, about(model), arrays)


def about(model: "Model") -> dict[str, Any]:
    return {
        "method": model.method.name,
        "settings": settings.values(model.method),
        "facts": model.facts,
    }


@contextmanager
def refusing(folder: Path) -> Iterator[None]:
    """Turn the error of a place that cannot be written to into one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write a model to {folder}: {error.strerror or error}; make room there, "
            "or choose another place"
        ) from error


def check_place(folder: Path) -> None:
    """Refuse a place that cannot be written to, or that holds anything but a model."""
    archive.check_place(MODEL, folder)


def check_ids(clicks: Clicks) -> None:
    """Refuse ids that cannot be saved, before training begins."""
    for ids in (clicks.user_ids, clicks.item_ids):
        if not ids.are_sortable:
            ids_as_json(ids)


def ids_as_json(ids: Ids) -> list[Any]:
    """Raw ids by index, as JSON can hold them: a tuple is {"tuple": […]}."""
    return [to_json(raw) for raw in ids.values.tolist()]
