"""The CUDA engine gives the reference's parameters; its sampler gives sampling.py's distribution.

On a machine without a card the kernels can be run, slowly, by Triton's interpreter:
TRITON_INTERPRET=1 python -m pytest tests/test_engine_cuda.py
"""

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from unexposed.bilevel import STRATEGIES
from unexposed.data import Clicks, Ids
from unexposed.engine import Objective, Optimiser, cuda, has_closed_form
from unexposed.engine.cuda import CudaEngine, DeviceClicks, DeviceSampler
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.losses import LOSSES
from unexposed.methods import make
from unexposed.progress import Silent, Tick
from unexposed.sampling import Pairs, Triples, sampled_pairs
from unexposed.validation import ValidationSet

INTERPRETED = bool(os.environ.get("TRITON_INTERPRET")) and bool(importlib.util.find_spec("triton"))
DEVICE = "cpu" if INTERPRETED else "cuda"
STEPS = 4 if INTERPRETED else 100
N_USERS, N_ITEMS, DIM, BATCH = 40, 30, 10, 32

needs_a_card = pytest.mark.skipif(
    not (INTERPRETED or cuda.available()),
    reason="needs an NVIDIA card that torch can see, and triton",
)
both_precisions = pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-9)]
)
OPTIMISER = Optimiser(
    5e-3,
    1e-3,
    exposure_learning_rate=3e-3,
    exposure_weight_decay=1e-3,
    gate_pace=0.5,
    lookahead=0.05,
)


def random_pairs(rng: np.random.Generator, n: int) -> Pairs:
    return Pairs(
        rng.integers(N_USERS, size=n).astype(np.int32),
        rng.integers(N_ITEMS, size=n).astype(np.int32),
        (rng.random(n) < 0.3).astype(np.float32),
        rng.uniform(0.5, 2, n).astype(np.float32),
    )


def random_triples(rng: np.random.Generator, n: int) -> Triples:
    items = rng.integers(N_ITEMS, size=(2, n)).astype(np.int32)
    return Triples(rng.integers(N_USERS, size=n).astype(np.int32), items[0], items[1])


def random_start(rng: np.random.Generator, *, learned: bool) -> dict[str, Any]:
    start = {
        "user_factors": rng.normal(0, 0.5, (N_USERS, DIM)),
        "item_factors": rng.normal(0, 0.5, (N_ITEMS, DIM)),
    }
    if learned:
        start["exposure_user_factors"] = rng.normal(0, 0.5, (N_USERS, DIM))
        start["gate_weight"] = rng.normal(0, 0.5, DIM)
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
    draw: Callable[[np.random.Generator, int], Any],
    dtype: torch.dtype,
    tolerance: float,
    *,
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
        samples = draw(rng, steps // 2 * batch_size - batch_size // 3)
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
    assert_same_training(Objective(loss), random_pairs, dtype, tolerance, exposure=exposure)


@needs_a_card
@both_precisions
def test_pairwise_loss_gives_the_reference_parameters(dtype: torch.dtype, tolerance: float) -> None:
    assert_same_training(Objective("pairwise"), random_triples, dtype, tolerance)


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
        random_pairs,
        dtype,
        tolerance,
        exposure=rng.uniform(0.2, 1, N_ITEMS).astype(np.float32),
        validation=random_validation(rng, 90),
    )


@needs_a_card
@both_precisions
@pytest.mark.parametrize("loss", ["low_variance", "pairwise"])
def test_large_batches_give_the_reference_parameters(
    loss: str, dtype: torch.dtype, tolerance: float
) -> None:
    rng = np.random.default_rng(7)
    pointwise = loss == "low_variance"
    assert_same_training(
        Objective(loss, "bilevel" if pointwise else None),
        random_pairs if pointwise else random_triples,
        dtype,
        tolerance,
        batch_size=cuda.LARGE_BATCH,
        steps=2 if INTERPRETED else 10,
        exposure=rng.uniform(0.2, 1, N_ITEMS).astype(np.float32) if pointwise else None,
        validation=random_validation(rng, 90) if pointwise else None,
    )


@needs_a_card
def test_a_row_that_every_pair_touches_gets_one_step() -> None:
    rng = np.random.default_rng(3)
    start = random_start(rng, learned=False)
    pairs = random_pairs(rng, 500)
    one_user = Pairs(np.full(500, 7, dtype=np.int32), pairs.items, pairs.click, pairs.weight)
    truth = ReferenceEngine(Objective("low_variance"), OPTIMISER, start, dtype=torch.float64)
    engine = CudaEngine(Objective("low_variance"), OPTIMISER, start, device=DEVICE)
    for each in (truth, engine):
        each.epoch(one_user, batch_size=500)
    np.testing.assert_allclose(
        engine.parameters()["user_factors"],
        truth.parameters()["user_factors"],
        rtol=1e-5,
        atol=1e-7,
    )


