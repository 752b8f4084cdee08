"""Compare the CPU engine with its targets: ratios with their spread, measured in turn in one run.

    python benchmarks/engine_cpu.py [--data-dir DIR] [--json FILE]
        [--implicit-python PYTHON] [--recbole-python PYTHON] [--sizes CLICKS ...]

Runs on Yahoo!R3 if DIR has it, otherwise on clicks drawn at its size; dim 50, batches of 1,024
clicks with 10 drawn items each. A sample is a pair; for BPR, a click and a drawn item.
Work of one core, or of the first thread with its waiting, is measured in CPU seconds, which other
programs disturb least. Everything else is wall-clock seconds, absent if other programs used more
than a tenth of the cores. Each round gives a ratio; the table shows median, least and greatest.
A log of 10⁸ clicks needs 13 GiB of memory and 1 GiB of disk.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from engine_cpu_rows import (
    Times,
    busy_seconds,
    byte_rows,
    cores,
    method_rows,
    part_rows,
    rival_rows,
    size_rows,
)
from epoch_share import yahoo
from long_log import BATCH, DIM, NEGATIVES
from pytorch_ubo import UBO
from unexposed.data.clicks import Clicks
from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.objective import Objective, Optimiser
from unexposed.maths import exposure
from unexposed.sampling import samples as sampling
from unexposed.sampling import validation
from unexposed.sampling.samples import Samples

HERE = Path(__file__).parent
QUIET = 0.1  # most cores that other programs may use where wall-clock seconds count
OPTIMISER = Optimiser(1e-3, 5e-3, exposure_weight_decay=1e-4)
BILEVEL = Objective("low_variance", "bilevel")


def start(n_users: int, n_items: int, *, learned: bool) -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return rng.normal(0, 0.01, shape).astype(np.float32)

    tables = {"user_factors": normal(n_users, DIM), "item_factors": normal(n_items, DIM)}
    if learned:
        tables["exposure_user_factors"] = normal(n_users, DIM)
        tables["gate_weight"], tables["gate_bias"] = normal(DIM), normal(1)
    return tables


def epochs_in_turn(runs: dict[str, Callable[[], float]], repeats: int) -> Times:
    """Seconds of each, one after the other, again and again; the first round warms up."""
    times: Times = {name: [] for name in runs}
    for round_ in range(repeats + 1):
        for name, run in runs.items():
            seconds = run()
            if round_ > 0:
                times[name].append(seconds)
    return times


def engine_runs(
    clicks: Clicks,
    samples: Samples,
    theta: Any,
    guide: validation.ValidationSet,
) -> dict[str, Callable[[], float]]:
    """An epoch of each method on one core, and on all."""
    objectives = {
        "RelMF": Objective("inverse_propensity"),
        "UMF": Objective("low_variance"),
        "frozen": Objective("low_variance", "frozen"),
        "alternate": Objective("low_variance", "alternate"),
        "UBO, 512 validation pairs": Objective("low_variance", "bilevel", validation_batch=512),
        "UBO": BILEVEL,
        "BPR": Objective("pairwise"),
    }
    runs = {}
    for name, objective in objectives.items():
        for threads in (1, cores()):
            engine = CpuEngine(
                objective,
                OPTIMISER,
                start(clicks.n_users, clicks.n_items, learned=objective.strategy is not None),
                exposure=None if objective.loss == "pairwise" else theta,
                validation=guide,
                threads=threads,
            )
            runs[f"{name}, {threads} cores"] = epoch_of(engine, samples, time.perf_counter)
            what = "CPU" if threads == 1 else "first thread"
            runs[f"{name}, {what}"] = epoch_of(engine, samples, time.thread_time)
    return runs


def epoch_of(
    engine: CpuEngine, samples: Samples, clock: Callable[[], float]
) -> Callable[[], float]:
    def run() -> float:
        begin = clock()
        engine.epoch(samples, batch_size=BATCH)
        return clock() - begin

    return run


def pytorch_run(
    clicks: Clicks,
    samples: Samples,
    theta: Any,
    guide: validation.ValidationSet,
    *,
    threads: int,
    clock: Callable[[], float],
) -> Callable[[], float]:
    """Seconds of an epoch of the PyTorch program, from some of its batches."""
    model = UBO(
        n_users=clicks.n_users,
        n_items=clicks.n_items,
        dim=DIM,
        popularity=torch.from_numpy(theta),
        validation=tensors(guide.users, guide.items, guide.relevant),
    )
    some = [pairs_of(batch) for batch in list(samples.batches(BATCH))[:20]]

    def run() -> float:
        torch.set_num_threads(threads)
        begin = clock()
        for batch in some:
            model.step(batch)
        return (clock() - begin) / len(some) * (len(samples) / BATCH)

    return run


def pairs_of(batch: Samples) -> Any:
    pairs = batch.pairs()
    return tensors(pairs.users, pairs.items, pairs.click)


def tensors(*arrays: Any) -> Any:
    users, items, click = arrays
    return (
        torch.from_numpy(users).long(),
        torch.from_numpy(items).long(),
        torch.from_numpy(click.astype(np.float32)),
    )


def cost_by_size(sizes: Sequence[int], repeats: int) -> tuple[dict[int, list[float]], Any]:
    """Nanoseconds a sample on one core for logs of these sizes, and the memory of each."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        runs, memory = {}, {}
        for clicks in sizes:
            command = [sys.executable, str(HERE / "long_log.py"), str(clicks), folder]
            process = stack.enter_context(
                subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            )
            memory[clicks] = json.loads(answer(process))
            runs[str(clicks)] = partial(ask, process)
        times = epochs_in_turn(runs, repeats)
    return {clicks: times[str(clicks)] for clicks in sizes}, memory


