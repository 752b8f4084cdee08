"""The CUDA engine's own ways: tiles, room on the GPU, and samples drawn there.

Without a GPU, Triton's interpreter runs some of these tests and of `test_engines.py`, in processes
of their own (the last test). To run all of them, slowly:
TRITON_INTERPRET=1 python -m pytest tests/engine
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_problem import (
    BILEVEL,
    DEVICE,
    HAS_TRITON,
    INTERPRETED,
    N_ITEMS,
    N_USERS,
    OPTIMISER,
    Problem,
    assert_agrees,
    clicks_with,
    distance,
    needs_a_gpu,
    new_engine,
    precision,
    random_problem,
)

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.engine import cuda
from unexposed.engine.cuda import space
from unexposed.engine.cuda.drawing import DeviceClicks, DeviceSampler
from unexposed.engine.cuda.engine import CudaEngine
from unexposed.engine.objective import Objective
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.sampling.samples import Drawing

BATCH = 5 if INTERPRETED else 32
both_losses = pytest.mark.parametrize("loss", ["low_variance", "pairwise"])


def exact(kind: type, problem: Problem, objective: Objective) -> Any:
    return new_engine(kind, problem, objective, dtype="float64")


# steps


@needs_a_gpu
@precision
@pytest.mark.parametrize("drawn", [0, 1, 5, 40])
@pytest.mark.parametrize("objective", [BILEVEL, Objective("pairwise")], ids=lambda o: o.loss)
def test_programs_of_many_pairs_give_the_reference_parameters(
    objective: Objective, drawn: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program takes many clicks, or one click in several turns."""
    monkeypatch.setattr(space, "LARGE_BATCH", 1)
    world = {"n": 5000, "sizes": (2000,), "steps": 9, "most_drawn": drawn}
    assert_agrees(CudaEngine, objective, dtype, **world)


