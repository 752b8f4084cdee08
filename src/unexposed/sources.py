"""Whatever holds columns becomes a table: files, frames, mappings; or is refused."""

import codecs
import csv
import gzip
import io
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from errno import ENOMEM
from itertools import dropwhile, islice
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from unexposed import memory
from unexposed.errors import InputError
from unexposed.panics import without_panics
from unexposed.parquet import bytes_taken, impossible_page

Column = pl.Series | list[Any]
DELIMITERS = (",", ";", "\t", "|")


@dataclass(frozen=True)
class Frame:
    """Columns in memory, or in a Parquet file."""

    name: str
    columns: list[str]
    take: Callable[[list[str]], list[Column]]

    def where(self, row: int) -> str:
        return f"row {row}"


class Text:
    """Delimited text with a header; a row that is refused is named by its line."""

    def __init__(self, path: Path, delimiter: str) -> None:
        self._look = check_text(path)
        self.name = plain(path)
        self._path = path
        self._delimiter = delimiter
        self._kept: NDArray[np.int64] | None = None
        self.columns = self._header()
        if self._look.lone_returns and (misfit := self._misfit()):
            raise misfit
        if self._look.quotes:
            self._check_quotes()

    def _header(self) -> list[str]:
        with text_lines(self._path) as lines, _long_fields():
            try:
                header = next(filter(None, csv.reader(lines, delimiter=self._delimiter)))
            except StopIteration:
                raise InputError(f"{self.name} has only blank lines: write a header") from None
            except csv.Error:
                raise InputError(
                    f"{self.name}: its first line is no header; name the columns there, end lines "
                    "with a newline and double the quotes inside quoted fields"
                ) from None
        better = max(DELIMITERS, key=header[0].count)
        if len(header) == 1 and better in header[0]:
            raise InputError(
                f"{self.name}: its header does not split at {self._delimiter!r}, but would at "
                f"{better!r}; give delimiter={better!r} (--delimiter {better!r})"
            )
        return header

    def take(self, names: list[str]) -> list[Column]:
        memory.check(
            self.name,
            self._look.bytes_taken(len(names)) + memory.RESERVE,
            what=f"reading {self._look.rows:,} lines",
            cure="save the log as Parquet, which takes less",
        )
        frame = pl.scan_csv(
            self._path.absolute(), separator=self._delimiter, infer_schema=False, glob=False
        )
        wanted = [pl.nth(self.columns.index(name)) for name in names]
        # Looks at all columns: else polars would not notice a row with too many fields.
        empty = pl.all_horizontal(pl.all().is_null()).alias("\0")
        try:
            with without_panics():
                rows = frame.select(*wanted, empty).collect()
        except pl.exceptions.PolarsError as error:
            raise self._misfit() or error from None
        columns = self._without_blank_lines(rows).get_columns()
        return [_integers_if_canonical(column) for column in columns[:-1]]

    def where(self, row: int) -> str:
        row = row if self._kept is None else int(self._kept[row])
        lines = (f"line {line}" for line, _ in islice(self._records(), row, None))
        return next(lines, f"row {row}")

    def _without_blank_lines(self, rows: pl.DataFrame) -> pl.DataFrame:
        empty = set(rows["\0"].arg_true())
        if not empty:
            return rows
        texts = enumerate(text for _, text in self._records())
        blank = [row for row, text in texts if row in empty and not text.strip()]
        self._kept = np.delete(np.arange(len(rows)), blank)
        return rows[self._kept]

    def _check_quotes(self) -> None:
        """Refuse text after a closing quote, which polars reads in its own way."""
        with text_lines(self._path) as lines, _long_fields():
            try:
                for _ in csv.reader(lines, delimiter=self._delimiter, strict=True):
                    pass
            except csv.Error as error:
                raise self._misfit() or InputError(f"{self.name}: {plain(error)}") from None

    def _misfit(self) -> InputError | None:
        """What is wrong with the first row that does not fit the header."""
        for line, text in self._records():
            try:
                with _long_fields():
                    [fields] = csv.reader([text], delimiter=self._delimiter, strict=True)
                whole = text.count('"') % 2 == 0 and not text.endswith(("\r", "\r\r\n"))
            except (csv.Error, ValueError):
                whole = False
            if not whole:
                fault = "the quotes do not match; quote the field and double the quotes in it"
                if '"' not in text and "\r" in text.removesuffix("\r\n"):
                    fault = "a carriage return stands alone; end lines in a newline, or quote it"
                return InputError(f"{self.name}, line {line}: {fault}")
            if len(fields) > len(self.columns):
                return InputError(
                    f"{self.name}, line {line}: {len(fields)} fields, where the header has "
                    f"{len(self.columns)}; quote a field that contains {self._delimiter!r}"
                )
        return None

    def _records(self) -> Iterator[tuple[int, str]]:
        """The line each row starts on, and its text: a quoted field may hold line ends."""
        all_of_them = _records(self._path)
        return islice(dropwhile(lambda record: not record[1].strip("\r\n"), all_of_them), 1, None)


Table = Frame | Text


