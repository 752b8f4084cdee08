"""Files, folders, pipes, databases and frames as tables; what is none of these is refused."""

import sys
import zlib
from bisect import bisect_right
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from errno import ENOMEM
from glob import glob
from itertools import accumulate
from os import PathLike
from pathlib import Path
from shutil import copyfileobj
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import polars as pl

from unexposed import memory
from unexposed.data.columns import Table
from unexposed.data.parquet import NOT_WHAT_IT_SAYS, Trial
from unexposed.data.text import (
    integers_if_canonical,
    joined,
    lines_table,
    opened_bytes,
    series_of,
    text_table,
)
from unexposed.errors import InputError, plain
from unexposed.late import optional

STANDARD_INPUT = "standard input"
PARQUET = (".parquet", ".pq")
LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
TABS = (".tsv", ".tab", ".tsv.gz", ".tab.gz")
KINDS = (PARQUET, LINES, (".csv", ".csv.gz", *TABS))
NO_PARTITION = "__HIVE_DEFAULT_PARTITION__"  # what Hive writes for a missing value


@contextmanager
def opened(source: Any, delimiter: str | None = None, query: str | None = None) -> Iterator[Table]:
    """A table of the columns of a source; what goes wrong inside becomes one sentence."""
    with refusing(source), ExitStack() as stack:
        table = _open(source, delimiter, query, stack)
        for name, times in Counter(table.columns).items():
            if name and times > 1:  # empty names come from delimiters at the line's end
                raise InputError(f"{table.name} has two columns named {name!r}: rename one")
        yield table


def _open(source: Any, delimiter: str | None, query: str | None, stack: ExitStack) -> Table:
    in_database = isinstance(source, str) and is_address(source)
    if query is not None and not in_database:
        raise InputError(
            "query= (--query) asks a database: give its address, such as sqlite:///shop.db"
        )
    if in_database:
        frame = read_query(source, query)
        return _frame_table(frame.lazy(), _without_password(source))
    if isinstance(source, str | PathLike):
        files = _Files(delimiter, stack)
        return _standard_input(files) if str(source) == "-" else _open_path(source, files)
    if is_paths(source):
        paths = [Path(path) for path in source]
        return _folder_table(f"the {len(paths):,} files", paths, _Files(delimiter, stack).table)
    if isinstance(source, pl.DataFrame | pl.LazyFrame):
        return _frame_table(source.lazy())
    if isinstance(source, Mapping) or hasattr(source, "iloc"):  # iloc: pandas
        keys = {str(key): key for key in source}
        columns = [str(key) for key in source]
        return _memory_table(columns, lambda names: _aligned(source, [keys[n] for n in names]))
    if hasattr(source, "fetch_arrow_table") and not hasattr(source, "__arrow_c_stream__"):
        source = source.fetch_arrow_table()  # a relation of an older DuckDB
    if hasattr(source, "__arrow_c_stream__"):  # Arrow, DuckDB
        return _frame_table(pl.DataFrame(source).lazy())
    raise InputError(
        f"a log cannot be read from a {type(source).__name__}: give a path, a frame, "
        "a mapping of columns or a sparse matrix"
    )


def is_paths(source: Any) -> bool:
    """Whether this is a list of paths."""
    paths = isinstance(source, list | tuple) and len(source) > 0
    return paths and all(isinstance(path, str | PathLike) for path in source)


def in_files(source: Any) -> bool:
    """Whether this is a file, folder, pattern or list of files, which every worker can read."""
    if isinstance(source, str | PathLike):
        return str(source) != "-" and not is_address(str(source))
    return is_paths(source)


# Files


class _Files:
    """Files opened by what their names say; one child process tries all the Parquet files."""

    def __init__(self, delimiter: str | None, stack: ExitStack) -> None:
        self._delimiter, self._stack = delimiter, stack  # the stack closes the child
        self._trial: Trial | None = None

    def table(self, path: Path, *, name: str | None = None, kind: str | None = None) -> Table:
        """The table of a file, whose kind may differ from its suffix."""
        name, kind = name or plain(path), (kind or str(path)).lower()
        if kind.endswith(PARQUET):
            if self._trial is None:
                self._trial = Trial()
                self._stack.callback(self._trial.close)
            return self._trial.table(existing(path), name)
        if kind.endswith(LINES):
            return lines_table(existing(path), name)
        delimiter = self._delimiter
        if delimiter is None:
            delimiter = "\t" if kind.endswith(TABS) else ","
        delimiter = delimiter.replace("\\t", "\t")  # as a shell passes it on
        if len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n\0':
            raise InputError(
                f"delimiter= (--delimiter) must be one ASCII character, got {delimiter!r}"
            )
        return text_table(existing(path), delimiter, name)


