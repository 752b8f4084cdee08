"""Tables as frames of polars or pandas, and as CSV, TSV or Parquet files, each written whole."""

import errno
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO, get_args

import numpy as np

from unexposed.data.ids import column
from unexposed.errors import InputError, did_you_mean, plain
from unexposed.files import write_whole

if TYPE_CHECKING:
    import polars as pl

    from unexposed.data.clicks import Clicks
    from unexposed.data.labelled import Judgements, Traffic

Library = Literal["polars", "pandas"]

ENDINGS = (".csv", ".tsv", ".parquet")


def as_frame(frame: "pl.DataFrame", library: Library) -> Any:
    """This polars frame as a frame of the library."""
    if library == "polars":
        return frame
    if library not in get_args(Library):
        near = did_you_mean(str(library), get_args(Library))
        raise InputError(f"no frames of {library!r}; {near}")
    try:
        pandas = import_module("pandas")
    except ImportError:
        raise InputError("this needs pandas: pip install pandas, or take polars") from None
    # column by column: polars would need pyarrow for the whole
    return pandas.DataFrame({name: frame[name].to_numpy() for name in frame.columns})


def check_output(path: Path) -> None:
    """Refuse a path that no table can be written to, before the work begins."""
    if path.suffix not in ENDINGS:
        raise InputError(f"cannot tell the format of {path}: end it in {', '.join(ENDINGS)}")
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file")


def write_table(table: "pl.DataFrame", path: Path) -> None:
    """Write a table as CSV, TSV or Parquet, by the ending of the name."""
    write_tables([table], path)


def write_tables(tables: Iterable["pl.DataFrame"], path: Path) -> int:
    """Write tables with the same columns as one file, one in memory at a time; returns the rows."""
    check_output(path)
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
    """Write tables with the same columns under one header; returns the number of rows."""
    rows = 0
    for number, table in enumerate(tables):
        stream.write(printed(table).write_csv(include_header=number == 0, separator=separator))
        rows += len(table)
    return rows


def write_parquet(table: "pl.DataFrame", to: Path) -> None:
    with as_os_error():
        table.write_parquet(to)


def _join_parquet(tables: Iterable["pl.DataFrame"], to: Path) -> int:
    """Write a file for each table, then join them: polars cannot append to a Parquet file."""
    import polars as pl

    rows = 0
    parts = to.with_name(f"{to.name}-parts")
    parts.mkdir()
    written = []
    for number, table in enumerate(tables):
        written.append(parts / f"{number}.parquet")
        write_parquet(printed(table), written[-1])
        rows += len(table)
    with as_os_error():
        pl.scan_parquet(written).sink_parquet(to)
    shutil.rmtree(parts)
    return rows


@contextmanager
def as_os_error() -> Iterator[None]:
    """Raise OSError where polars or usearch reports a full disk by an error of its own."""
    import polars as pl

    try:
        yield
    except (pl.exceptions.ComputeError, RuntimeError) as error:
        raise OSError(errno.EIO, plain(str(error).rpartition("error: ")[2], 100)) from error


def printed(table: "pl.DataFrame") -> "pl.DataFrame":
    """The table with columns of objects as text: no file holds objects, and ids match as text."""
    import polars as pl

    objects = [name for name, kind in table.schema.items() if kind == pl.Object]
    texts = [pl.Series(name, [str(raw) for raw in table[name]], pl.String) for name in objects]
    return table.with_columns(texts)


def click_table(clicks: "Clicks") -> "pl.DataFrame":
    """user, item: one row for each click."""
    return clicks.frame().select("user", "item")


def judged_table(judged: "Judgements | Traffic") -> "pl.DataFrame":
    """user, item, relevance (0 or 1)."""
    import polars as pl

    users, items = judged.user_ids.values[judged.users], judged.item_ids.values[judged.items]
    relevance = pl.Series("relevance", judged.relevant.astype(np.int8))
    return pl.DataFrame([column(users).alias("user"), column(items).alias("item"), relevance])
