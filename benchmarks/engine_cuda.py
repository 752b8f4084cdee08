"""Measure the CUDA engine on one GPU: a UBO epoch of Yahoo!R3's size, samples a second, 10⁹ clicks.

    python benchmarks/engine_cuda.py --json benchmarks/results/engine_cuda.json

Logs are simulated, at the sizes that the targets name. A batch counts clicks; a sample is a pair: a
click or an item drawn for it. An epoch draws its negatives and its order on the GPU
(`DeviceSampler`) and is timed from its start until its loss is on the host. A step must move each
sample once, and read and write each distinct row of the batch, with its moments, once; the possible
rate is the rate of a copy on the same GPU in the same run. The bytes that the kernels actually move
count every gather, and the sums of gradients by row, each addition as a read and a write; small
tables stay in the GPU's cache and can outrun a copy.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.engine.cuda.drawing import DeviceClicks, DeviceSampler
from unexposed.engine.cuda.engine import KERNELS_OF_A_STEP, CudaEngine
from unexposed.engine.objective import Objective, Optimiser
from unexposed.maths.exposure import popularity
from unexposed.sampling import validation
from unexposed.sampling.samples import Drawing
from unexposed.sampling.validation import ValidationSet

GIGA = 1e9
OPTIMISER = Optimiser(1e-3, 1e-5, exposure_weight_decay=1e-4)


@dataclass(frozen=True)
class Log:
    """A simulated log on the card."""

    clicks: DeviceClicks
    exposure: np.ndarray

    @property
    def n_users(self) -> int:
        return len(self.clicks.user_start) - 1


@dataclass
class Figure:
    """One line of the table: seconds of each repetition, and what follows from them."""

    name: str
    samples: int  # pairs of an epoch
    batch_size: int  # clicks
    must_move: float = 0.0  # bytes of an epoch
    moves: float = 0.0
    bar: str = ""
    first: float = 0.0  # seconds of the first epoch, compilation included
    seconds: list[float] = field(default_factory=list)
    gibibytes: float = 0.0  # most device memory held
    met: bool | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def rate(self) -> float:
        return self.samples / self.median


def simulated(n_users: int, n_items: int, n_clicks: int, *, steepness: int, seed: int) -> Log:
    """A log with P(rank of an item) ∝ rank^(1/steepness − 1) and log-normal activity of users.

    Drawn by blocks of users on the card; a few clicks too many, pairs merged, the rest thinned.
    """
    torch.manual_seed(seed)
    name = torch.randperm(n_items, device="cuda")  # popular items lie anywhere in the table
    blocks = max(1, n_users // 1_000_000)
    bounds = [n_users * b // blocks for b in range(blocks + 1)]
    kept_users, kept_items = [], []
    item_counts = torch.zeros(n_items, dtype=torch.int64, device="cuda")
    user_counts = torch.zeros(n_users, dtype=torch.int64, device="cuda")
    for b in range(blocks):
        low, high = bounds[b], bounds[b + 1]
        quota = n_clicks * (b + 1) // blocks - n_clicks * b // blocks
        activity = torch.randn(high - low, device="cuda").exp().clip(max=20)
        share = activity / activity.sum() * quota * 1.3
        users = torch.repeat_interleave(share.ceil().long().clip(max=n_items // 2))
        ranks = (n_items * torch.rand(len(users), device="cuda") ** steepness).long()
        keys = torch.unique((users + low) * n_items + name[ranks.clip(max=n_items - 1)])
        assert len(keys) >= quota, "draw more"
        keys = keys[torch.arange(quota, device="cuda") * len(keys) // quota]
        kept_users.append((keys // n_items).int())
        kept_items.append((keys % n_items).int())
        item_counts += torch.bincount(kept_items[-1], minlength=n_items)
        user_counts += torch.bincount(kept_users[-1], minlength=n_users)
    users, items = torch.cat(kept_users), torch.cat(kept_items)
    start = torch.nn.functional.pad(user_counts.cumsum(0), (1, 0))
    theta = popularity(item_counts.cpu().numpy(), exponent=0.5, floor=0.01)
    return Log(DeviceClicks(users, items, start, n_items), theta)


def on_host(log: Log) -> Clicks:
    users, items = log.clicks.users.cpu().numpy(), log.clicks.items.cpu().numpy()
    ids = Ids.range(log.n_users), Ids.range(log.clicks.n_items)
    return Clicks(users, items, np.ones(len(users), dtype=np.int32), *ids)


def some_validation(log: Log, n: int, seed: int) -> ValidationSet:
    """Clicked and unclicked pairs of n/2 users, for a log too long for `validation.from_log`."""
    rng = np.random.default_rng(seed)
    users = np.sort(rng.choice(log.n_users, n // 2, replace=False))
    start = log.clicks.user_start.cpu().numpy()
    users = users[start[users + 1] > start[users]]
    clicked = log.clicks.items[torch.from_numpy(start[users]).cuda()].cpu().numpy()
    popular = np.argsort(-log.exposure)[:1000].astype(np.int32)
    both = np.concatenate([clicked, rng.choice(popular, len(users))])
    relevant = np.arange(2 * len(users)) < len(users)
    return ValidationSet(np.tile(users, 2).astype(np.int32), both, relevant).shuffled(rng)


def engine(method: str, log: Log, dim: int, guide: ValidationSet | None, part: int) -> CudaEngine:
    """UBO with this validation set and so many pairs of it a step, UMF or BPR."""

    def normal(rows: int) -> Any:
        return 0.01 * torch.randn(rows, dim, device="cuda")

    start = {"user_factors": normal(log.n_users), "item_factors": normal(log.clicks.n_items)}
    if method == "bpr":
        return CudaEngine(Objective("pairwise"), OPTIMISER, start)
    if method == "umf":
        return CudaEngine(Objective("low_variance"), OPTIMISER, start, exposure=log.exposure)
    start["exposure_user_factors"] = normal(log.n_users)
    start["gate_weight"], start["gate_bias"] = normal(1)[0], torch.zeros(1)
    objective = Objective("low_variance", "bilevel", validation_batch=part)
    return CudaEngine(objective, OPTIMISER, start, exposure=log.exposure, validation=guide)


def sampler(log: Log, negatives: int) -> DeviceSampler:
    return DeviceSampler(log.clicks, Drawing(negatives), seed=0)


def figure_of(
    name: str, method: str, draws: DeviceSampler, batch_size: int, dim: int, part: int
) -> Figure:
    """What an epoch must move and what it moves, from the distinct rows of its first batch."""
    figure = Figure(f"{method}, {name}", len(draws) * draws.pairs_a_click, batch_size)
    first = draws.draw(batch_size)
    clicks, pairs = len(first), len(first.items)
    n_users, n_items = len(np.unique(first.users)), len(np.unique(first.items))
    exposure_users = n_users if method == "ubo" else 0
    rows = n_users + n_items + exposure_users
    samples = 16 * clicks + 4 * pairs
    # rows gathered and added to (a read and a write) of a click, then of a pair; Adam reads a row,
    # its moments and its sum of gradients, writes the first three and zeroes the sums
    moves = {
        "umf": (1 + 2) * clicks + (1 + 2) * pairs,
        "bpr": (2 + 4) * clicks + (1 + 2) * pairs,
        "ubo": (4 + 5 + 4) * clicks + (3 + 2 + 3) * pairs + 2 * (n_users + n_items) + 8 * part,
    }[method] + 8 * rows
    steps = len(draws) / clicks
    figure.must_move = steps * (samples + rows * 6 * 4 * dim)
    figure.moves = steps * (samples + 24 * (clicks + pairs) + moves * 4 * dim)  # owners: 8 bytes
    return figure


def time_epoch(run: Callable[[], float]) -> float:
    torch.cuda.synchronize()
    started = time.perf_counter()
    loss = run()
    elapsed = time.perf_counter() - started
    assert np.isfinite(loss)
    return elapsed


def copy_bandwidth(repeats: int) -> list[float]:
    """Bytes a second of a device-to-device copy of 4 GiB, read and written counted."""
    source = torch.empty(1 << 30, device="cuda").normal_()
    target = torch.empty_like(source)
    rates = []
    for _ in range(repeats + 2):
        torch.cuda.synchronize()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        target.copy_(source)
        end.record()
        torch.cuda.synchronize()
        rates.append(2 * source.nbytes / (begin.elapsed_time(end) / 1e3))
    return rates[2:]


def interleaved(figures: dict[str, tuple[Figure, Callable[[], float]]], repeats: int) -> None:
    for figure, run in figures.values():
        figure.first = time_epoch(run)
    for _ in range(repeats):
        for figure, run in figures.values():
            figure.seconds.append(time_epoch(run))


def yahoo_size(log: Log, repeats: int) -> dict[str, Figure]:
    """Batches of 1,024 clicks: UBO, UMF and BPR drawn on the card, UBO on samples of the host."""
    guide = validation.from_log(on_host(log), users=0.2, items=1)
    runs: dict[str, tuple[Figure, Callable[[], float]]] = {}
    for method in ("ubo", "umf", "bpr"):
        learns, draws = engine(method, log, 50, guide, 0), sampler(log, 5)
        figure = figure_of("Yahoo!R3 size", method, draws, 1024, 50, len(guide))
        runs[method] = figure, lambda e=learns, s=draws: e.train_epoch(s, batch_size=1024)
    learns, draws = engine("ubo", log, 50, guide, 0), sampler(log, 5)
    figure = figure_of("the same, host samples", "ubo", draws, 1024, 50, len(guide))
    samples = draws.draw()
    runs["host"] = figure, lambda: learns.epoch(samples, batch_size=1024)
    interleaved(runs, repeats)
    figures = {name: figure for name, (figure, _) in runs.items()}
    figures["ubo"].bar = "≤ .006 s"
    figures["ubo"].met = figures["ubo"].median <= 0.006
    return figures


def large_batches(log: Log, repeats: int) -> list[Figure]:
    """Samples a second by batch size and drawn items, on tables of Yahoo!R3's size."""
    guide = validation.from_log(on_host(log), users=0.2, items=1)
    figures = []
    for negatives, batch_size in ((5, 1 << 13), (5, 1 << 15), (100, 1 << 10), (100, 1 << 13)):
        runs: dict[str, tuple[Figure, Callable[[], float]]] = {}
        for method in ("ubo", "umf", "bpr"):
            learns, draws = engine(method, log, 50, guide, 0), sampler(log, negatives)
            name = f"Yahoo!R3 size, {negatives} drawn"
            runs[method] = (
                figure_of(name, method, draws, batch_size, 50, len(guide)),
                lambda e=learns, s=draws, b=batch_size: e.train_epoch(s, batch_size=b),
            )
        interleaved(runs, repeats)
        figures += [figure for figure, _ in runs.values()]
    for method in ("ubo", "umf"):
        best = max((f for f in figures if f.name.startswith(method)), key=lambda f: f.rate)
        best.bar, best.met = "≥ 300 million a second", best.rate >= 300e6
    return figures


