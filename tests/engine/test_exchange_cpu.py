"""Ranks that run the CPU engine give the parameters of one process."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engine_problem import (
    BILEVEL,
    N_USERS,
    STRATEGIES,
    TOLERANCE,
    Tables,
    distance,
    new_engine,
    precision,
    random_problem,
)
from thread_ranks import Divided, ThreadRank, cut, joined, on_threads

from unexposed.engine.cpu import engine as cpu_engine
from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.objective import Objective
from unexposed.engine.reference import ReferenceEngine
from unexposed.maths.losses import LOSSES, PAIRWISE_LOSSES

SIZES = (120, 2, 400)  # of batches, epoch after epoch: some ranks have no click in some batches
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
    monkeypatch.setattr(cpu_engine, "BATCHES", 40)


@precision
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
        (BILEVEL, {"world": {"marked": "pairs"}}),
    ],
)
@pytest.mark.parametrize("size", [2, 3])
def test_ranks_give_the_parameters_of_one_process(
    size: int, dtype: str, objective: Objective, options: dict[str, Any]
) -> None:
    assert_ranks_agree(objective, dtype, size=size, **options)
