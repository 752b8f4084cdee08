"""What every engine promises: the parameters of the reference, a state to restore, refusals."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from engine_problem import (
    BILEVEL,
    DIM,
    EVERY,
    FAST,
    INTERPRETED,
    N_ITEMS,
    N_USERS,
    OPTIMISER,
    STRATEGIES,
    TOLERANCE,
    assert_agrees,
    clicks_with,
    distance,
    new_engine,
    precision,
    random_problem,
)

from unexposed.engine.adam import BETA1, BETA2
from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.objective import Objective, has_closed_form
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.maths import losses
from unexposed.maths.losses import LOSSES, PAIRWISE_LOSSES, Loss

fast = pytest.mark.parametrize("kind", FAST)
every = pytest.mark.parametrize("kind", EVERY)


# agreement


def case(objective: Objective, **options: Any) -> Any:
    settings = vars(objective) | options
    named = [f"{name}={value}" for name, value in settings.items() if value not in (None, 0, 0.0)]
    return pytest.param(objective, options, id=" ".join(named))


@fast
@precision
@pytest.mark.parametrize(
    ("objective", "options"),
    [
        *(
            case(Objective(loss), exposure=exposure)
            for loss in (*LOSSES, *PAIRWISE_LOSSES)
            for exposure in ("none", "item", "pair")
        ),
        *(case(Objective("low_variance", s, offset=0.8)) for s in STRATEGIES),
        *(
            case(Objective("low_variance", strategy, offset=offset), steps=10)
            for strategy in STRATEGIES
            for offset in (-3.0, 0.0, 2.5)
        ),
        *(case(replace(BILEVEL, validation_batch=n)) for n in (1, 40, 150, 1000)),  # 150: all
        *(case(BILEVEL, dim=n, steps=24) for n in (1, 4, 8, 11, 16, 17)),  # part of a vector, more
        *(
            case(objective, n=13, sizes=(size,), steps=26)
            for objective in (
                Objective("pairwise"),
                BILEVEL,
                Objective("low_variance", "bilevel_on_batch"),
            )
            for size in (1, 2, 13)
        ),
        # without drawn items weight decay alone moves the rows of the pairwise loss
        *(case(Objective(loss), most_drawn=0) for loss in ("low_variance", "pairwise")),
        case(BILEVEL, lookahead=0.5),
        *(case(Objective("low_variance", s), biases="both", lookahead=0.5) for s in STRATEGIES),
        *(case(BILEVEL, biases="both", dim=n, steps=24) for n in (1, 14, 15, 16)),  # two vectors
        *(case(Objective(loss), biases="both", exposure="pair") for loss in LOSSES),
        *(case(Objective(loss), biases="item", exposure="pair") for loss in PAIRWISE_LOSSES),
        *(
            case(Objective(loss, strategy), item_weights=True)
            for loss, strategy in (
                ("low_variance", None),
                ("inverse_propensity_pairwise", None),
                ("low_variance", "bilevel"),
                ("low_variance", "bilevel_on_batch"),
            )
        ),
    ],
)
def test_an_engine_gives_the_parameters_of_the_reference(
    kind: type, dtype: str, objective: Objective, options: dict[str, Any]
) -> None:
    assert_agrees(kind, objective, dtype, **options)


@every
def test_a_row_met_late_is_corrected_by_the_steps_of_the_whole_training(kind: type) -> None:
    problem = random_problem(n=13 if INTERPRETED else 280)
    engine = new_engine(kind, problem, Objective("low_variance"), weight_decay=0.0)
    before = engine.parameters()
    for _ in range(2):
        engine.epoch(problem.samples, batch_size=5)
    number = int(engine.state()["steps"][0]) + 1
    assert (engine.parameters()["user_factors"][-1] == before["user_factors"][-1]).all()
    engine.epoch(clicks_with([N_USERS - 1], [[0, 1]]), batch_size=100)
    length = (1 - BETA1) / (1 - BETA1**number) / np.sqrt((1 - BETA2) / (1 - BETA2**number))
    moved = engine.parameters()["user_factors"][-1] - before["user_factors"][-1]
    assert np.abs(moved) == pytest.approx(OPTIMISER.learning_rate * length, rel=1e-4)


@every
@pytest.mark.parametrize("compiles", [False, True])
def test_an_epoch_of_no_samples_makes_no_step(kind: type, compiles: bool) -> None:
    problem = random_problem()
    engine = new_engine(kind, problem, BILEVEL)
    if compiles and not INTERPRETED:
        engine.compile()
    assert engine.epoch(clicks_with([], []), batch_size=100) == 0
    assert engine.state()["steps"].tolist() == [0]
    assert distance(engine.parameters(), problem.start(learned=True)) == 0


@fast
def test_item_weights_may_come_change_and_go_between_epochs(kind: type) -> None:
    problem = random_problem(n=13, item_weights=True)
    weight = problem.samples.item_weight
    assert weight is not None
    engine, truth = (
        new_engine(k, problem, Objective("low_variance"), dtype="float64")
        for k in (kind, ReferenceEngine)
    )
    for by_item in (None, weight, weight[::-1].copy(), None):
        samples = replace(problem.samples, item_weight=by_item)
        expected = truth.epoch(samples, batch_size=5)
        assert engine.epoch(samples, batch_size=5) == pytest.approx(expected, rel=1e-9)
    assert distance(engine.parameters(), truth.parameters()) < TOLERANCE["float64"]


# the state


@every
def test_an_engine_given_another_exposure_trains_as_one_built_with_it(kind: type) -> None:
    problem = random_problem(n=13 if INTERPRETED else 280)
    others = np.random.default_rng(1).uniform(0.05, 1, N_ITEMS).astype(np.float32)
    objective = Objective("low_variance")
    given, old = (new_engine(kind, problem, objective, dtype="float64") for _ in range(2))
    given.give_exposure(others)
    another = problem._replace(exposure={"item": others.copy()})
    built = new_engine(kind, another, objective, dtype="float64")
    others[:] = 1  # the engine has a copy of its own
    for engine in (given, old, built):
        engine.epoch(problem.samples, batch_size=100)
    assert distance(given.parameters(), built.parameters()) < TOLERANCE["float64"]
    assert distance(old.parameters(), built.parameters()) > 100 * TOLERANCE["float64"]


@every
@pytest.mark.parametrize(
    "objective",
    [Objective("pairwise"), replace(BILEVEL, validation_batch=40)],
    ids=lambda o: o.loss,
)
def test_a_restored_engine_continues_as_the_saved_one(kind: type, objective: Objective) -> None:
    problem = random_problem(n=13 if INTERPRETED else 280)
    whole = new_engine(kind, problem, objective)
    whole.epoch(problem.samples, batch_size=100)
    state = {name: array.copy() for name, array in whole.state().items()}
    # another start, and steps of its own: restoring replaces both
    other = new_engine(kind, problem._replace(parameters=random_problem(1).parameters), objective)
    other.epoch(problem.samples, batch_size=30)
    other.restore(state)
    for name, array in state.items():
        assert np.array_equal(array, other.state()[name]), name
    for engine in (whole, other):
        engine.epoch(problem.samples, batch_size=100)
    # a GPU adds in any order, so the last bits of two runs differ
    apart = TOLERANCE["float32"] if kind.__name__ == "CudaEngine" else 0
    assert distance(other.parameters(), whole.parameters()) <= apart


@every
@pytest.mark.parametrize(
    "change", [{"dim": DIM + 1}, {"n_users": N_USERS + 1}, {"n_items": N_ITEMS + 1}], ids=str
)
def test_a_state_of_another_shape_is_refused(kind: type, change: dict[str, int]) -> None:
    objective = Objective("low_variance", "joint")
    engine = new_engine(kind, random_problem(), objective)
    if kind.__name__ == "CudaEngine" and "dim" in change:
        change = {"dim": DIM + 8}  # rows of whole sectors
    other = new_engine(kind, random_problem(**change), objective)
    with pytest.raises(ValueError, match="has not the shape"):
        engine.restore(other.state())


# refusals


@fast
def test_a_loss_without_a_form_in_the_kernels_is_refused(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_up = Loss(losses.low_variance, losses.low_variance_gradient, kernel="made_up")
    monkeypatch.setitem(LOSSES, "made_up", made_up)
    with pytest.raises(InputError, match="no loss 'made_up'; use the reference engine"):
        new_engine(kind, random_problem(), Objective("made_up"))


def test_an_objective_without_a_closed_form_is_left_to_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Loss(losses.low_variance, losses.low_variance_gradient)
    monkeypatch.setitem(LOSSES, "slow", slow)
    problem, joint = random_problem(), Objective("low_variance", "joint")
    given, learned = problem.start(learned=False), problem.start(learned=True)
    mapped = {**given, "exposure_feature_weight": np.ones((2, DIM))}
    assert has_closed_form(Objective("pairwise"), given, None)
    assert has_closed_form(joint, learned, None)
    assert not has_closed_form(Objective("low_variance_squared", "joint"), learned, None)
    assert not has_closed_form(joint, learned, np.ones((N_USERS, 2)))
    for objective, parameters in ((Objective("slow"), given), (joint, mapped)):
        assert not has_closed_form(objective, parameters, None)
        with pytest.raises(InputError, match="the cpu engine does not know .*; use the reference"):
            CpuEngine(objective, OPTIMISER, parameters)


@fast
def test_bilevel_without_a_validation_set_is_refused(kind: type) -> None:
    with pytest.raises(InputError, match="needs a validation set"):
        new_engine(kind, random_problem(), BILEVEL, validation=False)


@fast
@pytest.mark.parametrize(
    ("user", "item", "what"),
    [
        (0, N_ITEMS, f"item {N_ITEMS}, but there are {N_ITEMS}"),
        (0, -1, "item"),
        (N_USERS, 0, f"user {N_USERS}, but there are {N_USERS}"),
        (-1, 0, "user"),
    ],
)
def test_a_sample_outside_the_tables_is_refused(
    kind: type, user: int, item: int, what: str
) -> None:
    engine = new_engine(kind, random_problem(), Objective("low_variance"))
    with pytest.raises(InputError, match=f"a sample names {what}"):
        engine.epoch(clicks_with([0, user], [[1], [2, item]]), batch_size=100)
