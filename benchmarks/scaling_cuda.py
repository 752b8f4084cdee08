"""What several ranks cost on one GPU: python benchmarks/scaling_cuda.py --json FILE

1. A group of one rank over NCCL against no process group: as `fit` trains there, and through the
   exchange (`divided.py`), which a group of one need not take. All three come in turn, each after
   epochs that warm it up, from the same samples of the host. The ratio is that of medians, with
   the ratios of single turns beside it.
2. Two ranks that share the card over gloo, against one process and against the reference engine in
   float64, on the same samples. NCCL refuses two ranks on one card: several cards are not tested.
3. A whole `fit` of two such ranks, its choice of the epoch and training on all clicks included,
   against the CPU engine in one process, which draws the same samples: parameters, and lists.
4. Bytes that a rank gives to all-reduces in a step, and their seconds, the card waited for.
"""

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing

from engine_cuda import Log, engine, sampler, simulated, some_validation, time_epoch
from unexposed import workers
from unexposed.data.worlds.simulate import world
from unexposed.engine.cuda.engine import CudaEngine
from unexposed.engine.objective import Objective, Optimiser
from unexposed.engine.reference import ReferenceEngine
from unexposed.engine.workers import Shared
from unexposed.methods import make
from unexposed.model.model import Model
from unexposed.progress import Silent
from unexposed.sampling.samples import Samples
from unexposed.sampling.validation import ValidationSet

USER_TABLES = ("user_factors", "exposure_user_factors")

SLOWER, APART = 1.05, 1e-4  # what a group of one may cost, and how far float32 may be off
SIZES = {"small": (20_000, 2_000, 1 << 10), "large": (400_000, 40_000, 1 << 16)}
STEPS = 48  # of a timed epoch
TIMED = {"small": 40, "large": 8}  # epochs of a turn: a tenth of a second or more
OPTIMISER = Optimiser(5e-3, 1e-3, exposure_learning_rate=3e-3, gate_pace=0.5, lookahead=0.05)
OBJECTIVES = {
    "ubo": Objective("low_variance", "bilevel", validation_batch=500),
    "ubo joint": Objective("low_variance", "joint"),
    "ubo alternate": Objective("low_variance", "alternate"),
    "ubo bilevel_on_batch": Objective("low_variance", "bilevel_on_batch"),
    "ubo frozen": Objective("low_variance", "frozen"),
    "umf": Objective("low_variance"),
    "relmf": Objective("inverse_propensity"),
    "bpr": Objective("pairwise"),
}
N_RANKS, BATCH, EPOCHS, DIM = 2, 512, 2, 16
FITTED = ("ubo", "umf", "relmf", "bpr", "mf")  # by whole trainings


