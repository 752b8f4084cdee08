"""The fast CPU engine beside the reference: the same parameters from the same samples."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import numba
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from unexposed.engine.adam import BETA1, BETA2
from unexposed.engine.cpu import engine as engine_module
from unexposed.engine.cpu import formulas
from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.cpu.layout import BLOCK, CHUNK
from unexposed.engine.objective import Objective, Optimiser, Strategy, has_closed_form
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.maths import losses
from unexposed.maths.losses import LOSSES, Loss
from unexposed.sampling.samples import Samples
from unexposed.sampling.validation import ValidationSet

N_USERS, N_ITEMS, DIM = 60, 25, 5
N_CLICKS, MOST_DRAWN = 280, 4
SIZES = (120, 90, 400)  # of the batches, epoch after epoch: the last one short, or all in one
OPTIMISER = Optimiser(
    1e-2,
    1e-3,
    exposure_learning_rate=2e-2,
    exposure_weight_decay=1e-3,
    gate_pace=0.5,
    lookahead=0.05,
)
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
TOLERANCE = {np.float64: 1e-9, np.float32: 1e-4}
TORCH_TYPES = {np.float64: torch.float64, np.float32: torch.float32}
precision = pytest.mark.parametrize("dtype", [np.float64, np.float32])
Tables = dict[str, NDArray[Any]]


@pytest.fixture(autouse=True, scope="module")
def one_torch_thread() -> Iterator[None]:
    """Tables this small are soonest done by one; more of them mostly wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Problem(NamedTuple):
    """Users and items come several times in a batch, the last of each in no batch at all.

    Some clicks have no drawn items.
    """

    parameters: Tables
    samples: Samples
    validation: ValidationSet  # of the first users and items only, and of the last item
    exposure: dict[str, NDArray[Any] | None]

    def start(self, *, learned: bool) -> Tables:
        names = list(self.parameters) if learned else ["user_factors", "item_factors"]
        return {name: self.parameters[name] for name in names}


