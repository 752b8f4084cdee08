"""Arrays and a JSON document as a folder that is written whole, and checked before it is used.

The JSON document holds a checksum of itself and of the header of arrays.safetensors, and that
header holds a checksum of every array. No file name is ever taken from a file.
"""

import hashlib
import json
import math
import mmap
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from errno import EIO, ENOMEM
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from unexposed import memory
from unexposed.errors import InputError, plain
from unexposed.extras import install
from unexposed.files import whole
from unexposed.version import __version__

Arrays = dict[str, NDArray[Any]]

ARRAYS = "arrays.safetensors"
TYPES: dict[str, np.dtype[Any]] = {
    f"{kind.upper()}{8 * size}": np.dtype(f"<{kind}{size}")
    for kind, sizes in {"f": (2, 4, 8), "i": (1, 2, 4, 8), "u": (1, 2, 4, 8)}.items()
    for size in sizes
}
MOST_JSON = 1 << 26  # bytes of the JSON document, or of the header in JSON
MOST_DIMENSIONS = 8
MOST_BYTES = 1 << 56
CHECKSUMS = "sha256"  # the key of the array checksums in the header


@dataclass(frozen=True)
class Kind:
    """What a folder holds, the version of its format, and how to replace a damaged one."""

    what: str
    version: int
    cure: str

    @property
    def about(self) -> str:
        return f"{self.what}.json"

    @property
    def format(self) -> str:
        return f"unexposed {self.what}"


def write(kind: Kind, folder: Path, about: dict[str, Any], arrays: Arrays) -> None:
    """Write a folder of this kind in one step; OSError where that is not possible."""
    head = {"format": kind.format, "version": kind.version, "written_by": __version__}

    def fill(place: Path) -> None:
        header = write_arrays(place / ARRAYS, arrays)
        document = json.loads(json.dumps({**head, **about, "arrays": header}))
        document["checksum"] = checksum(document)
        (place / kind.about).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        whole.sync(place / kind.about)

    whole.write_folder(folder, fill)


def check_place(kind: Kind, folder: Path) -> None:
    """Refuse a place that cannot be written to, or that holds something else."""
    if folder.is_dir():
        strangers = {path.name for path in folder.iterdir()} - {kind.about, ARRAYS}
        for name in sorted(strangers)[:1]:
            raise InputError(
                f"{folder} is not a {kind.what} folder: it holds {name!r}; choose another place"
            )
        if not _may_be_ours(kind, folder):
            raise InputError(f"{folder / kind.about} is not from unexposed; choose another place")
    elif folder.exists():
        raise InputError(f"{folder} is a file, not a {kind.what} folder; choose another place")
    parent = folder.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"cannot write a {kind.what} to {folder}: {parent} may not be written to")


def _may_be_ours(kind: Kind, folder: Path) -> bool:
    """Whether a folder may be replaced: it is empty, ours, or too damaged to tell."""
    try:
        text = (folder / kind.about).read_text(encoding="utf-8")
        return bool(json.loads(text)["format"] == kind.format)
    except FileNotFoundError:
        return not (folder / ARRAYS).exists()
    except (ValueError, RecursionError):
        return True
    except (OSError, KeyError, TypeError):
        return False


@dataclass(frozen=True)
class Archive:
    """The JSON document, and the arrays memory-mapped: not read before they are used."""

    about: dict[str, Any]
    arrays: Arrays
    verify: Callable[[], None]  # reads all arrays and compares them with their checksums


def read(kind: Kind, folder: Path) -> Archive:
    """Open a folder of this kind; if another one is swapped in meanwhile, open that one."""
    for _ in range(whole.ATTEMPTS):
        with _opened(kind, folder) as place:
            try:
                return _read(kind, folder, place)
            except InputError:
                if _is_still(folder, place):
                    raise
    raise InputError(f"{folder} is written again and again; try later")


@contextmanager
def refusing(kind: Kind, file: Path) -> Iterator[None]:
    """Turn any error that a damaged file leads to into one sentence."""
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


def _read(kind: Kind, folder: Path, place: int) -> Archive:
    about = _about(kind, folder, place)
    with _file(kind, folder, place, ARRAYS) as descriptor, refusing(kind, folder / ARRAYS):
        arrays, checksums, header = map_arrays(descriptor)
        if header != about["arrays"]:
            raise ValueError(f"it is not the one that {kind.about} describes")

    def verify() -> None:
        with refusing(kind, folder / ARRAYS):
            verify_arrays(arrays, checksums)

    return Archive(about, arrays, verify)


def _about(kind: Kind, folder: Path, place: int) -> dict[str, Any]:
    file = folder / kind.about
    with _file(kind, folder, place, kind.about) as descriptor, refusing(kind, file):
        if os.fstat(descriptor).st_size > MOST_JSON:
            raise ValueError("it is far too long")
        about = json.loads(os.pread(descriptor, MOST_JSON, 0))
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
        if not isinstance(about["written_by"], str):
            raise ValueError("it does not say who wrote it")
    return dict(about)