@needs_a_card
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the interpreter: the loss is infinite
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("scale", [1.0, 30.0])
def test_surely_seen_pairs_with_large_logits_stay_finite(loss: str, scale: float) -> None:
    rng = np.random.default_rng(4)
    start = {name: scale * t for name, t in random_start(rng, learned=False).items()}
    exposure = np.ones(N_ITEMS, dtype=np.float32)
    engine = CudaEngine(Objective(loss), OPTIMISER, start, exposure=exposure, device=DEVICE)
    engine.epoch(random_pairs(rng, 90), batch_size=BATCH)
    assert all(np.isfinite(table).all() for table in engine.parameters().values())


@needs_a_card
def test_an_epoch_longer_than_the_room_on_the_card_is_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rng = np.random.default_rng(5)
    start, samples = random_start(rng, learned=True), random_pairs(rng, 5 * BATCH + 3)
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
    monkeypatch.setattr(cuda, "CHUNK", 2 * BATCH)
    assert parts.epoch(samples, batch_size=BATCH) == pytest.approx(loss, rel=1e-12)
    for name, table in whole.parameters().items():
        np.testing.assert_allclose(parts.parameters()[name], table, rtol=1e-9, atol=1e-12)


@needs_a_card
def test_an_epoch_of_no_samples_changes_nothing() -> None:
    rng = np.random.default_rng(8)
    start = random_start(rng, learned=False)
    engine = CudaEngine(Objective("low_variance"), OPTIMISER, start, device=DEVICE)
    assert engine.epoch(random_pairs(rng, 0), batch_size=BATCH) == 0
    for name, table in engine.parameters().items():
        np.testing.assert_array_equal(table, start[name])


# samples drawn on the card --------------------------------------------------------------------


def some_clicks(rng: np.random.Generator) -> Clicks:
    """Of very unlike users: the first has clicked everything, the last nothing."""
    chance = np.linspace(1, 0, 12)[:, None]
    users, items = np.nonzero(rng.random((12, 9)) < chance)
    return Clicks.from_pairs(users, items, user_ids=Ids.range(12), item_ids=Ids.range(9))


def sampler(clicks: Clicks, seed: int = 0, **settings: Any) -> DeviceSampler:
    on_card = DeviceClicks.of(clicks, device=DEVICE)
    return DeviceSampler(on_card, seed=seed, **{"negatives": 3, **settings})


def sorted_rows(*columns: Any) -> Any:
    table = np.stack(columns, axis=1).astype(np.float64)
    return table[np.lexsort(table.T)]


@needs_a_card
def test_an_epoch_has_every_click_once_and_as_many_negatives_as_the_host_draws() -> None:
    clicks = some_clicks(np.random.default_rng(0))
    drawn = sampler(clicks, weighting="unbiased").draw()
    host = sampled_pairs(clicks, negatives=3, weighting="unbiased", rng=np.random.default_rng(0))
    assert isinstance(drawn, Pairs)
    of_drawn, of_host = drawn.click > 0, host.click > 0
    np.testing.assert_allclose(
        sorted_rows(drawn.users, drawn.click, drawn.weight),
        sorted_rows(host.users, host.click, host.weight),
        rtol=1e-6,
    )
    np.testing.assert_array_equal(
        sorted_rows(drawn.users[of_drawn], drawn.items[of_drawn]),
        sorted_rows(host.users[of_host], host.items[of_host]),
    )
    assert not clicks.contain(drawn.users[~of_drawn], drawn.items[~of_drawn]).any()


@needs_a_card
def test_negatives_are_uniform_over_the_unclicked_items() -> None:
    clicks = some_clicks(np.random.default_rng(1))
    draws = sampler(clicks, negatives=300 if INTERPRETED else 3000).draw()
    assert isinstance(draws, Pairs)
    negative = draws.click == 0
    counts = np.zeros((clicks.n_users, clicks.n_items))
    np.add.at(counts, (draws.users[negative], draws.items[negative]), 1)
    unclicked = clicks.matrix().toarray() == 0
    for user in np.flatnonzero(counts.sum(1)):
        seen = counts[user][unclicked[user]]
        expected = seen.mean()
        chi_squared = ((seen - expected) ** 2 / expected).sum()  # mean k − 1, deviation √(2(k − 1))
        free = len(seen) - 1
        assert chi_squared <= free + 5 * np.sqrt(2 * free)


