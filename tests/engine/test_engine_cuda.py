"""The CUDA engine gives the reference's parameters; its sampler gives sampling.py's distribution.

On a machine without a card some of these tests are run by Triton's interpreter, in processes of
their own (the last test). All of them, slowly:
TRITON_INTERPRET=1 python -m pytest tests/test_engine_cuda.py
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.engine import cuda
from unexposed.engine.cuda import engine as cuda_engine
from unexposed.engine.cuda.drawing import DeviceClicks, DeviceSampler
from unexposed.engine.cuda.engine import CudaEngine
from unexposed.engine.objective import Objective, Optimiser, has_closed_form
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.maths.bilevel import STRATEGIES
from unexposed.maths.losses import LOSSES, Loss
from unexposed.methods import make
from unexposed.progress import Silent, Tick
from unexposed.sampling.samples import Drawing, Samples
from unexposed.sampling.validation import ValidationSet

HAS_TRITON = importlib.util.find_spec("triton") is not None
INTERPRETED = bool(os.environ.get("TRITON_INTERPRET")) and HAS_TRITON
DEVICE = "cpu" if INTERPRETED else "cuda"
STEPS, BATCH = (4, 5) if INTERPRETED else (100, 32)
N_USERS, N_ITEMS, DIM = 40, 30, 20

needs_a_card = pytest.mark.skipif(
    not (INTERPRETED or cuda.available()),
    reason="needs an NVIDIA card that torch can see, and triton",
)
both_precisions = pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-4), (torch.float64, 1e-9)],
    ids=["float32", "float64"],
)
OPTIMISER = Optimiser(
    5e-3,
    1e-3,
    exposure_learning_rate=3e-3,
    exposure_weight_decay=1e-3,
    gate_pace=0.5,
    lookahead=0.05,
)


def random_samples(rng: np.random.Generator, n: int, drawn: int | None = None) -> Samples:
    """Clicks with so many drawn items each; without a number from none to eleven."""
    few = rng.integers(0, 12, n) * (rng.random(n) < 0.8)
    start = np.concatenate([[0], np.cumsum(1 + (few if drawn is None else np.full(n, drawn)))])
    return Samples(
        rng.integers(N_USERS, size=n).astype(np.int32),
        start,
        rng.integers(N_ITEMS, size=start[-1]).astype(np.int32),
        rng.uniform(0.5, 2, n).astype(np.float32),
    )


def random_start(rng: np.random.Generator, *, learned: bool) -> dict[str, Any]:
    start = {
        "user_factors": rng.normal(0, 0.4, (N_USERS, DIM)),
        "item_factors": rng.normal(0, 0.4, (N_ITEMS, DIM)),
    }
    if learned:
        start["exposure_user_factors"] = rng.normal(0, 0.4, (N_USERS, DIM))
        start["gate_weight"] = rng.normal(0, 0.4, DIM)
        start["gate_bias"] = np.array([0.2])
    return {name: table.astype(np.float32) for name, table in start.items()}


def random_validation(rng: np.random.Generator, n: int) -> ValidationSet:
    return ValidationSet(
        rng.integers(N_USERS, size=n).astype(np.int32),
        rng.integers(N_ITEMS // 3, size=n).astype(np.int32),  # few items: they come often
        rng.random(n) < 0.5,
    )


def assert_same_training(
    objective: Objective,
    dtype: torch.dtype,
    tolerance: float,
    *,
    drawn: int | None = None,
    batch_size: int = BATCH,
    steps: int = STEPS,
    **given: Any,
) -> None:
    """Two epochs on both engines, the last batch of each a short one."""
    rng = np.random.default_rng(0)
    start = random_start(rng, learned=objective.strategy is not None)
    truth = ReferenceEngine(objective, OPTIMISER, start, dtype=torch.float64, **given)
    engine = CudaEngine(objective, OPTIMISER, start, dtype=dtype, device=DEVICE, **given)
    for _ in range(2):
        samples = random_samples(rng, steps // 2 * batch_size - batch_size // 3, drawn)
        expected = truth.epoch(samples, batch_size=batch_size)
        found_loss = engine.epoch(samples, batch_size=batch_size)
        assert found_loss == pytest.approx(expected, rel=tolerance)
    found = engine.parameters()
    for name, table in truth.parameters().items():
        assert np.linalg.norm(table - start[name]) > 1e-5 or objective.strategy == "frozen"
        error = np.linalg.norm(found[name] - table) / np.linalg.norm(table)
        assert error <= tolerance, f"{name} is off by {error:.1e}"


@needs_a_card
@both_precisions
@pytest.mark.parametrize("kind", ["none", "per item", "per pair"])
@pytest.mark.parametrize("loss", LOSSES)
def test_given_exposure_gives_the_reference_parameters(
    loss: str, kind: str, dtype: torch.dtype, tolerance: float
) -> None:
    shape = {"none": None, "per item": N_ITEMS, "per pair": (N_USERS, N_ITEMS)}[kind]
    rng = np.random.default_rng(1)
    exposure = None if shape is None else rng.uniform(0.2, 1, shape).astype(np.float32)
    assert_same_training(Objective(loss), dtype, tolerance, exposure=exposure)


@needs_a_card
@both_precisions
def test_pairwise_loss_gives_the_reference_parameters(dtype: torch.dtype, tolerance: float) -> None:
    assert_same_training(Objective("pairwise"), dtype, tolerance)


@needs_a_card
@both_precisions
@pytest.mark.parametrize("offset", [0.0, 1.5])
@pytest.mark.parametrize(
    ("strategy", "validation_batch"), [("bilevel", 7), *((name, 0) for name in STRATEGIES)]
)
def test_learned_exposure_gives_the_reference_parameters(
    strategy: Any, validation_batch: int, offset: float, dtype: torch.dtype, tolerance: float
) -> None:
    rng = np.random.default_rng(2)
    objective = Objective("low_variance", strategy, offset, validation_batch)
    assert_same_training(
        objective,
        dtype,
        tolerance,
        exposure=rng.uniform(0.2, 1, N_ITEMS).astype(np.float32),
        validation=random_validation(rng, 90),
    )


@needs_a_card
@both_precisions
@pytest.mark.parametrize("drawn", [0, 1, 5, 40])
@pytest.mark.parametrize("loss", ["low_variance", "pairwise"])
def test_large_batches_give_the_reference_parameters(
    loss: str, drawn: int, dtype: torch.dtype, tolerance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs of many pairs: of many clicks, or of one click in several turns."""
    rng = np.random.default_rng(7)
    pointwise = loss == "low_variance"
    monkeypatch.setattr(cuda_engine, "LARGE_BATCH", 1)
    assert_same_training(
        Objective(loss, "bilevel" if pointwise else None),
        dtype,
        tolerance,
        drawn=drawn if pointwise else max(1, drawn),
        batch_size=8 if INTERPRETED else 2000,
        steps=2 if INTERPRETED else 10,
        exposure=rng.uniform(0.2, 1, N_ITEMS).astype(np.float32) if pointwise else None,
        validation=random_validation(rng, 90) if pointwise else None,
    )


