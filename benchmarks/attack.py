"""Attack the commands with hostile logs, hostile folders, kills and full disks; count what fails.

    python benchmarks/attack.py --minutes 60
    python benchmarks/attack.py --logs 200 --folders 10 --kills 20 --seed 7

Every case runs in its own forked process, and case n of a seed is the same in every run. A command
must succeed, or end in one sentence and exit code 2, within a minute and 2 GiB. Exit code 1 if any
case failed.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from attack_command import FIT, METHODS, must
from attack_folders import folders
from attack_logs import LOGS_TOGETHER, logs
from attack_strikes import prepare_strikes, strikes

EXPERIMENT = """kind = 'compare'
seeds = 2
[data]
simulate = { users = 30, items = 40 }
[methods.popularity]
"""


def prepare(whole: Path) -> None:
    """Logs, models, checkpoints and experiments, all sound: what the attacks begin with."""
    whole.mkdir()
    must(whole, "simulate --out world --users 30 --items 40")
    must(whole, "simulate --out second --users 32 --items 42 --seed 5")
    lines = (whole / "second/clicks.csv").read_text().splitlines()
    (whole / "newer.csv").write_text("\n".join(lines[:60]) + "\n")
    for method in METHODS:
        fit = FIT.replace("METHOD", method)
        must(whole, f"{fit} --out {method}", keep_checkpoint=True)
    must(whole, f"{FIT} --out other --seed 1", keep_checkpoint=True)
    for study, seeds in (("study", 1), ("study2", 2)):
        (whole / study).mkdir()
        (whole / study / "e.toml").write_text(EXPERIMENT)
        must(whole, f"run {study}/e.toml --seeds {seeds}")
    (whole / "note.txt").write_text("not ours")


def mount_apart() -> None:
    """Begin again where small disks may be mounted and no one else sees them, if there is a way."""
    apart = ["unshare", "--map-root-user", "--mount"]
    if "ATTACK_APART" in os.environ or not shutil.which("unshare"):
        return
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode == 0:
        os.environ["ATTACK_APART"] = "1"
        os.execvp(apart[0], [*apart, sys.executable, *sys.argv])


def together(attack: Callable[..., Iterator[str | None]], *args: Any) -> list[str | None]:
    return list(attack(*args))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60, help="each attack ends at a third")
    parser.add_argument("--logs", type=int, default=10_000)
    parser.add_argument("--folders", type=int, default=2_000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    mount_apart()
    failures: list[str] = []
    rows = []
    with tempfile.TemporaryDirectory(prefix="attack-") as name:
        base = Path(name).resolve()
        tempfile.tempdir = str(base)
        prepare(whole := base / "whole")
        struck = prepare_strikes(whole, base, given.kills)
        attacks: list[tuple[str, int, Callable[..., Any], tuple[Any, ...]]] = [
            ("hostile logs", -(-given.logs // LOGS_TOGETHER), logs, ()),
            ("damaged models × commands", given.folders, folders, (whole,)),
            ("kills and full disks", given.kills, strikes, (struck,)),
        ]
        together_at_most = 4 * (os.cpu_count() or 1)
        for title, cases, attack, args in attacks:
            end, tried, failed = time.monotonic() + 20 * given.minutes, 0, 0
            with ProcessPoolExecutor(os.cpu_count(), get_context("fork")) as pool:
                for first in range(0, cases, together_at_most):
                    if time.monotonic() > end:
                        break
                    numbers = range(first, min(first + together_at_most, cases))
                    waiting = [pool.submit(together, attack, *args, n, given.seed) for n in numbers]
                    for number, done in zip(numbers, waiting, strict=True):
                        for fault in done.result():
                            tried += 1
                            if fault:
                                failed += 1
                                failures.append(f"{title}, case {number}: {fault}")
                                print(failures[-1], file=sys.stderr, flush=True)
            rows.append((title, tried, failed))
    print("| attack | tried | failed |\n|---|---|---|")
    for title, tried, failed in rows:
        print(f"| {title} | {tried:,} | {failed:,} |")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