@needs_a_card
def test_the_order_mixes_clicks_and_negatives_anew_each_epoch() -> None:
    rng = np.random.default_rng(2)
    users, items = rng.integers(300, size=2000), rng.integers(200, size=2000)
    clicks = Clicks.from_pairs(users, items, user_ids=Ids.range(300), item_ids=Ids.range(200))
    one = sampler(clicks, seed=5)
    first, second = one.draw(), one.draw()
    again = sampler(clicks, seed=5).draw()
    other = sampler(clicks, seed=6).draw()
    assert isinstance(first, Pairs)
    assert isinstance(second, Pairs)
    assert isinstance(again, Pairs)
    assert isinstance(other, Pairs)
    np.testing.assert_array_equal(first.users, again.users)
    np.testing.assert_array_equal(first.items, again.items)
    for different in (second, other):
        assert (first.users == different.users).mean() < 0.05
    tenths = [part.click.mean() for part in first.batches(-(-len(first) // 10))]
    assert max(tenths) - min(tenths) < 0.15  # clicks are a quarter everywhere
    # the clicks lie in the order of their users: nothing of that is left
    assert abs(np.corrcoef(first.users, np.arange(len(first)))[0, 1]) < 0.06
    assert abs(np.corrcoef(first.users[1:], first.users[:-1])[0, 1]) < 0.06


@needs_a_card
def test_triples_pair_each_click_with_unclicked_items_of_its_user() -> None:
    clicks = some_clicks(np.random.default_rng(3))
    drawn = sampler(clicks, pairwise=True).draw()
    assert isinstance(drawn, Triples)
    may = clicks.user_counts[clicks.users] < clicks.n_items
    np.testing.assert_array_equal(
        sorted_rows(drawn.users, drawn.items),
        sorted_rows(np.repeat(clicks.users[may], 3), np.repeat(clicks.items[may], 3)),
    )
    assert not clicks.contain(drawn.users, drawn.negatives).any()


@needs_a_card
@pytest.mark.parametrize("loss", ["low_variance", "pairwise"])
def test_an_epoch_drawn_on_the_card_teaches_what_its_samples_teach(loss: str) -> None:
    rng = np.random.default_rng(6)
    users, items = rng.integers(N_USERS, size=300), rng.integers(N_ITEMS, size=300)
    clicks = Clicks.from_pairs(
        users, items, user_ids=Ids.range(N_USERS), item_ids=Ids.range(N_ITEMS)
    )
    start = random_start(rng, learned=False)
    given = {"dtype": torch.float64, "device": DEVICE}
    here = CudaEngine(Objective(loss), OPTIMISER, start, **given)
    there = CudaEngine(Objective(loss), OPTIMISER, start, **given)
    settings = {"negatives": 1, "pairwise": loss == "pairwise"}
    on_card, on_host = sampler(clicks, **settings), sampler(clicks, **settings)
    for _ in range(2):
        expected = here.epoch(on_host.draw(), batch_size=128)
        assert there.train_epoch(on_card, batch_size=128) == pytest.approx(expected, rel=1e-9)
    for name, table in here.parameters().items():
        np.testing.assert_allclose(there.parameters()[name], table, rtol=1e-9, atol=1e-12)


def cards_clicks(rng: np.random.Generator) -> Clicks:
    users, items = rng.integers(N_USERS, size=300), rng.integers(N_ITEMS, size=300)
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
)
def test_an_engine_given_the_state_of_another_goes_on_as_that_one(objective: Objective) -> None:
    rng = np.random.default_rng(8)
    clicks = cards_clicks(rng)
    learned = objective.strategy is not None
    given: dict[str, Any] = {
        "exposure": np.full(N_ITEMS, 0.4) if learned else None,
        "validation": random_validation(rng, 50) if learned else None,
        "dtype": torch.float64,
        "device": DEVICE,
    }
    drawing: dict[str, Any] = {
        "negatives": 1,
        "weighting": "none",
        "pairwise": objective.loss == "pairwise",
        "seed": 3,
    }
    start = random_start(rng, learned=learned)
    engines = [CudaEngine(objective, OPTIMISER, start, **given) for _ in range(2)]
    samplers = [engine.sampler(clicks, **drawing) for engine in engines]
    for _ in range(2):
        engines[0].train_epoch(samplers[0], batch_size=128)
    engines[1].train_epoch(samplers[1], batch_size=64)  # what it learns is forgotten
    engines[1].restore(engines[0].state())
    one, other = (engine.state() for engine in engines)
    assert one.keys() == other.keys()
    for name, table in one.items():
        assert table.tobytes() == other[name].tobytes(), name
    losses = [e.train_epoch(s, batch_size=128) for e, s in zip(engines, samplers, strict=True)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    for name, table in engines[0].parameters().items():
        np.testing.assert_allclose(engines[1].parameters()[name], table, rtol=1e-9, atol=1e-12)


@needs_a_card
@pytest.mark.skipif(INTERPRETED, reason="methods run on a card only")
@pytest.mark.parametrize("name", ["mf", "bpr", "ubo"])
def test_a_training_on_the_card_that_is_killed_goes_on(name: str, tmp_path: Path) -> None:
    clicks = cards_clicks(np.random.default_rng(9))
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
    with pytest.raises(InputError, match="needs an NVIDIA card"):
        CudaEngine(Objective("low_variance"), OPTIMISER, start)
