"""A large log from folder to lists, by ranks and by one process: python benchmarks/divided_log.py

Draws clicks into a folder of Parquet parts, then runs `fit` and `recommend` on it, in one process
and under torchrun. Memory is the peak of each process, seconds are wall-clock. The lists of both
are compared.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

PARTS, ITEMS = 16, 2_000
SETTINGS = {"epochs": 2, "dim": 64, "batch_size": 8192, "refit": "false", "negatives": 5}


def draw(folder: Path, users: int, clicks: int) -> None:
    """Clicks of users on items of unequal popularity, about as many in each part."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    chance = 1 / np.arange(1, ITEMS + 1) ** 0.5
    for part in range(PARTS):
        n = clicks // PARTS
        columns = {
            "user": rng.integers(users, size=n) * 7 + 1,
            "item": rng.choice(ITEMS, size=n, p=chance / chance.sum()),
        }
        pl.DataFrame(columns).write_parquet(folder / f"part-{part:02}.parquet")


def commands(folder: Path, place: Path, method: str) -> list[list[str]]:
    given = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    fit = ["fit", str(folder), "--method", method, *given, "--engine", "cpu"]
    return [
        [*fit, "--out", str(place / "model")],
        ["recommend", str(place / "model"), "-k", "10", "--out", str(place / "lists") + "/"],
    ]


def run(words: list[str], place: Path, ranks: int) -> dict[str, Any]:
    """Run a command and say how long it took, and the peak of each process in GiB."""
    peaks = place / f"peak-{words[0]}"
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    own = [*(torchrun if ranks > 1 else []), __file__, "--inside", str(peaks), *words]
    started = time.perf_counter()
    subprocess.run([sys.executable, *own], check=True)
    seconds = time.perf_counter() - started
    found = sorted(place.glob(f"peak-{words[0]}-*"))
    return {"seconds": seconds, "peaks": [float(path.read_text()) for path in found]}


def inside(peaks: str, words: list[str]) -> None:
    """One process of a command: the command, then its peak into a file."""
    from unexposed.cli import main as command

    sys.argv = ["unexposed", *words]
    try:
        command()
    finally:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        Path(f"{peaks}-{os.environ.get('RANK', 0)}").write_text(str(peak))


def lists(place: Path) -> pl.DataFrame:
    found = pl.read_parquet(place / "lists" / "*.parquet")
    return found.select("user", "rank", "item").sort("user", "rank")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--clicks", type=int, default=10_000_000)
    parser.add_argument("--method", default="ubo")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        draw(root / "log", asked.users, asked.clicks)
        found: dict[str, Any] = {"asked": {k: str(v) for k, v in vars(asked).items()}}
        for ranks in (1, asked.ranks):
            place = root / str(ranks)
            place.mkdir()
            for words in commands(root / "log", place, asked.method):
                found[f"{words[0]}, {ranks}"] = run(words, place, ranks)
        one, several = lists(root / "1"), lists(root / str(asked.ranks))
        assert one.select("user", "rank").equals(several.select("user", "rank"))
        found["same"] = float((one["item"] == several["item"]).mean())
    for command in ("fit", "recommend"):
        (alone,) = found[f"{command}, 1"]["peaks"]
        shares = [peak / alone for peak in found[f"{command}, {asked.ranks}"]["peaks"]]
        print(f"{command}: {alone:.2f} GiB alone, ranks {', '.join(f'{s:.0%}' for s in shares)}")
    print(f"items of lists that are the same: {found['same']:.4%}")
    if asked.json is not None:
        asked.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], sys.argv[3:])
    else:
        main()