def a_billion(n_clicks: int, repeats: int) -> tuple[list[Figure], dict[str, Any]]:
    """One negative a click, dim 64, users and items in proportion to the clicks.

    UBO takes about 16,384 of 400,000 validation pairs at a step.
    """
    log = simulated(n_clicks // 100, n_clicks // 1000, n_clicks, steepness=3, seed=1)
    guide = some_validation(log, min(400_000, log.n_users // 5), seed=2)
    batch_size, part = 1 << 16, 1 << 14
    figures = []
    facts: dict[str, Any] = {"drawing_seconds_long": drawing(log, 1, repeats)}
    for method in ("umf", "ubo"):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        learns, draws = engine(method, log, 64, guide, part), sampler(log, 1)
        figure = figure_of(f"{n_clicks:.0e} clicks", method, draws, batch_size, 64, part)
        run = lambda e=learns, s=draws: e.train_epoch(s, batch_size=batch_size)  # noqa: E731
        interleaved({"": (figure, run)}, repeats)
        figure.gibibytes = torch.cuda.max_memory_reserved() / 2**30
        figure.bar = "≤ 60 s, < 100 GiB"
        figure.met = figure.median <= 60 and figure.gibibytes < 100
        figures.append(figure)
        facts[f"kernel_microseconds_long_{method}"] = by_kernel(method, learns, draws, batch_size)
        del learns, run
    return figures, facts


def drawing(log: Log, negatives: int, repeats: int) -> list[float]:
    """Seconds to draw an epoch's samples alone."""
    draws = sampler(log, negatives)
    n = min(len(draws), (1 << 24) // draws.pairs_a_click)
    users, weight = log.clicks.users.new_zeros(n), torch.zeros(n, device="cuda")
    items = log.clicks.users.new_zeros(n * draws.pairs_a_click)

    def run() -> float:
        draws.next_epoch()
        for first in range(0, len(draws), n):
            draws.fill(users, weight, items, first=first, count=min(n, len(draws) - first))
        torch.cuda.synchronize()
        return 0.0

    run()
    return [time_epoch(run) for _ in range(repeats)]


def by_kernel(
    method: str, learns: CudaEngine, draws: DeviceSampler, batch_size: int
) -> dict[str, float]:
    """Mean microseconds of each kernel of a step, over some 32 steps, by torch's profiler."""
    samples = draws.draw(32 * batch_size)
    learns.epoch(samples, batch_size=batch_size)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        learns.epoch(samples, batch_size=batch_size)
    kernels = KERNELS_OF_A_STEP["bilevel" if method == "ubo" else None]
    names = {name for name, _ in kernels}
    ran = sorted((e for e in profile.events() if e.name in names), key=lambda e: e.time_range.start)
    steps = max(1, len(samples) // batch_size)  # later ones have no clicks
    took: dict[str, list[float]] = {}
    for event, (name, phase) in zip(ran, kernels * steps, strict=False):
        took.setdefault(f"{name} {phase}", []).append(event.time_range.elapsed_us())
    return {name: statistics.mean(each) for name, each in took.items()}


def table(figures: list[Figure], bandwidth: float) -> str:
    lines = [
        f"{'':34}{'batch':>8}{'samples':>10}{'seconds (low … high)':>30}{'million/s':>11}"
        f"{'GB must':>9}{'of copy':>9}{'GB does':>9}{'of copy':>9}{'GiB':>7}  bar"
    ]
    for f in figures:
        spread = f"{f.median:.4f} ({min(f.seconds):.4f} … {max(f.seconds):.4f})"
        must, does = (f"{b / f.median / bandwidth:.0%}" for b in (f.must_move, f.moves))
        met = "" if f.met is None else f"{f.bar}: {'met' if f.met else 'NOT met'}"
        lines.append(
            f"{f.name:34}{f.batch_size:>8}{f.samples:>10.2g}{spread:>30}{f.rate / 1e6:>11.1f}"
            f"{f.must_move / GIGA:>9.3g}{must:>9}{f.moves / GIGA:>9.3g}{does:>9}"
            f"{f.gibibytes:>7.1f}  {met}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--clicks", type=int, default=10**9, help="of the long log; 0: leave it")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("the CUDA engine: not measured, there is no NVIDIA card that torch can see")
        return
    copies = copy_bandwidth(options.repeats)
    bandwidth = statistics.median(copies)
    print(f"{torch.cuda.get_device_name()}, copy {bandwidth / 1e12:.2f} TB/s", flush=True)
    log = simulated(15_400, 1_000, 112_570, steepness=2, seed=0)
    small = yahoo_size(log, 2 * options.repeats)
    figures = [*small.values(), *large_batches(log, options.repeats)]
    print(table(figures, bandwidth), flush=True)
    guide = validation.from_log(on_host(log), users=0.2, items=1)
    facts: dict[str, Any] = {
        "drawing_seconds": drawing(log, 5, options.repeats),
        "ubo_over_umf": small["ubo"].median / small["umf"].median,
    }
    for batch_size in (1024, 1 << 15):
        learns, draws = engine("ubo", log, 50, guide, 0), sampler(log, 5)
        facts[f"kernel_microseconds_{batch_size}"] = by_kernel("ubo", learns, draws, batch_size)
    if options.clicks:
        long, more = a_billion(options.clicks, max(2, options.repeats // 3))
        print(table(long, bandwidth), flush=True)
        figures += long
        facts |= more
    print(json.dumps(facts, indent=1), flush=True)
    if options.json:
        document = {
            "card": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "copy_bytes_a_second": copies,
            **facts,
            "figures": [
                asdict(f)
                | {
                    "median": f.median,
                    "samples_a_second": f.rate,
                    "must_move_of_copy": f.must_move / f.median / bandwidth,
                    "moves_of_copy": f.moves / f.median / bandwidth,
                }
                for f in figures
            ],
        }
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
