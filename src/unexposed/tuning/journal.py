"""Lock Optuna's journal of a study by the system, and cut it back to its whole lines."""

import fcntl
import json
from pathlib import Path
from typing import Any, BinaryIO


class Lock:
    """A lock for Optuna's journal that ends with its process.

    Optuna's own lock is a link beside the journal: a killed process leaves it behind, and the next
    process waits for it.
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
    """Truncate a journal at its first torn line, as a full disk leaves one; return bytes lost.

    Optuna cannot read past a torn line, so no trial depends on what follows it.
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
