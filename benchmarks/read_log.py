"""Measure seconds and peak memory of `read_log` and of pandas on a large Parquet log.

    python benchmarks/read_log.py --rows 10000000

Each reader runs in its own process, so that peak memory is its own; the two take turns.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

READERS = ("unexposed", "pandas")
N_USERS, N_ITEMS = 1_000_000, 200_000  # known to the draw; how many turn up depends on the rows


def write_logs(folder: Path, *, rows: int, seed: int) -> dict[str, Path]:
    """One log, popular users and items drawn often, with integer and with string ids."""
    import polars as pl

    rng = np.random.default_rng(seed)
    user_id = rng.choice(10**12, size=N_USERS)
    users = user_id[zipf_like(rng, N_USERS, rows)]
    items = rng.permutation(N_ITEMS)[zipf_like(rng, N_ITEMS, rows)]
    integers = pl.DataFrame({"user": users, "item": items})
    strings = integers.select(
        user=pl.format("customer-{}", "user"), item=pl.format("sku{}", "item")
    )
    paths = {"int": folder / "int.parquet", "str": folder / "str.parquet"}
    integers.write_parquet(paths["int"])
    strings.write_parquet(paths["str"])
    return paths


def zipf_like(rng: np.random.Generator, n: int, rows: int) -> Any:
    """Ranks below n with P(rank) roughly ∝ 1 / (rank + 1), by inverting its integral."""
    return (np.exp(rng.random(rows) * np.log(n + 1)) - 1).astype(np.int64).clip(max=n - 1)


def read_with_unexposed(path: Path) -> tuple[int, ...]:
    from unexposed.data.log import read_log

    clicks = read_log(path)
    return clicks.n_users, clicks.n_items, len(clicks), int(clicks.counts.sum())


def read_with_pandas(path: Path) -> tuple[int, ...]:
    """The same as plainly as pandas has it: sorted ids, sorted pairs, counts."""
    import pandas as pd

    frame = pd.read_parquet(path, columns=["user", "item"])
    users, user_ids = pd.factorize(frame["user"], sort=True)
    items, item_ids = pd.factorize(frame["item"], sort=True)
    del frame
    pairs = pd.DataFrame({"user": users.astype(np.int32), "item": items.astype(np.int32)})
    counts = pairs.groupby(["user", "item"], sort=True).size()
    frame = counts.reset_index(name="count")
    arrays = [frame[column].to_numpy() for column in ("user", "item", "count")]
    return len(user_ids), len(item_ids), len(arrays[0]), int(arrays[2].sum())


def child(reader: str, path: Path) -> None:
    """Reads once and prints what it took; imports are not counted in the seconds."""
    if reader == "unexposed":
        import unexposed.data.log  # noqa: F401
    else:
        import pandas  # noqa: F401
    start, cpu_start = time.perf_counter(), time.process_time()
    result = (read_with_unexposed if reader == "unexposed" else read_with_pandas)(path)
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # KiB on Linux
    took = {"seconds": seconds, "cpu_seconds": cpu_seconds, "peak_mib": peak}
    print(json.dumps(took | {"result": result}))


def measure(paths: dict[str, Path], *, repeats: int) -> list[dict[str, Any]]:
    rows = []
    for ids, path in paths.items():
        runs: dict[str, list[dict[str, Any]]] = {reader: [] for reader in READERS}
        for _ in range(repeats):
            for reader in READERS:
                command = [sys.executable, __file__, "--child", reader, str(path)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                runs[reader].append(json.loads(done.stdout))
        assert len({tuple(run["result"]) for each in runs.values() for run in each}) == 1
        rows += [{"ids": ids, "reader": reader} | summary(runs[reader]) for reader in READERS]
    return rows


def summary(runs: list[dict[str, Any]]) -> dict[str, float]:
    seconds = [run["seconds"] for run in runs]
    return {
        "seconds": statistics.median(seconds),
        "fastest": min(seconds),
        "slowest": max(seconds),
        "cpu_seconds": statistics.median(run["cpu_seconds"] for run in runs),
        "peak_mib": max(run["peak_mib"] for run in runs),
    }


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        f"{'ids':<4} {'reader':<10} {'seconds':>8} {'spread':>15} {'CPU s':>6} {'peak MiB':>9}"
        "  against pandas"
    ]
    for row, other in zip(rows, [r for r in rows[1::2] for _ in READERS], strict=True):
        spread = f"{row['fastest']:.2f} … {row['slowest']:.2f}"
        time_ratio, memory_ratio = (row[k] / other[k] for k in ("seconds", "peak_mib"))
        lines.append(
            f"{row['ids']:<4} {row['reader']:<10} {row['seconds']:>8.2f} {spread:>15} "
            f"{row['cpu_seconds']:>6.1f} {row['peak_mib']:>9.0f}"
            f"  {time_ratio:.2f} of the time, {memory_ratio:.2f} of the memory"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        child(given.child[0], Path(given.child[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = write_logs(Path(folder), rows=given.rows, seed=given.seed)
        rows = measure(paths, repeats=given.repeats)
    if given.json:
        print(json.dumps({"rows": given.rows, "cores": os.cpu_count(), "readings": rows}))
    else:
        print(f"{given.rows:,} rows, {os.cpu_count()} cores, median of {given.repeats}")
        print(table(rows))


if __name__ == "__main__":
    main()