def ask(process: Any) -> float:
    process.stdin.write("again\n")
    process.stdin.flush()
    return float(answer(process))


def answer(process: Any) -> str:
    line: str = process.stdout.readline()
    if not line:
        raise SystemExit(f"{' '.join(process.args)} ended; too little memory?")
    return line


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    rng, repeats = np.random.default_rng(0), arguments.repeats
    source, logged = yahoo(arguments.data_dir)
    clicks, _ = logged.hold_out(fraction=0.1, seed=0)
    theta = exposure.popularity(clicks.item_counts, exponent=0.5, floor=0.01)
    guide = validation.from_log(clicks, users=0.2, items=1).shuffled(rng)
    begin = time.perf_counter()
    CpuEngine(Objective("pairwise"), OPTIMISER, start(9, 9, learned=False)).compile()
    compiling = time.perf_counter() - begin
    samples = sampling.drawn(clicks, negatives=NEGATIVES, rng=rng)
    runs = engine_runs(clicks, samples, theta, guide)
    for name, threads, clock in (
        ("UBO in PyTorch, CPU", 1, time.process_time),
        (f"UBO in PyTorch, {cores()} cores", cores(), time.perf_counter),
    ):
        runs[name] = pytorch_run(clicks, samples, theta, guide, threads=threads, clock=clock)
    busy, own, wall = busy_seconds(), time.process_time(), time.perf_counter()
    times = epochs_in_turn(runs, repeats)
    others = busy_seconds() - busy - (time.process_time() - own)
    others_share = max(0.0, others / cores() / (time.perf_counter() - wall))
    by_size, memory = cost_by_size(arguments.sizes, repeats)
    table = [
        *method_rows(times, quiet=others_share < QUIET),
        *rival_rows(
            times,
            clicks,
            recbole=arguments.recbole_python,
            implicit=arguments.implicit_python,
        ),
        *size_rows(by_size, memory),
        *byte_rows(times, samples, guide, clicks, repeats),
        *part_rows(times, len(samples.items)),
    ]
    return {
        "data": source,
        "clicks": len(clicks),
        "validation_pairs": len(guide),
        "compile_or_load_seconds": compiling,
        "load_average": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "others_share": others_share,  # of the cores, used by other programs meanwhile
        "epoch_seconds": times,
        "memory": memory,
        "table": table,
    }


def show(result: dict[str, Any]) -> None:
    title = f"{result['data']}, {result['clicks']:,} clicks, dim {DIM}, batch {BATCH}"
    table = Table("", "bar", "median", "least", "greatest", title=title)
    for line in result["table"]:
        numbers = (line["median"], line["least"], line["greatest"])
        table.add_row(
            line["what"], line["bar"], *("absent" if v is None else f"{v:.2f}" for v in numbers)
        )
    Console().print(table)
    for name, seconds in result["epoch_seconds"].items():
        print(f"{name}: {statistics.median(seconds):.3f} s an epoch (least {min(seconds):.3f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--implicit-python")
    parser.add_argument("--recbole-python")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**5, 10**6, 10**7, 10**8])
    arguments = parser.parse_args()
    result = measure(arguments)
    show(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
