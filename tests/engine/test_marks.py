"""Marked pairs: engines agree on them, and a pair whose m is given never moves the exposure."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engine_problem import (
    OPTIMISER,
    STRATEGIES,
    assert_agrees,
    new_engine,
    random_marks,
    random_problem,
)

from unexposed.engine.build import build
from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.objective import Objective
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.maths.losses import LOSSES, PAIRWISE_LOSSES
from unexposed.sampling.marks import Marks

GIVEN = [Objective(loss) for loss in LOSSES]
LEARNED = [Objective("low_variance", strategy) for strategy in STRATEGIES]


def spoken(objective: Objective) -> str:
    return f"{objective.loss}-{objective.strategy}"


@pytest.mark.parametrize("biases", ["none", "both"])
@pytest.mark.parametrize("objective", [*GIVEN, *LEARNED], ids=spoken)
def test_the_cpu_engine_gives_marked_pairs_what_the_reference_gives(
    objective: Objective, biases: Any
) -> None:
    assert_agrees(CpuEngine, objective, "float32", marked="pairs", biases=biases, steps=40)


@pytest.mark.parametrize("biases", ["none", "item"])
@pytest.mark.parametrize("loss", PAIRWISE_LOSSES)
def test_the_cpu_engine_compares_marked_pairs_as_the_reference_does(loss: str, biases: Any) -> None:
    objective = Objective(loss)
    assert_agrees(CpuEngine, objective, "float32", marked="compared", biases=biases, steps=40)


@pytest.mark.parametrize("exposure", ["none", "pair"])
def test_a_given_exposure_replaces_any_kind_of_table(exposure: str) -> None:
    objective = Objective("inverse_propensity")
    assert_agrees(CpuEngine, objective, "float32", marked="pairs", exposure=exposure, steps=40)


# a given m does not learn


@pytest.mark.parametrize("strategy", ["bilevel", "bilevel_on_batch", "joint", "alternate"])
def test_where_every_m_is_given_the_exposure_stays_in_every_bit(strategy: Any) -> None:
    problem = random_problem()
    marks = random_marks(problem.samples, kind="pairs")
    every = replace(marks, exposure=np.where(np.isnan(marks.exposure), 0.5, marks.exposure))
    samples = replace(problem.samples, marks=replace(every, exposure=every.exposure.astype("f4")))
    for kind in (ReferenceEngine, CpuEngine):
        objective = Objective("low_variance", strategy)
        engine = new_engine(kind, problem, objective, exposure_weight_decay=0.0)
        start = engine.parameters()
        engine.epoch(samples, batch_size=90)
        for name, table in engine.parameters().items():
            assert np.array_equal(table, start[name]) == (name in list(start)[2:]), name


# engines


def test_the_cuda_engine_refuses_marks_and_auto_takes_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("unexposed.engine.cuda.available", lambda: True)
    problem = random_problem()
    given = Objective("low_variance"), OPTIMISER, problem.start(learned=False)
    assert isinstance(build(*given, marked=True), CpuEngine)
    with pytest.raises(InputError, match="cuda engine does not run given exposures"):
        build(*given, marked=True, name="cuda")


def test_marks_of_other_pairs_are_refused() -> None:
    problem = random_problem()
    samples = replace(problem.samples, marks=Marks.empty())
    engine = new_engine(CpuEngine, problem, Objective("low_variance"))
    with pytest.raises(InputError, match="0 pairs are marked of"):
        engine.epoch(samples, batch_size=90)
