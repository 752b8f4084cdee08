"""What several ranks cost: python benchmarks/scaling.py [--ranks 1 2 4] [--json FILE]

The reference engine trains `mf` and `ubo` on a simulated log: without a process group, through the
exchange of a group of one, and with more ranks on this machine. Seconds of a step are the least of
some epochs; the bytes of a step are what a rank gives to all-reduces.
"""

import argparse
import json
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing

import unexposed as ux
from unexposed import ranks
from unexposed.data.clicks import Clicks
from unexposed.progress import Silent
from unexposed.training.given import Side

METHODS = ("mf", "ubo")
USERS, ITEMS = 600, 400
BATCH, EPOCHS = 512, 3


class Counting(ranks.Ranks):
    """Ranks that count the bytes and the seconds of their sums."""

    n_bytes, seconds = 0, 0.0

    def add_up(self, buffer: torch.Tensor) -> None:
        started = time.perf_counter()
        super().add_up(buffer)
        self.seconds += time.perf_counter() - started
        self.n_bytes += buffer.numel() * buffer.element_size()


def steps(method: str, clicks: Clicks, others: Counting | None) -> dict[str, float]:
    """Seconds of a step, of its exchange, and bytes of it."""
    settings = {"batch_size": BATCH, "engine": "reference"}
    trainee = ux.make(method, **settings).trainee(clicks, seed=0, side=Side(), progress=Silent())
    n_steps, taken = -(-len(clicks) // BATCH), []
    for _ in range(EPOCHS):
        if others is not None:
            others.n_bytes, others.seconds = 0, 0.0
        started = time.perf_counter()
        trainee.epoch()
        waited, sent = (others.seconds, others.n_bytes) if others else (0.0, 0)
        taken.append((time.perf_counter() - started, waited, sent))
    return dict(zip(("step", "exchange", "bytes"), np.divide(min(taken), n_steps), strict=True))


def on_rank(rank: int, n_ranks: int, folder: str, clicks: Clicks) -> None:
    torch.set_num_threads(1)
    place = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=n_ranks)
    ranks._current = others = Counting()
    found = {method: steps(method, clicks, others) for method in METHODS}
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def with_ranks(n_ranks: int, clicks: Clicks) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.get_context("forkserver").set_forkserver_preload(["unexposed.methods"])
        torch.multiprocessing.start_processes(
            on_rank, (n_ranks, folder, clicks), nprocs=n_ranks, start_method="forkserver"
        )
        return json.loads(Path(folder, "found.json").read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    clicks = ux.world(USERS, ITEMS, seed=0).split(seed=0).train
    found = {"no group": {method: steps(method, clicks, None) for method in METHODS}}
    found |= {f"{n} ranks": with_ranks(n, clicks) for n in asked.ranks}
    print(f"{len(clicks):,} clicks, {BATCH:,} in a step")
    for label, by_method in found.items():
        for method, of in by_method.items():
            ratio = of["step"] / found["no group"][method]["step"]
            print(
                f"{label:9} {method:4} {1e3 * of['step']:7.1f} ms a step (×{ratio:.2f}), "
                f"{1e3 * of['exchange']:6.1f} ms of exchange, {of['bytes'] / 1e3:,.0f} kB"
            )
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