def _open_path(source: str | PathLike[str], files: _Files) -> Table:
    path, name = Path(source), str(source)
    if any(sign in name for sign in "*?[") and not path.exists():
        return _folder_table(plain(name), _files_of_pattern(name), files.table)
    if path.is_dir():
        return _folder_table(plain(name), _files_of_folder(path), files.table)
    return files.table(path)


def _files_of_pattern(pattern: str) -> list[Path]:
    """The files that a pattern with *, ? or [ ] finds, by name."""
    found = [path for name in glob(pattern, recursive=True) if (path := Path(name)).is_file()]
    if not found:
        where = plain(Path.cwd())
        raise InputError(f"{plain(pattern)} finds no file; relative paths start at {where}")
    return sorted(found, key=str)


def _files_of_folder(folder: Path) -> list[Path]:
    """The files of a folder and the folders in it, by name; hidden ones and _SUCCESS are none."""
    found = []
    for path in folder.rglob("*"):
        below = path.relative_to(folder).parts
        if path.is_file() and not any(name.startswith((".", "_")) for name in below):
            found.append(path)
    kinds = [[path for path in found if path.name.lower().endswith(kind)] for kind in KINDS]
    several, name = [paths for paths in kinds if paths], plain(folder)
    if not several:
        raise InputError(
            f"{name} is a folder without Parquet, CSV, TSV or JSON lines files: give a folder of "
            "parts, or the path of a file"
        )
    if len(several) > 1:
        some = " and ".join(paths[0].name for paths in several)
        raise InputError(
            f"{name} holds files of several kinds ({plain(some, 200)}): give a pattern such as "
            f"'{name}/*{several[0][0].suffix}'"
        )
    return sorted(several[0], key=str)


def _folder_table(name: str, paths: list[Path], open_file: Callable[[Path], Table]) -> Table:
    """Files with the same columns as one table."""
    first = _with_hive(open_file(paths[0]), paths[0])
    ends: list[int] = []  # of the parts of the columns last taken

    def part(path: Path) -> Table:
        return _with_hive(open_file(path), path, first.name)

    def take(names: list[str]) -> list[pl.Series]:
        """Whole columns of all parts: for tables that are small."""
        taken = [part(path).take(names) for path in paths]
        ends[:] = accumulate(len(columns[0]) for columns in taken)
        return [
            joined(list(columns), spelled=name in first.spelled)
            for name, columns in zip(names, zip(*taken, strict=True), strict=True)
        ]

    def where(row: int) -> str:
        at = bisect_right(ends, row)
        return part(paths[at]).where(row - (ends[at - 1] if at else 0))

    return Table(name, first.columns, take, where, first.spelled, lambda: map(part, paths))


def _with_hive(file: Table, path: Path, first: str | None = None) -> Table:
    """A file of a log with the columns that its path names: day=2024-01-31/part.parquet."""
    pairs = (name.partition("=") for name in path.parts[:-1])
    hive = {unquote(name): unquote(value) for name, sign, value in pairs if sign and name}
    hive = {name: value for name, value in hive.items() if name not in file.columns}
    columns = [*file.columns, *hive]

    def take(names: list[str]) -> list[pl.Series]:
        for name in names:
            if name not in columns:
                raise InputError(
                    f"{file.name} has no column {name!r}, which {first} has: give parts of one log"
                )
        own = [name for name in names if name not in hive] or file.columns[:1]  # for its length
        taken = dict(zip(own, file.take(own), strict=True))
        n = len(taken[own[0]])
        return [taken[name] if name in taken else _constant(hive[name], n) for name in names]

    return Table(file.name, columns, take, file.where, file.spelled | hive.keys())


def _constant(value: str, n: int) -> pl.Series:
    text = None if value == NO_PARTITION else value
    return integers_if_canonical(pl.Series([text], dtype=pl.String)).new_from_index(0, n)


def _standard_input(files: _Files) -> Table:
    """The table that comes through a pipe, kept in a file for as long as it is read."""
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError(f"{STANDARD_INPUT} is a terminal: pipe a log into it")
    kept = Path(files._stack.enter_context(TemporaryDirectory())) / "log"
    with kept.open("wb") as file:
        copyfileobj(sys.stdin.buffer, file, 1 << 20)
    with kept.open("rb") as file:
        start = file.read(4)
    if not start:
        raise InputError(f"{STANDARD_INPUT} is empty: it needs a line for each row")
    kind = "log.parquet"
    if start != b"PAR1":
        with opened_bytes(kept) as stream:
            begins = stream.read(1000).removeprefix(BOM_UTF8).lstrip()
        kind = "log.jsonl" if begins.startswith(b"{") else "log.csv"
    return files.table(kept, name=STANDARD_INPUT, kind=kind)