@needs_a_gpu
@both_losses
def test_a_row_that_every_pair_touches_gets_one_step(loss: str) -> None:
    n = 40 if INTERPRETED else 500
    clicked = np.random.default_rng(3).integers(N_ITEMS, size=n)
    samples = clicks_with([7] * n, [[item, 5, item // 2] for item in clicked])
    problem = random_problem()._replace(samples=samples)
    truth, engine = (
        exact(kind, problem, Objective(loss)) for kind in (ReferenceEngine, CudaEngine)
    )
    for each in (truth, engine):
        each.epoch(samples, batch_size=n)
    assert distance(engine.parameters(), truth.parameters()) < 1e-9


@needs_a_gpu
def test_an_epoch_of_longer_batches_than_the_last_finds_room() -> None:
    problem = random_problem()
    truth, engine = (
        exact(kind, problem, Objective("low_variance")) for kind in (ReferenceEngine, CudaEngine)
    )
    for n, drawn, batch_size in ((9, 1, 4), (9, 6, 4), (17, 2, 4), (9, 0, 6)):
        samples = random_problem(n, n=n, most_drawn=drawn).samples
        expected = truth.epoch(samples, batch_size=batch_size)
        assert engine.epoch(samples, batch_size=batch_size) == pytest.approx(expected, rel=1e-9)
    assert distance(engine.parameters(), truth.parameters()) < 1e-9


# samples drawn on the GPU


def unlike_users() -> Clicks:
    """The first user has clicked everything, the last nothing."""
    chance = np.linspace(1, 0, 12)[:, None]
    users, items = np.nonzero(np.random.default_rng(1).random((12, 9)) < chance)
    return Clicks.from_pairs(users, items, user_ids=Ids.range(12), item_ids=Ids.range(9))


def random_clicks(n: int, n_users: int = N_USERS, n_items: int = N_ITEMS) -> Clicks:
    rng = np.random.default_rng(2)
    users, items = rng.integers(n_users, size=n), rng.integers(n_items, size=n)
    return Clicks.from_pairs(users, items, user_ids=Ids.range(n_users), item_ids=Ids.range(n_items))


def sampler(clicks: Clicks, drawing: Drawing, seed: int = 0) -> DeviceSampler:
    return DeviceSampler(DeviceClicks.of(clicks, device=DEVICE), drawing, seed=seed)


@needs_a_gpu
@pytest.mark.parametrize("exponent", [0.0, 0.5])
@pytest.mark.parametrize("weighting", ["none", "unbiased"])
def test_an_epoch_has_every_click_once_with_unclicked_items_of_its_user(
    weighting: Any, exponent: float
) -> None:
    clicks, drawing = unlike_users(), Drawing(3, weighting, exponent=exponent)
    samples = sampler(clicks, drawing).draw()
    clicked = samples.items[samples.start[:-1]]
    keys = samples.users.astype(np.int64) * clicks.n_items + clicked
    np.testing.assert_array_equal(np.sort(keys), clicks.keys)
    all_clicked = clicks.user_counts[samples.users] == clicks.n_items
    np.testing.assert_array_equal(np.diff(samples.start), np.where(all_clicked, 1, 4))
    assert all_clicked.any()
    weight = drawing.weight(clicks, drawing.law(clicks))[samples.users]
    np.testing.assert_allclose(samples.weight, weight, rtol=1e-6)
    pairs = samples.pairs()
    assert (clicks.contain(pairs.users, pairs.items) == (pairs.click == 1)).all()


@needs_a_gpu
@pytest.mark.parametrize("exponent", [0.0, 1.0])
@pytest.mark.parametrize("source", ["unclicked", "catalogue"])
def test_drawn_items_follow_their_chances_on_their_source(source: Any, exponent: float) -> None:
    clicks = unlike_users()
    drawing = Drawing(100 if INTERPRETED else 3000, source=source, exponent=exponent)
    pairs = sampler(clicks, drawing).draw().pairs()
    counts = np.zeros((clicks.n_users, clicks.n_items))
    np.add.at(counts, (pairs.users, pairs.items), pairs.click == 0)
    allowed = (clicks.matrix().toarray() == 0) | (source == "catalogue")
    assert not counts[~allowed].any()
    for user in np.flatnonzero(counts.sum(1)):
        drawn = counts[user][allowed[user]]
        chance = np.maximum(clicks.item_counts, 1)[allowed[user]] ** exponent
        expected = drawn.sum() * chance / chance.sum()
        chi_squared = ((drawn - expected) ** 2 / expected).sum()
        free = len(drawn) - 1  # the mean of χ², whose deviation is √(2·free)
        assert chi_squared <= free + 5 * np.sqrt(2 * free)


@needs_a_gpu
def test_the_order_of_the_clicks_is_new_each_epoch() -> None:
    clicks = random_clicks(600 if INTERPRETED else 2000, 300, 200)
    one = sampler(clicks, Drawing(1), seed=5)
    first, second = one.draw(), one.draw()
    again, other = (sampler(clicks, Drawing(1), seed=seed).draw() for seed in (5, 6))
    np.testing.assert_array_equal(first.users, again.users)
    np.testing.assert_array_equal(first.items, again.items)
    for different in (second, other):
        assert (first.users == different.users).mean() < 0.05
        assert (first.items[1::2] == different.items[1::2]).mean() < 0.05
    # the clicks lie in the order of their users: nothing of that is left
    assert abs(np.corrcoef(first.users, np.arange(len(first)))[0, 1]) < 0.1
    assert abs(np.corrcoef(first.users[1:], first.users[:-1])[0, 1]) < 0.1


@needs_a_gpu
@both_losses
def test_an_epoch_drawn_on_the_gpu_teaches_what_its_samples_teach(
    loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks, problem = unlike_users(), random_problem(n_items=9)
    drawing = Drawing(2, "unbiased", exponent=0.5)
    here, there = (exact(CudaEngine, problem, Objective(loss)) for _ in "ab")
    on_gpu, on_host = sampler(clicks, drawing), sampler(clicks, drawing)
    monkeypatch.setattr(space, "CHUNK", 3 * 30)  # pairs of a batch
    monkeypatch.setattr(space, "LARGE_BATCH", 1)
    for _ in range(2):
        expected = here.epoch(on_host.draw(), batch_size=30)
        assert there.train_epoch(on_gpu, batch_size=30) == pytest.approx(expected, rel=1e-9)
    assert distance(there.parameters(), here.parameters()) < 1e-9


# without a GPU


@pytest.mark.skipif(cuda.available(), reason="this machine has a GPU")
def test_without_a_gpu_the_error_says_what_is_missing() -> None:
    start = random_problem().start(learned=False)
    with pytest.raises(InputError, match="needs an NVIDIA GPU"):
        CudaEngine(Objective("low_variance"), OPTIMISER, start)


ENGINES = str(Path(__file__).with_name("test_engines.py"))
AGREES = f"{ENGINES}::test_an_engine_gives_the_parameters_of_the_reference"
WORKERS = (
    f"{Path(__file__).with_name('test_engine_workers.py')}::test_workers_give_the_parameters_of"
)
INTERPRETER_RUNS = {
    "learned exposure": [
        f"{AGREES}[loss=low_variance strategy=bilevel offset=2.5 steps=10-float64-cuda]",
        f"{AGREES}[loss=low_variance strategy=joint steps=10-float64-cuda]",
        f"{AGREES}[loss=low_variance strategy=bilevel_on_batch item_weights=True-float64-cuda]",
        f"{AGREES}[loss=low_variance strategy=bilevel dim=17 steps=24-float64-cuda]",
        f"{AGREES}[loss=low_variance strategy=bilevel_on_batch biases=both lookahead=0.5"
        "-float64-cuda]",
        f"{__file__}::test_programs_of_many_pairs_give_the_reference_parameters"
        "[low_variance-1-float64]",
        f"{WORKERS}_one_process[bilevel in parts-3-float64-cuda]",
    ],
    "given exposure and drawing": [
        f"{AGREES}[loss=low_variance exposure=item-float64-cuda]",
        f"{AGREES}[loss=inverse_propensity biases=both exposure=pair-float64-cuda]",
        f"{AGREES}[loss=pairwise biases=item exposure=pair-float64-cuda]",
        f"{AGREES}[loss=inverse_propensity_pairwise item_weights=True-float64-cuda]",
        f"{ENGINES}::test_item_weights_may_come_change_and_go_between_epochs[cuda]",
        f"{ENGINES}::test_an_engine_given_another_exposure_trains_as_one_built_with_it[cuda]",
        f"{ENGINES}::test_a_loss_without_a_form_in_the_kernels_is_refused[cuda]",
        f"{ENGINES}::test_a_row_met_late_is_corrected_by_the_steps_of_the_whole_training[cuda]",
        f"{__file__}::test_a_row_that_every_pair_touches_gets_one_step[low_variance]",
        f"{__file__}::test_an_epoch_of_longer_batches_than_the_last_finds_room",
        f"{__file__}::test_an_epoch_has_every_click_once_with_unclicked_items_of_its_user"
        "[unbiased-0.5]",
        f"{__file__}::test_drawn_items_follow_their_chances_on_their_source[unclicked-1.0]",
        f"{__file__}::test_an_epoch_drawn_on_the_gpu_teaches_what_its_samples_teach[pairwise]",
        f"{__file__}::test_the_order_of_the_clicks_is_new_each_epoch",
        f"{ENGINES}::test_a_restored_engine_continues_as_the_saved_one[pairwise-cuda]",
        f"{WORKERS}_one_process[bilevel_on_batch-3-float64-cuda]",
        f"{WORKERS}_one_process[bpr-3-float64-cuda]",
    ],
}


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed: pip install triton")
@pytest.mark.skipif(INTERPRETED or cuda.available(), reason="the tests above run here")
@pytest.mark.parametrize("tests", INTERPRETER_RUNS.values(), ids=INTERPRETER_RUNS)
def test_kernels_pass_under_tritons_interpreter(tests: list[str]) -> None:
    """In a process of its own: triton reads the variable when it is first imported."""
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, *tests],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(tests)} passed" in run.stdout