def random_problem(
    seed: int = 0,
    *,
    n: int = N_CLICKS,
    n_users: int = N_USERS,
    n_items: int = N_ITEMS,
    scale: float = 0.5,
    dim: int = DIM,
) -> Problem:
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> NDArray[Any]:
        return rng.normal(0, scale, shape).astype(np.float32)

    def rows(high: int, size: int) -> NDArray[np.int32]:
        return rng.integers(high, size=size, dtype=np.int32)

    start = np.concatenate([[0], np.cumsum(1 + rng.integers(MOST_DRAWN + 1, size=n))])
    validation_items = rows(n_items // 2, 150)
    validation_items[:100] = 3  # one item with more pairs than a block
    validation_items[-10:] = n_items - 1
    return Problem(
        {
            "user_factors": normal(n_users, dim),
            "item_factors": normal(n_items, dim),
            "exposure_user_factors": normal(n_users, dim),
            "gate_weight": normal(dim),
            "gate_bias": normal(1),
        },
        Samples(
            rows(n_users - 1, n),
            start,
            rows(n_items - 1, start[-1]),
            rng.uniform(0.5, 2, n).astype(np.float32),
        ),
        ValidationSet(rows(n_users // 2, 150), validation_items, rng.random(150) < 0.5),
        {
            "none": None,
            "item": rng.uniform(0.05, 1, n_items).astype(np.float32),
            "pair": rng.uniform(0.05, 1, (n_users, n_items)).astype(np.float32),
        },
    )


def new_engine(
    kind: type,
    problem: Problem,
    objective: Objective,
    *,
    exposure: str = "item",
    optimiser: Optimiser = OPTIMISER,
    **options: Any,
) -> Any:
    return kind(
        objective,
        optimiser,
        problem.start(learned=objective.strategy is not None),
        exposure=problem.exposure[exposure],
        validation=problem.validation,
        **options,
    )


def distance(left: Tables, right: Tables) -> float:
    """The largest difference, relative to the largest value of its table."""
    assert list(left) == list(right)
    return max(np.abs(left[n] - right[n]).max() / np.abs(right[n]).max() for n in left)


def assert_engines_agree(
    problem: Problem,
    objective: Objective,
    dtype: type,
    *,
    exposure: str = "item",
    optimiser: Optimiser = OPTIMISER,
    sizes: tuple[int, ...] = SIZES,
    steps: int = 100,
) -> None:
    given = (problem, objective)
    options = {"exposure": exposure, "optimiser": optimiser}
    fast = new_engine(CpuEngine, *given, **options, dtype=dtype, threads=1)
    oracle = new_engine(ReferenceEngine, *given, **options, dtype=TORCH_TYPES[dtype])
    epoch = 0
    while oracle.state()["steps"][0] < steps:
        size = sizes[epoch % len(sizes)]
        loss = fast.epoch(problem.samples, batch_size=size)
        expected = oracle.epoch(problem.samples, batch_size=size)
        assert loss == pytest.approx(expected, rel=TOLERANCE[dtype], abs=TOLERANCE[dtype])
        epoch += 1
    assert fast.state()["steps"].tolist() == oracle.state()["steps"].tolist()
    assert distance(fast.parameters(), oracle.parameters()) < TOLERANCE[dtype]
    assert distance(fast.parameters(), new_engine(CpuEngine, *given).parameters()) > 0.01  # learned


# beside the reference


@precision
@pytest.mark.parametrize("exposure", ["none", "item", "pair"])
@pytest.mark.parametrize("loss", [*LOSSES, "pairwise"])
def test_every_loss_gives_the_parameters_of_the_reference(
    loss: str, exposure: str, dtype: type
) -> None:
    assert_engines_agree(random_problem(), Objective(loss), dtype, exposure=exposure)


@precision
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_gives_the_parameters_of_the_reference(
    strategy: Strategy, dtype: type
) -> None:
    objective = Objective("low_variance", strategy, offset=0.8)
    assert_engines_agree(random_problem(), objective, dtype)


@precision
@pytest.mark.parametrize("size", [1, 40, 150, 1000])  # 150: all of them
def test_parts_of_the_validation_pairs_come_in_the_same_turn(size: int, dtype: type) -> None:
    objective = Objective("low_variance", "bilevel", validation_batch=size)
    assert_engines_agree(random_problem(), objective, dtype)


@precision
@pytest.mark.parametrize("dim", [1, 4, 8, 11, 16, 17])  # less than a vector, whole ones, more
def test_rows_of_any_length_give_the_parameters_of_the_reference(dim: int, dtype: type) -> None:
    objective = Objective("low_variance", "bilevel")
    assert_engines_agree(random_problem(dim=dim), objective, dtype, steps=24)


@pytest.mark.parametrize(
    "objective",
    [
        Objective("pairwise"),
        Objective("low_variance", "bilevel"),
        Objective("low_variance", "bilevel_on_batch"),
    ],
    ids=lambda o: f"{o.loss}-{o.strategy}",
)
@pytest.mark.parametrize("size", [1, 2, 13])
def test_batches_of_a_few_clicks_give_the_parameters_of_the_reference(
    size: int, objective: Objective
) -> None:
    problem = random_problem(n=13)
    assert 0 in np.diff(problem.samples.start) - 1  # a click without drawn items
    assert_engines_agree(problem, objective, np.float64, sizes=(size,), steps=26)


@pytest.mark.parametrize("loss", ["low_variance", "pairwise"])
def test_clicks_without_any_drawn_item_give_the_parameters_of_the_reference(loss: str) -> None:
    problem = random_problem()
    samples = problem.samples
    alone = replace(samples, start=np.arange(N_CLICKS + 1), items=samples.items[:N_CLICKS])
    # pairwise has nothing to learn from then: the weight decay alone moves the rows
    assert_engines_agree(problem._replace(samples=alone), Objective(loss), np.float64)


@pytest.mark.parametrize("offset", [-3.0, 0.0, 2.5])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_offset_of_the_exposure_enters_as_in_the_reference(
    strategy: Strategy, offset: float
) -> None:
    objective = Objective("low_variance", strategy, offset=offset)
    assert_engines_agree(random_problem(), objective, np.float64, steps=10)


def test_the_lookahead_moves_the_exposure() -> None:
    problem, objective = random_problem(), Objective("low_variance", "bilevel")
    short, long = (learned_by(problem, objective, lookahead=eta) for eta in (0.05, 0.5))
    assert distance(short, long) > 1e-4
    optimiser = replace(OPTIMISER, lookahead=0.5)
    assert_engines_agree(problem, objective, np.float64, optimiser=optimiser)


# the clock


@pytest.mark.parametrize("kind", [CpuEngine, ReferenceEngine])
def test_a_row_met_late_steps_by_the_clock_of_the_whole_training(kind: type) -> None:
    problem = random_problem()
    optimiser = replace(OPTIMISER, weight_decay=0.0)
    engine = new_engine(kind, problem, Objective("low_variance"), optimiser=optimiser)
    before = engine.parameters()
    for _ in range(20):
        engine.epoch(problem.samples, batch_size=100)
    assert (engine.parameters()["user_factors"][-1] == before["user_factors"][-1]).all()
    late = Samples(
        np.array([N_USERS - 1], dtype=np.int32),
        np.array([0, 2]),
        np.array([0, 1], dtype=np.int32),
        np.ones(1, dtype=np.float32),
    )
    engine.epoch(late, batch_size=100)
    number = 20 * 3 + 1
    length = (1 - BETA1) / (1 - BETA1**number) / np.sqrt((1 - BETA2) / (1 - BETA2**number))
    moved = engine.parameters()["user_factors"][-1] - before["user_factors"][-1]
    assert np.abs(moved) == pytest.approx(OPTIMISER.learning_rate * length, rel=1e-4)


@precision
def test_a_training_that_has_taken_very_many_steps_goes_on(dtype: type) -> None:
    problem, objective = random_problem(), Objective("low_variance")
    fast = new_engine(CpuEngine, problem, objective, dtype=dtype, threads=1)
    oracle = new_engine(ReferenceEngine, problem, objective, dtype=TORCH_TYPES[dtype])
    for engine in (fast, oracle):
        engine.restore(engine.state() | {"steps": np.array([10**10])})
        for _ in range(3):
            engine.epoch(problem.samples, batch_size=100)
        assert engine.state()["steps"].tolist() == [10**10 + 9]
    assert distance(fast.parameters(), oracle.parameters()) < TOLERANCE[dtype]


def test_rows_in_no_batch_stay_where_they_start() -> None:
    problem = random_problem()
    learned = learned_by(problem, Objective("low_variance", "bilevel"))
    for name in ("user_factors", "item_factors", "exposure_user_factors"):
        assert (learned[name][-1] == problem.parameters[name][-1]).all()
        assert (learned[name][0] != problem.parameters[name][0]).all()


# threads


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
def test_any_number_of_threads_gives_the_same_bits(
    objective: Objective, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_users, n_items = 8 * CHUNK, 5 * CHUNK
    problem = random_problem(n=1000, n_users=n_users, n_items=n_items)
    run, seen = engine_module.RUN, set()

    def noted(*arguments: Any) -> None:
        step, thread, _ = arguments[-3:]
        seen.add((thread, step.n_threads))
        run(*arguments)

    monkeypatch.setattr(engine_module, "RUN", noted)
    one, two, three = (learned_by(problem, objective, threads=t, size=430) for t in (1, 2, 3))
    assert {(thread, n) for n in (1, 2, 3) for thread in range(n)} <= seen
    for name in one:
        assert np.array_equal(one[name], two[name])
        assert np.array_equal(one[name], three[name])


def learned_by(
    problem: Problem,
    objective: Objective,
    *,
    threads: int | None = 1,
    size: int = 120,
    lookahead: float = 0.05,
) -> Tables:
    optimiser = replace(OPTIMISER, lookahead=lookahead)
    engine = new_engine(CpuEngine, problem, objective, optimiser=optimiser, threads=threads)
    for _ in range(3):
        engine.epoch(problem.samples, batch_size=size)
    return engine.parameters()


def test_the_engine_that_chooses_its_threads_gives_the_same_bits() -> None:
    problem, objective = random_problem(n=1000), Objective("low_variance", "bilevel")
    chosen = learned_by(problem, objective, threads=None, size=430)
    one = learned_by(problem, objective, threads=1, size=430)
    assert distance(chosen, one) == 0


def test_a_long_epoch_in_several_calls_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, objective = random_problem(), Objective("low_variance", "bilevel", validation_batch=40)
    whole = learned_by(problem, objective, size=60)
    monkeypatch.setattr(engine_module, "SPAN", 400)  # pairs: about two batches
    assert distance(learned_by(problem, objective, size=60), whole) == 0


# the state


@pytest.mark.parametrize("kind", [CpuEngine, ReferenceEngine])
@pytest.mark.parametrize(
    "objective",
    [Objective("pairwise"), Objective("low_variance", "bilevel", validation_batch=40)],
    ids=lambda o: o.loss,
)
def test_a_restored_engine_goes_on_with_the_same_bits(kind: type, objective: Objective) -> None:
    problem = random_problem()
    whole = new_engine(kind, problem, objective)
    whole.epoch(problem.samples, batch_size=100)
    state = {name: array.copy() for name, array in whole.state().items()}
    # another start, and steps of its own: all of it has to give way
    other = new_engine(kind, problem._replace(parameters=random_problem(1).parameters), objective)
    other.epoch(problem.samples, batch_size=30)
    other.restore(state)
    assert distance(other.parameters(), whole.parameters()) == 0
    for engine in (whole, other):
        engine.epoch(problem.samples, batch_size=100)
    assert distance(other.parameters(), whole.parameters()) == 0
    for name, array in whole.state().items():
        assert np.array_equal(array, other.state()[name]), name


@pytest.mark.parametrize("kind", [CpuEngine, ReferenceEngine])
@pytest.mark.parametrize(
    "change", [{"dim": DIM + 1}, {"n_users": N_USERS + 1}, {"n_items": N_ITEMS + 1}], ids=str
)
def test_a_state_of_another_shape_is_refused(kind: type, change: dict[str, int]) -> None:
    objective = Objective("low_variance", "joint")
    engine = new_engine(kind, random_problem(), objective)
    other = new_engine(kind, random_problem(**change), objective)
    with pytest.raises(ValueError, match="has not the shape"):
        engine.restore(other.state())


# what the engine knows


@numba.njit
def values_and_slopes(loss: int, x: Any, click: Any, m: Any, value: Any, slope: Any) -> None:
    for k in range(len(x)):
        odds = formulas.odds_against(x[k])
        value[k], slope[k] = formulas.value_and_slope(loss, x[k], odds, click[k], m[k])


def worked_out(code: int) -> tuple[list[NDArray[Any]], NDArray[Any], NDArray[Any]]:
    """Logits, clicks and exposures; the values and slopes of the loss of this code."""
    grid = np.meshgrid([-25.0, -3, -0.2, 0, 1, 8, 25], [0.0, 1], [0.05, 0.5, 1])
    x, click, m = (axis.reshape(-1) for axis in grid)
    value, slope = np.zeros_like(x), np.zeros_like(x)
    values_and_slopes(code, x, click, m, value, slope)
    return [x, click, m], value, slope


@pytest.mark.parametrize("name", [n for n, loss in LOSSES.items() if loss.kernel is not None])
def test_the_fast_form_of_every_loss_is_the_loss_of_its_name(name: str) -> None:
    loss = LOSSES[name]
    given, value, slope = worked_out(formulas.LOSS_CODES[loss.kernel or ""])
    x, click, m = (torch.from_numpy(column) for column in given)
    np.testing.assert_allclose(value, loss.value(x, click, m).numpy(), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(slope, loss.gradient(x, click, m).numpy(), rtol=1e-12, atol=1e-14)


def test_the_codes_of_fast_forms_are_those_of_the_losses_and_the_pairwise_one() -> None:
    kernels = [loss.kernel for loss in LOSSES.values() if loss.kernel is not None]
    assert sorted(formulas.LOSS_CODES) == sorted([*kernels, "pairwise"])
    assert len(set(formulas.LOSS_CODES.values())) == len(formulas.LOSS_CODES)


def test_a_code_without_a_formula_computes_nothing() -> None:
    for code in (formulas.PAIRWISE, max(formulas.LOSS_CODES.values()) + 1, -1):
        _, value, slope = worked_out(code)
        assert np.isnan(value).all()
        assert np.isnan(slope).all()


def test_a_fast_form_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    made_up = Loss(losses.low_variance, losses.low_variance_gradient, kernel="made_up")
    monkeypatch.setitem(LOSSES, "made_up", made_up)
    with pytest.raises(InputError, match="no loss 'made_up'; use the reference engine"):
        new_engine(CpuEngine, random_problem(), Objective("made_up"))


def test_a_loss_that_is_not_registered_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="no loss 'low_varianse'; did you mean 'low_variance'"):
        Objective("low_varianse")


def test_what_the_engine_does_not_know_is_left_to_the_reference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Loss(losses.low_variance, losses.low_variance_gradient)
    monkeypatch.setitem(LOSSES, "slow", slow)
    problem = random_problem()
    given, learned = problem.start(learned=False), problem.start(learned=True)
    assert has_closed_form(Objective("pairwise"), given, None)
    assert has_closed_form(Objective("low_variance", "joint"), learned, None)
    assert not has_closed_form(Objective("low_variance_squared", "joint"), learned, None)
    assert not has_closed_form(Objective("slow"), given, None)
    assert not has_closed_form(Objective("low_variance", "joint"), learned, np.ones((N_USERS, 2)))
    mapped = {**given, "exposure_feature_weight": np.ones((2, DIM))}
    assert not has_closed_form(Objective("low_variance", "joint"), mapped, None)
    with pytest.raises(InputError, match="the cpu engine does not know .*slow.*; use the ref"):
        CpuEngine(Objective("slow"), OPTIMISER, given)
    with pytest.raises(InputError, match="reference"):
        CpuEngine(Objective("low_variance", "joint"), OPTIMISER, mapped)


def test_bilevel_without_a_validation_set_is_refused() -> None:
    start = random_problem().start(learned=True)
    with pytest.raises(InputError, match="needs a validation set"):
        CpuEngine(Objective("low_variance", "bilevel"), OPTIMISER, start)


@pytest.mark.parametrize("wrong", [N_ITEMS, -1])
def test_a_sample_outside_the_tables_is_refused(wrong: int) -> None:
    problem = random_problem()
    engine = new_engine(CpuEngine, problem, Objective("low_variance"))
    items, users = problem.samples.items.copy(), problem.samples.users.copy()
    items[-1] = wrong
    with pytest.raises(InputError, match=rf"a sample names item .*{N_ITEMS}"):
        engine.epoch(replace(problem.samples, items=items), batch_size=100)
    users[-1] = N_USERS if wrong > 0 else wrong
    with pytest.raises(InputError, match=rf"a sample names user .*{N_USERS}"):
        engine.epoch(replace(problem.samples, users=users), batch_size=100)


@pytest.mark.parametrize("kind", [CpuEngine, ReferenceEngine])
def test_no_samples_make_no_step(kind: type) -> None:
    problem, objective = random_problem(), Objective("low_variance", "bilevel")
    engine = new_engine(kind, problem, objective)
    nothing = np.zeros(0, dtype=np.int32)
    none = Samples(nothing, np.zeros(1, dtype=np.int64), nothing, nothing.astype(np.float32))
    assert engine.epoch(none, batch_size=100) == 0
    engine.compile()
    assert engine.state()["steps"].tolist() == [0]
    assert distance(engine.parameters(), problem.start(learned=True)) == 0


def test_one_item_has_more_validation_pairs_than_a_block() -> None:
    assert np.bincount(random_problem().validation.items).max() > BLOCK


def test_no_setting_of_the_exposure_model_makes_a_number_that_is_not_finite() -> None:
    rng = np.random.default_rng(0)
    largest = 0.0
    for trial in range(1000):
        problem = random_problem(trial, n=20, scale=10 ** rng.uniform(-2, 1.5))
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
            STRATEGIES[trial % 4],  # all but frozen
            offset=float(rng.choice([-5, 0, 2, 20])),
            validation_batch=int(rng.choice([0, 20])),
        )
        engine = new_engine(CpuEngine, problem, objective, optimiser=optimiser, threads=1)
        losses = [engine.epoch(problem.samples, batch_size=8) for _ in range(3)]
        assert np.isfinite(losses).all(), (trial, objective, optimiser)
        for name, table in engine.parameters().items():
            assert np.isfinite(table).all(), (trial, name, objective, optimiser)
    assert largest > 1000  # the logits went far beyond where float32 can tell p from 1
