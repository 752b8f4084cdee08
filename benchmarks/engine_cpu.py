"""The fast CPU engine beside its bars: ratios with their spread, measured in turn in one run.

    python benchmarks/engine_cpu.py [--data-dir DIR] [--json FILE] [--implicit-python PYTHON]

On Yahoo!R3 where DIR has it, else on clicks drawn at its size; dim 50, 5 negatives, batch 1024.
What concerns one core is measured in CPU seconds, which other programs disturb least; the rest in
seconds on the wall, which needs idle cores: the load average stands in the result. A ratio is
worked out in every round, and its median, least and greatest given.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from pytorch_ubo import UBO
from unexposed import datasets, exposure, sampling, validation
from unexposed.data import Clicks, Ids
from unexposed.engine import Objective, Optimiser
from unexposed.engine.cpu import CpuEngine
from unexposed.errors import InputError
from unexposed.sampling import Pairs, Triples

N_USERS, N_ITEMS, N_CLICKS = 15_400, 1_000, 112_570  # Yahoo!R3, less 10 % of its clicks
DIM, NEGATIVES, BATCH = 50, 5, 1024
OPTIMISER = Optimiser(1e-3, 1e-5, exposure_weight_decay=1e-4)
BILEVEL = Objective("low_variance", "bilevel")
Times = dict[str, list[float]]

IMPLICIT_BPR = """
import sys, numpy as np, scipy.sparse as sp
from implicit.bpr import BayesianPersonalizedRanking
users, items = np.load(sys.argv[1]), np.load(sys.argv[2])
shape = (int(sys.argv[3]), int(sys.argv[4]))
clicks = sp.csr_matrix((np.ones(len(users), np.float32), (users, items)), shape=shape)
seconds = []
model = BayesianPersonalizedRanking(factors=int(sys.argv[5]), iterations=8, num_threads=1)
model.fit(clicks, show_progress=False, callback=lambda epoch, elapsed, *_: seconds.append(elapsed))
print(len(users) / min(seconds))
"""


def yahoo(data_dir: str | None, rng: np.random.Generator) -> tuple[str, Clicks]:
    """The clicks of Yahoo!R3 where they are here, else drawn ones of that size."""
    try:
        logged = datasets.load("yahoo_r3", data_dir=data_dir, download=False).logged
    except InputError:
        return "simulated", drawn_clicks(N_CLICKS, N_USERS, N_ITEMS, rng)
    liked = np.flatnonzero(logged.values >= 4)
    kept = rng.permutation(liked)[: round(0.9 * len(liked))]
    return "Yahoo!R3", Clicks.from_pairs(
        logged.users[kept], logged.items[kept], user_ids=logged.user_ids, item_ids=logged.item_ids
    )


def drawn_clicks(n: int, n_users: int, n_items: int, rng: np.random.Generator) -> Clicks:
    """About n clicks, users and items drawn by power laws."""
    users, items = drawn_pairs(int(1.1 * n), n_users, n_items, rng)
    keys = np.unique(users.astype(np.int64) * n_items + items)
    keys = rng.permutation(keys)[:n]
    return Clicks.from_pairs(
        keys // n_items, keys % n_items, user_ids=Ids.range(n_users), item_ids=Ids.range(n_items)
    )


def drawn_pairs(n: int, n_users: int, n_items: int, rng: np.random.Generator) -> tuple[Any, Any]:
    """The r-th user or item comes with a chance of about (r + n/20)^−0.8."""
    return tuple(
        rng.permutation(size)[rng.choice(size, size=n, p=_power_law(size))].astype(np.int32)
        for size in (n_users, n_items)
    )


def _power_law(size: int) -> Any:
    weight = (np.arange(size) + size / 20) ** -0.8
    return weight / weight.sum()


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
    clicks: Clicks, theta: Any, guide: validation.ValidationSet, rng: np.random.Generator
) -> dict[str, Callable[[], float]]:
    """An epoch of each method on one core, and on all."""
    pairs = sampling.sampled_pairs(clicks, negatives=NEGATIVES, weighting="none", rng=rng)
    triples = sampling.sampled_triples(clicks, negatives=NEGATIVES, rng=rng)
    objectives = {
        "RelMF": Objective("inverse_propensity"),
        "UBO": BILEVEL,
        "UBO, 512 validation pairs": Objective("low_variance", "bilevel", validation_batch=512),
        "BPR": Objective("pairwise"),
    }
    runs = {}
    for name, objective in objectives.items():
        samples = triples if objective.loss == "pairwise" else pairs
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
            if threads == 1:
                runs[f"{name}, CPU"] = epoch_of(engine, samples, time.thread_time)
    return runs


def epoch_of(
    engine: CpuEngine, samples: Pairs | Triples, clock: Callable[[], float]
) -> Callable[[], float]:
    def run() -> float:
        begin = clock()
        engine.epoch(samples, batch_size=BATCH)
        return clock() - begin

    return run


def pytorch_run(
    clicks: Clicks,
    theta: Any,
    guide: validation.ValidationSet,
    rng: np.random.Generator,
    *,
    threads: int,
    clock: Callable[[], float],
) -> Callable[[], float]:
    """Seconds of an epoch of the PyTorch program, from some of its batches."""
    pairs = sampling.sampled_pairs(clicks, negatives=NEGATIVES, weighting="none", rng=rng)
    model = UBO(
        n_users=clicks.n_users,
        n_items=clicks.n_items,
        dim=DIM,
        popularity=torch.from_numpy(theta),
        validation=tensors(guide.users, guide.items, guide.relevant),
    )
    some = [tensors(b.users, b.items, b.click) for b in list(pairs.batches(BATCH))[:20]]

    def run() -> float:
        torch.set_num_threads(threads)
        begin = clock()
        for batch in some:
            model.step(batch)
        return (clock() - begin) / len(some) * (len(pairs) / BATCH)

    return run


def tensors(*arrays: Any) -> Any:
    users, items, click = arrays
    return (
        torch.from_numpy(users).long(),
        torch.from_numpy(items).long(),
        torch.from_numpy(click.astype(np.float32)),
    )


def implicit_samples_a_second(python: str, clicks: Clicks, folder: Path) -> float | None:
    """implicit's BPR on one core, in its own interpreter; None where it is not installed."""
    np.save(folder / "users.npy", clicks.users)
    np.save(folder / "items.npy", clicks.items)
    paths = [str(folder / name) for name in ("users.npy", "items.npy")]
    sizes = [str(n) for n in (clicks.n_users, clicks.n_items, DIM)]
    command = [python, "-c", IMPLICIT_BPR, *paths, *sizes]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    return float(done.stdout) if done.returncode == 0 else None