def open_table(source: Any, delimiter: str | None) -> Table:
    table: Table
    if isinstance(source, str | PathLike):
        table = _open_file(existing(source), delimiter)
    elif isinstance(source, pl.DataFrame | pl.LazyFrame):
        table = _lazy_table("the frame", source.lazy())
    elif isinstance(source, Mapping) or hasattr(source, "iloc"):  # iloc: pandas
        keys = {str(key): key for key in source}
        columns = [str(key) for key in source]
        table = Frame(
            "the frame", columns, lambda names: _aligned(source, [keys[n] for n in names])
        )
    elif hasattr(source, "__arrow_c_stream__"):
        table = _lazy_table("the frame", pl.DataFrame(source).lazy())
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
    with without_panics():
        table = _lazy_table(plain(path), pl.scan_parquet(path.absolute(), glob=False))

    def take(names: list[str]) -> list[Column]:
        if fault := impossible_page(path, names):
            raise InputError(f"{table.name} is damaged ({fault}): write or copy it again")
        rows, needed = bytes_taken(path, names)
        memory.check(
            table.name,
            needed + memory.RESERVE,
            what=f"reading {rows:,} rows",
            cure="give a shorter log",
        )
        with without_panics():
            return table.take(names)

    return replace(table, take=take)


def _lazy_table(name: str, frame: pl.LazyFrame) -> Frame:
    columns = frame.collect_schema().names()

    def take(names: list[str]) -> list[Column]:
        wanted = [pl.nth(columns.index(name)) for name in names]  # a name may look like a pattern
        return list(frame.select(wanted).collect().get_columns())

    return Frame(name, columns, take)


def _aligned(source: Any, keys: list[Any]) -> list[Column]:
    columns = [_column(source[key]) for key in keys]
    if len({len(column) for column in columns}) > 1:
        lengths = ", ".join(f"{key!r} {len(c)}" for key, c in zip(keys, columns, strict=True))
        raise InputError(f"the columns of the frame differ in length ({lengths}): align them")
    return columns


def _column(values: Any) -> Column:
    """A sequence of any library, with None where pandas misses a value."""
    if isinstance(values, pl.Series):
        return values
    if hasattr(values, "isna"):  # of pandas
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


def _opened(path: Path) -> BinaryIO:
    with path.open("rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    return cast(BinaryIO, gzip.open(path) if packed else path.open("rb"))


def text_lines(path: Path) -> TextIO:
    return io.TextIOWrapper(_opened(path), "utf-8-sig", newline="\n")


@dataclass(frozen=True)
class Look:
    """What a text file holds, at a first reading from end to end."""

    quotes: bool
    lone_returns: bool  # carriage returns without a newline
    rows: int  # at most: a quoted field may hold line ends
    size: int  # in bytes, unpacked

    def bytes_taken(self, n_columns: int) -> int:
        """The most that polars holds at once to give so many columns of it."""
        views, numbers = 16 * n_columns, 8 * n_columns + 16  # bytes a row
        return self.rows * views + self.size + max(self.size, self.rows * numbers)


def check_text(path: Path) -> Look:
    """Refuse what is no UTF-8; what else there is to know of it."""
    quotes = lone_returns = False
    size = 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    with _opened(path) as stream:
        block = b"start"
        while block:
            block = stream.read(1 << 20)
            size += len(block)
            quotes = quotes or b'"' in block
            lone_returns = lone_returns or block.count(b"\r") != block.count(b"\r\n")
            try:
                decoder.decode(block, final=not block)
                fault = block.find(b"\0")
            except UnicodeDecodeError as error:
                block, fault = error.object, error.start
            line += block.count(b"\n", 0, fault if fault >= 0 else None)
            if fault >= 0:
                raise InputError(
                    f"{plain(path)}, line {line}: byte 0x{block[fault]:02x} is not UTF-8 text; "
                    "save the file as that, or name it .parquet if it is Parquet"
                )
    return Look(quotes, lone_returns, rows=max(line - 1, 1), size=size)


@contextmanager
def _long_fields() -> Iterator[None]:
    """Lets the csv module read fields of any length, which it refuses beyond 131,072 characters."""
    before = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _records(path: Path) -> Iterator[tuple[int, str]]:
    """The line each record starts on, and its text: it ends where its quotes are even."""
    record: list[str] = []
    odd = False
    with text_lines(path) as stream:
        for line, text in enumerate(stream, 1):
            record.append(text)
            odd ^= text.count('"') % 2 == 1
            if not odd:
                yield line - len(record) + 1, "".join(record)
                record = []
        if record:
            yield line - len(record) + 1, "".join(record)


def _integers_if_canonical(column: pl.Series) -> pl.Series:
    """As int64 if no id loses its spelling by it: "7" may, "007" may not."""
    integers = column.cast(pl.Int64, strict=False)
    return integers if integers.cast(pl.String).eq_missing(column).all() else column


_FOREIGN = (pl.exceptions.PolarsError, pl.exceptions.PanicException)


@contextmanager
def refusing(source: Any) -> Iterator[None]:
    """Turns what polars, gzip and the system say of a source into one sentence."""
    try:
        yield
    except (*_FOREIGN, OSError, EOFError, zlib.error, UnicodeError) as error:
        reason = plain(str(error).partition("\n")[0], 100)
        if isinstance(error, pl.exceptions.PanicException):  # which speaks of polars' own code
            reason = "polars gives up on it"
        name, cure = "the frame", "give plain columns of ids"
        if isinstance(source, str | PathLike):
            name, cure = plain(source), "it may be damaged, or not be what its name says"
        if isinstance(error, OSError) and error.errno == ENOMEM:
            cure = memory.CURE
        raise InputError(f"{name} cannot be read ({reason}): {cure}") from None


def bad_row(table: Table, row: int, fault: str) -> InputError:
    return InputError(f"{table.name}, {table.where(row)}: {fault}")


def plain(text: object, limit: int = 1000) -> str:
    """Text on one line, control characters escaped, shortened to a limit."""
    whole = "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))
    return whole if len(whole) <= limit else whole[: limit - 1] + "…"
