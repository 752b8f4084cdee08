"""Marked pairs: engines agree on them, and a pair whose m is given never moves the exposure."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from engine_problem import (
    BILEVEL,
    OPTIMISER,
    STRATEGIES,
    assert_agrees,
    new_engine,
    random_marks,
    random_problem,
)

from unexposed.engine.build import build
from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.cpu.layout import CHUNK
from unexposed.engine.objective import Objective
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.maths import bilevel
from unexposed.maths.exposure import gated
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


@pytest.mark.parametrize("objective", [Objective("low_variance"), *LEARNED], ids=spoken)
def test_marks_that_say_what_a_log_says_change_nothing(objective: Objective) -> None:
    problem = random_problem(item_weights=True)
    pairs = problem.samples.pairs()
    nothing = np.full(len(pairs), np.nan, dtype=np.float32)
    marked = replace(problem.samples, marks=Marks(pairs.click, pairs.weight, nothing))
    for kind in (ReferenceEngine, CpuEngine):
        plain, same = (new_engine(kind, problem, objective) for _ in range(2))
        losses = [
            plain.epoch(problem.samples, batch_size=90),
            same.epoch(marked, batch_size=90),
        ]
        assert losses[0] == pytest.approx(losses[1], rel=1e-12)
        for name, table in plain.parameters().items():
            np.testing.assert_allclose(same.parameters()[name], table, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("objective", [Objective("low_variance"), BILEVEL], ids=spoken)
def test_any_number_of_threads_gives_marked_pairs_the_same_bits(objective: Objective) -> None:
    problem = random_problem(n=1000, n_users=8 * CHUNK, n_items=5 * CHUNK, marked="pairs")
    found = []
    for threads in (1, 2):
        engine = new_engine(CpuEngine, problem, objective, threads=threads)
        engine.epoch(problem.samples, batch_size=430)
        found.append(engine.parameters())
    assert all(np.array_equal(found[0][name], found[1][name]) for name in found[0])


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


@pytest.mark.parametrize("strategy", ["bilevel", "bilevel_on_batch"])
def test_the_hypergradient_of_a_given_m_is_zero_and_the_rest_is_the_closed_form(
    strategy: Any,
) -> None:
    """dL/dα by autograd is Σ over pairs without a given m of dL/dm·∂m/∂α, in closed form."""
    problem = random_problem(marked="pairs")
    engine = new_engine(
        ReferenceEngine, problem, Objective("low_variance", strategy), dtype="float64"
    )
    start = {name: torch.tensor(t).double() for name, t in engine.parameters().items()}
    pairs, pad = problem.samples.pairs(), torch.ones(len(problem.validation)).double()
    assert pairs.exposure is not None
    users, items = (torch.tensor(column).long() for column in (pairs.users, pairs.items))
    batch = bilevel.Pairs(
        users, items, torch.tensor(pairs.click).double(), torch.tensor(pairs.weight).double()
    )
    theta = torch.tensor(problem.exposure["item"]).double()
    gate = start["gate_weight"], start["gate_bias"][0]
    learned = gated(
        start["exposure_user_factors"][users], start["item_factors"][items], *gate, theta[items]
    )
    given = torch.tensor(pairs.exposure).double()
    free = torch.isnan(given)
    m = torch.where(free, learned, given)
    tables = start["user_factors"], start["item_factors"]
    eta = OPTIMISER.lookahead
    if strategy == "bilevel":
        guide = problem.validation
        columns = (torch.tensor(column) for column in (guide.users, guide.items, guide.relevant))
        of, what, relevant = columns
        validation = bilevel.Pairs(of.long(), what.long(), relevant.double(), pad)
        by_m = bilevel.factor_hypergradient(*tables, batch, m, validation, lookahead=eta)
    else:
        by_m = bilevel.factor_hypergradient_on_batch(*tables, batch, m, lookahead=eta)
    assert by_m[~free].abs().max() > 0  # it would move the exposure if it were not given
    expected = bilevel.factor_exposure_gradient(
        torch.where(free, by_m, 0.0),
        batch,
        start["exposure_user_factors"],
        start["item_factors"],
        *gate,
        theta,
    )
    engine.step(problem.samples)
    decay, moments = OPTIMISER.exposure_weight_decay, engine.state()
    for name, gradient in zip(list(start)[2:], expected, strict=True):
        first = moments[f"{name}.first"] / 0.1  # Adam's first moment after a step
        touched = np.unique(pairs.users) if name == "exposure_user_factors" else slice(None)
        whole = gradient.reshape(start[name].shape).numpy() + decay * start[name].numpy()
        np.testing.assert_allclose(first[touched], whole[touched], rtol=1e-8, atol=1e-12)


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
