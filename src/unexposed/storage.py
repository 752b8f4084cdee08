"""A model as a folder: model.json says what it is, arrays.safetensors holds what it learned."""

import json
import os
import shutil
import tempfile
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed import settings
from unexposed.data import Clicks, Ids
from unexposed.errors import InputError
from unexposed.recommender import Model

FORMAT = "unexposed model"
VERSION = 1
ABOUT, ARRAYS = "model.json", "arrays.safetensors"


def save(model: Model, folder: Path) -> None:
    """Write the model beside its place, then move it there: whole or not at all."""
    from safetensors.numpy import save_file

    check_place(folder)
    arrays = {f"parameters.{name}": array for name, array in model.parameters.items()}
    arrays |= {
        "clicks.users": model.clicks.users,
        "clicks.items": model.clicks.items,
        "clicks.counts": model.clicks.counts,
        **_id_arrays("users", model.user_ids),
        **_id_arrays("items", model.item_ids),
    }
    about = {
        "format": FORMAT,
        "version": VERSION,
        "method": model.method.name,
        "settings": settings.values(model.method),
        "facts": model.facts,
        "users": _id_texts(model.user_ids),
        "items": _id_texts(model.item_ids),
    }
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        written = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise InputError(f"cannot write a model to {folder}: {error.strerror}") from error
    try:
        save_file({k: np.ascontiguousarray(a) for k, a in arrays.items()}, written / ARRAYS)
        (written / ABOUT).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        written.chmod(0o755)
        _swap(written, folder)
    except OSError as error:
        raise InputError(f"cannot write a model to {folder}: {error.strerror}") from error
    finally:
        shutil.rmtree(written, ignore_errors=True)


def check_place(folder: Path) -> None:
    """Refuse a place that holds something other than a model."""
    if folder.exists() and not (folder / ABOUT).is_file() and not _is_empty(folder):
        raise InputError(f"{folder} exists and is no model folder; choose another place")


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())


def load(folder: str | Path) -> Model:
    """The model that was saved in this folder."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    from unexposed.methods import make

    folder = Path(folder)
    about = _read_about(folder)
    try:
        arrays = load_file(folder / ARRAYS)
        clicks = Clicks(
            arrays["clicks.users"],
            arrays["clicks.items"],
            arrays["clicks.counts"],
            user_ids=_ids("users", arrays, about["users"]),
            item_ids=_ids("items", arrays, about["items"]),
        )
        method = make(about["method"], **about["settings"])
        facts = dict(about["facts"])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder} is damaged ({error}); save the model again") from error
    prefix = "parameters."
    parameters = {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
    return Model(method, parameters, clicks, facts)


def _read_about(folder: Path) -> dict[str, Any]:
    if not (folder / ABOUT).is_file():
        raise InputError(f"{folder} is no model folder: it holds no {ABOUT}")
    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        known = about["format"] == FORMAT
        version = int(about["version"])
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise InputError(f"{folder / ABOUT} is damaged ({error}); save the model again") from error
    if not known:
        raise InputError(f"{folder / ABOUT} is not from unexposed")
    if version > VERSION:
        raise InputError(
            f"{folder} was written by a newer unexposed (format {version}, this one reads up to "
            f"{VERSION}); upgrade with pip install --upgrade unexposed"
        )
    return dict(about)


def _swap(written: Path, folder: Path) -> None:
    """Put the new folder in the place of the old one, which is kept until the new one is there."""
    if not folder.exists():
        os.replace(written, folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=folder.parent))
    os.replace(folder, old / "model")
    try:
        os.replace(written, folder)
    except OSError:
        os.replace(old / "model", folder)
        raise
    finally:
        shutil.rmtree(old, ignore_errors=True)


def _id_arrays(name: str, ids: Ids) -> dict[str, NDArray[Any]]:
    """Integers as they are; text as one run of UTF-8 with the end of each."""
    if ids.are_integers:
        return {f"ids.{name}": ids.values}
    if not _all_text(ids):
        return {}
    encoded = [text.encode("utf-8", "surrogatepass") for text in ids.values]
    return {
        f"ids.{name}.text": np.frombuffer(b"".join(encoded), dtype=np.uint8),
        f"ids.{name}.end": np.cumsum([len(e) for e in encoded], dtype=np.int64),
    }


def _id_texts(ids: Ids) -> list[Any] | None:
    """Ids that are neither all integers nor all text, in JSON."""
    if ids.are_integers or _all_text(ids):
        return None
    return [_to_json(raw) for raw in ids.values.tolist()]


def _ids(name: str, arrays: dict[str, NDArray[Any]], texts: list[Any] | None) -> Ids:
    if texts is not None:
        return Ids.of(_from_json(text) for text in texts)
    if f"ids.{name}" in arrays:
        return Ids(arrays[f"ids.{name}"])
    run = arrays[f"ids.{name}.text"].tobytes()
    ends = arrays[f"ids.{name}.end"].tolist()
    starts = [0, *ends[:-1]]
    values = np.empty(len(ends), dtype=object)
    values[:] = [
        run[a:b].decode("utf-8", "surrogatepass") for a, b in zip(starts, ends, strict=True)
    ]
    return Ids(values)


def _all_text(ids: Ids) -> bool:
    return all(type(raw) is str for raw in ids.values)


def _to_json(raw: Hashable) -> Any:
    if raw is None or isinstance(raw, str | bool | int | float):
        return raw
    if isinstance(raw, tuple):
        return {"tuple": [_to_json(part) for part in raw]}
    raise InputError(
        f"ids of type {type(raw).__name__} cannot be saved; use text, numbers or tuples of them"
    )


def _from_json(text: Any) -> Hashable:
    if isinstance(text, dict):
        return tuple(_from_json(part) for part in text["tuple"])
    return text
