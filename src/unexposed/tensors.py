"""Arrays with a JSON document as one file, written whole and memory-mapped.

It is a safetensors file, whose document stands in its metadata. Several workers write one together:
each partition of the users is a shard, a file under a name of its own, and the file that names the
shards and holds what users share is replaced last.
"""

import hashlib
import json
import mmap
import os
import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from errno import ENOMEM
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from unexposed import memory
from unexposed.errors import InputError, plain
from unexposed.files import flush, write_whole, writing
from unexposed.late import install
from unexposed.version import __version__
from unexposed.workers import Workers

Arrays = dict[str, NDArray[Any]]
Value = TypeVar("Value")

ENDING = ".safetensors"
ATTEMPTS = 5  # to open shards that are replaced meanwhile
TYPES = {
    **{"F16": np.dtype("<f2"), "F32": np.dtype("<f4"), "F64": np.dtype("<f8")},
    **{f"I{8 * n}": np.dtype(f"<i{n}") for n in (1, 2, 4, 8)},
    **{f"U{8 * n}": np.dtype(f"<u{n}") for n in (1, 2, 4, 8)},
}
NAMES = {dtype: name for name, dtype in TYPES.items()}
DAMAGE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


@dataclass(frozen=True)
class Kind:
    """What a file holds, the version of its format, and how to replace a damaged one."""

    what: str
    version: int
    cure: str

    @property
    def format(self) -> str:
        return f"unexposed {self.what}"


@dataclass(frozen=True)
class Tensors:
    """The document and the arrays of a file, memory-mapped and read-only, and its shards."""

    path: Path
    document: dict[str, Any]
    arrays: Arrays
    shards: list["Tensors"] = field(default_factory=list)

    def verify(self) -> None:
        """Read all arrays and compare them and the document with their checksum."""
        if checksum(self.document, self.arrays) != self.document["sha256"]:
            raise ValueError(f"{self.path.name} is not what was written")

    def release(self) -> None:
        """Give back the memory of the arrays; the file is read again where they are used again."""
        for array in self.arrays.values():
            if isinstance(array.base, mmap.mmap):
                array.base.madvise(mmap.MADV_DONTNEED)


def path_of(name: Path) -> Path:
    """The file of this name: `shop` is `shop.safetensors`."""
    if not name.name:
        raise InputError(f"{name} is a folder: name a file in it")
    return name if name.suffix == ENDING else name.with_name(name.name + ENDING)


def identity(path: Path) -> tuple[int, ...] | None:
    """What tells two files at this place apart without reading them; None: there is none."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns


def part(arrays: Arrays, prefix: str) -> Arrays:
    """The arrays whose name begins with a prefix, without it."""
    return {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}


# Writing


def check_place(kind: Kind, path: Path) -> None:
    """Refuse a place that cannot be written to, or that holds something else."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; choose another place")
    if path.exists() and _is_foreign(kind, path):
        raise InputError(f"{path} is not a {kind.what} of unexposed; choose another place")
    parent = path.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"cannot write {path}: {parent} may not be written to")


def write_tensors(
    kind: Kind,
    path: Path,
    document: dict[str, Any],
    arrays: Arrays,
    shards: Iterable[tuple[int, Arrays]] | None = None,
    *,
    workers: Workers | None = None,
) -> None:
    """Replace a file of this kind; InputError, on every worker, where one of them cannot.

    Each worker gives its own `shards`, numbered from 0 on; the first worker writes the rest.
    """
    path = Path(os.path.realpath(path))
    head = {"format": kind.format, "version": kind.version, "written_by": __version__, **document}
    names: list[str] = []
    if shards is not None:
        run = secrets.token_hex(4)
        run = run if workers is None else workers.led(lambda: run)
        written = _on_all(lambda: _write_shards(path, run, shards), workers)
        head["shards"] = names = sorted(name for own in written for name in own)

    def publish() -> None:
        if lost := [name for name in names if not path.with_name(name).exists()]:
            raise InputError(
                f"cannot write {path}: {lost[0]} is gone; workers need one file system, and a "
                "place that nobody else writes to"
            )
        before: list[str] = []
        with suppress(*DAMAGE, OSError):
            before = read_file(path).document.get("shards", [])
        write_whole(path, lambda to: write_file(to, head, arrays))
        remove_shards(path, [name for name in before if name not in names])

    _on_all(publish if workers is None or workers.number == 0 else lambda: None, workers)


def _is_foreign(kind: Kind, path: Path) -> bool:
    """Whether a file is of another program, and not one of ours or too damaged to tell."""
    try:
        return bool(read_file(path).document["format"] != kind.format)
    except KeyError:
        return True
    except (*DAMAGE, OSError):
        return False


