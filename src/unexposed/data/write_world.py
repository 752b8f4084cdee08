"""The folder of a simulated world: clicks.csv, judged.csv, truth.parquet and their checksums."""

import hashlib
import json
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from unexposed.data.clicks import HasIds
from unexposed.data.ids import column
from unexposed.data.simulate import World
from unexposed.data.write import click_table, judged_table, write_table
from unexposed.errors import InputError
from unexposed.files.whole import workspace, write_whole

if TYPE_CHECKING:
    import polars as pl

MOST_PAIRS = 50_000_000
WORLD = ("clicks.csv", "judged.csv", "truth.parquet")
ABOUT_WORLD = "world.json"
WORLD_FORMAT = "unexposed world"


def check_world(world: HasIds, folder: Path) -> None:
    """Refuse to replace files that `simulate` did not write, and a truth of too many rows."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder")
    known = _checksums(folder)
    there = [path for path in map(folder.joinpath, WORLD) if path.exists()]
    foreign = [path for path in there if _checksum(path) not in known.get(path.name, ())]
    if not known and (folder / ABOUT_WORLD).exists():
        foreign.insert(0, folder / ABOUT_WORLD)
    for path in foreign[:1]:
        raise InputError(
            f"{path} is not what `simulate` left there; remove it, or choose another folder"
        )
    pairs = len(world.user_ids) * len(world.item_ids)
    if pairs > MOST_PAIRS:
        raise InputError(
            f"the truth of this world would be a table of {pairs:,} rows, {MOST_PAIRS:,} at most; "
            "make it smaller with --users and --items, or --trim for a data set"
        )


def write_world(world: World, folder: Path, *, seed: int) -> list[str]:
    """Write the files of a world; returns a line about each."""
    check_world(world, folder)
    split = world.split(seed=seed, held_out=0.0)
    tables = (click_table(split.train), judged_table(split.judged), truth_table(world))
    try:
        with workspace(folder) as place:
            for name, table in zip(WORLD, tables, strict=True):
                write_table(table, place / name)
            new = {name: [_checksum(place / name)] for name in WORLD}
            # stored before the first file is replaced: a kill may leave old files and new ones
            _write_about(folder, {n: [*_checksums(folder).get(n, []), *new[n]] for n in WORLD})
            for name in WORLD:
                write_whole(folder / name, partial(shutil.copyfile, place / name))
            _write_about(folder, new)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}") from error
    return [
        f"{folder / 'clicks.csv'}: {len(split.train):,} clicks of {world.n_users:,} users "
        f"on {world.n_items:,} items",
        f"{folder / 'judged.csv'}: {len(split.judged):,} judged pairs, "
        f"{int(split.judged.relevant.sum()):,} of them relevant",
        f"{folder / 'truth.parquet'}: exposure and relevance of every pair",
    ]


def _write_about(folder: Path, files: dict[str, list[str]]) -> None:
    text = json.dumps({"format": WORLD_FORMAT, "files": files}, indent=1) + "\n"
    write_whole(folder / ABOUT_WORLD, lambda to: to.write_text(text, encoding="utf-8"))


def _checksums(folder: Path) -> dict[str, list[str]]:
    """The checksums that each file in this folder may have: two where a writer was stopped."""
    try:
        about = json.loads((folder / ABOUT_WORLD).read_text(encoding="utf-8"))
        files = about["files"].items() if about["format"] == WORLD_FORMAT else ()
        return {name: [known] if isinstance(known, str) else list(known) for name, known in files}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _checksum(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from error


def truth_table(world: World) -> "pl.DataFrame":
    """user, item, exposure and relevance of every pair: users × items rows, for small worlds."""
    import polars as pl

    users = np.arange(world.n_users, dtype=np.int32)
    rows, columns = np.repeat(users, world.n_items), np.tile(np.arange(world.n_items), len(users))
    return pl.DataFrame(
        {
            "user": column(world.user_ids.values[rows]),
            "item": column(world.item_ids.values[columns]),
            "exposure": pl.Series(world.exposure(users).ravel()),
            "relevance": pl.Series(world.relevance(users).ravel()),
        }
    )
