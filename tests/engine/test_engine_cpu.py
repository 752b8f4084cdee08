"""The fast CPU engine: the same bits for any number of threads, formulas right to the digit."""

import math
from dataclasses import replace
from typing import Any

import numba
import numpy as np
import pytest
import torch
from engine_problem import (
    BILEVEL,
    STRATEGIES,
    Problem,
    Tables,
    distance,
    new_engine,
    random_problem,
)
from numpy.typing import NDArray

from unexposed.engine.cpu import engine as engine_module
from unexposed.engine.cpu import formulas
from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.cpu.layout import CHUNK
from unexposed.engine.objective import Objective
from unexposed.maths.losses import LOSSES

njit: Any = numba.njit


def learned_by(
    problem: Problem, objective: Objective, *, threads: int | None = 1, size: int = 120
) -> Tables:
    engine = new_engine(CpuEngine, problem, objective, threads=threads)
    for _ in range(3):
        engine.epoch(problem.samples, batch_size=size)
    return engine.parameters()


# threads


@pytest.mark.parametrize(
    "objective",
    [
        Objective("inverse_propensity"),
        Objective("pairwise"),
        *(Objective("low_variance", strategy) for strategy in STRATEGIES),
        replace(BILEVEL, validation_batch=40),
    ],
    ids=lambda o: f"{o.loss}-{o.strategy}-{o.validation_batch}",
)
def test_any_number_of_threads_gives_the_same_bits(
    objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = random_problem(n=1000, n_users=8 * CHUNK, n_items=5 * CHUNK)
    run, seen = engine_module.RUN, set()

    def noted(*arguments: Any) -> None:
        step, thread, _ = arguments[-3:]
        seen.add((thread, step.n_threads))
        run(*arguments)

    monkeypatch.setattr(engine_module, "RUN", noted)
    one, *others = (learned_by(problem, objective, threads=t, size=430) for t in (1, 2, 3, None))
    assert {(thread, n) for n in (1, 2, 3) for thread in range(n)} <= seen
    for other in others:
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_a_long_epoch_in_several_calls_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, objective = random_problem(), replace(BILEVEL, validation_batch=40)
    whole = learned_by(problem, objective, size=60)
    monkeypatch.setattr(engine_module, "SPAN", 400)  # pairs: about two batches
    assert distance(learned_by(problem, objective, size=60), whole) == 0


# formulas


@njit
def values_and_slopes(loss: int, x: Any, click: Any, m: Any, value: Any, slope: Any) -> None:
    for k in range(len(x)):
        odds = formulas.odds_against(x[k])
        value[k], slope[k] = formulas.value_and_slope(loss, x[k], odds, click[k], m[k])


@pytest.mark.parametrize("name", [n for n, loss in LOSSES.items() if loss.kernel is not None])
def test_the_fast_form_of_every_loss_is_the_loss_of_its_name(name: str) -> None:
    loss = LOSSES[name]
    grid = np.meshgrid([-25.0, -3, -0.2, 0, 1, 8, 25], [0.0, 1], [0.05, 0.5, 1])
    given = [axis.reshape(-1) for axis in grid]
    value, slope = np.zeros((2, given[0].size))
    values_and_slopes(formulas.LOSS_CODES[loss.kernel or ""], *given, value, slope)
    x, click, m = (torch.from_numpy(column) for column in given)
    np.testing.assert_allclose(value, loss.value(x, click, m).numpy(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(slope, loss.gradient(x, click, m).numpy(), rtol=1e-12, atol=1e-14)


@njit
def apply(function: Any, x: Any, result: Any) -> None:
    for k in range(len(x)):
        result[k] = function(x[k])


@pytest.mark.parametrize(
    ("function", "exact", "x"),
    [
        (formulas.logarithm, math.log, 10.0 ** np.linspace(-130, 130, 2001)),
        (formulas.logarithm, math.log, 1 + np.linspace(-0.4, 0.5, 2001)),
        (formulas.logarithm, math.log, np.array([math.nan])),
        (formulas.exponential, math.exp, np.linspace(-300, 300, 4001)),
        (formulas.exponential, math.exp, np.linspace(-1, 1, 2001)),
    ],
)
def test_logarithm_and_exponential_are_right_to_the_last_digits(
    function: Any, exact: Any, x: NDArray[Any]
) -> None:
    found = np.zeros(len(x))
    apply(function, x, found)
    expected = np.array([exact(v) for v in x])
    assert found == pytest.approx(expected, rel=4e-16, abs=4e-16, nan_ok=True)


def test_no_setting_of_the_exposure_model_makes_a_number_that_is_not_finite() -> None:
    rng = np.random.default_rng(0)
    largest = 0.0
    for trial in range(1000):
        problem = random_problem(trial, n=20, scale=10 ** rng.uniform(-2, 1.5))
        users, items = problem.parameters["user_factors"], problem.parameters["item_factors"]
        largest = max(largest, float(np.abs(users @ items.T).max()))
        rates = {
            "learning_rate": 10 ** rng.uniform(-4, 0),
            "weight_decay": float(rng.choice([0, 1e-4])),
            "exposure_learning_rate": 10 ** rng.uniform(-4, 1),
            "exposure_weight_decay": float(rng.choice([0, 1e-4])),
            "gate_pace": 1.0,
            "lookahead": 10 ** rng.uniform(-4, 1),
        }
        objective = Objective(
            "low_variance",
            STRATEGIES[trial % 4],  # all but frozen
            offset=float(rng.choice([-5, 0, 2, 20])),
            validation_batch=int(rng.choice([0, 20])),
        )
        engine = new_engine(CpuEngine, problem, objective, **rates)
        losses = [engine.epoch(problem.samples, batch_size=8) for _ in range(3)]
        assert np.isfinite(losses).all(), (trial, objective, rates)
        for name, table in engine.parameters().items():
            assert np.isfinite(table).all(), (trial, name, objective, rates)
    assert largest > 1000  # logits far beyond where float32 can tell p from 1