class Counting(Shared):
    """The exchange of a rank, which counts the bytes and, where asked, the seconds of its sums."""

    def __init__(self, others: workers.Workers, *, timed: bool = False) -> None:
        self._ranks, self._timed = others, timed
        self.n_bytes, self.marks, self.sums, self.seconds, self.telling = 0, 0, 0, 0.0, 0.0

    def total(self, gradients: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        if not any(g.is_cuda for g in gradients.values()):
            return super().total(gradients)
        shared = [g for n, g in gradients.items() if n not in USER_TABLES]
        n_bytes, tells = sum(g.numel() * g.element_size() for g in shared), "marks" in gradients
        self.marks += n_bytes if tells else 0
        self.n_bytes += 0 if tells else n_bytes
        self.sums += 1
        if not self._timed:
            return super().total(gradients)
        torch.cuda.synchronize()
        started = time.perf_counter()
        found = super().total(gradients)
        torch.cuda.synchronize()
        took = time.perf_counter() - started
        self.telling += took if tells else 0.0
        self.seconds += 0.0 if tells else took
        return found

    def per_step(self, steps: int) -> dict[str, float]:
        return {
            "bytes_a_step": self.n_bytes / steps,
            "marks_a_step": self.marks / steps,
            "sums_a_step": self.sums / steps,
            "seconds_of_sums_a_step": self.seconds / steps,
            "seconds_of_marks_a_step": self.telling / steps,
        }


# a group of one ------------------------------------------------------------------------------


def with_exchange(method: str, log: Log, guide: ValidationSet, exchange: Counting) -> CudaEngine:
    """`engine_cuda.engine` with an exchange, started elsewhere but of the same sizes."""
    plain = engine(method, log, 64, guide, 1 << 12)
    objective = Objective("low_variance", "bilevel", validation_batch=1 << 12)
    kinds = {"ubo": objective, "umf": Objective("low_variance"), "bpr": Objective("pairwise")}
    exposure = None if method == "bpr" else log.exposure
    given: dict[str, Any] = {"exposure": exposure, "validation": guide, "exchange": exchange}
    return CudaEngine(kinds[method], OPTIMISER, plain.parameters(), **given)


def group_of_one(folder: Path, repeats: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for size, (n_users, n_items, batch_size) in SIZES.items():
        log = simulated(n_users, n_items, 25 * n_users, steepness=3, seed=0)
        guide = some_validation(log, n_users // 5, seed=2)
        samples = sampler(log, 1).draw(STEPS * batch_size)
        for method in ("ubo", "umf", "bpr"):
            found[f"{method}, {size} batches"] = in_turn(
                method, log, guide, samples, batch_size, folder, repeats, TIMED[size]
            )
    return found


def timed(run: Callable[[], float], epochs: int) -> float:
    """Seconds of an epoch: the mean of some, after a quarter as many that warm up."""
    for _ in range(1 + epochs // 4):
        run()
    return statistics.mean(time_epoch(run) for _ in range(epochs))


def in_turn(
    method: str,
    log: Log,
    guide: ValidationSet,
    samples: Samples,
    batch_size: int,
    folder: Path,
    repeats: int,
    epochs: int,
) -> dict[str, Any]:
    """Seconds of epochs without a group, in a group of one, and through its exchange."""
    plain = engine(method, log, 64, guide, 1 << 12)
    seconds: dict[str, list[float]] = {"no group": [], "group": [], "exchange": []}
    run: Callable[[], float] = lambda: plain.epoch(samples, batch_size=batch_size)  # noqa: E731
    run()
    facts: dict[str, float] = {}
    for number in range(repeats):
        if number % 2 == 0:  # a turn begins with either
            seconds["no group"].append(timed(run, epochs))
        place = f"file://{folder}/{method}-{batch_size}-{number}"
        dist.init_process_group("nccl", init_method=place, rank=0, world_size=1)
        dist.all_reduce(torch.ones(1, device="cuda"))
        with workers.together() as others:
            assert others is None  # a group of one is one process
            seconds["group"].append(timed(run, epochs))
        alone = workers.Workers().meet()
        alone.add_up(torch.ones(1, device="cuda"))  # makes its NCCL group
        if number == 0:  # waiting for the card would slow the others
            exchange = Counting(alone, timed=True)
            shared = with_exchange(method, log, guide, exchange)
            shared.epoch(samples, batch_size=batch_size)
            facts = exchange.per_step(STEPS)
        shared = with_exchange(method, log, guide, Counting(alone))
        seconds["exchange"].append(
            timed(lambda e=shared: e.epoch(samples, batch_size=batch_size), 1 + epochs // 8)
        )
        alone.close()
        dist.destroy_process_group()
        if number % 2:
            seconds["no group"].append(timed(run, epochs))
    base = statistics.median(seconds["no group"])
    ratios = {name: statistics.median(each) / base for name, each in seconds.items()}
    return {
        "batch_size": batch_size,
        "clicks": len(samples),
        "seconds": seconds,
        "group_over_none": ratios["group"],
        "group_over_none_by_turn": [
            g / n for g, n in zip(seconds["group"], seconds["no group"], strict=True)
        ],
        "exchange_over_none": ratios["exchange"],
        "seconds_more_a_step": (statistics.median(seconds["exchange"]) - base) / STEPS,
        "at_most_five_percent_slower": ratios["group"] <= SLOWER,
        **facts,
    }


# two ranks on one card -----------------------------------------------------------------------


def problem(seed: int = 0) -> dict[str, Any]:
    """The same tables, samples and validation pairs in every process."""
    rng = np.random.default_rng(seed)
    n_users, n_items, n_clicks, each = 600, 300, 4_000, 3

    def normal(*shape: int) -> Any:
        return rng.normal(0, 0.3, shape).astype(np.float32)

    def rows(high: int, size: int) -> Any:
        return rng.integers(high, size=size, dtype=np.int32)

    pairs = (rows(n_users, 2_000), rows(n_items, 2_000), rng.random(2_000) < 0.5)
    return {
        "parameters": {
            "user_factors": normal(n_users, DIM),
            "item_factors": normal(n_items, DIM),
            "exposure_user_factors": normal(n_users, DIM),
            "gate_weight": normal(DIM),
            "gate_bias": normal(1),
        },
        "samples": Samples(
            rows(n_users, n_clicks),
            np.arange(n_clicks + 1, dtype=np.int64) * each,
            rows(n_items, n_clicks * each),
            rng.uniform(0.5, 2, n_clicks).astype(np.float32),
        ),
        "validation": ValidationSet(*pairs),
        "exposure": rng.uniform(0.05, 1, n_items).astype(np.float32),
    }


def trained(kind: type, name: str, given: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Parameters after some epochs; the part of the tables that the objective knows."""
    objective, tables = OBJECTIVES[name], dict(given["parameters"])
    if objective.strategy is None:
        tables = {n: t for n, t in tables.items() if n in ("user_factors", "item_factors")}
    bilevel = objective.strategy == "bilevel"
    learner = kind(
        objective,
        OPTIMISER,
        tables,
        exposure=given["exposure"],
        validation=given["validation"] if bilevel else None,
        **options,
    )
    for _ in range(EPOCHS):
        learner.epoch(given["samples"], batch_size=BATCH)
    return learner.parameters()


def own_users(rank: int, n_users: int) -> np.ndarray:
    return np.flatnonzero(np.random.default_rng(9).integers(N_RANKS, size=n_users) == rank)


def on_rank(rank: int, folder: str) -> None:
    """Train every objective as one of two ranks on the same card."""
    place = f"file://{folder}/two"
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=N_RANKS)
    given = problem()
    users = own_users(rank, len(given["parameters"]["user_factors"]))
    row = np.full(len(given["parameters"]["user_factors"]), -1, dtype=np.int32)
    row[users] = np.arange(len(users))
    own = given | {
        "parameters": {
            n: t[users] if n in USER_TABLES else t for n, t in given["parameters"].items()
        },
        "samples": given["samples"].own(row),
        "validation": given["validation"].own(row),
    }
    facts = {}
    with workers.together() as others:
        others.add_up(torch.ones(1, device="cuda"))  # asks whether the ranks share a card
        for name in OBJECTIVES:
            exchange = Counting(others, timed=True)
            found = trained(CudaEngine, name, own, exchange=exchange)
            np.savez(Path(folder, f"{name}-{rank}.npz"), **found)
            facts[name] = exchange.per_step(EPOCHS * -(-given["samples"].n_clicks // BATCH))
    Path(folder, f"facts-{rank}.json").write_text(json.dumps(facts))
    for name in FITTED:
        model = fitted(name, "cuda").whole()
        if rank == 0:
            np.savez(Path(folder, f"fit-{name}.npz"), lists=lists(model), **model.parameters)
    dist.destroy_process_group()


def fitted(name: str, engine: str) -> Model:
    """A training by held-out clicks, then on all clicks; in a process group, over its ranks."""
    clicks = world(600, 200, seed=3).clicks(0)
    settings = {"dim": DIM, "epochs": 4, "batch_size": BATCH, "engine": engine}
    return make(name, **settings).fit(clicks, seed=1, progress=Silent())


def lists(model: Model) -> np.ndarray:
    """The best items of every user, clicked ones too."""
    users = np.arange(model.clicks.n_users)
    return np.argsort(-np.asarray(model.scores(users)), axis=1, kind="stable")[:, :10]


def whole_fits(folder: Path) -> dict[str, Any]:
    """How far `fit` on two ranks that shared a card is from one process on the CPU."""
    found = {}
    for name in FITTED:
        model, of_ranks = fitted(name, "cpu"), np.load(folder / f"fit-{name}.npz")
        apart = distance({n: of_ranks[n] for n in model.parameters}, model.parameters)
        same = float((of_ranks["lists"] == lists(model)).mean())
        found[name] = {"from_one_process_on_the_cpu": apart, "same_rows_of_lists": same}
    return found


def distance(left: Mapping[str, Any], right: Mapping[str, Any]) -> float:
    """The largest relative difference of two tables of the same name."""
    norm = np.linalg.norm
    return max(float(norm(left[n] - right[n]) / (norm(right[n]) or 1.0)) for n in right)


def sharing_a_card(folder: Path) -> dict[str, Any]:
    torch.multiprocessing.start_processes(
        on_rank, (str(folder),), nprocs=N_RANKS, start_method="spawn"
    )
    given, found = problem(), json.loads(Path(folder, "facts-0.json").read_text())
    for name in OBJECTIVES:
        alone = trained(CudaEngine, name, given)
        truth = trained(ReferenceEngine, name, given, dtype=torch.float64)
        parts = [np.load(folder / f"{name}-{rank}.npz") for rank in range(N_RANKS)]
        whole = {n: t.copy() for n, t in alone.items()}
        for rank, part in enumerate(parts):
            for n, table in whole.items():
                at = own_users(rank, len(table)) if n in USER_TABLES else slice(None)
                table[at] = part[n]
        shared = [n for n in whole if n not in USER_TABLES]
        found[name] |= {
            "from_one_process": distance(whole, alone),
            "from_reference": distance(whole, truth),
            "one_process_from_reference": distance(alone, truth),
            "items_alike": all((parts[0][n] == parts[1][n]).all() for n in shared),
        }
        worst = max(found[name]["from_one_process"], found[name]["from_reference"])
        found[name]["agrees"] = worst < APART and found[name]["items_alike"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if not torch.cuda.is_available():
        print("ranks on a card: not measured, there is no NVIDIA card that torch can see")
        return
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        two = sharing_a_card(Path(name))
        for label, of in two.items():
            print(
                f"two ranks, {label:21} {'agree' if of['agrees'] else 'DIFFER'}: "
                f"{of['from_one_process']:.1e} from one process, "
                f"{of['from_reference']:.1e} from the reference; "
                f"{of['bytes_a_step'] / 1e3:,.0f} kB in {of['sums_a_step']:.1f} sums a step, "
                f"{1e3 * of['seconds_of_sums_a_step']:.2f} ms",
                flush=True,
            )
        fits = whole_fits(Path(name))
        for label, of in fits.items():
            print(
                f"fit on two ranks, {label:5} {of['from_one_process_on_the_cpu']:.1e} from the CPU "
                f"engine in one process; {of['same_rows_of_lists']:.4%} of the lists are the same",
                flush=True,
            )
        one = group_of_one(Path(name), asked.repeats)
        for label, of in one.items():
            met = "met" if of["at_most_five_percent_slower"] else "NOT met"
            turns = of["group_over_none_by_turn"]
            print(
                f"one rank, {label:19} ×{of['group_over_none']:.3f} in a NCCL group, single turns "
                f"{min(turns):.3f} to {max(turns):.3f} (≤ {SLOWER}: {met}); "
                f"×{of['exchange_over_none']:.2f} through its exchange, "
                f"{1e3 * of['seconds_more_a_step']:.2f} ms more a step: "
                f"{of['bytes_a_step'] / 1e6:,.2f} MB in "
                f"{1e3 * of['seconds_of_sums_a_step']:.2f} ms, marks in "
                f"{1e3 * of['seconds_of_marks_a_step']:.2f} ms",
                flush=True,
            )
    if asked.json:
        document = {
            "command": f"python benchmarks/scaling_cuda.py --repeats {asked.repeats}",
            "card": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "seconds": time.perf_counter() - started,
            "two_ranks_on_one_card": two,
            "fit_of_two_ranks": fits,
            "one_rank": one,
        }
        asked.json.parent.mkdir(parents=True, exist_ok=True)
        asked.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