def _on_all(work: Callable[[], Value], workers: Workers | None) -> list[Value]:
    """What the work gives on each worker; where it fails on one, all raise that error."""
    if workers is None:
        return [work()]
    own: Any
    try:
        own = work()
    except InputError as error:
        own = error
    every = workers.every(own)
    for number, one in enumerate(every):
        if isinstance(one, InputError):
            raise InputError(f"{one} (worker {number})") from one
    return every


def _write_shards(path: Path, run: str, shards: Iterable[tuple[int, Arrays]]) -> list[str]:
    names = []
    for number, arrays in shards:
        shard = path.with_name(f"{path.stem}-{run}-{number:05d}{ENDING}")
        with writing(shard):
            shard.parent.mkdir(parents=True, exist_ok=True)
            write_file(shard, {}, arrays)
            flush(shard)
        names.append(shard.name)
    return names


def remove_shards(path: Path, names: Iterable[str]) -> None:
    """Remove those of these files that were written as shards at this place."""
    shard = re.compile(re.escape(path.stem) + "-[0-9a-f]{8}-[0-9]{5}" + re.escape(ENDING))
    for name in filter(shard.fullmatch, names):
        path.with_name(name).unlink(missing_ok=True)


def write_file(path: Path, document: dict[str, Any], arrays: Arrays) -> None:
    """Write one safetensors file, with a checksum of the arrays in its document."""
    document = json.loads(json.dumps(document))
    text = json.dumps(document | {"sha256": checksum(document, arrays)})
    header: dict[str, Any] = {"__metadata__": {"unexposed": text}}
    begin = 0
    for name in _in_order(arrays):
        array = arrays[name]
        end = begin + array.nbytes
        shape, dtype = list(array.shape), NAMES[array.dtype]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        begin = end
    packed = json.dumps(header).encode()
    packed += b" " * (-len(packed) % 8)
    with path.open("wb") as file:
        file.write(len(packed).to_bytes(8, "little") + packed)
        for name in _in_order(arrays):
            file.write(_bytes(arrays[name]))


def checksum(document: dict[str, Any], arrays: Arrays) -> str:
    """A hash of the document, and of the arrays with their names, types and shapes."""
    rest = {name: value for name, value in document.items() if name != "sha256"}
    found = hashlib.sha256(json.dumps(rest, sort_keys=True).encode())
    for name in _in_order(arrays):
        found.update(f"{name} {arrays[name].dtype.str} {arrays[name].shape}".encode())
        found.update(_bytes(arrays[name]))
    return found.hexdigest()


def _in_order(arrays: Arrays) -> list[str]:
    """Wide types first, so that every array is aligned."""
    return sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))


def _bytes(array: NDArray[Any]) -> Any:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


# Reading


def read_tensors(kind: Kind, path: Path) -> Tensors:
    """A file of this kind with its shards; if it is replaced meanwhile, the newer one."""
    for _ in range(ATTEMPTS):
        before = identity(path)
        with refusing(kind, path):
            found = read_file(path)
            _check_version(kind, found.document)
            shards = [path.with_name(name) for name in found.document.get("shards", ())]
        try:
            for shard in shards:
                with refusing(kind, shard):
                    found.shards.append(read_file(shard))
        except InputError:
            if identity(path) == before:
                raise
        else:
            return found
    raise InputError(f"{path} is written again and again; try later")


def read_file(path: Path) -> Tensors:
    """One file, memory-mapped; damage ends in one of the errors of DAMAGE."""
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    start = 8 + int.from_bytes(mapped[:8], "little")
    header = json.loads(mapped[8:start])
    document = json.loads(header.pop("__metadata__")["unexposed"])
    arrays: Arrays = {}
    for name, at in header.items():
        dtype: Any = TYPES[at["dtype"]]
        arrays[name] = np.ndarray(at["shape"], dtype, mapped, start + at["data_offsets"][0])
    return Tensors(path, document, arrays)


def _check_version(kind: Kind, document: dict[str, Any]) -> None:
    if document["format"] != kind.format:
        raise ValueError(f"it is an {plain(document['format'], 40)}")
    if document["version"] != kind.version:
        newer = document["version"] > kind.version
        cure = f"; upgrade: {install()}, once it is up to date" if newer else ""
        raise ValueError(f"it is of unexposed {plain(document['written_by'], 40)}{cure}")


@contextmanager
def refusing(kind: Kind, path: Path) -> Iterator[None]:
    """Turn any error that a damaged file leads to into one sentence."""
    try:
        yield
    except DAMAGE as error:
        reason = f"there is no {error}" if isinstance(error, KeyError) else plain(error, 200)
        raise InputError(
            f"{path} is damaged, or not a {kind.what} of this version ({reason}); {kind.cure}"
        ) from error
    except OSError as error:
        cure = memory.CURE if error.errno == ENOMEM else kind.cure
        raise InputError(f"cannot read {path}: {error.strerror or error}; {cure}") from error
