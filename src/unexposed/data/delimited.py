"""Delimited text as a table: looked over once byte by byte, then read by polars."""

import codecs
import csv
import gzip
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import dropwhile, islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from unexposed import memory
from unexposed.errors import InputError, plain

Column = pl.Series | list[Any]
DELIMITERS = (",", ";", "\t", "|")
MOST_COLUMNS = 10_000
UNMATCHED = "the quotes do not match; quote the field and double the quotes in it"
LONE_RETURN = "a carriage return stands alone; end lines in a newline, or quote it"


class Text:
    """Delimited text with a header; a refusal names the line.

    Where quotes or lone carriage returns occur, every record is checked before polars reads the
    file: polars would join fields and rows at a stray quote. Otherwise records are looked at only
    after polars has failed, to name the line.
    """

    def __init__(self, path: Path, delimiter: str, name: str) -> None:
        self._look = check_text(path, name)
        self.name = name
        self._path = path
        self._delimiter = delimiter
        self._kept: NDArray[np.int64] | None = None
        self.columns = self._header()
        if self._look.quotes or self._look.lone_returns:
            self._check_records()

    has_header = True

    def parts(self) -> Iterator["Text"]:
        yield self

    def spells(self, name: str) -> bool:
        """Whether the integers of a column are read from text."""
        del name
        return True

    def _header(self) -> list[str]:
        with text_lines(self._path) as lines, _long_fields():
            try:
                header = next(filter(None, csv.reader(lines, delimiter=self._delimiter)))
            except StopIteration:
                raise InputError(f"{self.name} has only blank lines: write a header") from None
            except csv.Error:
                raise InputError(
                    f"{self.name}: its first line is not a header; name the columns there, "
                    "end lines with a newline and double the quotes inside quoted fields"
                ) from None
        if len(header) > MOST_COLUMNS:  # each takes polars kilobytes, whether it is read or not
            raise InputError(
                f"{self.name} has {len(header):,} columns, {MOST_COLUMNS:,} at most; "
                "keep the columns of users, items and ratings"
            )
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
            self._look.bytes_taken(len(names)) + memory.reserve(),
            what=f"reading {self._look.rows:,} lines",
            cure="save the log as Parquet, which takes less",
        )
        frame = pl.scan_csv(
            self._path.absolute(), separator=self._delimiter, infer_schema=False, glob=False
        )
        wanted = [pl.nth(self.columns.index(name)) for name in names]
        # Asks for all columns: otherwise polars would not notice a row with too many fields.
        empty = pl.all_horizontal(pl.all().is_null()).alias("\0")
        try:
            rows = frame.select(*wanted, empty).collect()
        except pl.exceptions.PolarsError as error:
            raise self._too_long() or error from None
        columns = self._without_blank_lines(rows).get_columns()
        return [integers_if_canonical(column) for column in columns[:-1]]

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

    def _check_records(self) -> None:
        """Refuse the first record whose quotes or line end can be read in more than one way."""
        sound = _record(self._delimiter)
        for line, text in _records(self._path):
            if ('"' in text or "\r" in text) and not sound.fullmatch(text):
                fault = UNMATCHED if '"' in text else LONE_RETURN
                raise InputError(f"{self.name}, line {line}: {fault}")

    def _too_long(self) -> InputError | None:
        """The refusal of the first row with more fields than the header."""
        for line, text in self._records():
            with _long_fields():
                fields = next(csv.reader([text], delimiter=self._delimiter), [])
            if len(fields) > len(self.columns):
                return InputError(
                    f"{self.name}, line {line}: {len(fields)} fields, where the header has "
                    f"{len(self.columns)}; quote a field that contains {self._delimiter!r}"
                )
        return None

    def _records(self) -> Iterator[tuple[int, str]]:
        """The first line and the text of each row below the header."""
        all_of_them = _records(self._path)
        return islice(dropwhile(lambda record: not record[1].strip("\r\n"), all_of_them), 1, None)


# Bytes and lines


@dataclass(frozen=True)
class Look:
    """What one pass over the bytes of a text file finds."""

    quotes: bool
    lone_returns: bool  # carriage returns without a newline
    rows: int  # at most: a quoted field may hold line ends
    size: int  # in bytes, decompressed

    def bytes_taken(self, n_columns: int) -> int:
        """The most memory that polars takes to read so many columns."""
        views, numbers = 16 * n_columns, 8 * n_columns + 16  # bytes a row
        return self.rows * views + self.size + max(self.size, self.rows * numbers)


def check_text(path: Path, name: str | None = None) -> Look:
    """Refuse bytes that are not UTF-8 text, and report what else the pass finds."""
    quotes = lone_returns = False
    size = 0
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    with opened_bytes(path) as stream:
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
                    f"{name or plain(path)}, line {line}: byte 0x{block[fault]:02x} is not UTF-8 "
                    "text; save the file as that, or name it .parquet if it is Parquet"
                )
    return Look(quotes, lone_returns, rows=max(line - 1, 1), size=size)


def text_lines(path: Path) -> TextIO:
    return io.TextIOWrapper(opened_bytes(path), "utf-8-sig", newline="\n")


def opened_bytes(path: Path) -> BinaryIO:
    with path.open("rb") as stream:
        packed = stream.read(2) == b"\x1f\x8b"
    return cast(BinaryIO, gzip.open(path) if packed else path.open("rb"))


@contextmanager
def _long_fields() -> Iterator[None]:
    """Let the csv module read fields beyond its limit of 131,072 characters."""
    before = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _records(path: Path) -> Iterator[tuple[int, str]]:
    """The first line and the text of each record: it ends with the line that evens its quotes."""
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


def _record(delimiter: str) -> re.Pattern[str]:
    """A record that can be read in one way only: a quote opens a field, or is one of a pair."""
    plain = f'[^{re.escape(delimiter)}"\r\n]*'
    field = f'(?:"(?:[^"]|"")*"|(?!"){plain}(?:"{plain}"{plain})*)'
    return re.compile(f"{field}(?:{re.escape(delimiter)}{field})*(?:\r?\n)?")


def integers_if_canonical(column: pl.Series) -> pl.Series:
    """The column as int64 if every id keeps its spelling: "7" does, "007" does not."""
    integers = column.cast(pl.Int64, strict=False)
    return integers if integers.cast(pl.String).eq_missing(column).all() else column
