"""Steps of the reference engine, worked out by hand from the closed forms."""

from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import pytest
import torch

from unexposed.engine import adam, cuda
from unexposed.engine.adam import BETA1, RowAdam
from unexposed.engine.build import build
from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.objective import Objective, Optimiser, Strategy
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.maths import bilevel, losses
from unexposed.maths.exposure import gated
from unexposed.maths.losses import (
    Loss,
    low_variance,
    low_variance_exposure_gradient,
    low_variance_gradient,
)
from unexposed.sampling.samples import Samples
from unexposed.sampling.validation import ValidationSet

RATE, EXPOSURE_RATE, EXPOSURE_DECAY, PACE, ETA = 0.01, 0.02, 0.1, 0.25, 0.05
RATES = {
    "exposure_user_factors": EXPOSURE_RATE,
    "gate_weight": EXPOSURE_RATE * PACE,
    "gate_bias": EXPOSURE_RATE * PACE,
}
N_USERS, N_ITEMS, DIM = 4, 3, 2


@pytest.fixture(autouse=True, scope="module")
def one_torch_thread() -> Iterator[None]:
    """On tables this small, one thread is fastest."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def start(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = {
        "user_factors": (N_USERS, DIM),
        "item_factors": (N_ITEMS, DIM),
        "exposure_user_factors": (N_USERS, DIM),
        "gate_weight": (DIM,),
        "gate_bias": (1,),
    }
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def samples(users: list[int], items: list[list[int]], weight: list[float]) -> Samples:
    """Clicks with the items of each, the clicked one first."""
    return Samples(
        np.array(users, dtype=np.int32),
        np.concatenate([[0], np.cumsum([len(of_click) for of_click in items])]),
        np.concatenate(items).astype(np.int32),
        np.array(weight, dtype=np.float32),
    )


# two clicks of user 1, one without drawn items; item 0 clicked by one user and drawn for another
CLICKS = samples([0, 1, 1], [[0, 1], [1, 0, 0], [1]], [2, 0.5, 1])
BATCH = CLICKS.pairs()
POPULARITY = np.array([0.9, 0.5, 0.2])
GUIDE = ValidationSet(
    np.array([0, 1, 3], dtype=np.int32),
    np.array([1, 0, 2], dtype=np.int32),
    np.array([True, False, True]),
)


def stepped(strategy: str) -> dict[str, np.ndarray]:
    engine = ReferenceEngine(
        Objective("low_variance", strategy),
        Optimiser(
            RATE,
            0.0,
            exposure_learning_rate=EXPOSURE_RATE,
            exposure_weight_decay=EXPOSURE_DECAY,
            gate_pace=PACE,
            lookahead=ETA,
        ),
        start(),
        exposure=POPULARITY,
        validation=GUIDE,
        dtype=torch.float64,
    )
    engine.step(CLICKS)
    return engine.parameters()


def tensors() -> dict[str, torch.Tensor]:
    return {name: torch.tensor(array) for name, array in start().items()}


def exposure_of(t: dict[str, torch.Tensor]) -> torch.Tensor:
    users, items = torch.from_numpy(BATCH.users).long(), torch.from_numpy(BATCH.items).long()
    return gated(
        t["exposure_user_factors"][users],
        t["item_factors"][items],
        t["gate_weight"],
        t["gate_bias"],
        torch.tensor(POPULARITY)[items],
    )


def pairs_of(users, items, click, weight) -> bilevel.Pairs:
    return bilevel.Pairs(*(torch.as_tensor(np.asarray(a)) for a in (users, items, click, weight)))


def exposure_stepped(t: dict[str, torch.Tensor], strategy: str) -> dict[str, torch.Tensor]:
    """α after Adam's first step, from the closed-form gradient of what the strategy minimises.

    Weight decay is added once for each touched row, however many pairs touch it.
    """
    if strategy == "frozen":
        return {name: t[name] for name in RATES}
    batch = pairs_of(BATCH.users, BATCH.items, BATCH.click, BATCH.weight)
    m = exposure_of(t)
    factors = t["user_factors"], t["item_factors"]
    if strategy == "bilevel":
        guide = pairs_of(GUIDE.users, GUIDE.items, GUIDE.relevant, np.ones(3))
        by_pair = bilevel.factor_hypergradient(*factors, batch, m, guide, lookahead=ETA)
    elif strategy == "bilevel_on_batch":
        by_pair = bilevel.factor_hypergradient_on_batch(*factors, batch, m, lookahead=ETA)
    else:
        logit = (factors[0][batch.users.long()] * factors[1][batch.items.long()]).sum(dim=1)
        by_pair = batch.weight * low_variance_exposure_gradient(logit, batch.click, m)
    gradients = bilevel.factor_exposure_gradient(
        by_pair,
        batch,
        t["exposure_user_factors"],
        t["item_factors"],
        t["gate_weight"],
        t["gate_bias"],
        torch.tensor(POPULARITY),
    )
    stepped = {}
    for name, gradient in zip(RATES, gradients, strict=True):
        decay = EXPOSURE_DECAY * t[name]
        if name == "exposure_user_factors":
            decay[2:] = 0  # users in no pair
        stepped[name] = first_adam_step(
            t[name], gradient.reshape(t[name].shape) + decay, RATES[name]
        )
    return stepped


def first_adam_step(table: torch.Tensor, gradient: torch.Tensor, rate: float) -> torch.Tensor:
    """m̂ = g and v̂ = g², so the step is rate·g/(|g| + ε)."""
    return table - rate * gradient / (gradient.abs() + 1e-8)


def relevance_stepped(t: dict[str, torch.Tensor], m: torch.Tensor) -> dict[str, torch.Tensor]:
    users, items = torch.from_numpy(BATCH.users).long(), torch.from_numpy(BATCH.items).long()
    user_rows, item_rows = t["user_factors"][users], t["item_factors"][items]
    click, weight = torch.tensor(BATCH.click).double(), torch.tensor(BATCH.weight).double()
    logit = (user_rows * item_rows).sum(dim=1)
    slope = (weight * low_variance_gradient(logit, click, m) / len(CLICKS))[:, None]
    gradients = {
        "user_factors": torch.zeros_like(t["user_factors"]).index_add(0, users, slope * item_rows),
        "item_factors": torch.zeros_like(t["item_factors"]).index_add(0, items, slope * user_rows),
    }
    return {name: first_adam_step(t[name], g, RATE) for name, g in gradients.items()}


@pytest.mark.parametrize("strategy", get_args(Strategy))
def test_a_step_is_the_one_worked_out_by_hand(strategy):
    t = tensors()
    moved = exposure_stepped(t, strategy)
    m_before, m_after = exposure_of(t), exposure_of(t | moved)
    # joint: both gradients at the same point; all others: ω steps with the new α
    expected = moved | relevance_stepped(t, m_before if strategy == "joint" else m_after)
    for name, array in stepped(strategy).items():
        np.testing.assert_allclose(array, expected[name].numpy(), rtol=1e-9, err_msg=name)


# a step that fits on paper


# Every logit is 0 at first, so that every slope of L2 at m = 1, and of BPR, is ±1/2. User 0 clicks
# item 0, for which item 1 is drawn twice, and item 2, for which item 1 is drawn with weight 3.
# User 1 and item 3 do not come.
ON_PAPER = {
    "user_factors": np.array([[2.0, 0], [5, 5]]),
    "item_factors": np.array([[0.0, 1], [0, -1], [0, 3], [5, 5]]),
}
PAPER_BATCH = samples([0, 0], [[0, 1, 1], [2, 1]], [1, 3])
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


def test_adam_on_rows_is_torchs_sparse_adam(monkeypatch):
    # torch adds ε before the correction of the scale, we after it, as in the paper: left out here
    monkeypatch.setattr(adam, "EPSILON", 0.0)
    rng = np.random.default_rng(4)
    ours = torch.tensor(rng.normal(size=(12, 3)))
    theirs = ours.clone().requires_grad_()
    optimiser = RowAdam(ours, learning_rate=0.01, weight_decay=0.0)
    torchs = torch.optim.SparseAdam([theirs], lr=0.01, eps=1e-300)
    late = 11  # a row that comes in the second half only
    for number in range(1, 121):
        touched = rng.permutation(12 if number > 60 else late)[: rng.integers(1, 6)]
        rows, gradient = torch.tensor(touched), torch.tensor(rng.normal(size=(len(touched), 3)))
        optimiser.step(rows, gradient, number=number)
        theirs.grad = torch.sparse_coo_tensor(rows[None], gradient, (12, 3), check_invariants=True)
        torchs.step()
        if number == 60:
            assert torch.equal(ours[late], theirs[late])
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-10, atol=0)
    assert len(torch.unique(ours)) == ours.numel()  # all rows moved, each its own way


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
        Optimiser(RATE, 0.0, exposure_learning_rate=EXPOSURE_RATE, lookahead=ETA),
        start(),
        exposure=POPULARITY,
        validation=validation,
        dtype=torch.float64,
    )
    engine.restore(engine.state() | {"steps": np.array([steps])})
    engine.step(CLICKS)
    state = engine.state()
    assert state["steps"].tolist() == [steps + 1]
    found = {name: state[f"{name}.first"] for name in RATES}
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
    mapped = start() | {"exposure_feature_weight": np.ones((2, DIM))}
    del mapped["exposure_user_factors"]
    learned = Objective("low_variance", "joint")
    with_features = build(
        learned, optimiser, mapped, exposure=POPULARITY, features=np.ones((N_USERS, 2))
    )
    assert type(with_features) is ReferenceEngine
    if not cuda.available():
        with pytest.raises(InputError, match="no CUDA card"):
            build(objective, optimiser, factors, name="cuda")