def cost_by_size(sizes: Sequence[int], repeats: int) -> dict[int, list[float]]:
    """Nanoseconds a sample on one core, for tables that grow with the clicks; RelMF.

    Users go with the clicks, items with their square root; at most three million samples a size.
    """
    runs, counts = {}, {}
    for n in sizes:
        rng = np.random.default_rng(n)
        n_users, n_items = round(n * N_USERS / N_CLICKS), round(N_ITEMS * (n / N_CLICKS) ** 0.5)
        count = min(n * (1 + NEGATIVES), 3_000_000)
        users, items = drawn_pairs(count, n_users, n_items, rng)
        drawn = rng.random(count) > 1 / (1 + NEGATIVES)
        items[drawn] = rng.integers(n_items, size=drawn.sum())
        pairs = Pairs(users, items, (~drawn).astype(np.float32), np.ones(count, np.float32))
        engine = CpuEngine(
            Objective("inverse_propensity"),
            OPTIMISER,
            start(n_users, n_items, learned=False),
            exposure=np.full(n_items, 0.5, np.float32),
            threads=1,
        )
        runs[str(n)] = epoch_of(engine, pairs, time.thread_time)
        counts[n] = count
    times = epochs_in_turn(runs, repeats)
    return {n: [t / counts[n] * 1e9 for t in times[str(n)]] for n in sizes}


