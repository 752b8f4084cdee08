"""Delimited text and JSON lines as tables; what is wrong with a file is said of its line.

polars reads delimited text. Bytes that are not UTF-8 text are looked for first, and so are stray
quotes and carriage returns, at which polars would join fields or rows; any other second look at
the lines is taken only after polars has failed, or to name the line of a row.
"""

import codecs
import csv
import gzip
import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import dropwhile, islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

import polars as pl

from unexposed.data.columns import Table
from unexposed.errors import InputError, plain

DELIMITERS = (",", ";", "\t", "|")
MOST_COLUMNS = 10_000
BLOCK = 100_000  # lines of JSON that are held as Python objects at a time
FIRST = 1_000  # lines of JSON whose keys are the columns
TYPES = {int: pl.Int64, str: pl.String, float: pl.Float64, bool: pl.Boolean}
UNMATCHED = "the quotes do not match; quote the field and double the quotes in it"
LONE_RETURN = "a carriage return stands alone; end lines in a newline, or quote it"


# Delimited text


def text_table(path: Path, delimiter: str, name: str) -> Table:
    """A file of delimited text with a header."""
    needs_look = check_bytes(path, name)
    header = _header(path, delimiter, name)

    def rows() -> Iterator[tuple[int, str]]:
        """The first line and the text of each row below the header."""
        below = dropwhile(lambda record: not record[1].strip("\r\n"), _records(path))
        return islice(below, 1, None)

    def take(names: list[str]) -> list[pl.Series]:
        frame = pl.scan_csv(path.absolute(), separator=delimiter, infer_schema=False, glob=False)
        wanted = [pl.nth(header.index(column)) for column in names]
        # Asks for all columns: otherwise polars would not notice a row with too many fields.
        empty = pl.all_horizontal(pl.all().is_null()).alias("\0")
        try:
            found = frame.select(*wanted, empty).collect()
        except pl.exceptions.PolarsError as error:
            raise _too_long(rows(), len(header), delimiter, name) or error from None
        if found["\0"].any():
            blank = [_is_blank(text, delimiter) for _, text in rows()]
            found = found.filter(~pl.Series(blank, dtype=pl.Boolean))
        return [integers_if_canonical(column) for column in found.get_columns()[:-1]]

    def where(row: int) -> str:
        lines = (line for line, text in rows() if not _is_blank(text, delimiter))
        return f"{name}, line {next(islice(lines, row, None))}"

    if needs_look:
        _check_records(path, delimiter, name)
    return Table(name, header, take, where, frozenset(header))


def _header(path: Path, delimiter: str, name: str) -> list[str]:
    with text_lines(path) as lines, _long_fields():
        try:
            header = next(filter(None, csv.reader(lines, delimiter=delimiter)))
        except StopIteration:
            raise InputError(f"{name} has only blank lines: write a header") from None
        except csv.Error:
            raise InputError(
                f"{name}: its first line is not a header; name the columns there, end lines with "
                "a newline and double the quotes inside quoted fields"
            ) from None
    if len(header) > MOST_COLUMNS:  # each takes polars kilobytes, whether it is read or not
        raise InputError(
            f"{name} has {len(header):,} columns, {MOST_COLUMNS:,} at most; "
            "keep the columns of users, items and ratings"
        )
    better = max(DELIMITERS, key=header[0].count)
    if len(header) == 1 and better in header[0]:
        raise InputError(
            f"{name}: its header does not split at {delimiter!r}, but would at {better!r}; "
            f"give delimiter={better!r} (--delimiter {better!r})"
        )
    return header


def _is_blank(text: str, delimiter: str) -> bool:
    return not text.strip("\r\n" + (delimiter if delimiter.isspace() else ""))


def _check_records(path: Path, delimiter: str, name: str) -> None:
    """Refuse the first record whose quotes or line end can be read in more than one way."""
    plain_text = f'[^{re.escape(delimiter)}"\r\n]*'
    field = f'(?:"(?:[^"]|"")*"|(?!"){plain_text}(?:"{plain_text}"{plain_text})*)'
    sound = re.compile(f"{field}(?:{re.escape(delimiter)}{field})*(?:\r?\n)?")
    for line, text in _records(path):
        if ('"' in text or "\r" in text) and not sound.fullmatch(text):
            fault = UNMATCHED if '"' in text else LONE_RETURN
            raise InputError(f"{name}, line {line}: {fault}")


