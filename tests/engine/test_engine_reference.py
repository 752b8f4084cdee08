"""A step on paper, Adam on rows, and which engine is built."""

from typing import Any

import numpy as np
import pytest
import torch
from engine_problem import clicks_with

from unexposed.engine import cuda
from unexposed.engine.adam import BETA1, RowAdam
from unexposed.engine.build import build
from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.objective import Objective, Optimiser
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.maths import losses
from unexposed.maths.losses import (
    Loss,
    low_variance,
    low_variance_gradient,
)
from unexposed.sampling.validation import ValidationSet

RATE = 0.01
N_USERS, N_ITEMS, DIM = 4, 3, 2


def start() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    shapes = {
        "user_factors": (N_USERS, DIM),
        "item_factors": (N_ITEMS, DIM),
        "exposure_user_factors": (N_USERS, DIM),
        "gate_weight": (DIM,),
        "gate_bias": (1,),
    }
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


# two clicks of user 1, one without drawn items; item 0 clicked by one user and drawn for another
CLICKS = clicks_with([0, 1, 1], [[0, 1], [1, 0, 0], [1]], [2, 0.5, 1])
POPULARITY = np.array([0.9, 0.5, 0.2])
GUIDE = ValidationSet(
    np.array([0, 1, 3], dtype=np.int32),
    np.array([1, 0, 2], dtype=np.int32),
    np.array([True, False, True]),
)


# a step on paper

# Every logit is 0 at first, so that every slope of L2 at m = 1, and of BPR, is ±1/2. User 0 clicks
# item 0, for which item 1 is drawn twice, and item 2, for which item 1 is drawn with weight 3.
# User 1 and item 3 do not come.
ON_PAPER = {
    "user_factors": np.array([[2.0, 0], [5, 5]]),
    "item_factors": np.array([[0.0, 1], [0, -1], [0, 3], [5, 5]]),
}
PAPER_BATCH = clicks_with([0, 0], [[0, 1, 1], [2, 1]], [1, 3])
PAPER_GRADIENTS = {  # of user 0 and of items 0, 1, 2: slopes of 1/2, by 2 clicks
    "low_variance": (
        [0, (-1 - 1 - 1 - 3 - 3 * 1) / 2 / 2],
        [[-2 / 2 / 2, 0], [(1 + 1 + 3) * 2 / 2 / 2, 0], [-2 / 2 / 2, 0]],
    ),
    "pairwise": (
        [0, (2 * (-1 - 1) + 3 * (-1 - 3)) / 2 / 2],
        [[-2 * 2 / 2 / 2, 0], [(1 + 1 + 3) * 2 / 2 / 2, 0], [-3 * 2 / 2 / 2, 0]],
    ),
}
PAPER_PAIRS = {"users": np.array([[5], [0]]), "items": np.array([[1], [3], [1], [0]])}
PAPER_LOSSES = {  # each pair that counts costs log 2
    "low_variance": (1 + 2 + 1 + 3) * np.log(2) / 2,
    "pairwise": (2 + 3) * np.log(2) / 2,
}


def first_moments(engine: ReferenceEngine | CpuEngine) -> tuple[Any, Any]:
    state = engine.state()
    if isinstance(engine, CpuEngine):
        return state["users"][:, 1], state["items"][:, 1]
    return state["user_factors.first"], state["item_factors.first"]


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("loss", ["low_variance", "pairwise"])
@pytest.mark.parametrize("kind", [ReferenceEngine, CpuEngine])
def test_a_row_is_stepped_once_by_the_sum_and_decays_once_for_each_of_its_pairs(kind, loss, decay):
    dtype = torch.float64 if kind is ReferenceEngine else np.float64
    engine = kind(Objective(loss), Optimiser(RATE, decay), ON_PAPER, dtype=dtype)
    assert engine.epoch(PAPER_BATCH, batch_size=2) == pytest.approx(PAPER_LOSSES[loss], rel=1e-12)
    assert engine.state()["steps"].tolist() == [1]
    users, items = (np.zeros_like(table) for table in ON_PAPER.values())
    users[0], items[:3] = PAPER_GRADIENTS[loss]
    users += decay * PAPER_PAIRS["users"] / 2 * ON_PAPER["user_factors"]
    items += decay * PAPER_PAIRS["items"] / 2 * ON_PAPER["item_factors"]
    for moment, gradient in zip(first_moments(engine), (users, items), strict=True):
        np.testing.assert_allclose(moment, (1 - BETA1) * gradient, rtol=1e-12, atol=1e-15)
    found = engine.parameters()
    for name, gradient in (("user_factors", users), ("item_factors", items)):  # by 0 or ±RATE
        expected = ON_PAPER[name] - RATE * np.sign(gradient)
        np.testing.assert_allclose(found[name], expected, rtol=0, atol=1e-8)


