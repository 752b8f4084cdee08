"""JSON lines as a table: an object in each line, read in blocks."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from unexposed import memory
from unexposed.data.delimited import Column, check_text, text_lines
from unexposed.errors import InputError, plain

BLOCK = 100_000  # lines that are held as Python objects at a time
FIRST = 1_000  # lines whose keys are the columns
TYPES = {int: pl.Int64, str: pl.String, float: pl.Float64, bool: pl.Boolean}


class JsonLines:
    """A file with a JSON object in each line; a key that a line lacks is a missing value."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        self._path = path
        self._look = check_text(path, name)
        keys: dict[str, None] = {}
        for _, row in islice(self._objects(), FIRST):
            keys |= dict.fromkeys(row)
        self.columns = list(keys)

    def take(self, names: list[str]) -> list[Column]:
        memory.check(
            self.name,
            self._look.bytes_taken(len(names)) + memory.reserve(),
            what=f"reading {self._look.rows:,} lines",
            cure="save the log as Parquet, which takes less",
        )
        blocks: list[list[Column]] = [[] for _ in names]
        rows = (row for _, row in self._objects())
        while block := list(islice(rows, BLOCK)):
            for name, found in zip(names, blocks, strict=True):
                found.append(_typed([row.get(name) for row in block]))
        return [_joined(found) for found in blocks]

    has_header = False

    def parts(self) -> Iterator["JsonLines"]:
        yield self

    def spells(self, name: str) -> bool:
        """Whether the integers of a column are read from text; JSON tells 7 from "7"."""
        del name
        return False

    def where(self, row: int) -> str:
        lines = (f"line {line}" for line, _ in islice(self._objects(), row, None))
        return next(lines, f"row {row}")

    def _objects(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The line and the object of each row."""
        with text_lines(self._path) as lines:
            for line, text in enumerate(lines, 1):
                if not text.strip():
                    continue
                try:
                    row = json.loads(text)
                except (ValueError, RecursionError) as error:
                    raise self._refusal(line, f"is not JSON ({plain(error, 100)})") from None
                if not isinstance(row, dict):
                    raise self._refusal(line, "holds no object")
                yield line, row

    def _refusal(self, line: int, fault: str) -> InputError:
        cure = 'write an object with its user and item, {"user": …, "item": …}, in each line'
        return InputError(f"{self.name}, line {line} {fault}; {cure}")


def _typed(values: list[Any]) -> Column:
    """The values as a column of one type where they have one, otherwise as they are."""
    kinds = {type(value) for value in values} - {type(None)}
    if len(kinds) != 1 or not kinds <= TYPES.keys():
        return values
    try:
        return pl.Series(values, dtype=TYPES[kinds.pop()])
    except (TypeError, OverflowError, UnicodeError):  # beyond 64 bits, or a lone surrogate
        return values


def _joined(blocks: list[Column]) -> Column:
    series = [block for block in blocks if isinstance(block, pl.Series)]
    if len(series) == len(blocks) and len({block.dtype for block in series}) == 1:
        return pl.concat(series, rechunk=True)
    return [value for block in blocks for value in block]
