"""The folder of a simulated world: clicks, judgements, truth, and what was shown."""

import json
from collections.abc import Set
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from unexposed.data.ids import column
from unexposed.data.pairs import HasIds
from unexposed.data.worlds.simulate import Showings, World
from unexposed.data.write import click_table, judged_table, write_table
from unexposed.errors import InputError
from unexposed.files import write_whole

if TYPE_CHECKING:
    import polars as pl

MOST_PAIRS = 50_000_000
MARK = "world.json"  # names the files that `simulate` left in the folder and may replace
CLICKS, JUDGED, TRUTH = "clicks.csv", "judged.csv", "truth.parquet"
IMPRESSIONS, TRAFFIC = "impressions.csv", "traffic.csv"
FILES = {CLICKS, JUDGED, TRUTH, IMPRESSIONS, TRAFFIC}


def check_world(
    world: HasIds, folder: Path, *, impressions: bool = False, traffic: bool = False
) -> None:
    """Refuse to replace files that `simulate` did not write, and a truth of too many rows."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder")
    wanted = {CLICKS, JUDGED, TRUTH, *[IMPRESSIONS] * impressions, *[TRAFFIC] * traffic}
    for name in sorted(wanted - _ours(folder)):
        if (folder / name).exists():
            raise InputError(
                f"{folder / name} is not what `simulate` left there; remove it, or choose another "
                "folder"
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
    split = world.split(seed=seed, held_out=0.0)
    clicks, judged = split.train, split.judged
    tables = {
        CLICKS: (
            click_table(clicks),
            f"{len(clicks):,} clicks of {world.n_users:,} users on {world.n_items:,} items",
        ),
        JUDGED: (
            judged_table(judged),
            f"{len(judged):,} judged pairs, {int(judged.relevant.sum()):,} of them relevant",
        ),
        TRUTH: (truth_table(world), "exposure and relevance of every pair"),
    }
    if impressions:
        rows = world.showings(seed)
        said = f"{len(rows.users):,} showings, {int(rows.clicked.sum()):,} clicked"
        tables[IMPRESSIONS] = showing_table(world, rows), said
    if traffic > 0:
        drawn = world.traffic(traffic, seed=seed, without=judged)
        said = f"{len(drawn):,} pairs shown at random, {int(drawn.relevant.sum()):,} liked"
        tables[TRAFFIC] = judged_table(drawn), said
    try:
        folder.mkdir(parents=True, exist_ok=True)
        earlier = _ours(folder)
        # named before they are written: a world whose writing was stopped can be written again
        _mark(folder, earlier | tables.keys())
        for name, (table, _) in tables.items():
            write_table(table, folder / name)
        for name in earlier - tables.keys():
            (folder / name).unlink(missing_ok=True)
        _mark(folder, tables.keys())
    except OSError as error:
        raise InputError(f"cannot write {folder}: {error.strerror or error}") from error
    return [f"{folder / name}: {text}" for name, (_, text) in tables.items()]


def _ours(folder: Path) -> Set[str]:
    """The files that `simulate` left in this folder."""
    try:
        names = json.loads((folder / MARK).read_text(encoding="utf-8"))["files"]
        return FILES.intersection(names)
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _mark(folder: Path, names: Set[str]) -> None:
    text = json.dumps({"format": "unexposed world", "files": sorted(names)}) + "\n"
    write_whole(folder / MARK, lambda path: path.write_text(text, encoding="utf-8"))


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
