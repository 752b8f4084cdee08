"""Workers that divide the users take the steps of one process, on every engine."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from engine_problem import (
    BILEVEL,
    EVERY,
    INTERPRETED,
    N_USERS,
    OPTIMISER,
    STRATEGIES,
    TOLERANCE,
    Tables,
    distance,
    new_engine,
    random_problem,
)
from thread_workers import USER_TABLES, ThreadWorker, cut, joined, on_threads

from small import clicks_of
from unexposed import workers
from unexposed.engine import cuda
from unexposed.engine.cpu import engine as cpu_engine
from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.cuda import divided
from unexposed.engine.cuda.engine import CudaEngine
from unexposed.engine.objective import Objective
from unexposed.engine.reference import ReferenceEngine
from unexposed.engine.workers import Shared, threads_of
from unexposed.errors import InputError
from unexposed.sampling.samples import Drawing

CLICKS, SIZES = (9, (4, 4)) if INTERPRETED else (280, (32, 7, 400))  # of batches, by epoch
OWNER = {
    2: np.random.default_rng(1).integers(2, size=N_USERS),
    3: 2 * np.random.default_rng(2).integers(2, size=N_USERS),  # worker 1 has no users
}
CASES: dict[str, tuple[Objective, dict[str, Any]]] = {
    "bilevel in parts": (replace(BILEVEL, validation_batch=40), {}),
    "bilevel, item weights": (BILEVEL, {"item_weights": True, "dim": 17}),
    "mf": (Objective("low_variance"), {}),
    "relmf": (Objective("inverse_propensity"), {}),
    "bpr": (Objective("pairwise"), {"biases": "item"}),
    "ubpr": (Objective("inverse_propensity_pairwise"), {}),
    **{s: (Objective("low_variance", s, offset=0.8), {"biases": "both"}) for s in STRATEGIES},
}


def trained(
    problem: Any,
    objective: Objective,
    worker: ThreadWorker | None = None,
    *,
    kind: type = CpuEngine,
    sizes: tuple[int, ...] = SIZES,
    **options: Any,
) -> tuple[Tables, list[float]]:
    """Parameters and losses of a process, or of one of several workers on its part."""
    if worker is not None:
        problem = cut(problem, OWNER[worker.size], worker.number)
        options["exchange"] = Shared(worker)
    engine = new_engine(kind, problem, objective, lookahead=0.5, **options)
    losses = [engine.epoch(problem.samples, batch_size=size) for size in sizes]
    return engine.parameters(), losses


@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize(("size", "dtype"), [(2, "float32"), (3, "float64")])
@pytest.mark.parametrize("case", CASES)
def test_workers_give_the_parameters_of_one_process(
    case: str, size: int, dtype: str, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_engine, "BATCHES", 15)
    monkeypatch.setattr(divided, "SPAN", 3 * 4 * SIZES[0])  # a few spans an epoch
    objective, world = CASES[case]
    problem = random_problem(n=CLICKS, **world)
    alone, losses = trained(problem, objective, kind=ReferenceEngine, dtype="float64")
    found = on_threads(size, lambda w: trained(problem, objective, w, kind=kind, dtype=dtype))
    for tables, of_worker in found:
        assert of_worker == pytest.approx(losses, rel=TOLERANCE[dtype])
        for name in set(tables) - set(USER_TABLES):
            assert tables[name].tobytes() == found[0][0][name].tobytes()
    together = joined(OWNER[size], [tables for tables, _ in found])
    assert distance(together, alone) < TOLERANCE[dtype]


SUMS = {  # over workers, in a step
    None: ["items"],
    "joint": ["gate", "items"],
    "bilevel": ["look-ahead", "validation", "gate", "items"],
    "bilevel_on_batch": ["look-ahead", "batch", "gate", "items"],
}


@pytest.mark.parametrize(
    ("strategy", "left_out"),
    [(strategy, number) for strategy, sums in SUMS.items() for number in range(len(sums))],
)
def test_no_sum_over_workers_can_be_left_out(strategy: Any, left_out: int) -> None:
    problem, objective = random_problem(), Objective("low_variance", strategy)
    options: dict[str, Any] = {"dtype": "float64", "sizes": (120,)}
    alone, _ = trained(problem, objective, **options)
    found = on_threads(
        2, lambda w: trained(problem, objective, w, **options)[0], leaves_out=left_out
    )
    assert distance(joined(OWNER[2], found), alone) > 1e3 * TOLERANCE["float64"]


@pytest.mark.parametrize("error", [InputError("the disk is full"), KeyboardInterrupt()])
def test_what_a_sum_raises_ends_the_epoch(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_engine, "PAIRS_A_THREAD", 8)

    class Failing(ThreadWorker):
        def add_up(self, buffer: Any) -> None:
            super().add_up(buffer)
            if self.sums == 3:  # in the middle of the first step
                raise error

    def ends(worker: ThreadWorker) -> BaseException:
        worker.__class__ = Failing
        with pytest.raises(type(error)) as raised:
            trained(random_problem(), BILEVEL, worker, threads=2, dtype="float64")
        return raised.value

    assert on_threads(2, ends) == [error, error]


# cores and cards


def test_workers_of_a_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOCAL_WORLD_SIZE", "NUMBA_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert threads_of(8, None) == 8
    assert on_threads(3, lambda w: threads_of(8, w)) == [2, 2, 2]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # the third worker is on another machine
    assert on_threads(3, lambda w: threads_of(8, w)) == [4, 4, 4]


class OnACard:
    """A buffer that says it lies on a card."""

    is_cuda = True

    def __init__(self, *values: float) -> None:
        self.values = torch.tensor(values)

    def cpu(self) -> torch.Tensor:
        return self.values.clone()

    def copy_(self, values: torch.Tensor) -> None:
        self.values = values


@pytest.mark.parametrize(
    ("cards", "group"), [(["one", "two"], "nccl"), (["one", "one"], "gloo"), (["one", ""], "gloo")]
)
def test_workers_with_a_card_each_add_up_by_nccl_and_others_on_the_host(
    cards: list[str], group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def all_reduce(buffer: Any, group: Any) -> None:
        asked.append(group)

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    monkeypatch.setattr(dist, "new_group", lambda backend, timeout: backend)
    here = object.__new__(workers.Workers)
    here.number, here.size, here._group = 0, len(cards), "gloo"
    monkeypatch.setattr(workers, "own_card", lambda: cards[0])
    monkeypatch.setattr(
        dist, "all_gather_object", lambda found, own, group: found.__setitem__(slice(None), cards)
    )
    here.add_up(OnACard(1.0))  # type: ignore[arg-type]
    assert asked == [group]


@pytest.mark.parametrize(("local", "chosen", "card"), [("5", 0, 1), ("1", 2, None), ("", 0, None)])
def test_a_worker_takes_the_card_of_its_place_on_the_machine(
    local: str, chosen: int, card: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int | None] = [None]
    monkeypatch.setenv("LOCAL_RANK", local)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: chosen)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    cuda.take_card()
    assert taken[-1] == card


def test_the_samples_of_workers_are_left_to_the_host() -> None:
    pytest.importorskip("triton")

    def refused(worker: ThreadWorker) -> None:
        start = random_problem().start(learned=False)
        given: dict[str, Any] = {"exchange": Shared(worker), "device": "cpu"}
        engine = CudaEngine(Objective("pairwise"), OPTIMISER, start, **given)
        with pytest.raises(InputError, match="samples of several workers come from the host"):
            engine.sampler(clicks_of(np.eye(3)), Drawing(1), seed=0)

    on_threads(1, refused)