@needs_a_card
@pytest.mark.parametrize("loss", ["low_variance", "pairwise"])
def test_a_row_that_every_pair_touches_gets_one_step(loss: str) -> None:
    rng = np.random.default_rng(3)
    start = random_start(rng, learned=False)
    drawn = random_samples(rng, 40 if INTERPRETED else 500, 2)
    items = drawn.items.copy()
    items[1::3] = 5  # the first item drawn for each click
    user = np.full_like(drawn.users, 7)
    samples = Samples(user, drawn.start, items, drawn.weight)
    truth = ReferenceEngine(Objective(loss), OPTIMISER, start, dtype=torch.float64)
    engine = CudaEngine(Objective(loss), OPTIMISER, start, device=DEVICE)
    for each in (truth, engine):
        each.epoch(samples, batch_size=len(samples))
    for name, table in truth.parameters().items():
        np.testing.assert_allclose(engine.parameters()[name], table, rtol=1e-5, atol=1e-7)


@needs_a_card
def test_an_epoch_of_longer_batches_than_the_last_finds_room() -> None:
    rng = np.random.default_rng(10)
    start = random_start(rng, learned=False)
    given = {"dtype": torch.float64}
    truth = ReferenceEngine(Objective("low_variance"), OPTIMISER, start, **given)
    engine = CudaEngine(Objective("low_variance"), OPTIMISER, start, **given, device=DEVICE)
    for n, drawn, batch_size in ((9, 1, 4), (9, 6, 4), (17, 2, 4), (9, 0, 6)):
        samples = random_samples(rng, n, drawn)
        expected = truth.epoch(samples, batch_size=batch_size)
        assert engine.epoch(samples, batch_size=batch_size) == pytest.approx(expected, rel=1e-9)
    for name, table in truth.parameters().items():
        np.testing.assert_allclose(engine.parameters()[name], table, rtol=1e-9, atol=1e-12)


