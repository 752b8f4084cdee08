"""What ranks of the CPU engine cost: python benchmarks/scaling.py [--ranks 2 4] [--json FILE]

Trains on drawn clicks without a process group, in a group of one, and with more ranks over gloo on
this machine, one thread each. A group of one is compared epoch by epoch, in CPU seconds, which
other programs disturb least. Other seconds are wall-clock, of the quickest epoch; bytes of a step
are what a rank gives to sums and lists; memory is what the arrays of its engine take.
"""

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing

from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.objective import Objective, Optimiser
from unexposed.engine.workers import Shared
from unexposed.sampling.samples import Samples
from unexposed.sampling.validation import ValidationSet
from unexposed.workers import Workers

OBJECTIVES = {
    "mf": Objective("low_variance"),
    "ubo": Objective("low_variance", "bilevel", validation_batch=512),
}
USERS, ITEMS, CLICKS, DRAWN, DIM, PAIRS = 20_000, 5_000, 200_000, 10, 64, 4_000
EPOCHS = 5


class Counting(Workers):
    """Workers that count the bytes and the seconds of what they tell each other."""

    n_bytes, seconds = 0, 0.0

    def add_up(self, buffer: torch.Tensor) -> None:
        started = time.perf_counter()
        super().add_up(buffer)
        self._note(buffer, started)

    def gather(self, rows: torch.Tensor, lengths: Any) -> list[torch.Tensor]:
        started = time.perf_counter()
        found = super().gather(rows, lengths)
        self._note(rows, started)
        return found

    def _note(self, buffer: torch.Tensor, started: float) -> None:
        self.seconds += time.perf_counter() - started
        self.n_bytes += buffer.numel() * buffer.element_size()


class Divided(Shared):
    """An exchange for a rank that already holds its own users alone."""

    def __init__(self, ranks: Workers) -> None:
        self._ranks = ranks


def new_engine(objective: Objective, rank: int, size: int, exchange: Any) -> tuple[Any, Samples]:
    """An engine with the users u ≡ rank mod size, and their samples."""
    rng = np.random.default_rng(0)
    items = np.minimum(rng.pareto(1, (CLICKS, 1 + DRAWN)) * 50, ITEMS - 1).astype(np.int32)
    start = np.arange(CLICKS + 1, dtype=np.int64) * (1 + DRAWN)
    users = rng.integers(USERS, size=CLICKS, dtype=np.int32)
    samples = Samples(users, start, items.reshape(-1), np.ones(CLICKS, dtype=np.float32))
    guide = ValidationSet(users[:PAIRS], items[:PAIRS, 0], rng.random(PAIRS) < 0.5)

    def normal(*shape: int) -> Any:
        return rng.normal(0, 0.1, shape).astype(np.float32)

    tables = {"user_factors": normal(USERS, DIM), "item_factors": normal(ITEMS, DIM)}
    if objective.strategy is not None:
        tables |= {"exposure_user_factors": normal(USERS, DIM)}
        tables |= {"gate_weight": normal(DIM), "gate_bias": normal(1)}
    if size > 1:
        row = np.full(USERS, -1, dtype=np.int32)
        row[rank::size] = np.arange(len(row[rank::size]))
        samples, guide = samples.own(row), guide.own(row)
        tables = {n: t[rank::size] if "user" in n else t for n, t in tables.items()}
    shown = np.linspace(1, 0.1, ITEMS)
    engine = CpuEngine(
        objective,
        Optimiser(1e-3, 5e-3),
        tables,
        exposure=shown,
        validation=guide,
        exchange=exchange,
        threads=1,
    )
    return engine, samples


def held(engine: CpuEngine) -> int:
    """Bytes of the arrays that an engine keeps between epochs."""
    space: Any = engine._space
    kept = (*engine._tables, *engine._guide, *space.plan, *space.work)
    return sum(array.nbytes for array in kept if isinstance(array, np.ndarray))