def existing(source: str | PathLike[str]) -> Path:
    """The path of a file that is there, may be read and is not empty."""
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


# Frames


def _memory_table(
    columns: list[str], take: Callable[[list[str]], list[pl.Series]], name: str = "the frame"
) -> Table:
    return Table(name, columns, take, lambda row: f"{name}, row {row}")


def _frame_table(frame: pl.LazyFrame, name: str = "the frame") -> Table:
    columns = frame.collect_schema().names()

    def take(names: list[str]) -> list[pl.Series]:
        wanted = [pl.nth(columns.index(name)) for name in names]  # a name may look like a pattern
        return list(frame.select(wanted).collect().get_columns())

    return _memory_table(columns, take, name)


def _aligned(source: Any, keys: list[Any]) -> list[pl.Series]:
    columns = [_column(source[key]) for key in keys]
    if len({len(column) for column in columns}) > 1:
        lengths = ", ".join(f"{key!r} {len(c)}" for key, c in zip(keys, columns, strict=True))
        raise InputError(f"the columns of the frame differ in length ({lengths}): align them")
    return columns


def _column(values: Any) -> pl.Series:
    """A sequence of any library, with None for the missing values of pandas."""
    if isinstance(values, pl.Series):
        return values
    if hasattr(values, "isna"):  # pandas
        numbers = isinstance(values.dtype, np.dtype) and values.dtype != object
        array = values.to_numpy() if numbers else values.to_numpy(dtype=object)
        values = array if numbers else np.where(values.isna(), None, array)
    if isinstance(values, np.ndarray) and values.dtype.kind in "biufMm":
        return pl.Series(values)
    if hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__"):
        return pl.Series(values)
    return series_of(values.tolist() if isinstance(values, np.ndarray) else list(values))


# Databases

DRIVERS = {
    "sqlite": "adbc_driver_sqlite",
    "postgresql": "adbc_driver_postgresql",
    "postgres": "adbc_driver_postgresql",
}
ALL_ROWS_TYPE = str(1 << 16)  # SQLite has no types of columns: they are found in so many rows


def is_address(source: str) -> bool:
    return "://" in source


def _without_password(address: str) -> str:
    """The address of a database, or a path, as it may be printed."""
    scheme, sign, rest = address.partition("://")
    if not sign:
        return plain(address)
    host, slash, path = rest.partition("/")
    return plain(f"{scheme}://{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}")


def read_query(address: str, query: str | None) -> pl.DataFrame:
    """The table that a query of a database gives."""
    name, scheme = _without_password(address), address.partition("://")[0]
    if scheme not in DRIVERS:
        known = "sqlite:///FILE or postgresql://USER@HOST/DATABASE"
        raise InputError(f"{name}: there is no driver for {scheme!r} here; give {known}")
    if not query:
        raise InputError(
            f"{name} is a database: give query= (--query), such as "
            "'SELECT user_id, item_id FROM clicks'"
        )
    driver = optional(DRIVERS[scheme], extra="sql")
    manager = optional("adbc_driver_manager", extra="sql")
    uri = _sqlite_file(address, name) if scheme == "sqlite" else address
    try:
        with (
            manager.AdbcDatabase(driver=driver._driver_path(), uri=uri) as database,
            manager.AdbcConnection(database) as connection,
            manager.AdbcStatement(connection) as statement,
        ):
            if scheme == "sqlite":
                statement.set_options(**{"adbc.sqlite.query.batch_rows": ALL_ROWS_TYPE})
            statement.set_sql_query(query)
            return pl.DataFrame(statement.execute_query()[0])
    except manager.Error as error:  # which may repeat the password of a malformed address
        reason = plain(" ".join(str(error).replace(address, name).split()), 200)
        raise InputError(
            f"{name}: the query failed ({reason}); check the address and the query"
        ) from None


def _sqlite_file(address: str, name: str) -> str:
    """The file as SQLite opens it for reading only; a missing one would be made."""
    path = Path(address.partition("://")[2].removeprefix("/") or ".")
    if not path.is_file():
        where = plain(Path.cwd())
        raise InputError(
            f"{name}: no such file; relative paths start at {where}, absolute ones with a fourth /"
        )
    return f"file:{quote(str(path))}?mode=ro"


# Sentences

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
            name, cure = _without_password(str(source)), NOT_WHAT_IT_SAYS
            name = STANDARD_INPUT if name == "-" else name
        if isinstance(error, OSError) and error.errno == ENOMEM:
            cure = memory.CURE
        raise InputError(f"{name} cannot be read ({reason}): {cure}") from None
