"""The fast CPU engine beside the reference: the same parameters from the same samples."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from unexposed.engine import Objective, Optimiser, has_closed_form
from unexposed.engine.cpu import CpuEngine
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.losses import LOSSES
from unexposed.sampling import Pairs, Triples
from unexposed.validation import ValidationSet

N_USERS, N_ITEMS, DIM = 60, 25, 5
BATCH, N_SAMPLES = 300, 700  # three batches, the last one partial
OPTIMISER = Optimiser(
    1e-2,
    1e-3,
    exposure_learning_rate=2e-2,
    exposure_weight_decay=1e-3,
    gate_pace=0.5,
    lookahead=0.05,
)
STRATEGIES = ("bilevel", "joint", "alternate", "bilevel_on_batch", "frozen")
TOLERANCE = {np.float64: 1e-9, np.float32: 1e-4}
EPOCHS = {np.float64: 5, np.float32: 34}  # 15 and 102 steps
TORCH_TYPES = {np.float64: torch.float64, np.float32: torch.float32}
precision = pytest.mark.parametrize("dtype", [np.float64, np.float32])


class Problem(NamedTuple):
    """Users and items come several times in a batch, the last of each in no batch at all."""

    parameters: dict[str, NDArray[Any]]
    pairs: Pairs
    triples: Triples
    validation: ValidationSet  # of the first users and items only, and of the last item
    exposure: dict[str, NDArray[Any] | None]

    def start(self, *, learned: bool) -> dict[str, NDArray[Any]]:
        names = list(self.parameters) if learned else ["user_factors", "item_factors"]
        return {name: self.parameters[name] for name in names}


def random_problem(
    seed: int = 0, *, n: int = N_SAMPLES, scale: float = 0.5, dim: int = DIM
) -> Problem:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> NDArray[Any]:
        return rng.normal(0, scale, shape).astype(np.float32)

    def rows(high: int, size: int) -> NDArray[np.int32]:
        return rng.integers(high, size=size, dtype=np.int32)

    users, items = rows(N_USERS - 1, n), rows(N_ITEMS - 1, n)
    validation_items = rows(N_ITEMS // 2, 150)
    validation_items[:100] = 3  # one item with more pairs than a block
    validation_items[-10:] = N_ITEMS - 1
    return Problem(
        {
            "user_factors": normal(N_USERS, dim),
            "item_factors": normal(N_ITEMS, dim),
            "exposure_user_factors": normal(N_USERS, dim),
            "gate_weight": normal(dim),
            "gate_bias": normal(1),
        },
        Pairs(
            users,
            items,
            (rng.random(n) < 0.3).astype(np.float32),
            rng.uniform(0.5, 2, n).astype(np.float32),
        ),
        Triples(users, items, rows(N_ITEMS - 1, n)),
        ValidationSet(rows(N_USERS // 2, 150), validation_items, rng.random(150) < 0.5),
        {
            "none": None,
            "item": rng.uniform(0.05, 1, N_ITEMS).astype(np.float32),
            "pair": rng.uniform(0.05, 1, (N_USERS, N_ITEMS)).astype(np.float32),
        },
    )


def distance(left: dict[str, NDArray[Any]], right: dict[str, NDArray[Any]]) -> float:
    """The largest difference, relative to the largest value of its table."""
    assert list(left) == list(right)
    return max(np.abs(left[n] - right[n]).max() / np.abs(right[n]).max() for n in left)


def assert_engines_agree(
    problem: Problem, objective: Objective, dtype: type, *, exposure: str, optimiser: Optimiser
) -> None:
    start = problem.start(learned=objective.strategy is not None)
    given = {"exposure": problem.exposure[exposure], "validation": problem.validation}
    samples = problem.triples if objective.loss == "pairwise" else problem.pairs
    fast = CpuEngine(objective, optimiser, start, dtype=dtype, threads=1, **given)
    oracle = ReferenceEngine(objective, optimiser, start, dtype=TORCH_TYPES[dtype], **given)
    for _ in range(EPOCHS[dtype]):
        loss = fast.epoch(samples, batch_size=BATCH)
        expected = oracle.epoch(samples, batch_size=BATCH)
        assert loss == pytest.approx(expected, rel=TOLERANCE[dtype], abs=TOLERANCE[dtype])
    assert distance(fast.parameters(), oracle.parameters()) < TOLERANCE[dtype]


@precision
@pytest.mark.parametrize("exposure", ["none", "item", "pair"])
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_gives_the_parameters_of_the_reference(
    loss: str, exposure: str, dtype: type
) -> None:
    problem, objective = random_problem(), Objective(loss)
    assert_engines_agree(problem, objective, dtype, exposure=exposure, optimiser=OPTIMISER)


@precision
def test_triples_give_the_parameters_of_the_reference(dtype: type) -> None:
    objective = Objective("pairwise")
    assert_engines_agree(random_problem(), objective, dtype, exposure="none", optimiser=OPTIMISER)


@precision
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_gives_the_parameters_of_the_reference(strategy: Any, dtype: type) -> None:
    objective = Objective("low_variance", strategy, offset=0.8)
    assert_engines_agree(random_problem(), objective, dtype, exposure="item", optimiser=OPTIMISER)


@precision
@pytest.mark.parametrize("size", [40, 150])  # 150: all of them
def test_parts_of_the_validation_pairs_come_in_the_same_turn(size: int, dtype: type) -> None:
    objective = Objective("low_variance", "bilevel", validation_batch=size)
    assert_engines_agree(random_problem(), objective, dtype, exposure="item", optimiser=OPTIMISER)


@pytest.mark.parametrize("dim", [4, 8, 11])  # less than a vector, a whole one, more
def test_rows_of_any_length_give_the_parameters_of_the_reference(dim: int) -> None:
    problem = random_problem(dim=dim)
    objective = Objective("low_variance", "bilevel")
    assert_engines_agree(problem, objective, np.float64, exposure="item", optimiser=OPTIMISER)


def test_a_row_that_has_taken_very_many_steps_goes_on() -> None:
    problem, objective = random_problem(), Objective("low_variance")
    engine = CpuEngine(objective, OPTIMISER, problem.start(learned=False), threads=1)
    state = engine.state()
    state["user_count"][:] = 10**6
    engine.epoch(problem.pairs, batch_size=BATCH)
    assert np.isfinite(engine.parameters()["user_factors"]).all()
    assert state["user_count"].max() == 10**6  # of the users in no batch
    assert state["user_count"].min() < 10**5  # the others stay at the last correction


def test_the_lookahead_moves_the_exposure() -> None:
    problem, objective = random_problem(), Objective("low_variance", "bilevel")
    short, long = (learned_by(problem, objective, lookahead=eta) for eta in (0.05, 0.5))
    assert distance(short, long) > 1e-4
    optimiser = replace(OPTIMISER, lookahead=0.5)
    assert_engines_agree(problem, objective, np.float64, exposure="item", optimiser=optimiser)


def test_rows_in_no_batch_stay_where_they_start() -> None:
    problem = random_problem()
    learned = learned_by(problem, Objective("low_variance", "bilevel"))
    for name in ("user_factors", "item_factors", "exposure_user_factors"):
        assert (learned[name][-1] == problem.parameters[name][-1]).all()
        assert (learned[name][0] != problem.parameters[name][0]).all()


@pytest.mark.parametrize(
    "objective",
    [
        Objective("inverse_propensity"),
        Objective("pairwise"),
        *(Objective("low_variance", strategy) for strategy in STRATEGIES),
        Objective("low_variance", "bilevel", validation_batch=40),
    ],
    ids=lambda o: f"{o.loss}-{o.strategy}-{o.validation_batch}",
)
def test_any_number_of_threads_gives_the_same_bits(objective: Objective) -> None:
    problem = random_problem(n=1500)
    one, two, three = (learned_by(problem, objective, threads=t, batch=600) for t in (1, 2, 3))
    for name in one:
        assert np.array_equal(one[name], two[name])
        assert np.array_equal(one[name], three[name])


def learned_by(
    problem: Problem,
    objective: Objective,
    *,
    threads: int = 1,
    batch: int = BATCH,
    lookahead: float = 0.05,
) -> dict[str, NDArray[Any]]:
    engine = CpuEngine(
        objective,
        replace(OPTIMISER, lookahead=lookahead),
        problem.start(learned=objective.strategy is not None),
        exposure=problem.exposure["item"],
        validation=problem.validation,
        threads=threads,
    )
    for _ in range(3):
        engine.epoch(
            problem.triples if objective.loss == "pairwise" else problem.pairs, batch_size=batch
        )
    return engine.parameters()


def test_no_setting_of_the_exposure_model_makes_a_number_that_is_not_finite() -> None:
    rng = np.random.default_rng(0)
    largest = 0.0
    for trial in range(1000):
        problem = random_problem(trial, n=60, scale=10 ** rng.uniform(-2, 1.5))
        users, items = problem.parameters["user_factors"], problem.parameters["item_factors"]
        largest = max(largest, float(np.abs(users @ items.T).max()))
        optimiser = Optimiser(
            10 ** rng.uniform(-4, 0),
            float(rng.choice([0, 1e-4])),
            exposure_learning_rate=10 ** rng.uniform(-4, 1),
            exposure_weight_decay=float(rng.choice([0, 1e-4])),
            lookahead=10 ** rng.uniform(-4, 1),
        )
        objective = Objective(
            "low_variance",
            STRATEGIES[trial % 4],  # type: ignore[arg-type]
            offset=float(rng.choice([-5, 0, 2, 20])),
            validation_batch=int(rng.choice([0, 20])),
        )
        engine = CpuEngine(
            objective,
            optimiser,
            problem.start(learned=True),
            exposure=problem.exposure["item"],
            validation=problem.validation,
            threads=1,
        )
        losses = [engine.epoch(problem.pairs, batch_size=25) for _ in range(3)]
        assert np.isfinite(losses).all(), (trial, objective, optimiser)
        for name, table in engine.parameters().items():
            assert np.isfinite(table).all(), (trial, name, objective, optimiser)
    assert largest > 1000  # the logits went far beyond where float32 can tell p from 1


def test_what_the_engine_does_not_know_is_left_to_the_reference() -> None:
    problem = random_problem()
    given, learned = problem.start(learned=False), problem.start(learned=True)
    assert has_closed_form(Objective("pairwise"), given, None)
    assert has_closed_form(Objective("low_variance", "joint"), learned, None)
    assert not has_closed_form(Objective("low_variance_squared", "joint"), learned, None)
    assert not has_closed_form(Objective("some_other_loss"), given, None)
    assert not has_closed_form(Objective("low_variance", "joint"), learned, np.ones((N_USERS, 2)))
    mapped = {**given, "exposure_feature_weight": np.ones((2, DIM))}
    assert not has_closed_form(Objective("low_variance", "joint"), mapped, None)
    with pytest.raises(InputError, match="reference"):
        CpuEngine(Objective("low_variance", "joint"), OPTIMISER, mapped)


def test_a_sample_outside_the_tables_is_refused() -> None:
    problem = random_problem()
    engine = CpuEngine(Objective("low_variance"), OPTIMISER, problem.start(learned=False))
    with pytest.raises(InputError, match=f"item {N_ITEMS}"):
        engine.epoch(
            replace(problem.pairs, items=np.full(N_SAMPLES, N_ITEMS, dtype=np.int32)),
            batch_size=BATCH,
        )


def test_no_samples_make_no_step() -> None:
    problem = random_problem()
    engine = CpuEngine(Objective("pairwise"), OPTIMISER, problem.start(learned=False))
    nothing = np.zeros(0, dtype=np.int32)
    assert engine.epoch(Triples(nothing, nothing, nothing), batch_size=BATCH) == 0
    engine.compile()
    assert distance(engine.parameters(), problem.start(learned=False)) == 0
