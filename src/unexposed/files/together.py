"""Write one folder by several ranks: it appears whole or not at all, and all know which."""

import errno
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

from unexposed import ranks
from unexposed.files import whole

Own = TypeVar("Own")


def write_folder(
    folder: Path, own: Callable[[Path], Own], rest: Callable[[Path, list[Own]], None]
) -> None:
    """Have every rank write its `own` files into a new folder, and rank 0 the `rest`; swap it in.

    `rest` gets what `own` gave on each rank. Ranks need one file system. Where one of them cannot
    write, all raise its OSError and the folder stays as it was. One process is its own rank 0.
    """
    others = ranks.current()
    if others is None:
        return whole.write_folder(folder, lambda place: rest(place, [own(place)]))
    folder = Path(os.path.realpath(folder))
    leads = others.rank == 0
    with ExitStack() as stack:
        made = whole.workspace(folder.parent)
        found = others.every(_tried(lambda: stack.enter_context(made)) if leads else None)
        place = _all_done(found[:1])[0]
        written = _all_done(others.every(_tried(lambda: own(_seen(place)))))

        def finish() -> None:
            rest(place, written)
            whole.settle(place, folder)

        _all_done(others.every(_tried(finish) if leads else None)[:1])
    return None


def _tried(work: Callable[[], Any]) -> Any:
    """What the work gives, or the OSError that it raises."""
    try:
        return work()
    except OSError as error:
        return error


def _all_done(found: list[Any]) -> list[Any]:
    """What all ranks have done; the OSError of the first rank that could not."""
    for rank, one in enumerate(found):
        if isinstance(one, OSError):
            raise OSError(one.errno, f"{one.strerror or one} (on rank {rank})") from one
    return found


def _seen(place: Path) -> Path:
    """Refuse a place that this rank does not see: its machine has another file system."""
    if not place.is_dir():
        raise OSError(errno.ENOENT, f"{place.parent} is not on a file system that all ranks share")
    return place
