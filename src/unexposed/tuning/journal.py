"""Optuna's journal of a study: locked by the system, and cut back to the lines that are whole."""

import fcntl
import json
from pathlib import Path
from typing import Any, BinaryIO


class Lock:
    """A lock for Optuna's journal that ends with its process.

    Optuna's own is a link beside the journal: a killed process leaves it there, and the next one
    waits for it.
    """

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._file: BinaryIO | None = None

    def acquire(self) -> bool:
        self._file = self._journal.open("ab")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return True

    def release(self) -> None:
        assert self._file is not None
        self._file.close()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def cut_back(journal: Path) -> int:
    """Cut a journal off where its first torn line begins, as a full disk leaves one; bytes lost.

    What stands after a torn line no one could read, so no one went on from it.
    """
    with Lock(journal), journal.open("rb+") as file:
        whole = 0
        for line in file:
            if not _is_whole(line):
                return file.seek(0, 2) - file.truncate(whole)
            whole += len(line)
    return 0


def _is_whole(line: bytes) -> bool:
    try:
        entry: Any = json.loads(line)
    except ValueError:
        return False
    return line.endswith(b"\n") and isinstance(entry, dict)