@needs_a_card
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter: the loss is infinite
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_surely_seen_pairs_with_large_logits_stay_finite(loss: str, scale: float) -> None:
    rng = np.random.default_rng(4)
    start = {name: scale * t for name, t in random_start(rng, learned=False).items()}
    exposure = np.ones(N_ITEMS, dtype=np.float32)
    engine = CudaEngine(Objective(loss), OPTIMISER, start, exposure=exposure, device=DEVICE)
    engine.epoch(random_samples(rng, 30), batch_size=BATCH)
    assert all(np.isfinite(table).all() for table in engine.parameters().values())


@needs_a_card
def test_an_epoch_longer_than_the_room_on_the_card_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(5)
    start, samples = random_start(rng, learned=True), random_samples(rng, 5 * BATCH + 3)
    given = {
        "exposure": rng.uniform(0.2, 1, N_ITEMS).astype(np.float32),
        "validation": random_validation(rng, 20),
        "dtype": torch.float64,
        "device": DEVICE,
    }
    objective = Objective("low_variance", "bilevel", validation_batch=7)
    whole = CudaEngine(objective, OPTIMISER, start, **given)
    parts = CudaEngine(objective, OPTIMISER, start, **given)
    loss = whole.epoch(samples, batch_size=BATCH)
    monkeypatch.setattr(cuda_engine, "CHUNK", 2 * 7 * BATCH)  # pairs of about two batches
    assert parts.epoch(samples, batch_size=BATCH) == pytest.approx(loss, rel=1e-12)
    assert parts._space is not None
    assert parts._space.columns["click_user"].numel() < len(samples)
    for name, table in whole.parameters().items():
        np.testing.assert_allclose(parts.parameters()[name], table, rtol=1e-9, atol=1e-12)


@needs_a_card
@pytest.mark.parametrize("compiles", [False, True])
def test_an_epoch_of_no_samples_changes_nothing(compiles: bool) -> None:
    rng = np.random.default_rng(8)
    start = random_start(rng, learned=False)
    engine = CudaEngine(Objective("low_variance"), OPTIMISER, start, device=DEVICE)
    if compiles and not INTERPRETED:
        engine.compile()
    assert engine.epoch(random_samples(rng, 0), batch_size=BATCH) == 0
    for name, table in engine.parameters().items():
        np.testing.assert_array_equal(table, start[name])


@needs_a_card
def test_a_loss_that_the_kernels_lack_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    known = LOSSES["low_variance"]
    monkeypatch.setitem(LOSSES, "new", Loss(known.value, known.gradient, kernel="new"))
    start = random_start(np.random.default_rng(0), learned=False)
    with pytest.raises(InputError, match="has no loss 'new'"):
        CudaEngine(Objective("new"), OPTIMISER, start, device=DEVICE)


@needs_a_card
def test_a_sample_of_an_unknown_item_is_refused() -> None:
    start = random_start(np.random.default_rng(0), learned=False)
    engine = CudaEngine(Objective("low_variance"), OPTIMISER, start, device=DEVICE)
    samples = Samples(
        np.zeros(1, dtype=np.int32),
        np.array([0, 2]),
        np.array([1, N_ITEMS], dtype=np.int32),
        np.ones(1, dtype=np.float32),
    )
    with pytest.raises(InputError, match=f"names item {N_ITEMS}, but there are {N_ITEMS}"):
        engine.epoch(samples, batch_size=BATCH)


