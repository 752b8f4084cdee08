"""The folder of a simulated world: clicks, judgements, truth, what was shown, and checksums."""

import hashlib
import json
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from unexposed.data.clicks import HasIds
from unexposed.data.ids import column
from unexposed.data.showings import Showings
from unexposed.data.simulate import World
from unexposed.data.write import click_table, judged_table, write_table
from unexposed.errors import InputError
from unexposed.files.whole import workspace, write_whole

if TYPE_CHECKING:
    import polars as pl

MOST_PAIRS = 50_000_000
CLICKS, JUDGED, TRUTH = "clicks.csv", "judged.csv", "truth.parquet"
IMPRESSIONS, TRAFFIC = "impressions.csv", "traffic.csv"
FILES = {CLICKS, JUDGED, TRUTH, IMPRESSIONS, TRAFFIC}
ABOUT_WORLD = "world.json"
WORLD_FORMAT = "unexposed world"


def check_world(
    world: HasIds, folder: Path, *, impressions: bool = False, traffic: bool = False
) -> None:
    """Refuse to replace files that `simulate` did not write, and a truth of too many rows."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder")
    known = _checksums(folder)
    names = [CLICKS, JUDGED, TRUTH, *[IMPRESSIONS] * impressions, *[TRAFFIC] * traffic, *known]
    there = [path for path in map(folder.joinpath, names) if path.exists()]
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


def write_world(
    world: World, folder: Path, *, seed: int, impressions: bool = False, traffic: float = 0.0
) -> list[str]:
    """Write the files of a world; returns a line about each.

    The clicks are the same with impressions and without; traffic leaves out the judged pairs. What
    an earlier world left there and this one does not have is removed.
    """
    check_world(world, folder, impressions=impressions, traffic=traffic > 0)
    tables, said = {}, {}
    split = world.split(seed=seed, held_out=0.0)
    tables[CLICKS] = click_table(split.train)
    said[CLICKS] = (
        f"{len(split.train):,} clicks of {world.n_users:,} users on {world.n_items:,} items"
    )
    tables[JUDGED] = judged_table(split.judged)
    said[JUDGED] = (
        f"{len(split.judged):,} judged pairs, {int(split.judged.relevant.sum()):,} of them relevant"
    )
    tables[TRUTH] = truth_table(world)
    said[TRUTH] = "exposure and relevance of every pair"
    if impressions:
        rows = world.showings(seed)
        tables[IMPRESSIONS] = showing_table(world, rows)
        said[IMPRESSIONS] = f"{len(rows.users):,} showings, {int(rows.clicked.sum()):,} clicked"
    if traffic > 0:
        drawn = world.traffic(traffic, seed=seed, without=split.judged)
        tables[TRAFFIC] = judged_table(drawn)
        said[TRAFFIC] = f"{len(drawn):,} pairs shown at random, {int(drawn.relevant.sum()):,} liked"
    try:
        _write(tables, folder)
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}") from error
    return [f"{folder / name}: {text}" for name, text in said.items()]


def _write(tables: dict[str, "pl.DataFrame"], folder: Path) -> None:
    with workspace(folder) as place:
        for name, table in tables.items():
            write_table(table, place / name)
        new = {name: [_checksum(place / name)] for name in tables}
        old = _checksums(folder)
        # stored before the first file is replaced: a kill may leave old files and new ones
        _write_about(folder, {n: [*old.get(n, []), *new.get(n, [])] for n in {**old, **new}})
        for name in tables:
            write_whole(folder / name, partial(shutil.copyfile, place / name))
        for name in old.keys() - tables.keys():
            (folder / name).unlink(missing_ok=True)
        _write_about(folder, new)


def _write_about(folder: Path, files: dict[str, list[str]]) -> None:
    text = json.dumps({"format": WORLD_FORMAT, "files": files}, indent=1) + "\n"
    write_whole(folder / ABOUT_WORLD, lambda to: to.write_text(text, encoding="utf-8"))


def _checksums(folder: Path) -> dict[str, list[str]]:
    """The checksums that each file in this folder may have: two where a writer was stopped."""
    try:
        about = json.loads((folder / ABOUT_WORLD).read_text(encoding="utf-8"))
        files = about["files"].items() if about["format"] == WORLD_FORMAT else ()
        ours = ((name, known) for name, known in files if name in FILES)
        return {name: [known] if isinstance(known, str) else list(known) for name, known in ours}
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


def showing_table(world: World, rows: Showings) -> "pl.DataFrame":
    """user, item, clicked (0 or 1), time (seconds since 1970), propensity: one row a showing."""
    import polars as pl

    return pl.DataFrame(
        {
            "user": column(world.user_ids.values[rows.users]),
            "item": column(world.item_ids.values[rows.items]),
            "clicked": pl.Series(rows.clicked.astype(np.int8)),
            "time": pl.Series(rows.times),
            "propensity": pl.Series(rows.propensity),
        }
    )