def checksum(about: dict[str, Any]) -> str:
    rest = {name: value for name, value in about.items() if name != "checksum"}
    return _sha256(json.dumps(rest, sort_keys=True).encode())


def _sha256(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()


# Arrays


def write_arrays(path: Path, arrays: Arrays) -> str:
    """Write arrays to a safetensors file, and return the checksum of its header."""
    # safetensors reads the memory of an array as it lies
    packed = {
        name: array if array.flags.c_contiguous else array.copy(order="C")
        for name, array in arrays.items()
    }
    # one entry of metadata only: safetensors writes several in any order
    metadata = {
        CHECKSUMS: json.dumps({name: _array_sha256(packed[name]) for name in sorted(packed)})
    }
    try:
        save_file(packed, path, metadata=metadata)
    except SafetensorError as error:
        found = re.search(r"\(os error (\d+)\)", str(error))
        number = int(found[1]) if found else EIO
        raise OSError(number, os.strerror(number)) from error
    path.chmod(0o666 & ~whole.umask())  # safetensors leaves it to its owner alone
    whole.sync(path)
    with path.open("rb") as file:
        length = file.read(8)
        return _sha256(length + file.read(int.from_bytes(length, "little")))


def map_arrays(descriptor: int) -> tuple[Arrays, Any, str]:
    """Read-only views of the arrays in an open file, with the checksums of arrays and header.

    Every length is checked against the file before it is used.
    """
    size = os.fstat(descriptor).st_size
    length = int.from_bytes(os.pread(descriptor, 8, 0), "little")
    if size < 8 or length > min(MOST_JSON, size - 8):
        raise ValueError("its header does not fit into it")
    header = os.pread(descriptor, 8 + length, 0)
    try:
        entries = json.loads(header[8:])
        checksums = json.loads(entries.pop("__metadata__", {}).get(CHECKSUMS, "{}"))
        places = [(*_place(entry), name) for name, entry in entries.items()]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError("its header is not one of a safetensors file") from error
    end = 0
    for begin, stop, dtype, _, name in sorted(places, key=lambda place: place[:2]):
        if begin != end or (8 + length + begin) % dtype.itemsize:
            raise ValueError(f"the array {name!r} is out of place")
        end = stop
    if 8 + length + end != size:
        raise ValueError(f"it has {size:,} bytes and should have {8 + length + end:,}")
    mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
    arrays = {
        name: np.ndarray(shape, dtype, buffer=mapped, offset=8 + length + begin)
        if stop > begin
        else np.zeros(shape, dtype)
        for begin, stop, dtype, shape, name in places
    }
    return arrays, checksums, _sha256(header)


def verify_arrays(arrays: Arrays, checksums: Mapping[str, str]) -> None:
    """Read every array and compare it with its checksum."""
    for name in arrays.keys() ^ dict(checksums).keys():
        raise ValueError(f"the array {name!r} and its checksum are not both there")
    for name, array in arrays.items():
        if _array_sha256(array) != checksums[name]:
            raise ValueError(f"the array {name!r} is not what was written")


def _array_sha256(array: NDArray[Any]) -> str:
    return _sha256(array.reshape(-1).view(np.uint8))


def _place(entry: Any) -> tuple[int, int, np.dtype[Any], tuple[int, ...]]:
    """Begin, end, type and shape of an array; refused where they do not agree."""
    (begin, end), shape, dtype = entry["data_offsets"], entry["shape"], TYPES[entry["dtype"]]
    if not all(type(n) is int and 0 <= n < MOST_BYTES for n in (begin, end, *shape)):
        raise ValueError("not a place")
    if math.prod(n or 1 for n in shape) > MOST_BYTES:  # numpy refuses it even where one is 0
        raise ValueError("not a shape")
    if len(shape) > MOST_DIMENSIONS or math.prod(shape) * dtype.itemsize != end - begin:
        raise ValueError("not the size")
    return begin, end, dtype, tuple(shape)


# Opening files


@contextmanager
def _opened(kind: Kind, folder: Path) -> Iterator[int]:
    """The open folder: what is read from it stays the same if another one is swapped in."""
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise InputError(f"{folder} is not a {kind.what} folder: {error.strerror}") from error
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
    """An open regular file of the folder; a link would lead out of it, a pipe would never end."""
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
    except FileNotFoundError as error:
        raise InputError(
            f"{folder} is not a whole {kind.what}: it lacks {name}; {kind.cure}"
        ) from error
    except OSError as error:
        raise InputError(f"cannot open {folder / name}: {error.strerror}; {kind.cure}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputError(f"{folder / name} is not a regular file; {kind.cure}")
        yield descriptor
    finally:
        os.close(descriptor)
