"""The command, run in this process or in one of its own."""

import resource
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from unexposed import cli

LOG = "user,item\n" + "".join(f"u{u},i{(u * k) % 7}\n" for u in range(12) for k in (1, 2, 3))
JUDGED = "user,item,relevance\n" + "".join(
    f"u{u},i{i},{int((u + i) % 3 == 0)}\n" for u in range(12) for i in range(7)
)


def ended(*words: str) -> int:
    """Run the command in this process and return its exit code."""
    with (
        mock.patch.object(sys, "argv", ["unexposed", *words]),
        pytest.raises(SystemExit) as end,
    ):
        cli.main()
    return int(end.value.code or 0)


def python(
    *words: str, limit: float = 0, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, with this many bytes of address space."""

    def restrict() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (int(limit), int(limit)))

    return subprocess.run(
        [sys.executable, *words],
        preexec_fn=restrict if limit else None,
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )


def unexposed(
    *words: str, limit: float = 0, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return python("-m", "unexposed", *words, limit=limit, cwd=cwd)
