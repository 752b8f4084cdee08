"""Parquet files, each read by a child process before it is read by this one.

polars trusts the counts in a Parquet file: at a damaged one it may panic, or end the whole process.
Nothing short of reading the file tells. One child process tries all files of a log; it costs the
start of a process, about 0.2 s, and the time polars takes to read the columns once more.
"""

import json
import os
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl

from unexposed.data.columns import Table
from unexposed.errors import InputError, plain

CHILD = """
import json, sys
import polars as pl
for line in sys.stdin:
    path, places = json.loads(line)
    try:
        frame = pl.scan_parquet(path, glob=False, hive_partitioning=False)
        answer = frame.collect_schema().names()
        frame.select([pl.nth(n) for n in places]).collect()
    except Exception as error:  # a panic or an abort of polars ends this process
        answer = str(error).partition("\\n")[0]
    print(json.dumps(answer), flush=True)
"""
SECONDS, BYTES_A_SECOND = 60, 10_000_000  # the child may take a minute, and more for a large file
NOT_WHAT_IT_SAYS = "it may be damaged, or not be what its name says"


class Trial:
    """A child process that reads Parquet files first."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            # -P: modules are not looked for in the folder of the caller
            [sys.executable, "-P", "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"POLARS_MAX_THREADS": "4"} | os.environ,
            encoding="utf-8",
        )

    def table(self, path: Path, name: str) -> Table:
        """The table of a file, called by a name."""
        columns = self._read(path, name, [])

        def take(names: list[str]) -> list[pl.Series]:
            places = [columns.index(column) for column in names]
            self._read(path, name, places)
            frame = pl.scan_parquet(path.absolute(), glob=False, hive_partitioning=False)
            return list(frame.select([pl.nth(n) for n in places]).collect().get_columns())

        return Table(name, columns, take, lambda row: f"{name}, row {row}")

    def close(self) -> None:
        self._child.kill()
        self._child.communicate()

    def _read(self, path: Path, name: str, places: list[int]) -> list[str]:
        """The columns of a file, once the child has read those in these places."""
        stdin: Any = self._child.stdin
        stdout: Any = self._child.stdout
        with suppress(BrokenPipeError):  # it has ended: there is no answer
            stdin.write(json.dumps([str(path.absolute()), places]) + "\n")
            stdin.flush()
        seconds = SECONDS + path.stat().st_size / BYTES_A_SECOND
        in_time = select.select([stdout], [], [], seconds)[0]
        line = stdout.readline() if in_time else ""
        answer = json.loads(line) if line else "polars gives up on it"
        if isinstance(answer, str):
            reason = plain(answer, 100) if in_time else f"it takes more than {seconds:.0f} s"
            raise InputError(f"{name} cannot be read ({reason}): {NOT_WHAT_IT_SAYS}")
        return list(answer)
