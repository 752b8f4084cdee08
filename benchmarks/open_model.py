"""Time opening a large saved model, finding a user by raw id, and recommending.

    python benchmarks/open_model.py --users 10000000 --items 1000000 --dim 64

Writes a model of this size (random numbers; 10 clicks a user) to a temporary folder, about 5 GB at
these sizes, and opens it in new processes: first with a cold page cache, then with whatever earlier
runs left in it. Importing the package is not timed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

CLICKS_A_USER = 10


def write_model(folder: Path, *, users: int, items: int, dim: int, text: bool) -> None:
    """A model of mf with vectors drawn at random, and clicks spread over the catalogue."""
    from unexposed.data.clicks import Clicks
    from unexposed.data.ids import Ids, Texts
    from unexposed.methods import make
    from unexposed.model.model import Model

    rng = np.random.default_rng(0)
    rows = np.repeat(np.arange(users, dtype=np.int32), CLICKS_A_USER)
    first = rng.integers(items - CLICKS_A_USER, size=users, dtype=np.int32)
    columns = np.repeat(first, CLICKS_A_USER) + np.tile(
        np.arange(CLICKS_A_USER, dtype=np.int32), users
    )
    user_ids = Ids(np.arange(users) * 3 + 10**9)
    if text:
        user_ids = Ids(Texts.of(f"customer-{n:012d}" for n in range(users)))
        user_ids.__dict__["order"] = None  # as they stand
    clicks = Clicks.stored(
        rows,
        columns,
        np.ones_like(rows),
        np.arange(users + 1) * CLICKS_A_USER,
        user_ids=user_ids,
        item_ids=Ids.range(items),
    )
    tables = {"user_factors": users, "item_factors": items}
    parameters = {
        name: rng.standard_normal((n, dim), dtype=np.float32) for name, n in tables.items()
    }
    Model(make("mf", dim=dim), parameters, clicks, {"seed": 0}).save(folder)


def forget(folder: Path) -> None:
    """Have the system drop what it holds of these files in memory."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measure(folder: Path) -> dict[str, float]:
    """Seconds of each step in this process, and the memory it then holds of its own, in MB."""
    import polars

    import unexposed.methods
    from unexposed.methods import load

    del unexposed, polars  # imported, so that their time is not counted
    before = own_megabytes()
    taken, clock = {}, time.perf_counter()

    def lap(name: str) -> None:
        nonlocal clock
        now = time.perf_counter()
        taken[name], clock = now - clock, now

    model = load(folder)
    lap("open")
    wanted = [model.user_ids.values[n] for n in (3, len(model.user_ids) // 2, -1)]
    lap("three raw ids by index")
    found = model.user_ids.index([*wanted, "nobody"])
    lap("three users by raw id")
    assert found.tolist() == [3, len(model.user_ids) // 2, len(model.user_ids) - 1, -1]
    model.recommend(wanted, k=10)
    lap("ten items for three users")
    return {**taken, "MB more": own_megabytes() - before}


def own_megabytes() -> float:
    """The memory of this process that is no page of a file."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=10_000_000)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--folder", type=Path, help="measure this model, and print JSON")
    parser.add_argument("--temporary", type=Path, help="where the models are written")
    given = parser.parse_args()
    if given.folder is not None:
        print(json.dumps(measure(given.folder)))
        return
    for text in (False, True):
        with tempfile.TemporaryDirectory(dir=given.temporary) as place:
            folder = Path(place) / "model"
            begin = time.perf_counter()
            write_model(folder, users=given.users, items=given.items, dim=given.dim, text=text)
            size = sum(path.stat().st_size for path in folder.iterdir())
            kind = "text" if text else "integer"
            print(
                f"{given.users:,} users with {kind} ids × {given.items:,} items, dim {given.dim}, "
                f"{given.users * CLICKS_A_USER:,} clicks: {size / 1e9:.2f} GB, made and saved in "
                f"{time.perf_counter() - begin:.0f} s"
            )
            forget(folder)
            for run in ("nothing in memory", "a second time", "a third time"):
                shown = {name: f"{value:.3f}" for name, value in in_a_process(folder).items()}
                print(f"  {run}: " + ", ".join(f"{k} {v}" for k, v in shown.items()))


def in_a_process(folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, __file__, "--folder", str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


if __name__ == "__main__":
    main()
