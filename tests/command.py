"""The command, run in this process or in one of its own."""

import importlib
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple
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


class Ended(NamedTuple):
    """How a process ended, and what it said."""

    returncode: int
    stderr: str


def ended_in_child(
    words: list[str], *, cwd: Path, killed_at: tuple[str, str, int] | None = None
) -> Ended:
    """Run the command in a process of its own, forked from a server that has imported it.

    `killed_at` names a module, its function and a number: at that call the process gets SIGKILL.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["unexposed.methods", "unexposed.cli"])
    with tempfile.NamedTemporaryFile("r") as said:
        child = context.Process(target=_in_child, args=(words, cwd, killed_at, said.name))
        child.start()
        child.join()
        return Ended(int(child.exitcode or 0), said.read())


def _in_child(words: list[str], cwd: Path, killed_at: Any, said: str) -> None:
    os.chdir(cwd)
    os.dup2(os.open(said, os.O_WRONLY), sys.stderr.fileno())
    if killed_at is not None:
        _kill_at(*killed_at)
    sys.argv = ["unexposed", *words]
    cli.main()


def _kill_at(module: str, name: str, times: int) -> None:
    home = importlib.import_module(module)
    function, calls = getattr(home, name), []

    def deadly(*given: Any, **named: Any) -> Any:
        calls.append(name)
        if len(calls) == times:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*given, **named)

    setattr(home, name, deadly)


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