# Adam


def test_adam_on_rows_is_torchs_adam_where_every_row_is_touched_at_every_step():
    rng = np.random.default_rng(3)
    ours = torch.tensor(rng.normal(size=(5, 3)))
    theirs = ours.clone().requires_grad_()
    optimiser = RowAdam(ours, learning_rate=0.01, weight_decay=0.1)
    torchs = torch.optim.Adam([theirs], lr=0.01, weight_decay=0.1)
    for number in range(1, 101):
        gradient = torch.tensor(rng.normal(size=(5, 3)))
        optimiser.step(torch.arange(5), gradient, number=number)
        theirs.grad = gradient
        torchs.step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-10, atol=0)


# the validation pairs in parts


@pytest.mark.parametrize(("size", "parts"), [(0, 1), (1, 3), (2, 2), (3, 1), (100, 1)])
def test_steps_take_the_parts_of_the_validation_pairs_in_turn(size, parts):
    objective = Objective("low_variance", "bilevel", validation_batch=size)
    assert objective.validation_parts(GUIDE) == parts
    assert objective.validation_parts(None) == 1
    guide = ValidationSet(GUIDE.users % 2, GUIDE.items % 2, GUIDE.relevant)  # all in the batch
    bounds = [3 * k // parts for k in range(parts + 1)]
    for before in range(5):  # steps taken so far
        chosen = slice(bounds[before % parts], bounds[before % parts + 1])
        part = ValidationSet(guide.users[chosen], guide.items[chosen], guide.relevant[chosen])
        in_turn = exposure_moments(objective, guide, before)
        alone = exposure_moments(Objective("low_variance", "bilevel"), part, 0)
        for name, moment in in_turn.items():  # weighted as all three pairs
            np.testing.assert_allclose(moment, 3 / len(part) * alone[name], rtol=1e-9)


def exposure_moments(
    objective: Objective, validation: ValidationSet, steps: int
) -> dict[str, np.ndarray]:
    """(1 − β₁) times the gradients on α in the step after `steps` earlier ones."""
    engine = ReferenceEngine(
        objective,
        Optimiser(RATE, 0.0, exposure_learning_rate=0.02, lookahead=0.05),
        start(),
        exposure=POPULARITY,
        validation=validation,
        dtype=torch.float64,
    )
    engine.restore(engine.state() | {"steps": np.array([steps])})
    engine.step(CLICKS)
    state = engine.state()
    assert state["steps"].tolist() == [steps + 1]
    found = {
        name: state[f"{name}.first"]
        for name in ("exposure_user_factors", "gate_weight", "gate_bias")
    }
    assert all(moment.any() for moment in found.values())
    return found


# which engine


def test_build_takes_the_engine_asked_for_or_the_fastest_for_the_objective(monkeypatch):
    objective, optimiser = Objective("low_variance"), Optimiser(RATE, 0.0)
    factors = {k: v for k, v in start().items() if k in ("user_factors", "item_factors")}
    assert type(build(objective, optimiser, factors, name="reference")) is ReferenceEngine
    assert type(build(objective, optimiser, factors)).__name__ in ("CpuEngine", "CudaEngine")
    without_kernel = Loss(low_variance, low_variance_gradient)
    monkeypatch.setitem(losses.LOSSES, "without_kernel", without_kernel)
    assert type(build(Objective("without_kernel"), optimiser, factors)) is ReferenceEngine
    if not cuda.available():
        with pytest.raises(InputError, match="needs a CUDA GPU"):
            build(objective, optimiser, factors, name="cuda")


def test_what_the_cuda_engine_does_not_know_runs_on_the_reference_engine_there(monkeypatch):
    placed = []
    monkeypatch.setattr(cuda, "available", lambda: True)
    reference = "unexposed.engine.build.ReferenceEngine"
    monkeypatch.setattr(reference, lambda *_, device, **__: placed.append(device))
    slow = Loss(low_variance, low_variance_gradient)
    monkeypatch.setitem(losses.LOSSES, "without_kernel", slow)
    factors = {k: v for k, v in start().items() if k in ("user_factors", "item_factors")}
    for name in ("cuda", "reference"):
        build(Objective("without_kernel"), Optimiser(RATE, 0.0), factors, name=name)
    assert placed == ["cuda", "cpu"]
