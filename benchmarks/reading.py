"""Measure seconds and peak memory of `read_log` on a log in many Parquet parts.

    python benchmarks/reading.py --rows 10000000 --parts 64 --json benchmarks/results/reading.json

Each row has a user, an item, a click of 0 or 1 and a time in milliseconds; ids are integers in one
log and texts in the other. Both are read in a process of their own, so that peak memory is theirs.
The clicks and impressions must be those of the same rows in a single file. With --ranks, that many
processes also read the parts together, each its share; then one process has imported torch as well,
as they must. With --clicks, every row is a click.
"""

import argparse
import hashlib
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

GIB = 1 << 30
N_USERS, N_ITEMS = 1_000_000, 200_000  # known to the draw; how many turn up depends on the rows


def zipf_like(rng: np.random.Generator, n: int, rows: int) -> Any:
    """Ranks below n with P(rank) roughly ∝ 1 / (rank + 1), by inverting its integral."""
    return (np.exp(rng.random(rows) * np.log(n + 1)) - 1).astype(np.int64).clip(max=n - 1)


def write_parts(
    folder: Path, *, rows: int, parts: int, texts: bool, seed: int, clicks: bool = False
) -> None:
    """A log in parts of the same size, popular users and items drawn often."""
    rng = np.random.default_rng(seed)
    user_id, item_id = rng.choice(10**12, size=N_USERS), rng.permutation(N_ITEMS)
    for n, size in enumerate(np.diff(np.linspace(0, rows, parts + 1).astype(int)).tolist()):
        part = pl.DataFrame(
            {
                "user": user_id[zipf_like(rng, N_USERS, size)],
                "item": item_id[zipf_like(rng, N_ITEMS, size)],
                "clicked": rng.random(size) < 0.1,
                "timestamp": 1_700_000_000_000 + rng.integers(0, 10**10, size),
            }
        )
        if texts:
            part = part.with_columns(pl.format("customer-{}", "user"), pl.format("sku{}", "item"))
        if clicks:
            part = part.drop("clicked")
        part.write_parquet(folder / f"part-{n:05}.parquet")


def child(source: str, *, rank: int | None, ranks: int, store: str) -> None:
    """Read once and print what it took; imports are not counted in the seconds."""
    from unexposed.data.log import read_log

    if ranks:
        import torch.distributed as dist
    if rank is not None:
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=ranks)
    start = time.perf_counter()
    clicks = read_log(source)
    seconds = time.perf_counter() - start
    own, tried = (
        resource.getrusage(who).ru_maxrss * 1024  # KiB on Linux
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    shown = clicks.shown
    arrays = [clicks.users, clicks.items, clicks.counts, clicks.times]
    arrays += [] if shown is None else [shown.users, shown.shown]
    found = hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()
    took = {"seconds": seconds, "peak_bytes": own, "peak_bytes_of_the_trial": tried}
    users = clicks.users if clicks.share is None else clicks.share.users[clicks.users]
    keys = users.astype(np.uint64) * np.uint64(clicks.n_items) + clicks.items.astype(np.uint64)
    check = int((keys * clicks.times.astype(np.uint64)).sum())  # mod 2⁶⁴: ranks add up to the whole
    impressions = 0 if shown is None else len(shown)
    took |= {"clicks": len(clicks), "impressions": impressions, "sha256": found, "sum": check}
    print(json.dumps(took))
    if rank is not None:
        dist.destroy_process_group()


def measure(*, ranks: int, **log: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "log"
        folder.mkdir()
        write_parts(folder, **log)
        in_parts = run(str(folder), ranks)
        divided = run_together(str(folder), ranks, f"file://{name}/store") if ranks else []
        whole = Path(name) / "log.parquet"
        pl.scan_parquet(folder / "*.parquet").sink_parquet(whole)
        in_one = run(str(whole), ranks)
    assert in_parts["sha256"] == in_one["sha256"], "parts and file give other clicks"
    found = {"ids": "texts" if log["texts"] else "integers", "parts": in_parts, "one file": in_one}
    if divided:
        for total in ("clicks", "impressions", "sum"):
            several = sum(took[total] for took in divided) % 2**64
            assert several == in_parts[total], f"ranks give other {total}"
        found["ranks"] = divided
    return found


def run(source: str, ranks: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", source, "--ranks", str(ranks)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def run_together(source: str, ranks: int, store: str) -> list[dict[str, Any]]:
    command = [sys.executable, __file__, "--child", source, "--ranks", str(ranks)]
    started = [
        subprocess.Popen([*command, "--rank", str(n), "--store", store], stdout=subprocess.PIPE)
        for n in range(ranks)
    ]
    return [json.loads(process.communicate()[0]) for process in started]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--parts", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--ranks", type=int, default=0, help="also read by this many processes")
    parser.add_argument("--clicks", action="store_true", help="every row is a click")
    for name in ("--child", "--rank", "--store"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        rank = None if given.rank is None else int(given.rank)
        child(given.child, rank=rank, ranks=given.ranks, store=given.store)
        return
    size = {"rows": given.rows, "parts": given.parts, "seed": given.seed}
    size |= {"ranks": given.ranks, "clicks": given.clicks}
    logs = [measure(**size, texts=texts) for texts in (False, True)]
    for log in logs:
        for source in ("parts", "one file"):
            took = log[source]
            both = (took["peak_bytes"] + took["peak_bytes_of_the_trial"]) / GIB
            print(
                f"{log['ids']:<8} {source:<8} {took['seconds']:6.1f} s, peak "
                f"{took['peak_bytes'] / GIB:.2f} GiB, {both:.2f} GiB with the process that tries "
                f"the files; {took['clicks']:,} clicks, {took['impressions']:,} shown pairs"
            )
        for rank, took in enumerate(log.get("ranks", [])):
            share = took["peak_bytes"] / log["parts"]["peak_bytes"]
            print(
                f"{log['ids']:<8} rank {rank:<3} {took['seconds']:6.1f} s, peak "
                f"{took['peak_bytes'] / GIB:.2f} GiB, {share:.0%} of one process"
            )
    if given.json is not None:
        document = size | {"cores": os.cpu_count(), "logs": logs}
        given.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
