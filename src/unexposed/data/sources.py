"""Files, frames and mappings as tables of columns; what is none of these is refused."""

import sys
import zlib
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from errno import ENOMEM
from os import PathLike
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import polars as pl

from unexposed import memory
from unexposed.data import database
from unexposed.data.delimited import Column, Text, opened_bytes
from unexposed.data.json_lines import JsonLines
from unexposed.data.parquet import NOT_WHAT_IT_SAYS, Parquet, Trial
from unexposed.data.parts import (
    LINES,
    PARQUET,
    Part,
    Parts,
    files_of_folder,
    files_of_pattern,
    is_kind,
    is_pattern,
)
from unexposed.errors import InputError, plain


@dataclass(frozen=True)
class Frame:
    """Columns in memory."""

    name: str
    columns: list[str]
    take: Callable[[list[str]], list[Column]]

    has_header = False

    def parts(self) -> Iterator["Frame"]:
        yield self

    def spells(self, name: str) -> bool:
        """Whether the integers of a column are read from text; those of a frame are integers."""
        del name
        return False

    def where(self, row: int) -> str:
        return f"row {row}"


Table = Frame | Text | Parquet | JsonLines | Parts | Part
STANDARD_INPUT = "standard input"


@contextmanager
def opened(source: Any, delimiter: str | None, query: str | None = None) -> Iterator[Table]:
    """A table of the columns of a source; what goes wrong inside becomes one sentence."""
    with refusing(source), ExitStack() as stack:
        table = _open(source, delimiter, query, stack)
        for name, times in Counter(table.columns).items():
            if name and times > 1:  # empty names come from delimiters at the line's end
                raise InputError(f"{table.name} has two columns named {name!r}: rename one")
        yield table


def _open(source: Any, delimiter: str | None, query: str | None, stack: ExitStack) -> Table:
    is_address = isinstance(source, str) and database.is_address(source)
    if query is not None and not is_address:
        raise InputError(
            "query= (--query) asks a database: give its address, such as sqlite:///shop.db"
        )
    if isinstance(source, str) and is_address:
        name = database.without_password(source)
        return _lazy_table(database.read_query(source, query).lazy(), name)
    if isinstance(source, str | PathLike):
        files = Files(delimiter, stack)
        return _standard_input(files) if str(source) == "-" else _open_path(source, files)
    if is_paths(source):
        name, files = f"the {len(source):,} files", Files(delimiter, stack)
        return Parts(name, [Path(path) for path in source], files.open_part)
    if isinstance(source, pl.DataFrame | pl.LazyFrame):
        return _lazy_table(source.lazy())
    if isinstance(source, Mapping) or hasattr(source, "iloc"):  # iloc: pandas
        keys = {str(key): key for key in source}
        columns = [str(key) for key in source]
        return Frame("the frame", columns, lambda names: _aligned(source, [keys[n] for n in names]))
    if hasattr(source, "fetch_arrow_table") and not hasattr(source, "__arrow_c_stream__"):
        source = source.fetch_arrow_table()  # a relation of an older DuckDB
    if hasattr(source, "__arrow_c_stream__"):  # Arrow, DuckDB
        return _lazy_table(pl.DataFrame(source).lazy())
    raise InputError(
        f"a log cannot be read from a {type(source).__name__}: give a path, a frame, "
        "a mapping of columns or a sparse matrix"
    )


def is_paths(source: Any) -> bool:
    """Whether this is a list of paths."""
    paths = isinstance(source, list | tuple) and len(source) > 0
    return paths and all(isinstance(path, str | PathLike) for path in source)


def _open_path(source: str | PathLike[str], files: "Files") -> Table:
    path, name = Path(source), str(source)
    if is_pattern(name) and not path.exists():
        return Parts(plain(name), files_of_pattern(name), files.open_part)
    if path.is_dir():
        return Parts(plain(name), files_of_folder(path), files.open_part)
    return files.open(existing(source))


@dataclass
class Files:
    """Files opened by what their names say; one child process tries all the Parquet files."""

    delimiter: str | None
    stack: ExitStack  # closes the child
    trial: Trial | None = None

    def open_part(self, path: Path) -> Table:
        return self.open(existing(path))

    def open(self, path: Path, *, name: str | None = None, kind: str | None = None) -> Table:
        """The table of a file, whose kind may differ from its suffix."""
        name, said = name or plain(path), Path(kind or path)
        if is_kind(said, PARQUET):
            if self.trial is None:
                self.trial = Trial()
                self.stack.callback(self.trial.close)
            return self.trial.open(path, name)
        if is_kind(said, LINES):
            return JsonLines(path, name)
        delimiter = self.delimiter
        if delimiter is None:
            tabs = said.name.lower().removesuffix(".gz").endswith((".tsv", ".tab"))
            delimiter = "\t" if tabs else ","
        delimiter = delimiter.replace("\\t", "\t")  # as a shell passes it on
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
            raise InputError(
                f"delimiter= (--delimiter) must be one ASCII character, got {delimiter!r}"
            )
        return Text(path, delimiter, name)


def _standard_input(files: Files) -> Table:
    """The table that comes through a pipe, kept in a file for as long as it is read."""
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError(f"{STANDARD_INPUT} is a terminal: pipe a log into it")
    kept = Path(files.stack.enter_context(TemporaryDirectory())) / "log"
    with kept.open("wb") as file:
        copyfileobj(sys.stdin.buffer, file, 1 << 20)
    with kept.open("rb") as file:
        start = file.read(4)
    if not start:
        raise InputError(f"{STANDARD_INPUT} is empty: it needs a line for each row")
    if start == b"PAR1":
        return files.open(kept, name=STANDARD_INPUT, kind="log.parquet")
    with opened_bytes(kept) as stream:
        begins = stream.read(1000).removeprefix(BOM_UTF8).lstrip()
    kind = "log.jsonl" if begins.startswith(b"{") else "log.csv"
    return files.open(kept, name=STANDARD_INPUT, kind=kind)


def _lazy_table(frame: pl.LazyFrame, name: str = "the frame") -> Frame:
    columns = frame.collect_schema().names()
    return Frame(name, columns, lambda names: _taken(frame, columns, names))


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
        if is_paths(source):
            name, cure = "one of the files", NOT_WHAT_IT_SAYS
        if isinstance(source, str | PathLike):
            name, cure = database.without_password(str(source)), NOT_WHAT_IT_SAYS
            name = STANDARD_INPUT if name == "-" else name
        if isinstance(error, OSError) and error.errno == ENOMEM:
            cure = memory.CURE
        raise InputError(f"{name} cannot be read ({reason}): {cure}") from None


def bad_row(table: Table, row: int, fault: str) -> InputError:
    return InputError(f"{table.name}, {table.where(row)}: {fault}")
