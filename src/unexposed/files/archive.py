"""Arrays and a JSON document as a folder that is written whole, and checked before it is used.

The JSON document holds a checksum of itself and of the header of every file of arrays, and such a
header holds a checksum of every array. No file name is ever taken from a file.

A folder has one file of arrays; or, by partitions, one for each partition of the users and one for
what users share. Several ranks write a folder by partitions together.
"""

import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import ENOMEM
from pathlib import Path
from typing import Any

from unexposed import memory
from unexposed.errors import InputError, plain
from unexposed.extras import install
from unexposed.files import together, whole
from unexposed.files.arrays import MOST_JSON, map_arrays, sha256, verify_arrays, write_arrays
from unexposed.files.arrays import Arrays as Arrays
from unexposed.version import __version__

ARRAYS = "arrays.safetensors"
MOST_PARTS = 1000


@dataclass(frozen=True)
class Kind:
    """What a folder holds, the version of its format, and how to replace a damaged one."""

    what: str
    version: int
    cure: str
    parted: int = 0  # version of the format by partitions; 0: there is none

    @property
    def about(self) -> str:
        return f"{self.what}.json"

    @property
    def format(self) -> str:
        return f"unexposed {self.what}"

    @property
    def versions(self) -> set[int]:
        return {self.version} | ({self.parted} if self.parted else set())


def part_name(number: int) -> str:
    """The file of a partition."""
    return f"part-{number:02d}.safetensors"


PARTS = frozenset(map(part_name, range(MOST_PARTS)))


def write(kind: Kind, folder: Path, about: dict[str, Any], arrays: Arrays) -> None:
    """Write a folder of this kind in one step; OSError where that is not possible."""

    def fill(place: Path) -> None:
        header = write_arrays(place / ARRAYS, arrays)
        _write_about(kind, place, kind.version, {**about, "arrays": header})

    whole.write_folder(folder, fill, ours=PARTS)


def write_parted(
    kind: Kind,
    folder: Path,
    about: dict[str, Any],
    shared: Arrays,
    parts: Iterable[tuple[int, Arrays]],
) -> None:
    """Write a folder of this kind by partitions; each rank gives its own, numbered from 0 on.

    Rank 0 writes what is shared and, last, the JSON document. OSError on every rank where one of
    them cannot write.
    """

    def own(place: Path) -> dict[int, str]:
        return {n: write_arrays(place / part_name(n), arrays) for n, arrays in parts}

    def rest(place: Path, written: list[dict[int, str]]) -> None:
        headers = {n: header for of_rank in written for n, header in of_rank.items()}
        stated = {
            "arrays": write_arrays(place / ARRAYS, shared),
            "parts": [headers[n] for n in range(len(headers))],
        }
        _write_about(kind, place, kind.parted, {**about, **stated})

    together.write_folder(folder, own, rest)


def _write_about(kind: Kind, place: Path, version: int, about: dict[str, Any]) -> None:
    head = {"format": kind.format, "version": version, "written_by": __version__}
    document = json.loads(json.dumps({**head, **about}))
    document["checksum"] = checksum(document)
    (place / kind.about).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    whole.sync(place / kind.about)


def check_place(kind: Kind, folder: Path) -> None:
    """Refuse a place that cannot be written to, or that holds something else."""
    if folder.is_dir():
        strangers = {path.name for path in folder.iterdir()} - {kind.about, ARRAYS} - PARTS
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
        return not any(folder.iterdir())
    except (ValueError, RecursionError):
        return True
    except (OSError, KeyError, TypeError):
        return False


@dataclass(frozen=True)
class Archive:
    """The JSON document, and the arrays memory-mapped: not read before they are used."""

    about: dict[str, Any]
    arrays: Arrays
    parts: list[Arrays]  # by partition; none if the folder is not by partitions
    # reads all arrays, with parts only those of these partitions, and compares their checksums
    verify: Callable[..., None]


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
    headers = {ARRAYS: about["arrays"]}
    if about["version"] == kind.parted:
        with refusing(kind, folder / kind.about):
            if not 0 < len(about["parts"]) <= MOST_PARTS:
                raise ValueError("it has no partitions, or far too many")
            headers |= {part_name(n): header for n, header in enumerate(about["parts"])}
    mapped: list[Arrays] = []
    checksums: list[Any] = []
    for name, stated in headers.items():
        with _file(kind, folder, place, name) as descriptor, refusing(kind, folder / name):
            arrays, sums, header = map_arrays(descriptor)
            if header != stated:
                raise ValueError(f"it is not the one that {kind.about} describes")
        mapped.append(arrays)
        checksums.append(sums)
    names = list(headers)

    def verify(parts: Iterable[int] | None = None) -> None:
        of_parts = range(len(names) - 1) if parts is None else parts
        for at in (0, *(n + 1 for n in of_parts)):
            with refusing(kind, folder / names[at]):
                verify_arrays(mapped[at], checksums[at])

    return Archive(about, mapped[0], mapped[1:], verify)


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
    if version not in kind.versions:
        newer = version > kind.version
        cure = f"upgrade: {install()}, once it is up to date" if newer else "train it again"
        raise InputError(
            f"{file} was written by {'a newer' if newer else 'an older'} unexposed (format "
            f"{version}, this one reads {max(kind.versions)}); {cure}"
        )
    with refusing(kind, file):
        if about["checksum"] != checksum(about):
            raise ValueError("it does not match its checksum")
        if not isinstance(about["written_by"], str):
            raise ValueError("it does not say who wrote it")
    return dict(about)


def checksum(about: dict[str, Any]) -> str:
    rest = {name: value for name, value in about.items() if name != "checksum"}
    return sha256(json.dumps(rest, sort_keys=True).encode())


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
