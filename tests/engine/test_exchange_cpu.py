"""Ranks that run the CPU engine give the parameters of one process."""

import threading
from dataclasses import replace
from functools import partial
from typing import Any, cast
from unittest import mock

import numpy as np
import pytest
from engine_problem import (
    BILEVEL,
    N_USERS,
    OPTIMISER,
    STRATEGIES,
    TOLERANCE,
    Tables,
    distance,
    new_engine,
    random_problem,
)
from thread_ranks import Divided, ThreadRank, cut, joined, on_threads

from unexposed.engine.build import build
from unexposed.engine.cpu import engine as cpu_engine
from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.objective import Objective
from unexposed.engine.reference import ReferenceEngine
from unexposed.engine.workers import RowSums, threads_of
from unexposed.errors import InputError
from unexposed.maths.losses import LOSSES, PAIRWISE_LOSSES

SIZES = (120, 7, 400)  # of batches, epoch after epoch: some ranks have no click in some batches
OWNER = {
    1: np.zeros(N_USERS, dtype=int),
    2: np.random.default_rng(1).integers(2, size=N_USERS),
    3: 2 * np.random.default_rng(2).integers(2, size=N_USERS),  # rank 1 has no users
}


def trained(
    problem: Any, objective: Objective, ranks: ThreadRank | None = None, **options: Any
) -> tuple[Tables, list[float]]:
    """Parameters and losses of a process, or of one of several ranks on its part."""
    kind = options.pop("kind", CpuEngine)
    sizes = options.pop("sizes", SIZES)
    if ranks is not None:
        problem = cut(problem, OWNER[ranks.size], ranks.rank)
        options["exchange"] = Divided(ranks)
    engine = new_engine(kind, problem, objective, **options)
    losses = [engine.epoch(problem.samples, batch_size=size) for size in sizes]
    return engine.parameters(), losses


def assert_ranks_agree(
    objective: Objective, dtype: str, *, size: int = 2, world: Any = None, **options: Any
) -> None:
    problem = random_problem(**(world or {}))
    options["dtype"] = dtype
    alone, losses = trained(problem, objective, **options)
    found = on_threads(size, lambda ranks: trained(problem, objective, ranks, **options))
    for tables, of_rank in found:
        assert of_rank == pytest.approx(losses, rel=TOLERANCE[dtype])
        for name in set(tables) - {"user_factors", "exposure_user_factors"}:
            assert tables[name].tobytes() == found[0][0][name].tobytes()
    together = joined(OWNER[size], [tables for tables, _ in found])
    assert distance(together, alone) < TOLERANCE[dtype]


@pytest.fixture(autouse=True)
def short_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_engine, "BATCHES", 15)


@pytest.mark.parametrize(("size", "dtype"), [(2, "float32"), (3, "float64")])
@pytest.mark.parametrize(
    ("objective", "options"),
    [
        *((Objective(loss), {"exposure": "pair"}) for loss in (*LOSSES, *PAIRWISE_LOSSES)),
        *((Objective(loss), {"world": {"biases": "both"}}) for loss in LOSSES),
        *((Objective(loss), {"world": {"biases": "item"}}) for loss in PAIRWISE_LOSSES),
        *((Objective("low_variance", s, offset=0.8), {}) for s in STRATEGIES),
        *((Objective("low_variance", s), {"world": {"biases": "both"}}) for s in STRATEGIES),
        *((replace(BILEVEL, validation_batch=n), {}) for n in (1, 40)),
        (BILEVEL, {"world": {"item_weights": True, "dim": 17}}),
    ],
)
def test_ranks_give_the_parameters_of_one_process(
    size: int, dtype: str, objective: Objective, options: dict[str, Any]
) -> None:
    assert_ranks_agree(objective, dtype, size=size, **options)


@pytest.mark.parametrize("objective", [Objective("pairwise"), BILEVEL], ids=["pairwise", "bilevel"])
def test_ranks_give_what_ranks_of_the_reference_engine_give(objective: Objective) -> None:
    problem, found = random_problem(), []
    for kind in (CpuEngine, ReferenceEngine):
        given: dict[str, Any] = {"kind": kind, "dtype": "float64", "sizes": (120, 30)}
        of_ranks = on_threads(2, lambda r, given=given: trained(problem, objective, r, **given))
        found.append(joined(OWNER[2], [tables for tables, _ in of_ranks]))
    assert distance(*found) < TOLERANCE["float64"]


SUMS = {  # over ranks, in a step
    None: ["items"],
    "frozen": ["items"],
    "joint": ["gate", "items"],
    "alternate": ["gate", "items"],
    "bilevel": ["look-ahead", "validation", "gate", "items"],
    "bilevel_on_batch": ["look-ahead", "batch", "gate", "items"],
}