def ratios(over: list[float], under: list[float]) -> list[float]:
    return [a / b for a, b in zip(over, under, strict=True)]


def cores() -> int:
    return max(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)


def row(what: str, bar: str, values: list[float]) -> dict[str, Any]:
    if not values:
        return {"what": what, "bar": bar, "median": None, "least": None, "greatest": None}
    middle = statistics.median(values)
    return {
        "what": what,
        "bar": bar,
        "median": middle,
        "least": min(values),
        "greatest": max(values),
    }


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    source, clicks = yahoo(arguments.data_dir, rng)
    theta = exposure.popularity(clicks.item_counts, exponent=0.5, floor=0.01)
    guide = validation.from_log(clicks, users=0.2, items=1).shuffled(rng)
    begin = time.perf_counter()
    CpuEngine(Objective("pairwise"), OPTIMISER, start(9, 9, learned=False)).compile()
    compiling = time.perf_counter() - begin
    runs = engine_runs(clicks, theta, guide, rng)
    for name, threads, clock in (
        ("UBO in PyTorch, CPU", 1, time.process_time),
        (f"UBO in PyTorch, {cores()} cores", cores(), time.perf_counter),
    ):
        runs[name] = pytorch_run(clicks, theta, guide, rng, threads=threads, clock=clock)
    times = epochs_in_turn(runs, arguments.repeats)
    implicit = [
        found
        for _ in range(arguments.repeats)
        if (found := implicit_samples_a_second(arguments.implicit_python, clicks, folder))
    ]
    samples = NEGATIVES * len(clicks)
    bpr = [samples / t for t in times["BPR, CPU"]]
    n = cores()
    one, cpu, all_ = "1 cores", "CPU", f"{n} cores"
    part = "UBO, 512 validation pairs"
    table = [
        row(
            f"UBO / RelMF, {all_}", "≤ 2.0", ratios(times[f"UBO, {all_}"], times[f"RelMF, {all_}"])
        ),
        row("UBO / RelMF, one core", "≤ 2.0", ratios(times[f"UBO, {cpu}"], times[f"RelMF, {cpu}"])),
        row(
            f"{part} / RelMF, {all_}",
            "≤ 1.4",
            ratios(times[f"{part}, {all_}"], times[f"RelMF, {all_}"]),
        ),
        row(
            f"{part} / RelMF, one core",
            "≤ 1.4",
            ratios(times[f"{part}, {cpu}"], times[f"RelMF, {cpu}"]),
        ),
        *(
            row(
                f"UBO in PyTorch / ours, {where}",
                "≥ 50",
                ratios(times[f"UBO in PyTorch, {key}"], times[f"UBO, {key}"]),
            )
            for where, key in ((all_, all_), ("one core", cpu))
        ),
        row("BPR, million samples a second and core", "", [b / 1e6 for b in bpr]),
        row("implicit's BPR, the same", "", [i / 1e6 for i in implicit]),
        row("BPR / implicit's", "≥ 0.5", ratios(bpr[: len(implicit)], implicit)),
        *(
            row(
                f"{n} cores over one, {m}",
                "≥ 1.6",
                ratios(times[f"{m}, {one}"], times[f"{m}, {all_}"]),
            )
            for m in ("RelMF", "UBO", "BPR")
        ),
    ]
    by_size = cost_by_size(arguments.sizes, arguments.repeats)
    smallest = by_size[arguments.sizes[0]]
    for size, cost in by_size.items():
        table.append(row(f"ns a sample, {size:,} clicks", "", cost))
        table.append(
            row(f"the same over {arguments.sizes[0]:,} clicks", "≤ 1.5", ratios(cost, smallest))
        )
    return {
        "data": source,
        "clicks": len(clicks),
        "validation_pairs": len(guide),
        "compile_or_load_seconds": compiling,
        "load_average": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "epoch_seconds": times,
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
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--implicit-python", default=sys.executable)
    parser.add_argument("--sizes", type=int, nargs="+", default=[10**5, 10**6, 10**7])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(arguments, Path(folder))
    show(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
