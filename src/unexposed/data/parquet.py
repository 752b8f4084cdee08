"""Parquet files, read by a child process before they are read by this one.

polars trusts the counts in a Parquet file. A damaged count makes it panic, or ask for more memory
than there is, which ends the whole process at once. Nothing short of reading the file tells, so a
child process reads it first, under a limit on its memory and its time. It costs the start of one
process for all files of a log, about 0.2 s, and the time polars takes to read columns once more.
"""

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from unexposed import memory
from unexposed.data.delimited import Column
from unexposed.errors import InputError, plain

CHILD = Path(__file__).with_name("parquet_child.py")
THREADS = 4  # of the child: each takes addresses
SECONDS, BYTES_A_SECOND = 60, 10_000_000  # the child may take a minute, and more for a large file
NOT_WHAT_IT_SAYS = "it may be damaged, or not be what its name says"


class Trial:
    """A child process that reads Parquet files: raises InputError where that goes wrong."""

    def __init__(self) -> None:
        self._left = memory.left()
        self._at: Path | None = None  # the file opened last
        threads = os.environ.get("POLARS_MAX_THREADS", str(THREADS))
        self._child = subprocess.Popen(
            # -P: modules are not looked for beside the script
            [sys.executable, "-P", CHILD, str(self._left)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"POLARS_MAX_THREADS": threads},
            encoding="utf-8",
        )

    def open(self, path: Path, name: str) -> "Parquet":
        """The table of a file, called by a name."""
        about = self._asked(str(path.absolute()), path, name)
        self._at = path
        return Parquet(self, path, name, about["columns"], about["sizes"], int(about["rows"]))

    def read(self, file: "Parquet", places: list[int]) -> None:
        """Read columns of a file, given by number, and forget them."""
        if self._at != file.path:
            self.open(file.path, file.name)
        self._asked(places, file.path, file.name)

    def close(self) -> None:
        self._child.kill()
        self._child.communicate()

    def _asked(self, question: str | list[int], path: Path, name: str) -> dict[str, Any]:
        stdin, stdout = self._child.stdin, self._child.stdout
        assert stdin is not None
        assert stdout is not None
        with suppress(BrokenPipeError):  # it has ended: there is no answer
            stdin.write(json.dumps(question) + "\n")
            stdin.flush()
        seconds = SECONDS + path.stat().st_size / BYTES_A_SECOND
        in_time = select.select([stdout], [], [], seconds)[0]
        line = stdout.readline() if in_time else ""
        answer: dict[str, Any] = json.loads(line) if line else {}
        if "fault" in answer:
            raise _refusal(name, plain(answer["fault"], 100), NOT_WHAT_IT_SAYS)
        if not in_time:
            raise _refusal(name, f"it takes more than {seconds:.0f} s", NOT_WHAT_IT_SAYS)
        if not line:
            room = f"or take more than the {memory.readable(self._left)} of memory left"
            raise _refusal(name, "polars gives up on it", f"it may be damaged, {room}")
        return answer


@dataclass(frozen=True)
class Parquet:
    """The columns of a Parquet file that a child process has opened."""

    trial: Trial
    path: Path
    name: str
    columns: list[str]
    sizes: list[int]  # bytes of a value, by column
    rows: int

    def take(self, names: list[str]) -> list[Column]:
        """Columns, read by the child process first; refused where they would not fit."""
        places = [self.columns.index(name) for name in names]
        memory.check(
            self.name,
            self.rows * sum(self.sizes[n] for n in places) + memory.reserve(),
            what=f"reading {self.rows:,} rows",
            cure="give a shorter log",
        )
        self.trial.read(self, places)
        frame = pl.scan_parquet(self.path.absolute(), glob=False, hive_partitioning=False)
        return list(frame.select([pl.nth(n) for n in places]).collect().get_columns())

    has_header = False

    def parts(self) -> Iterator["Parquet"]:
        yield self

    def spells(self, name: str) -> bool:
        """Whether the integers of a column are read from text; those of Parquet are integers."""
        del name
        return False

    def where(self, row: int) -> str:
        return f"row {row}"


def _refusal(name: str, reason: str, cure: str) -> InputError:
    return InputError(f"{name} cannot be read ({reason}): {cure}")