def on_rank(rank: int, size: int, batch: int, folder: str) -> None:
    """Write what this rank measures, and the items that it has learned."""
    torch.set_num_threads(1)
    place = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=size)
    ranks, found = Counting(), {}
    for name, objective in OBJECTIVES.items():
        engine, samples = new_engine(objective, rank, size, Divided(ranks))
        engine.compile()
        taken = []
        for _ in range(EPOCHS):
            ranks.n_bytes, ranks.seconds = 0, 0.0
            started = time.perf_counter()
            engine.epoch(samples, batch_size=batch)
            taken.append((time.perf_counter() - started, ranks.seconds, ranks.n_bytes))
        steps = -(-CLICKS // batch)
        step = dict(zip(("step", "exchange", "bytes"), np.divide(min(taken), steps), strict=True))
        found[name] = {**step, "memory": held(engine)}
        np.save(Path(folder, f"{name}-{rank}.npy"), engine.parameters()["item_factors"])
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def with_ranks(size: int, batch: int, expected: dict[str, Any]) -> dict[str, Any]:
    """What rank 0 measures, and how far its items are from one process's."""
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.get_context("forkserver").set_forkserver_preload(["unexposed.engine.build"])
        torch.multiprocessing.start_processes(
            on_rank, (size, batch, folder), nprocs=size, start_method="forkserver"
        )
        found = json.loads(Path(folder, "0.json").read_text())
        for name, items in expected.items():
            apart = np.load(Path(folder, f"{name}-0.npy")) - items
            found[name]["apart"] = float(np.linalg.norm(apart) / np.linalg.norm(items))
        return found


def alone(batch: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Seconds of a step without a group and in a group of one, in turn; the items learned."""
    found, items = {}, {}
    for name, objective in OBJECTIVES.items():
        engines = {"no group": None, "group of one": Divided(Workers().meet())}
        made = {label: new_engine(objective, 0, 1, e) for label, e in engines.items()}
        taken: dict[str, list[Any]] = {label: [] for label in made}
        for _ in range(EPOCHS):
            for label, (engine, samples) in made.items():
                started, cpu = time.perf_counter(), time.thread_time()
                engine.epoch(samples, batch_size=batch)
                taken[label].append((time.perf_counter() - started, time.thread_time() - cpu))
        steps = -(-CLICKS // batch)
        ratios = [g[1] / n[1] for n, g in zip(*taken.values(), strict=True)][1:]
        found[name] = {
            "step": min(taken["no group"])[0] / steps,
            "group of one": float(np.median(ratios)),
            "memory": held(made["no group"][0]),
        }
        items[name] = made["no group"][0].parameters()["item_factors"]
    return found, items


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--batches", type=int, nargs="+", default=[1024, 8192])
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        place = f"file://{folder}/store"
        dist.init_process_group("gloo", init_method=place, rank=0, world_size=1)
        single = {batch: alone(batch) for batch in asked.batches}
        dist.destroy_process_group()
    result: dict[str, Any] = {"load": os.getloadavg()[0], "batches": {}}
    for batch, (one, items) in single.items():
        found = {"1": one} | {str(n): with_ranks(n, batch, items) for n in asked.ranks}
        result["batches"][str(batch)] = found
        for name in OBJECTIVES:
            ratio = one[name]["group of one"]
            first = one[name]["step"]
            print(
                f"{batch:,} clicks, {name}: {1e3 * first:.2f} ms a step, "
                f"{one[name]['memory'] / 1e6:,.0f} MB; in a group of one ×{ratio:.3f} of CPU time"
            )
            for n in asked.ranks:
                of = found[str(n)][name]
                print(
                    f"  {n} ranks: {1e3 * of['step']:.2f} ms a step, {1e3 * of['exchange']:.2f} of "
                    f"exchange, {of['bytes'] / 1e3:,.0f} kB, {of['memory'] / 1e6:,.0f} MB a rank, "
                    f"items {of['apart']:.1e} from one process"
                )
    if asked.json:
        asked.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