# samples drawn on the card --------------------------------------------------------------------


def some_clicks(rng: np.random.Generator) -> Clicks:
    """Of very unlike users: the first has clicked everything, the last nothing."""
    chance = np.linspace(1, 0, 12)[:, None]
    users, items = np.nonzero(rng.random((12, 9)) < chance)
    return Clicks.from_pairs(users, items, user_ids=Ids.range(12), item_ids=Ids.range(9))


def sampler(clicks: Clicks, drawing: Drawing, seed: int = 0) -> DeviceSampler:
    return DeviceSampler(DeviceClicks.of(clicks, device=DEVICE), drawing, seed=seed)


def sorted_rows(*columns: Any) -> Any:
    table = np.stack(columns, axis=1).astype(np.float64)
    return table[np.lexsort(table.T)]


@needs_a_card
@pytest.mark.parametrize("weighting", ["none", "unbiased"])
def test_an_epoch_has_every_click_once_with_unclicked_items_of_its_user(weighting: Any) -> None:
    clicks, drawing = some_clicks(np.random.default_rng(0)), Drawing(3, weighting)
    samples = sampler(clicks, drawing).draw()
    clicked = samples.items[samples.start[:-1]]
    np.testing.assert_array_equal(
        sorted_rows(samples.users, clicked), sorted_rows(clicks.users, clicks.items)
    )
    all_clicked = clicks.user_counts[samples.users] == clicks.n_items
    np.testing.assert_array_equal(np.diff(samples.start), np.where(all_clicked, 1, 4))
    assert all_clicked.any()
    np.testing.assert_allclose(samples.weight, drawing.weight(clicks)[samples.users], rtol=1e-6)
    pairs = samples.pairs()
    drawn = pairs.click == 0
    assert not clicks.contain(pairs.users[drawn], pairs.items[drawn]).any()


@needs_a_card
def test_negatives_are_uniform_over_the_unclicked_items() -> None:
    clicks = some_clicks(np.random.default_rng(1))
    pairs = sampler(clicks, Drawing(300 if INTERPRETED else 3000)).draw().pairs()
    negative = pairs.click == 0
    counts = np.zeros((clicks.n_users, clicks.n_items))
    np.add.at(counts, (pairs.users[negative], pairs.items[negative]), 1)
    unclicked = clicks.matrix().toarray() == 0
    for user in np.flatnonzero(counts.sum(1)):
        seen = counts[user][unclicked[user]]
        expected = seen.mean()
        chi_squared = ((seen - expected) ** 2 / expected).sum()  # mean k − 1, deviation √(2(k − 1))
        free = len(seen) - 1
        assert chi_squared <= free + 5 * np.sqrt(2 * free)


@needs_a_card
def test_items_drawn_from_the_catalogue_may_be_clicked_ones() -> None:
    clicks = some_clicks(np.random.default_rng(1))
    samples = sampler(clicks, Drawing(30, source="catalogue")).draw()
    assert (np.diff(samples.start) == 31).all()
    counts = np.bincount(samples.items[samples.pairs().click == 0], minlength=clicks.n_items)
    assert np.abs(counts / counts.mean() - 1).max() < 5 / np.sqrt(counts.mean())


@needs_a_card
def test_the_order_of_the_clicks_is_new_each_epoch() -> None:
    rng = np.random.default_rng(2)
    n = 600 if INTERPRETED else 2000
    users, items = rng.integers(300, size=n), rng.integers(200, size=n)
    clicks = Clicks.from_pairs(users, items, user_ids=Ids.range(300), item_ids=Ids.range(200))
    one, drawing = sampler(clicks, Drawing(1), seed=5), Drawing(1)
    first, second = one.draw(), one.draw()
    again, other = (sampler(clicks, drawing, seed=seed).draw() for seed in (5, 6))
    np.testing.assert_array_equal(first.users, again.users)
    np.testing.assert_array_equal(first.items, again.items)
    for different in (second, other):
        assert (first.users == different.users).mean() < 0.05
        assert (first.items[1::2] == different.items[1::2]).mean() < 0.05
    # the clicks lie in the order of their users: nothing of that is left
    assert abs(np.corrcoef(first.users, np.arange(len(first)))[0, 1]) < 0.1
    assert abs(np.corrcoef(first.users[1:], first.users[:-1])[0, 1]) < 0.1


