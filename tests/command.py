"""The command, run in this process or in one of its own."""

import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from unexposed import cli


def ended(*words: str) -> int:
    """The exit code of the command in this process."""
    with (
        mock.patch.object(sys, "argv", ["unexposed", *words]),
        pytest.raises(SystemExit) as end,
    ):
        cli.main()
    return int(end.value.code or 0)


def python(
    *words: str, limit: float = 0, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own, which may use so many addresses."""

    def restrict() -> None:
        import resource

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
