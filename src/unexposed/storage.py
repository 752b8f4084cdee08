"""A model as a folder: model.json says what it is, arrays.safetensors holds what it learned.

model.json holds a checksum of itself and of the header of the other file, which holds one of every
array: docs/models.md says what is checked when. No name of a file ever comes out of a file.
"""

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from unexposed import __version__, settings, tensors
from unexposed.data import Clicks, Ids
from unexposed.errors import InputError
from unexposed.folders import ATTEMPTS, write_folder
from unexposed.recommender import Model

FORMAT = "unexposed model"
VERSION = 2
ABOUT, ARRAYS = "model.json", "arrays.safetensors"
MOST_ABOUT = 1 << 26  # bytes of model.json
CURE = "take it from a copy, or train it again"


def save(model: Model, folder: Path) -> None:
    """Write the model beside its place, then swap it in: whole or not at all."""
    check_place(folder)
    clicks = model.clicks
    arrays = {f"parameters.{name}": array for name, array in model.parameters.items()}
    arrays |= {f"clicks.{name}": getattr(clicks, name) for name in CLICKS}
    arrays |= {f"ids.users.{name}": array for name, array in clicks.user_ids.packed().items()}
    arrays |= {f"ids.items.{name}": array for name, array in clicks.item_ids.packed().items()}
    about: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "written_by": f"unexposed {__version__}",
        "method": model.method.name,
        "settings": settings.values(model.method),
        "facts": model.facts,
    }

    def write(place: Path) -> None:
        with (place / ARRAYS).open("wb") as file:
            about["arrays"] = _sha256(tensors.write(file, arrays, {"format": FORMAT}))
            file.flush()
            os.fsync(file.fileno())
        about["checksum"] = _checksum(about)
        with (place / ABOUT).open("w", encoding="utf-8") as text:
            text.write(json.dumps(about, indent=1) + "\n")
            text.flush()
            os.fsync(text.fileno())

    try:
        write_folder(folder, write)
    except OSError as error:
        raise InputError(
            f"cannot write a model to {folder}: {error.strerror or error}; make room there, "
            "or choose another place"
        ) from error


def check_place(folder: Path) -> None:
    """Refuse a place that no model can be written to, or that holds anything else than one."""
    if folder.is_dir():
        strangers = {path.name for path in folder.iterdir()} - {ABOUT, ARRAYS}
        for name in sorted(strangers)[:1]:
            raise InputError(
                f"{folder} is no model folder: it holds {name!r}; choose another place"
            )
        if not _may_be_ours(folder / ABOUT):
            raise InputError(f"{folder / ABOUT} is not from unexposed; choose another place")
    elif folder.exists():
        raise InputError(f"{folder} is a file and no model folder; choose another place")
    parent = folder.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"cannot write a model to {folder}: {parent} may not be written to")


def load(folder: str | Path, *, verify: bool = False) -> Model:
    """The model that was saved in this folder, mapped: it is read where it is used.

    With `verify` all of it is read now, and compared with its checksums.
    """
    folder = Path(folder)
    for _ in range(ATTEMPTS):
        with _opened(folder) as place:
            try:
                return _load(folder, place, verify=verify)
            except InputError:
                if _is_still(folder, place):
                    raise
            # else a save has put another model there meanwhile: that one is whole
    raise InputError(f"{folder} is written again and again; try later")


def _load(folder: Path, place: int, *, verify: bool) -> Model:
    about = _about(folder, place)
    with _file(folder, place, ARRAYS) as descriptor, _refusing(folder / ARRAYS):
        arrays, metadata, header = tensors.read(descriptor)
        if _sha256(header) != about["arrays"]:
            raise tensors.Damaged(f"it is not the one that {ABOUT} describes")
        if verify:
            tensors.verify(arrays, metadata)
        clicks = _clicks(arrays)
        parameters = _part(arrays, "parameters.")
    with _refusing(folder / ABOUT):
        from unexposed.methods import make

        model = Model(
            make(about["method"], **about["settings"]), parameters, clicks, dict(about["facts"])
        )
    with _refusing(folder / ARRAYS):
        _check_shapes(model)
        if verify:
            _check_values(model)
    return model


# What is in the files

CLICKS = {"users": np.int32, "items": np.int32, "counts": np.int32, "user_start": np.int64}