@needs_a_card
def test_every_pair_is_left_to_the_host() -> None:
    with pytest.raises(InputError, match="every pair"):
        sampler(some_clicks(np.random.default_rng(0)), Drawing(1, every_pair=True))


@needs_a_card
@pytest.mark.parametrize("loss", ["low_variance", "pairwise"])
def test_an_epoch_drawn_on_the_card_teaches_what_its_samples_teach(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks, rng = some_clicks(np.random.default_rng(6)), np.random.default_rng(6)
    start = random_start(rng, learned=False)
    given = {"dtype": torch.float64, "device": DEVICE}
    here = CudaEngine(Objective(loss), OPTIMISER, start, **given)
    there = CudaEngine(Objective(loss), OPTIMISER, start, **given)
    drawing = Drawing(2, "unbiased")
    on_card, on_host = sampler(clicks, drawing), sampler(clicks, drawing)
    monkeypatch.setattr(cuda_engine, "CHUNK", 3 * 30)  # pairs of a batch
    monkeypatch.setattr(cuda_engine, "LARGE_BATCH", 1)
    for _ in range(2):
        expected = here.epoch(on_host.draw(), batch_size=30)
        assert there.train_epoch(on_card, batch_size=30) == pytest.approx(expected, rel=1e-9)
    for name, table in here.parameters().items():
        np.testing.assert_allclose(there.parameters()[name], table, rtol=1e-9, atol=1e-12)


def cards_clicks(rng: np.random.Generator, n: int) -> Clicks:
    users, items = rng.integers(N_USERS, size=n), rng.integers(N_ITEMS, size=n)
    return Clicks.from_pairs(users, items, user_ids=Ids.range(N_USERS), item_ids=Ids.range(N_ITEMS))


@needs_a_card
@pytest.mark.parametrize(
    "objective",
    [
        Objective("low_variance"),
        Objective("pairwise"),
        *(Objective("low_variance", s) for s in STRATEGIES),
        Objective("low_variance", "bilevel", validation_batch=7),
    ],
    ids=lambda o: f"{o.loss}-{o.strategy}-{o.validation_batch}",
)
def test_an_engine_given_the_state_of_another_goes_on_as_that_one(objective: Objective) -> None:
    rng = np.random.default_rng(8)
    clicks = cards_clicks(rng, 20 if INTERPRETED else 300)
    learned, size = objective.strategy is not None, 16 if INTERPRETED else 64
    given: dict[str, Any] = {
        "exposure": np.full(N_ITEMS, 0.4) if learned else None,
        "validation": random_validation(rng, 50) if learned else None,
        "dtype": torch.float64,
        "device": DEVICE,
    }
    start = random_start(rng, learned=learned)
    engines = [CudaEngine(objective, OPTIMISER, start, **given) for _ in range(2)]
    samplers = [engine.sampler(clicks, Drawing(1), seed=3) for engine in engines]
    for _ in range(2):
        engines[0].train_epoch(samplers[0], batch_size=size)
    engines[1].train_epoch(samplers[1], batch_size=size // 2)  # what it learns is forgotten
    engines[1].restore(engines[0].state())
    one, other = (engine.state() for engine in engines)
    assert one["steps"].tolist() == [2 * -(-len(clicks) // size)]
    assert one["steps"].dtype == np.int64
    assert one.keys() == other.keys()
    for name, table in one.items():
        assert table.tobytes() == other[name].tobytes(), name
    losses = [e.train_epoch(s, batch_size=size) for e, s in zip(engines, samplers, strict=True)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    for name, table in engines[0].parameters().items():
        np.testing.assert_allclose(engines[1].parameters()[name], table, rtol=1e-9, atol=1e-12)


@needs_a_card
@pytest.mark.skipif(INTERPRETED, reason="methods run on a card only")
@pytest.mark.parametrize("name", ["mf", "bpr", "ubo"])
def test_a_training_on_the_card_that_is_killed_goes_on(name: str, tmp_path: Path) -> None:
    clicks = cards_clicks(np.random.default_rng(9), 300)
    method = make(name, dim=6, epochs=6, patience=0, batch_size=64, engine="cuda")
    whole = method.fit(clicks, progress=Silent())

    class Killed(BaseException):
        pass

    class Killer(Silent):
        def __call__(self, tick: Tick) -> None:
            if tick.epoch == 4:
                raise Killed

    kept: dict[str, Any] = {"checkpoint": tmp_path / "kept", "checkpoint_every": 0}
    with pytest.raises(Killed):
        method.fit(clicks, **kept, progress=Killer())
    resumed = method.fit(clicks, **kept, resume=True, progress=Silent())
    assert resumed.facts["resumed_at"] == [3]
    # additions come in any order on a card, so the last bits of two runs differ
    np.testing.assert_allclose(resumed.facts["losses"], whole.facts["losses"], rtol=1e-4)


# without a card -------------------------------------------------------------------------------


def test_user_features_are_left_to_the_reference() -> None:
    start = random_start(np.random.default_rng(0), learned=True)
    objective = Objective("low_variance", "bilevel")
    assert has_closed_form(objective, start, None)
    assert not has_closed_form(objective, start, np.ones((N_USERS, 2)))
    assert not has_closed_form(Objective("inverse_propensity", "joint"), start, None)


@pytest.mark.skipif(cuda.available(), reason="this machine has a card")
def test_without_a_card_the_error_says_what_is_missing() -> None:
    start = random_start(np.random.default_rng(0), learned=False)
    with pytest.raises(InputError, match="needs an NVIDIA GPU"):
        CudaEngine(Objective("low_variance"), OPTIMISER, start)


LEARNED = "test_learned_exposure_gives_the_reference_parameters"
GIVEN = "test_given_exposure_gives_the_reference_parameters"
STATE = "test_an_engine_given_the_state_of_another_goes_on_as_that_one"
INTERPRETER_RUNS = {
    "learned exposure": [
        f"{LEARNED}[bilevel-7-1.5-float64]",
        f"{LEARNED}[joint-0-0.0-float64]",
        f"{LEARNED}[bilevel_on_batch-0-1.5-float32]",
        "test_large_batches_give_the_reference_parameters[low_variance-1-float64]",
    ],
    "given exposure and drawing": [
        f"{GIVEN}[low_variance-per item-float64]",
        f"{GIVEN}[inverse_propensity-per pair-float64]",
        f"{GIVEN}[inverse_propensity_squared-per item-float64]",
        f"{GIVEN}[low_variance_squared-none-float32]",
        "test_pairwise_loss_gives_the_reference_parameters[float64]",
        "test_a_row_that_every_pair_touches_gets_one_step[low_variance]",
        "test_an_epoch_of_longer_batches_than_the_last_finds_room",
        "test_a_loss_that_the_kernels_lack_is_refused",
        "test_an_epoch_has_every_click_once_with_unclicked_items_of_its_user[unbiased]",
        "test_an_epoch_drawn_on_the_card_teaches_what_its_samples_teach[pairwise]",
        "test_the_order_of_the_clicks_is_new_each_epoch",
        f"{STATE}[low_variance-None-0]",
    ],
}


@pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed: pip install triton")
@pytest.mark.skipif(INTERPRETED or cuda.available(), reason="the tests above run here")
@pytest.mark.parametrize("tests", INTERPRETER_RUNS.values(), ids=INTERPRETER_RUNS)
def test_kernels_pass_under_tritons_interpreter(tests: list[str]) -> None:
    """In a process of its own: triton reads the variable when it is first imported."""
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, *(f"{__file__}::{test}" for test in tests)],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(tests)} passed" in run.stdout
