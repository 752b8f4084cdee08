"""Run a command in its own forked process, with limits, and say how it ended.

All packages are imported before the fork, and none is used: threads do not survive a fork.
"""

import os
import resource
import select
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # a GPU adds in any order: bits could not be compared
import optuna  # noqa: F401

from unexposed import cli
from unexposed.engine.cpu import step  # noqa: F401
from unexposed.model import model

GIB = 1 << 30
PREPARING = 1200  # seconds, for kernels are compiled then
MOST_SECONDS, MOST_MEMORY = 60, 2 * GIB
MOST_ADDRESSES = (16 + 2 * (os.cpu_count() or 1)) * GIB  # allocators reserve some for each core
SET = "--set epochs=4 --set dim=4"
FIT = f"fit world/clicks.csv --method METHOD {SET} --checkpoint-every 0"
METHODS = ("mf", "expomf")


class End(NamedTuple):
    code: int  # negative: the signal
    out: str
    err: str
    memory: int

    def fault(self) -> str | None:
        """What is wrong with how a command ended."""
        last = (self.err.splitlines() or [""])[-1]
        if self.code not in (0, 2) or "Traceback" in self.err or "panicked" in self.err:
            return f"exit {self.code}: {last[:200]}"
        if self.code == 2 and not (last.startswith("error: ") and last.isprintable()):
            return f"no sentence: {last[:200]}"
        return None if self.memory <= MOST_MEMORY else f"{self.memory / GIB:.1f} GiB"


def forked(folder: Path, work: Callable[[], int], *, seconds: int = MOST_SECONDS) -> End:
    """How `work` ends in a process of its own, in this folder."""
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    if (pid := os.fork()) == 0:
        code = 1
        try:
            os.dup2(out_end, 1)
            os.dup2(err_end, 2)
            sys.stdout, sys.stderr = (open(n, "w", closefd=False) for n in (1, 2))  # noqa: SIM115
            os.chdir(folder)
            resource.setrlimit(resource.RLIMIT_AS, (MOST_ADDRESSES, MOST_ADDRESSES))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.alarm(seconds)
            code = work()
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:
            os.write(2, traceback.format_exc().encode())
        os._exit(code)
    os.close(out_end)
    os.close(err_end)
    said = {out: b"", err: b""}
    still = [out, err]
    while still:
        for stream in select.select(still, [], [])[0]:
            block = os.read(stream, 1 << 16)
            said[stream] += block
            if not block:
                os.close(stream)
                still.remove(stream)
    _, status, used = os.wait4(pid, 0)
    texts = [said[stream].decode("utf-8", "replace") for stream in (out, err)]
    return End(os.waitstatus_to_exitcode(status), *texts, used.ru_maxrss << 10)


def command(words: str) -> int:
    """Exit code of a command in this process."""
    sys.argv = ["unexposed", *words.replace("METHOD", "mf").split()]
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def ended(folder: Path, words: str) -> End:
    return forked(folder, lambda: command(words))


def must(folder: Path, words: str, *, keep_checkpoint: bool = False) -> None:
    def work() -> int:
        if keep_checkpoint:
            model.remove = lambda _: None
        return command(words)

    end = forked(folder, work, seconds=PREPARING)
    if end.code:
        sys.exit(f"cannot prepare the attack: {words}: exit {end.code}: {end.err}")
