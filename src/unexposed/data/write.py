"""Files written whole or not at all: tables, and the folder of a simulated world."""

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from unexposed.data.clicks import Clicks, HasIds, Judgements
from unexposed.data.ids import column
from unexposed.data.simulate import World
from unexposed.errors import InputError, plain
from unexposed.files.folders import workspace

if TYPE_CHECKING:
    import polars as pl

MOST_PAIRS = 50_000_000
ENDINGS = (".csv", ".tsv", ".parquet")
WORLD = ("clicks.csv", "judged.csv", "truth.parquet")
ABOUT_WORLD = "world.json"
WORLD_FORMAT = "unexposed world"


def check_table(path: Path) -> None:
    """Refuse a place that no table can be written to, before the work begins."""
    if path.suffix not in ENDINGS:
        raise InputError(f"cannot tell the format of {path}: end it in {', '.join(ENDINGS)}")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file")


def write_table(table: "pl.DataFrame", path: Path) -> None:
    """Write a table as CSV, TSV or Parquet, by the ending of the name."""
    check_table(path)
    if path.suffix == ".parquet":
        write_whole(path, lambda to: write_parquet(printed(table), to))
    else:
        write_tables([table], path)


def write_tables(tables: Iterable["pl.DataFrame"], path: Path) -> int:
    """Write tables with the same columns as one file, holding one at a time; how many rows."""
    check_table(path)
    rows = 0

    def write(to: Path) -> None:
        nonlocal rows
        if path.suffix == ".parquet":
            rows = _join_parquet(tables, to)
        else:
            with to.open("w", encoding="utf-8", newline="") as stream:
                rows = write_csv(tables, stream, separator="\t" if path.suffix == ".tsv" else ",")

    write_whole(path, write)
    return rows


def write_csv(tables: Iterable["pl.DataFrame"], stream: TextIO, *, separator: str = ",") -> int:
    """Write tables with the same columns one after the other, under one header; how many rows."""
    rows = 0
    for number, table in enumerate(tables):
        stream.write(printed(table).write_csv(include_header=number == 0, separator=separator))
        rows += len(table)
    return rows


def write_parquet(table: "pl.DataFrame", to: Path) -> None:
    with as_of_the_system():
        table.write_parquet(to)


def _join_parquet(tables: Iterable["pl.DataFrame"], to: Path) -> int:
    """A file for each table, then all of them into one: polars appends to no Parquet file."""
    import polars as pl

    rows = 0
    parts = to.with_name(f"{to.name}-parts")
    parts.mkdir()
    written = []
    for number, table in enumerate(tables):
        written.append(parts / f"{number}.parquet")
        write_parquet(printed(table), written[-1])
        rows += len(table)
    with as_of_the_system():
        pl.scan_parquet(written).sink_parquet(to)
    shutil.rmtree(parts)
    return rows


@contextmanager
def as_of_the_system() -> Iterator[None]:
    """Raise OSError where polars or usearch has an error of its own for a full disk."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.ComputeError, RuntimeError) as error:
        raise OSError(errno.EIO, plain(str(error).rpartition("error: ")[2], 100)) from error


def printed(table: "pl.DataFrame") -> "pl.DataFrame":
    """Columns of objects, which no file holds, as text: ids are matched by how they print."""
    import polars as pl

    objects = [name for name, kind in table.schema.items() if kind == pl.Object]
    texts = [pl.Series(name, [str(raw) for raw in table[name]], pl.String) for name in objects]
    return table.with_columns(texts)


def spreadsheet_safe(table: "pl.DataFrame") -> "pl.DataFrame":
    """The table with ' before every text that a spreadsheet would take for a formula."""
    import polars as pl

    formula = r"^([=+\-@\t\r])"
    return printed(table).with_columns(pl.col(pl.String).str.replace(formula, "'$1"))


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Write beside the place, then move there: a reader sees the old file or the new one.

    A link stays one, and the file it leads to keeps its mode; a pipe or a device is written to.
    """
    try:
        path = Path(os.path.realpath(path))
        is_stream = path.exists() and not path.is_file()
        with workspace(Path(tempfile.gettempdir()) if is_stream else path.parent) as place:
            temporary = place / path.name
            write(temporary)
            if is_stream:
                with temporary.open("rb") as written, path.open("wb") as stream:
                    return shutil.copyfileobj(written, stream)
            if path.exists():
                shutil.copymode(path, temporary)
            os.replace(temporary, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def check_world(world: HasIds, folder: Path) -> None:
    """Refuse a place that is no folder, files that are no world's, and a truth of too many rows."""
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
    """clicks.csv, judged.csv, truth.parquet, and their checksums; what was written, in lines."""
    check_world(world, folder)
    split = world.split(seed=seed, held_out=0.0)
    tables = (click_table(split.train), judged_table(split.judged), truth_table(world))
    try:
        with workspace(folder) as place:
            for name, table in zip(WORLD, tables, strict=True):
                write_table(table, place / name)
            new = {name: [_checksum(place / name)] for name in WORLD}
            # told before the first file is replaced: a kill between them leaves files of both
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
    """What the files of the world in this folder may be: as written, or as they were to be."""
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


def click_table(clicks: Clicks) -> "pl.DataFrame":
    """user, item: a row a click."""
    import polars as pl

    return pl.DataFrame(
        {
            "user": column(clicks.user_ids.values[clicks.users]),
            "item": column(clicks.item_ids.values[clicks.items]),
        }
    )


def judged_table(judged: Judgements) -> "pl.DataFrame":
    """user, item, relevance (0 or 1)."""
    import polars as pl

    return pl.DataFrame(
        {
            "user": column(judged.user_ids.values[judged.users]),
            "item": column(judged.item_ids.values[judged.items]),
            "relevance": pl.Series(judged.relevant.astype(np.int8)),
        }
    )


def truth_table(world: World) -> "pl.DataFrame":
    """user, item, exposure, relevance of every pair: as long as users × items, for small worlds."""
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
