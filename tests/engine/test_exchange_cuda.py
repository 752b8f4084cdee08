"""Ranks with the CUDA engine take the steps of one process: see `test_engine_cuda.py` for a GPU."""

from typing import Any

import numpy as np
import pytest
from engine_problem import (
    BILEVEL,
    INTERPRETED,
    N_USERS,
    TOLERANCE,
    Problem,
    distance,
    needs_a_gpu,
    new_engine,
    random_problem,
)
from ranks_in_threads import InThreads, Meeting

from unexposed.engine.cuda import divided
from unexposed.engine.cuda.engine import CudaEngine
from unexposed.engine.exchange import USER_TABLES
from unexposed.engine.objective import Objective
from unexposed.engine.reference import ReferenceEngine

USERS_OF = {  # by rank
    2: [np.arange(0, N_USERS, 2), np.arange(1, N_USERS, 2)],
    3: [np.arange(20), np.zeros(0, dtype=np.int64), np.arange(20, N_USERS)],  # one has no users
}
CLICKS, BATCH = (9, 4) if INTERPRETED else (280, 32)


def own_part(problem: Problem, users: np.ndarray) -> Problem:
    row = np.full(N_USERS, -1, dtype=np.int32)
    row[users] = np.arange(len(users))
    tables = {n: t[users] if n in USER_TABLES else t for n, t in problem.parameters.items()}
    return problem._replace(
        parameters=tables,
        samples=problem.samples.own(row),
        validation=problem.validation.own(row),
        exposure=problem.exposure | {"pair": problem.exposure["pair"][users]},
    )


def trained_by_ranks(
    problem: Problem, objective: Objective, n_ranks: int, *, kind: type = CudaEngine, **given: Any
) -> tuple[list[Any], list[InThreads], list[float]]:
    meeting = Meeting(n_ranks)
    exchanges = [InThreads(meeting, rank) for rank in range(n_ranks)]
    parts = [own_part(problem, users) for users in USERS_OF[n_ranks]]
    engines = [
        new_engine(kind, part, objective, exchange=exchange, **given)
        for part, exchange in zip(parts, exchanges, strict=True)
    ]

    def work(engine: Any, part: Problem) -> float:
        if not INTERPRETED:  # which would run the programs of a large batch
            engine.compile()
        engine.epoch(part.samples, batch_size=BATCH)
        return engine.epoch(part.samples, batch_size=BATCH)

    works = [
        lambda engine=engine, part=part: work(engine, part)
        for engine, part in zip(engines, parts, strict=True)
    ]
    return engines, exchanges, meeting.run(works)


CASES = {
    "bilevel": (BILEVEL, {"biases": "both"}),
    "bilevel in parts": (Objective("low_variance", "bilevel", validation_batch=40), {}),
    "bilevel_on_batch": (Objective("low_variance", "bilevel_on_batch"), {"item_weights": True}),
    "joint": (Objective("low_variance", "joint"), {}),
    "alternate": (Objective("low_variance", "alternate"), {}),
    "frozen": (Objective("low_variance", "frozen"), {}),
    "mf": (Objective("low_variance"), {}),
    "relmf": (Objective("inverse_propensity"), {}),
    "bpr": (Objective("pairwise"), {"biases": "item"}),
    "ubpr": (Objective("inverse_propensity_pairwise"), {}),
}


@needs_a_gpu
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("n_ranks", USERS_OF)
@pytest.mark.parametrize("case", CASES)
def test_ranks_on_cards_give_the_parameters_of_one_process(
    case: str, n_ranks: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(divided, "SPAN", 3 * 4 * BATCH)  # a few spans an epoch
    objective, world = CASES[case]
    problem = random_problem(n=CLICKS, **world)
    given = {"lookahead": 0.5, "exposure": "item"}
    truth = new_engine(ReferenceEngine, problem, objective, dtype="float64", **given)
    truth.epoch(problem.samples, batch_size=BATCH)
    expected = truth.epoch(problem.samples, batch_size=BATCH)
    engines, _, losses = trained_by_ranks(problem, objective, n_ranks, dtype=dtype, **given)
    assert losses == [pytest.approx(expected, rel=TOLERANCE[dtype])] * n_ranks
    learned = [engine.parameters() for engine in engines]
    for name, table in truth.parameters().items():
        for users, own in zip(USERS_OF[n_ranks], learned, strict=True):
            rows = table[users] if name in USER_TABLES else table
            assert own[name].shape == rows.shape
            if len(rows):
                assert distance({name: own[name]}, {name: rows}) < TOLERANCE[dtype], name
        if name not in USER_TABLES:  # replicated: the same bits
            assert all((own[name] == learned[0][name]).all() for own in learned)
