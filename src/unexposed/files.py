"""Files and folders that appear whole or not at all.

They are written beside their place, flushed to the disk, and moved into place in one step: readers
see the old file or the new one, also after a crash.
"""

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from errno import ENOTEMPTY
from pathlib import Path
from typing import TypeVar

from unexposed.errors import InputError
from unexposed.workers import Workers

Value = TypeVar("Value")

PREFIX = ".unexposed-"  # of what is being written
DAY = 86_400.0  # seconds after which what a killed process left is removed


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write` fill a new file, then move it into place.

    A symbolic link stays one, and the file it leads to keeps its mode. A pipe or a device is
    written to directly.
    """
    path = Path(os.path.realpath(path))
    with writing(path):
        is_stream = path.exists() and not path.is_file()
        with _beside(Path(tempfile.gettempdir()) if is_stream else path.parent) as place:
            temporary = place / path.name
            write(temporary)
            if is_stream:
                with temporary.open("rb") as written, path.open("wb") as stream:
                    shutil.copyfileobj(written, stream)
                return
            if path.exists():
                shutil.copymode(path, temporary)
            flush(temporary)
            os.replace(temporary, path)
        with suppress(OSError):  # not every file system can flush the names in a folder
            flush(path.parent)


def write_folder(
    folder: Path, write: Callable[[Path], Value], *, workers: Workers | None = None
) -> list[Value]:
    """Have each worker write its files into one new folder, then move that into place.

    Gives what `write` gave on each worker. They need one file system. A folder with a file that
    the new one lacks, which may be a person's, is not replaced.
    """
    folder = Path(os.path.realpath(folder))
    with writing(folder), _beside(folder.parent) as own:
        aside = own if workers is None else workers.led(lambda: own)
        place = aside / "new"
        place.mkdir(exist_ok=True)
        written = write(place)
        every = [written] if workers is None else workers.every(written)
        if aside == own:
            if folder.exists():
                shutil.copymode(folder, place)
                if lost := sorted(set(os.listdir(folder)) - set(os.listdir(place))):
                    raise OSError(ENOTEMPTY, f"it holds {lost[0]!r}, which would be lost")
            try:
                if folder.exists():
                    os.rename(folder, aside / "old")
                os.rename(place, folder)
            finally:
                if (aside / "old").exists() and not folder.exists():
                    os.rename(aside / "old", folder)
        if workers is not None:
            workers.every(None)  # wait until the folder is there
    return every


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the error of a place that cannot be written to into one sentence."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"cannot write {path}: {error.strerror or error}; make room there, or choose another "
            "place"
        ) from error


def flush(path: Path) -> None:
    """Wait until the disk holds this file, or the names in this folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _beside(parent: Path) -> Iterator[Path]:
    """A private folder in `parent`; those of killed processes are removed a day later."""
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(PREFIX + "*"):
        with suppress(OSError):
            if max(p.stat().st_mtime for p in (left, *left.iterdir())) < time.time() - DAY:
                shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=parent) as place:
        yield Path(place)
