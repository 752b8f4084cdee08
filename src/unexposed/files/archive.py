"""Arrays and what they mean, as a folder that is whole or not there, and is not believed.

A JSON file says what the arrays are; it holds a checksum of itself and of the header of
arrays.safetensors, which holds one of every array. No name of a file ever comes out of a file.
"""

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import ENOMEM
from pathlib import Path
from typing import Any

from unexposed import memory
from unexposed.errors import InputError, plain
from unexposed.extras import install
from unexposed.files import tensors
from unexposed.files.claims import is_text
from unexposed.files.folders import ATTEMPTS, write_folder
from unexposed.version import __version__

ARRAYS = "arrays.safetensors"
MOST_ABOUT = 1 << 26  # bytes of the JSON file


@dataclass(frozen=True)
class Kind:
    """What a folder is for, which format of it is written and read, and how to get a new one."""

    what: str
    version: int
    cure: str

    @property
    def about(self) -> str:
        return f"{self.what}.json"

    @property
    def format(self) -> str:
        return f"unexposed {self.what}"


def write(kind: Kind, folder: Path, about: dict[str, Any], arrays: tensors.Arrays) -> None:
    """Write beside the place, then swap in; OSError where that cannot be."""
    head = {"format": kind.format, "version": kind.version, "written_by": __version__}

    def fill(place: Path) -> None:
        with (place / ARRAYS).open("wb") as file:
            header = tensors.write(file, arrays, {"format": kind.format})
            file.flush()
            os.fsync(file.fileno())
        document = json.loads(json.dumps({**head, **about, "arrays": sha256(header)}))
        document["checksum"] = checksum(document)
        with (place / kind.about).open("w", encoding="utf-8") as text:
            text.write(json.dumps(document, indent=1) + "\n")
            text.flush()
            os.fsync(text.fileno())

    write_folder(folder, fill)


def check_place(kind: Kind, folder: Path) -> None:
    """Refuse a place that cannot be written to, or that holds something else."""
    if folder.is_dir():
        strangers = {path.name for path in folder.iterdir()} - {kind.about, ARRAYS}
        for name in sorted(strangers)[:1]:
            raise InputError(
                f"{folder} is no {kind.what} folder: it holds {name!r}; choose another place"
            )
        if not _may_be_ours(kind, folder):
            raise InputError(f"{folder / kind.about} is not from unexposed; choose another place")
    elif folder.exists():
        raise InputError(f"{folder} is a file and no {kind.what} folder; choose another place")
    parent = folder.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"cannot write a {kind.what} to {folder}: {parent} may not be written to")


@dataclass(frozen=True)
class Archive:
    """What the JSON file says, and the arrays, mapped: not read before they are used."""

    about: dict[str, Any]
    arrays: tensors.Arrays
    verify: Callable[[], None]  # reads all arrays and compares them with their checksums


def read(kind: Kind, folder: Path) -> Archive:
    """What was written there; a folder that is swapped in meanwhile is read from the start."""
    for _ in range(ATTEMPTS):
        with _opened(kind, folder) as place:
            try:
                return _read(kind, folder, place)
            except InputError:
                if _is_still(folder, place):
                    raise
            # else another folder was swapped in meanwhile: that one is whole
    raise InputError(f"{folder} is written again and again; try later")


@contextmanager
def refusing(kind: Kind, file: Path) -> Iterator[None]:
    """Whatever a damaged file leads to becomes one sentence."""
    try:
        yield
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        reason = f"there is no {error}" if isinstance(error, KeyError) else plain(error, 200)
        raise InputError(f"{file} is damaged ({reason}); {kind.cure}") from error
    except OSError as error:
        cure = memory.CURE if error.errno == ENOMEM else kind.cure
        raise InputError(f"cannot read {file}: {error.strerror}; {cure}") from error


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def checksum(about: dict[str, Any]) -> str:
    rest = {name: value for name, value in about.items() if name != "checksum"}
    return sha256(json.dumps(rest, sort_keys=True).encode())


def _read(kind: Kind, folder: Path, place: int) -> Archive:
    about = _about(kind, folder, place)
    with _file(kind, folder, place, ARRAYS) as descriptor, refusing(kind, folder / ARRAYS):
        arrays, metadata, header = tensors.read(descriptor)
        if sha256(header) != about["arrays"]:
            raise tensors.Damaged(f"it is not the one that {kind.about} describes")

    def verify() -> None:
        with refusing(kind, folder / ARRAYS):
            tensors.verify(arrays, metadata)

    return Archive(about, arrays, verify)


def _about(kind: Kind, folder: Path, place: int) -> dict[str, Any]:
    file = folder / kind.about
    with _file(kind, folder, place, kind.about) as descriptor, refusing(kind, file):
        if os.fstat(descriptor).st_size > MOST_ABOUT:
            raise ValueError("it is far too long")
        about = json.loads(os.pread(descriptor, MOST_ABOUT, 0))
        ours, version = about["format"] == kind.format, about["version"]
        if type(version) is not int:
            raise ValueError(f"its version cannot be {plain(repr(version), 40)}")
    if not ours:
        raise InputError(f"{file} is not from unexposed; give the folder of a {kind.what}")
    if version != kind.version:
        newer = version > kind.version
        cure = f"upgrade: {install()}, once it is up to date" if newer else "train it again"
        raise InputError(
            f"{file} was written by {'a newer' if newer else 'an older'} unexposed (format "
            f"{version}, this one reads {kind.version}); {cure}"
        )
    with refusing(kind, file):
        if about["checksum"] != checksum(about):
            raise ValueError("it does not match its checksum")
        if not is_text(about["written_by"]):
            raise ValueError("it does not say who wrote it")
    return dict(about)


def _may_be_ours(kind: Kind, folder: Path) -> bool:
    """Whether it may be written over: it holds nothing, one of ours, or is too damaged to tell."""
    try:
        text = (folder / kind.about).read_text(encoding="utf-8")
        return bool(json.loads(text)["format"] == kind.format)
    except FileNotFoundError:
        return not (folder / ARRAYS).exists()
    except (ValueError, RecursionError):
        return True
    except (OSError, KeyError, TypeError):
        return False


# How files are opened


@contextmanager
def _opened(kind: Kind, folder: Path) -> Iterator[int]:
    """The folder, held: one that is swapped in does not change what is read from this one."""
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise InputError(f"{folder} is no {kind.what} folder: {error.strerror}") from error
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
def _file(kind: Kind, folder: Path, place: int, name: str) -> Iterator[int]:
    """A plain file of the folder, open; a link would lead out of it, a pipe would never end."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
    except FileNotFoundError as error:
        raise InputError(
            f"{folder} is no whole {kind.what}: it holds no {name}; {kind.cure}"
        ) from error
    except OSError as error:
        raise InputError(f"cannot open {folder / name}: {error.strerror}; {kind.cure}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputError(f"{folder / name} is no plain file; {kind.cure}")
        yield descriptor
    finally:
        os.close(descriptor)
