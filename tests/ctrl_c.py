"""Ctrl-C at a chosen moment."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


def interrupted(act: Callable[[], object], *, after: int, files: tuple[str, ...]) -> bool:
    """Whether it ended before Ctrl-C came: as Python does, after a call of the system's.

    `after` counts the calls that the code in these files makes.
    """
    calls = iter(range(after + 1))

    def count(frame, event, _):
        is_ours = event == "c_return" and Path(frame.f_code.co_filename).name in files
        if is_ours and next(calls, None) == after:
            raise KeyboardInterrupt

    sys.setprofile(count)
    try:
        act()
    except KeyboardInterrupt:
        return False
    finally:
        sys.setprofile(None)
    return True


def interrupted_at(words: str, said: str, folder: Path) -> tuple[int, str]:
    """Exit code and messages of a command that Ctrl-C ends, as at a terminal, when it says this.

    The terminal gives it to all processes. Messages end when the last of them has ended.
    """
    child = subprocess.Popen(
        [sys.executable, "-m", "unexposed", *words.split()],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stderr is not None
    try:
        before = ""
        for line in child.stderr:
            before += line
            if said in line:
                break
        os.killpg(child.pid, signal.SIGINT)
        _, after = child.communicate(timeout=60)
        return child.returncode, before + after
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
