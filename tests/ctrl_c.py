"""Ctrl-C at a chosen moment."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path


def interrupted(act: Callable[[], object], *, after: int, files: tuple[str, ...]) -> bool:
    """Press Ctrl-C after this many calls that code in these files makes into C.

    True if `act` ended before that.
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
    """Press Ctrl-C when the command says this; its exit code and messages.

    As at a terminal, all its processes get the signal. Messages end when the last process ends.
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
        _, after = child.communicate(timeout=240)
        return child.returncode, before + after
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