def _too_long(
    rows: Iterator[tuple[int, str]], width: int, delimiter: str, name: str
) -> InputError | None:
    """The refusal of the first row with more fields than the header."""
    for line, text in rows:
        with _long_fields():
            n = len(next(csv.reader([text], delimiter=delimiter), []))
        if n > width:
            return InputError(
                f"{name}, line {line}: {n} fields, where the header has {width}; "
                f"quote a field that contains {delimiter!r}"
            )
    return None


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


def integers_if_canonical(column: pl.Series) -> pl.Series:
    """The column as int64 if every id keeps its spelling: "7" does, "007" does not."""
    integers = column.cast(pl.Int64, strict=False)
    return integers if integers.cast(pl.String).eq_missing(column).all() else column


# JSON lines


def lines_table(path: Path, name: str) -> Table:
    """A file with a JSON object in each line; a key that a line lacks is a missing value."""
    check_bytes(path, name)
    keys: dict[str, None] = {}
    for _, row in islice(_objects(path, name), FIRST):
        keys |= dict.fromkeys(row)

    def take(names: list[str]) -> list[pl.Series]:
        blocks: list[list[pl.Series]] = [[series_of([])] for _ in names]
        rows = (row for _, row in _objects(path, name))
        while block := list(islice(rows, BLOCK)):
            for column, found in zip(names, blocks, strict=True):
                found.append(series_of([row.get(column) for row in block]))
        return [joined(found) for found in blocks]

    def where(row: int) -> str:
        return f"{name}, line {next(islice(_objects(path, name), row, None))[0]}"

    return Table(name, list(keys), take, where)


def _objects(path: Path, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The line and the object of each row."""
    cure = 'write an object with its user and item, {"user": …, "item": …}, in each line'
    with text_lines(path) as lines:
        for line, text in enumerate(lines, 1):
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as error:
                fault = f"is not JSON ({plain(error, 100)})"
                raise InputError(f"{name}, line {line} {fault}; {cure}") from None
            if not isinstance(row, dict):
                raise InputError(f"{name}, line {line} holds no object; {cure}")
            yield line, row


def series_of(values: list[Any]) -> pl.Series:
    """The values as a column of one type where they have one, otherwise of Python objects."""
    kinds = {type(value) for value in values} - {type(None)}
    if len(kinds) == 1 and kinds <= TYPES.keys():
        try:
            return pl.Series(values, dtype=TYPES[kinds.pop()])
        except (TypeError, OverflowError, UnicodeError):  # beyond 64 bits, or a lone surrogate
            pass
    return pl.Series(values, dtype=pl.Object)


def joined(columns: list[pl.Series], *, spelled: bool = False) -> pl.Series:
    """The columns of parts as one; integers read from text stand beside texts as they were."""
    columns = [column for column in columns if len(column)] or columns[:1]
    if len({column.dtype for column in columns}) == 1:
        return pl.concat(columns)
    if spelled:
        return pl.concat([column.cast(pl.String) for column in columns])
    return pl.Series([value for column in columns for value in column], dtype=pl.Object)


# Bytes and lines


def check_bytes(path: Path, name: str) -> bool:
    """Refuse bytes that are not UTF-8 text; whether quotes or lone carriage returns occur."""
    found, line = False, 1
    decoder = codecs.getincrementaldecoder("utf-8")()
    with opened_bytes(path) as stream:
        block = b"start"
        while block:
            block = stream.read(1 << 20)
            found = found or b'"' in block or block.count(b"\r") != block.count(b"\r\n")
            try:
                decoder.decode(block, final=not block)
                fault = block.find(b"\0")
            except UnicodeDecodeError as error:
                block, fault = error.object, error.start
            line += block.count(b"\n", 0, fault if fault >= 0 else None)
            if fault >= 0:
                raise InputError(
                    f"{name}, line {line}: byte 0x{block[fault]:02x} is not UTF-8 text; save the "
                    "file as that, or name it .parquet if it is Parquet"
                )
    return found


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