@pytest.mark.parametrize(
    ("strategy", "left_out"),
    [(strategy, number) for strategy, sums in SUMS.items() for number in range(len(sums))],
)
def test_no_sum_over_ranks_can_be_left_out(strategy: Any, left_out: int) -> None:
    problem, objective = random_problem(), Objective("low_variance", strategy)
    options: dict[str, Any] = {"dtype": "float64", "sizes": (120,)}
    alone, _ = trained(problem, objective, **options)
    found = on_threads(
        2,
        lambda r: trained(problem, objective, r, **options)[0],
        leaves_out=left_out,
    )
    assert distance(joined(OWNER[2], found), alone) > 1e3 * TOLERANCE["float64"]


@pytest.mark.parametrize("strategy", SUMS)
def test_a_step_makes_no_other_sums(strategy: Any) -> None:
    problem, objective = random_problem(), Objective("low_variance", strategy)

    def sums(ranks: ThreadRank) -> int:
        trained(problem, objective, ranks, dtype="float64", sizes=(100,))
        return ranks.sums

    # of three steps, and one for losses
    assert on_threads(2, sums) == [3 * len(SUMS[strategy]) + 1] * 2


def test_a_rank_gives_the_same_bits_on_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu_engine, "PAIRS_A_THREAD", 8)
    problem = random_problem()
    for strategy in ("joint", "bilevel", "bilevel_on_batch"):
        objective, bits = Objective("low_variance", strategy), []
        for threads in (1, 3):
            given = {"threads": threads, "dtype": "float64", "sizes": (120,)}
            found = on_threads(2, lambda r, o=objective, g=given: trained(problem, o, r, **g))
            bits.append([table.tobytes() for tables, _ in found for table in tables.values()])
        assert bits[0] == bits[1]


def test_a_rank_that_is_alone_runs_as_one_process_does() -> None:
    problem = random_problem()

    def found(ranks: ThreadRank) -> tuple[Any, int]:
        return trained(problem, BILEVEL, ranks), ranks.sums

    [(together, sums)] = on_threads(1, found)
    alone = trained(problem, BILEVEL)
    assert together[1] == alone[1]
    assert all((together[0][name] == table).all() for name, table in alone[0].items())
    assert sums == 0


@pytest.mark.parametrize("error", [InputError("the disk is full"), KeyboardInterrupt()])
def test_what_a_sum_raises_ends_the_epoch(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_engine, "PAIRS_A_THREAD", 8)

    class Failing(ThreadRank):
        def add_up(self, buffer: Any) -> None:
            super().add_up(buffer)
            if self.sums == 3:  # in the middle of the first step
                raise error

    def ends(ranks: ThreadRank) -> BaseException:
        ranks.__class__ = Failing
        with pytest.raises(type(error)) as raised:
            trained(random_problem(), BILEVEL, ranks, threads=2, dtype="float64")
        return raised.value

    assert on_threads(2, ends) == [error, error]


def test_ranks_of_a_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    def threads(ranks: ThreadRank) -> int:
        return threads_of(8, ranks)

    for name in ("LOCAL_WORLD_SIZE", "NUMBA_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    assert threads_of(8, None) == 8
    assert on_threads(3, threads) == [2, 2, 2]
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # the third rank is on another machine
    assert on_threads(3, threads) == [4, 4, 4]
    monkeypatch.setenv("NUMBA_NUM_THREADS", "8")
    assert on_threads(3, threads) == [8, 8, 8]


def test_one_rank_of_each_machine_compiles_before_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    order: list[int] = []
    here = threading.Semaphore(0)

    class Noticed(ThreadRank):
        def gather(self, rows: Any, lengths: Any) -> Any:
            here.release()
            return super().gather(rows, lengths)

    def compiled(ranks: ThreadRank) -> None:
        for _ in range(2 if ranks.rank == 0 else 0):
            assert here.acquire(timeout=240)  # the others wait
        order.append(ranks.rank)

    def work(ranks: ThreadRank) -> None:
        ranks.__class__ = Noticed
        RowSums(ranks, 4, 2).leader_first(lambda: compiled(ranks))

    on_threads(3, work)
    assert order[0] == 0
    assert sorted(order) == [0, 1, 2]


def test_ranks_take_the_cpu_engine_where_it_knows_the_objective() -> None:
    tables, name = random_problem().start(learned=False), "without a kernel"

    def kinds(ranks: ThreadRank) -> list[type]:
        made = partial(
            build, optimiser=OPTIMISER, parameters=tables, shared=cast(Any, Divided(ranks))
        )
        with pytest.raises(InputError, match="does not know"):
            made(Objective(name), name="cpu")
        return [type(made(Objective(loss))) for loss in ("low_variance", name)]

    with mock.patch.dict(LOSSES, {name: replace(LOSSES["low_variance"], kernel=None)}):
        assert on_threads(2, kinds) == [[CpuEngine, ReferenceEngine]] * 2
