"""Write a memory-mapped log of a given size, and train on an even part of it when asked.

    python benchmarks/long_log.py CLICKS FOLDER

The first line of output says how much memory was needed. Each line of input is answered with
RelMF's nanoseconds a sample, in CPU time of one core. The number of users grows with the clicks,
the number of items with their square root. Part of the samples is enough: every k-th click of the
log with ten drawn items, in random order, so that a batch meets as many different rows as in a
whole epoch.
"""

import json
import re
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.objective import Objective, Optimiser
from unexposed.sampling.samples import Samples

N_USERS, N_ITEMS, N_CLICKS = 15_400, 1_000, 112_570  # Yahoo!R3, less 10 % of its clicks
DIM, NEGATIVES, BATCH = 50, 10, 1024
STRETCH, SAMPLES = 5_000_000, 3_000_000


def size_of(clicks: int) -> tuple[int, int]:
    return round(clicks * N_USERS / N_CLICKS), round(N_ITEMS * (clicks / N_CLICKS) ** 0.5)


def drawn(n: int, size: int, rng: np.random.Generator) -> Any:
    """Rows of which the r-th comes with a chance of about (r + size/20)^−0.8."""
    low, high = (size / 20) ** 0.2, (size * 1.05) ** 0.2
    rank = (low + (high - low) * rng.random(n)) ** 5 - size / 20
    return np.minimum(rank, size - 1).astype(np.int32)


def write_log(clicks: int, folder: Path, rng: np.random.Generator) -> tuple[Any, Any]:
    """Users and items of a log as files, drawn a stretch at a time; rows in random order."""
    columns = []
    for name, size in zip(("users", "items"), size_of(clicks), strict=True):
        path = folder / f"{name}_{clicks}.npy"
        column = np.lib.format.open_memmap(path, mode="w+", dtype=np.int32, shape=(clicks,))
        order = rng.permutation(size).astype(np.int32)
        for begin in range(0, clicks, STRETCH):
            part = column[begin : begin + STRETCH]
            part[:] = order[drawn(len(part), size, rng)]
        columns.append(np.load(path, mmap_mode="r"))
    return columns[0], columns[1]


def some_samples(users: Any, items: Any, n_items: int, rng: np.random.Generator) -> Samples:
    n = min(len(users), SAMPLES // (1 + NEGATIVES))
    which = np.linspace(0, len(users) - 1, n).astype(np.int64)
    which = rng.permutation(which)
    found = rng.integers(n_items, size=(n, 1 + NEGATIVES), dtype=np.int32)
    found[:, 0] = items[which]
    start = np.arange(n + 1, dtype=np.int64) * (1 + NEGATIVES)
    return Samples(users[which], start, found.reshape(-1), np.ones(n, np.float32))


def make_engine(n_users: int, n_items: int, rng: np.random.Generator) -> CpuEngine:
    tables = {
        name: 0.01 * rng.standard_normal((n, DIM), dtype=np.float32)
        for name, n in (("user_factors", n_users), ("item_factors", n_items))
    }
    return CpuEngine(
        Objective("inverse_propensity"),
        Optimiser(1e-3, 5e-3),
        tables,
        exposure=np.full(n_items, 0.5, np.float32),
        threads=1,
    )


def peak_bytes() -> int:
    """The most memory this process had; elsewhere than on Linux with its parent's, if larger."""
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        if found:
            return 1024 * int(found[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    clicks, folder = int(sys.argv[1]), Path(sys.argv[2])
    rng, (n_users, n_items) = np.random.default_rng(clicks), size_of(clicks)
    before = peak_bytes()
    users, items = write_log(clicks, folder, rng)
    samples = some_samples(users, items, n_items, rng)
    engine = make_engine(n_users, n_items, rng)
    engine.epoch(samples, batch_size=BATCH)
    least = 8 * clicks + 3 * 4 * DIM * (n_users + n_items)  # two columns; rows with two moments
    print(json.dumps({"bytes": peak_bytes() - before, "least_bytes": least}), flush=True)
    for _ in sys.stdin:
        begin = time.thread_time()
        engine.epoch(samples, batch_size=BATCH)
        print((time.thread_time() - begin) / len(samples.items) * 1e9, flush=True)


if __name__ == "__main__":
    main()
