"""Parquet files, read by a child process before they are read by this one.

polars trusts the counts in a Parquet file. A damaged count makes it panic, or ask for more memory
than there is, which ends the whole process at once. Nothing short of reading the file tells, so a
child process reads it first, under a limit on its memory and its time. It costs the start of that
process, about 0.2 s, and the time polars takes to read the columns once more.
"""

import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any

from unexposed import memory
from unexposed.errors import InputError, plain

CHILD = Path(__file__).with_name("parquet_child.py")
THREADS = 4  # of the child: each takes addresses
SECONDS, BYTES_A_SECOND = 60, 10_000_000  # the child may take a minute, and more for a large file
NOT_WHAT_IT_SAYS = "it may be damaged, or not be what its name says"


class Trial:
    """A child process that reads a Parquet file: raises InputError where that goes wrong."""

    def __init__(self, path: Path) -> None:
        self._name, self._size = plain(path), path.stat().st_size
        self._left = memory.left()
        threads = os.environ.get("POLARS_MAX_THREADS", str(THREADS))
        self._child = subprocess.Popen(
            # -P: modules are not looked for beside the script
            [sys.executable, "-P", CHILD, path.absolute(), str(self._left)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"POLARS_MAX_THREADS": threads},
            encoding="utf-8",
        )
        try:
            self._about = self._answer()
        except BaseException:
            self.close()
            raise

    @property
    def columns(self) -> list[str]:
        return list(self._about["columns"])

    def read(self, names: list[str]) -> None:
        """Read these columns, and forget them; refused first where they would not fit."""
        places = [self.columns.index(name) for name in names]
        rows = int(self._about["rows"])
        memory.check(
            self._name,
            rows * sum(self._about["sizes"][n] for n in places) + memory.reserve(),
            what=f"reading {rows:,} rows",
            cure="give a shorter log",
        )
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(places) + "\n")
        self._child.stdin.flush()
        self._answer()

    def close(self) -> None:
        self._child.kill()
        self._child.communicate()

    def _answer(self) -> dict[str, Any]:
        seconds = SECONDS + self._size / BYTES_A_SECOND
        stream = self._child.stdout
        assert stream is not None
        in_time = select.select([stream], [], [], seconds)[0]
        line = stream.readline() if in_time else ""
        answer: dict[str, Any] = json.loads(line) if line else {}
        if "fault" in answer:
            raise self._refusal(plain(answer["fault"], 100), NOT_WHAT_IT_SAYS)
        if not in_time:
            raise self._refusal(f"it takes more than {seconds:.0f} s", NOT_WHAT_IT_SAYS)
        if not line:
            room = f"or take more than the {memory.readable(self._left)} of memory left"
            raise self._refusal("polars gives up on it", f"it may be damaged, {room}")
        return answer

    def _refusal(self, reason: str, cure: str) -> InputError:
        return InputError(f"{self._name} cannot be read ({reason}): {cure}")
