"""Whether the pages of a Parquet file can hold what they claim, and what they will take.

polars takes the counts in a page's header at their word: a damaged one makes it ask for more
memory than there is, and the process ends without a sentence. So these are looked at first. Only
what is surely impossible is refused; whatever else is wrong, polars refuses itself.

Headers are in Thrift's compact protocol (github.com/apache/thrift, thrift-compact-protocol.md),
their fields numbered in parquet.thrift (github.com/apache/parquet-format).
"""

import mmap
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

MAGIC = b"PAR1"
MOST_FOOTER = 4 << 20  # bytes: tables so wide that reading it here would take seconds
BYTE_ARRAY = 6  # the type of texts
PAGE_KINDS = (5, 7, 8)  # of data, of a dictionary, of data in the second version
# what reading a damaged header ends in
NO_HEADER = (IndexError, KeyError, TypeError, AttributeError, UnicodeError, RecursionError)

Buffer = Any  # mmap or bytes
Struct = dict[int, Any]


def impossible_page(path: Path, columns: list[str]) -> str | None:
    """What a page of these columns claims that cannot be, or None."""
    with _mapped(path) as file:
        try:
            chunks = list(_chunks(file, columns))
        except NO_HEADER:
            return "its footer makes no sense"
        with suppress(*NO_HEADER):  # not even a page: polars says so
            for about, rows in chunks:
                for fault in _page_faults(file, about, rows=rows):
                    return fault
    return None


def bytes_taken(path: Path, columns: list[str]) -> tuple[int, int]:
    """How many rows there are, and the most that polars holds at once to give these columns."""
    taken, n_rows = 0, dict.fromkeys(columns, 0)
    with _mapped(path) as file, suppress(*NO_HEADER):
        for about, rows in _chunks(file, columns):
            texts = about[1] == BYTE_ARRAY
            taken += rows * 16 + about[6] if texts else rows * 8  # a view each, and the texts
            n_rows[about[3][0].decode()] += rows
    return max(n_rows.values()), taken


@contextmanager
def _mapped(path: Path) -> Iterator[Buffer]:
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as file:
        yield file


def _chunks(file: Buffer, columns: list[str]) -> Iterator[tuple[Struct, int]]:
    """What the footer says of each part of these columns, and its rows."""
    length = int.from_bytes(file[-8:-4], "little")
    if file[-4:] != MAGIC or length > MOST_FOOTER:
        return
    footer, _ = _struct(file, len(file) - 8 - length)
    for group in footer[4]:
        for column in group[1]:
            if column[3][3][0].decode() in columns:
                yield column[3], group[3]


def _page_faults(file: Buffer, about: Struct, *, rows: int) -> Iterator[str]:
    """Walk the pages of a column chunk: header, its bytes, the next header."""
    values = about[5]
    if len(about[3]) == 1 and not 0 <= values == rows:  # deeper columns may repeat
        yield f"a column of {rows} rows claims {values} values"
        return
    if values == 0:
        return
    at = min(about.get(11) or about[9], about[9])  # a dictionary comes before the data
    end = at + about[7]
    while at < end:
        header, at = _struct(file, at)
        size = header[3]
        for claimed in (header[kind][1] for kind in PAGE_KINDS if kind in header):
            if not 0 <= claimed <= values:
                yield f"a page of a column of {values} values claims {claimed}"
        if not 0 <= size <= len(file) - at:
            yield f"a page claims {size} bytes where {len(file) - at} are left"
            return
        at += size


def _struct(file: Buffer, at: int) -> tuple[Struct, int]:
    """The fields of a struct by number, and where it ends."""
    found: Struct = {}
    number = 0
    while True:
        head, at = file[at], at + 1
        if head == 0:
            return found, at
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(file, at)
        found[number], at = _value(file, at, head & 15)


def _value(file: Buffer, at: int, kind: int) -> tuple[Any, int]:
    match kind:
        case 1 | 2:  # true, false
            return kind == 1, at
        case 3:  # a byte
            return file[at], at + 1
        case 4 | 5 | 6:  # integers of 16, 32 and 64 bits
            return _integer(file, at)
        case 7:  # a double, of no interest here
            return None, at + 8
        case 8:
            length, at = _varint(file, at)
            return file[at : at + length], at + length
        case 9 | 10:
            return _list(file, at)
        case 11:
            return _map(file, at)
        case 12:
            return _struct(file, at)
        case 13:  # a UUID, of no interest here
            return None, at + 16
    raise KeyError(kind)


def _list(file: Buffer, at: int) -> tuple[list[Any], int]:
    head, at = file[at], at + 1
    length, kind = head >> 4, head & 15
    if length == 15:
        length, at = _varint(file, at)
    values = []
    for _ in range(length):
        value, at = _value(file, at, 3 if kind in (1, 2) else kind)  # a bool in a list is a byte
        values.append(value)
    return values, at


def _map(file: Buffer, at: int) -> tuple[list[Any], int]:
    """Keys and values in turn."""
    length, at = _varint(file, at)
    if length == 0:
        return [], at
    kinds, at = file[at], at + 1
    parts = []
    for number in range(2 * length):
        kind = kinds & 15 if number % 2 else kinds >> 4
        part, at = _value(file, at, 3 if kind in (1, 2) else kind)
        parts.append(part)
    return parts, at


def _integer(file: Buffer, at: int) -> tuple[int, int]:
    """Zigzag: 0, −1, 1, −2, … are kept as 0, 1, 2, 3, …"""
    raw, at = _varint(file, at)
    return (raw >> 1) ^ -(raw & 1), at


def _varint(file: Buffer, at: int) -> tuple[int, int]:
    """Seven bits a byte, the lowest first; the eighth says that more follow."""
    value = 0
    for shift in range(0, 70, 7):
        byte, at = file[at], at + 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise KeyError("varint")
