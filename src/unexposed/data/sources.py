"""Files, frames and mappings as tables of columns; what is none of these is refused."""

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from errno import ENOMEM
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from unexposed import memory
from unexposed.data.delimited import Column, Text
from unexposed.data.parquet import NOT_WHAT_IT_SAYS, Trial
from unexposed.errors import InputError, plain


@dataclass(frozen=True)
class Frame:
    """Columns in memory, or in a Parquet file that a child process has read."""

    name: str
    columns: list[str]
    take: Callable[[list[str]], list[Column]]
    close: Callable[[], None] = lambda: None

    def parts(self) -> Iterator["Frame"]:
        yield self

    def spells(self, name: str) -> bool:
        """Whether the integers of a column are read from text; those of a frame are integers."""
        del name
        return False

    def where(self, row: int) -> str:
        return f"row {row}"


Table = Frame | Text


@contextmanager
def opened(source: Any, delimiter: str | None) -> Iterator[Table]:
    """A table of the columns of a source; what goes wrong inside becomes one sentence."""
    with refusing(source):
        table = _open(source, delimiter)
        try:
            yield table
        finally:
            table.close()


def _open(source: Any, delimiter: str | None) -> Table:
    table: Table
    if isinstance(source, str | PathLike):
        table = _open_file(existing(source), delimiter)
    elif isinstance(source, pl.DataFrame | pl.LazyFrame):
        table = _lazy_table(source.lazy())
    elif isinstance(source, Mapping) or hasattr(source, "iloc"):  # iloc: pandas
        keys = {str(key): key for key in source}
        columns = [str(key) for key in source]
        table = Frame(
            "the frame", columns, lambda names: _aligned(source, [keys[n] for n in names])
        )
    elif hasattr(source, "__arrow_c_stream__"):
        table = _lazy_table(pl.DataFrame(source).lazy())
    else:
        raise InputError(
            f"a log cannot be read from a {type(source).__name__}: give a path, a frame, "
            "a mapping of columns or a sparse matrix"
        )
    for name, times in Counter(table.columns).items():
        if name and times > 1:  # empty names come from delimiters at the line's end
            raise InputError(f"{table.name} has two columns named {name!r}: rename one")
    return table


def _open_file(path: Path, delimiter: str | None) -> Table:
    if path.suffix.lower() in (".parquet", ".pq"):
        return _parquet_table(path)
    tabs = path.name.lower().removesuffix(".gz").endswith((".tsv", ".tab"))
    if delimiter is None:
        delimiter = "\t" if tabs else ","
    delimiter = delimiter.replace("\\t", "\t")  # as a shell passes it on
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
        raise InputError(f"delimiter= (--delimiter) must be one ASCII character, got {delimiter!r}")
    return Text(path, delimiter)


def _parquet_table(path: Path) -> Frame:
    trial = Trial(path)

    def take(names: list[str]) -> list[Column]:
        trial.read(names)
        return _taken(pl.scan_parquet(path.absolute(), glob=False), trial.columns, names)

    return Frame(plain(path), trial.columns, take, trial.close)


def _lazy_table(frame: pl.LazyFrame) -> Frame:
    columns = frame.collect_schema().names()
    return Frame("the frame", columns, lambda names: _taken(frame, columns, names))


def _taken(frame: pl.LazyFrame, columns: list[str], names: list[str]) -> list[Column]:
    wanted = [pl.nth(columns.index(name)) for name in names]  # a name may look like a pattern
    return list(frame.select(wanted).collect().get_columns())


def _aligned(source: Any, keys: list[Any]) -> list[Column]:
    columns = [_column(source[key]) for key in keys]
    if len({len(column) for column in columns}) > 1:
        lengths = ", ".join(f"{key!r} {len(c)}" for key, c in zip(keys, columns, strict=True))
        raise InputError(f"the columns of the frame differ in length ({lengths}): align them")
    return columns


def _column(values: Any) -> Column:
    """A sequence of any library, with None for the missing values of pandas."""
    if isinstance(values, pl.Series):
        return values
    if hasattr(values, "isna"):  # pandas
        numbers = isinstance(values.dtype, np.dtype) and values.dtype != object
        array = values.to_numpy() if numbers else values.to_numpy(dtype=object)
        values = array if numbers else np.where(values.isna(), None, array)
    if isinstance(values, np.ndarray):
        return pl.Series(values) if values.dtype.kind in "biufMm" else values.tolist()
    if hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__"):
        return pl.Series(values)
    return list(values)


# Files and sentences


def existing(source: str | PathLike[str]) -> Path:
    path, name = Path(source), plain(source)
    try:
        if not path.exists():
            raise InputError(f"{name}: no such file; relative paths start at {plain(Path.cwd())}")
        if not path.is_file():
            kind = "a directory" if path.is_dir() else "not a regular file"
            raise InputError(f"{name} is {kind}: give the path of a file")
        with path.open("rb") as stream:
            if not stream.read(1):
                raise InputError(f"{name} is empty: it needs a line for each row")
    except PermissionError:
        raise InputError(f"{name} may not be read: get permission to (chmod +r)") from None
    return path


_FOREIGN = (pl.exceptions.PolarsError, pl.exceptions.PanicException)


@contextmanager
def refusing(source: Any) -> Iterator[None]:
    """Turn the errors of polars, gzip and the system about a source into one sentence."""
    try:
        yield
    except (*_FOREIGN, OSError, EOFError, zlib.error, UnicodeError) as error:
        reason = plain(str(error).partition("\n")[0], 100)
        if isinstance(error, pl.exceptions.PanicException):  # which speaks of polars' own code
            reason = "polars gives up on it"
        name, cure = "the frame", "give plain columns of ids"
        if isinstance(source, str | PathLike):
            name, cure = plain(source), NOT_WHAT_IT_SAYS
        if isinstance(error, OSError) and error.errno == ENOMEM:
            cure = memory.CURE
        raise InputError(f"{name} cannot be read ({reason}): {cure}") from None


def bad_row(table: Table, row: int, fault: str) -> InputError:
    return InputError(f"{table.name}, {table.where(row)}: {fault}")