def _clicks(arrays: tensors.Arrays) -> Clicks:
    """Clicks that begin and end where they should; what lies between is read when used."""
    columns = _part(arrays, "clicks.")
    if {name: column.dtype for name, column in columns.items()} != CLICKS:
        raise ValueError("its clicks are not those of a model")
    ids = {f"{role}_ids": Ids.unpacked(_part(arrays, f"ids.{role}s.")) for role in ("user", "item")}
    clicks = Clicks.stored(**columns, **ids)  # type: ignore[arg-type]
    n, start = len(clicks.items), clicks.user_start
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
    nobody = np.zeros(0, dtype=np.int32)
    for block in (
        model.method.scores(model.parameters, nobody),
        model.method.exposure(model.parameters, nobody),
    ):
        if block is not None and block.shape != (0, model.clicks.n_items):
            raise ValueError("its parameters do not score all items")


def _check_values(model: Model) -> None:
    """Refuse clicks out of order, ids given twice, parameters that are no numbers."""
    model.clicks.checked()
    for ids in (model.user_ids, model.item_ids):
        values = np.asarray(ids.values)
        ordered = values if ids.order is None else values[ids.order]
        if len(set(ordered.tolist())) != len(values):
            raise ValueError("an id is there twice")
        if ids.have_order and (ordered[1:] < ordered[:-1]).any():
            raise ValueError("the order of its ids is not theirs")
    for name, array in model.parameters.items():
        if not np.isfinite(array).all():
            raise ValueError(f"{name} holds what is no finite number")


def _part(arrays: tensors.Arrays, prefix: str) -> tensors.Arrays:
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _checksum(about: dict[str, Any]) -> str:
    rest = {name: value for name, value in about.items() if name != "checksum"}
    return _sha256(json.dumps(rest, sort_keys=True).encode())


# How they are opened


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """The folder, held: a save that swaps in another does not change what is read from it."""
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise InputError(f"{folder} is no model folder: {error.strerror}") from error
    try:
        yield place
    finally:
        os.close(place)


def _is_still(folder: Path, place: int) -> bool:
    try:
        return os.path.samestat(os.stat(folder), os.fstat(place))
    except OSError:
        return False


@contextmanager
def _file(folder: Path, place: int, name: str) -> Iterator[int]:
    """A plain file of the folder, open; a link would lead out of it, a pipe would never end."""
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(name, flags, dir_fd=place)
    except FileNotFoundError as error:
        raise InputError(f"{folder} is no whole model: it holds no {name}; {CURE}") from error
    except OSError as error:
        raise InputError(f"cannot open {folder / name}: {error.strerror}; {CURE}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputError(f"{folder / name} is no plain file; {CURE}")
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _refusing(file: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{file} is damaged ({reason}); {CURE}") from error
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}; {CURE}") from error


def _about(folder: Path, place: int) -> dict[str, Any]:
    file = folder / ABOUT
    with _file(folder, place, ABOUT) as descriptor, _refusing(file):
        if os.fstat(descriptor).st_size > MOST_ABOUT:
            raise ValueError("it is far too long")
        about = json.loads(os.pread(descriptor, MOST_ABOUT, 0))
        ours, version = about["format"] == FORMAT, int(about["version"])
    if not ours:
        raise InputError(f"{file} is not from unexposed; give the folder of a model")
    if version > VERSION:
        raise InputError(
            f"{file} was written by a newer unexposed (format {version}, this one reads "
            f"{VERSION}); upgrade with pip install --upgrade unexposed"
        )
    if version < VERSION:
        raise InputError(
            f"{file} was written by an older unexposed (format {version}, this one reads "
            f"{VERSION}); train the model again"
        )
    with _refusing(file):
        if about["checksum"] != _checksum(about):
            raise ValueError("it does not match its checksum")
    return dict(about)


def _may_be_ours(file: Path) -> bool:
    """Whether a model may be written over this: nothing, ours, or too damaged to tell."""
    try:
        return bool(json.loads(file.read_text(encoding="utf-8"))["format"] == FORMAT)
    except FileNotFoundError:
        return not (file.parent / ARRAYS).exists()
    except (ValueError, RecursionError):
        return True
    except (OSError, KeyError, TypeError):
        return False
