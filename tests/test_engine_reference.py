"""The oracle's own steps, worked out by hand from the closed forms."""

import numpy as np
import pytest
import torch

from unexposed import bilevel
from unexposed.engine import Objective, Optimiser, build
from unexposed.engine.adam import RowAdam
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.exposure import gated
from unexposed.losses import low_variance_exposure_gradient, low_variance_gradient
from unexposed.sampling import Pairs
from unexposed.validation import ValidationSet

RATE, EXPOSURE_RATE, PACE, ETA = 0.01, 0.02, 0.25, 0.05
RATES = {
    "exposure_user_factors": EXPOSURE_RATE,
    "gate_weight": EXPOSURE_RATE * PACE,
    "gate_bias": EXPOSURE_RATE * PACE,
}
N_USERS, N_ITEMS, DIM = 4, 3, 2


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


BATCH = Pairs(
    np.array([0, 1, 1, 2], dtype=np.int32),
    np.array([0, 0, 1, 1], dtype=np.int32),
    np.array([1, 0, 0, 1], dtype=np.float32),
    np.array([1, 2, 1, 1], dtype=np.float32),
)
POPULARITY = np.array([0.9, 0.5, 0.2])
GUIDE = ValidationSet(
    np.array([0, 1, 3], dtype=np.int32),
    np.array([1, 0, 2], dtype=np.int32),
    np.array([True, False, True]),
)


def stepped(strategy: str) -> dict[str, np.ndarray]:
    engine = ReferenceEngine(
        Objective("low_variance", strategy),
        Optimiser(RATE, 0.0, exposure_learning_rate=EXPOSURE_RATE, gate_pace=PACE, lookahead=ETA),
        start(),
        exposure=POPULARITY,
        validation=GUIDE,
        dtype=torch.float64,
    )
    engine.step(BATCH)
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
    """α after Adam's first step, from the closed-form gradient of what the strategy minimises."""
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
    names = ("exposure_user_factors", "gate_weight", "gate_bias")
    return {
        name: first_adam_step(t[name], gradient.reshape(t[name].shape), RATES[name])
        for name, gradient in zip(names, gradients, strict=True)
    }


def first_adam_step(table: torch.Tensor, gradient: torch.Tensor, rate: float) -> torch.Tensor:
    """m̂ = g and v̂ = g², so the step is rate·g/(|g| + ε)."""
    return table - rate * gradient / (gradient.abs() + 1e-8)


def relevance_stepped(t: dict[str, torch.Tensor], m: torch.Tensor) -> dict[str, torch.Tensor]:
    users, items = torch.from_numpy(BATCH.users).long(), torch.from_numpy(BATCH.items).long()
    user_rows, item_rows = t["user_factors"][users], t["item_factors"][items]
    click, weight = torch.tensor(BATCH.click).double(), torch.tensor(BATCH.weight).double()
    logit = (user_rows * item_rows).sum(dim=1)
    slope = (weight * low_variance_gradient(logit, click, m) / len(BATCH))[:, None]
    gradients = {
        "user_factors": torch.zeros_like(t["user_factors"]).index_add(0, users, slope * item_rows),
        "item_factors": torch.zeros_like(t["item_factors"]).index_add(0, items, slope * user_rows),
    }
    return {name: first_adam_step(t[name], g, RATE) for name, g in gradients.items()}


@pytest.mark.parametrize("strategy", ["bilevel", "joint", "alternate", "bilevel_on_batch"])
def test_a_step_is_the_one_worked_out_by_hand(strategy):
    t = tensors()
    moved = exposure_stepped(t, strategy)
    m_before, m_after = exposure_of(t), exposure_of(t | moved)
    # joint: both gradients at the same point; all others: ω steps with the new α
    expected = moved | relevance_stepped(t, m_before if strategy == "joint" else m_after)
    for name, array in stepped(strategy).items():
        np.testing.assert_allclose(array, expected[name].numpy(), rtol=1e-9, err_msg=name)


def test_joint_and_alternate_differ_in_which_exposure_the_relevance_sees():
    joint, alternate = stepped("joint"), stepped("alternate")
    assert np.array_equal(joint["exposure_user_factors"], alternate["exposure_user_factors"])
    assert not np.array_equal(joint["gate_bias"], start()["gate_bias"])


def test_a_frozen_exposure_stays_and_the_relevance_learns():
    frozen = stepped("frozen")
    for name in ("exposure_user_factors", "gate_weight", "gate_bias"):
        assert np.array_equal(frozen[name], start()[name])
    assert not np.array_equal(frozen["user_factors"], start()["user_factors"])


def test_rows_that_no_pair_touches_stay():
    after = stepped("bilevel")
    for name, row in (("user_factors", 3), ("item_factors", 2), ("exposure_user_factors", 3)):
        assert np.array_equal(after[name][row], start()[name][row])


def test_adam_on_rows_is_torchs_adam_where_every_row_is_touched_at_every_step():
    rng = np.random.default_rng(3)
    ours = torch.tensor(rng.normal(size=(5, 3)))
    theirs = ours.clone().requires_grad_()
    adam = RowAdam(ours, learning_rate=0.01, weight_decay=0.1)
    torchs = torch.optim.Adam([theirs], lr=0.01, weight_decay=0.1)
    for _ in range(20):
        gradient = torch.tensor(rng.normal(size=(5, 3)))
        adam.step(torch.arange(5), gradient)
        theirs.grad = gradient
        torchs.step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-10, atol=0)


def test_a_rows_first_step_is_as_long_late_as_early():
    table = torch.zeros(2, 1, dtype=torch.float64)
    adam = RowAdam(table, learning_rate=0.01, weight_decay=0.0)
    for _ in range(50):
        adam.step(torch.tensor([0]), torch.ones(1, 1, dtype=torch.float64))
    adam.step(torch.tensor([1]), torch.ones(1, 1, dtype=torch.float64))
    assert float(table[1]) == pytest.approx(-0.01)


def test_the_engine_is_the_fastest_that_knows_the_objective_or_the_one_asked_for():
    objective, optimiser = Objective("low_variance"), Optimiser(RATE, 0.0)
    factors = {k: v for k, v in start().items() if k in ("user_factors", "item_factors")}
    assert type(build(objective, optimiser, factors, name="reference")) is ReferenceEngine
    assert type(build(objective, optimiser, factors)).__name__ in ("CpuEngine", "CudaEngine")
    mapped = start() | {"exposure_feature_weight": np.ones((2, DIM))}
    del mapped["exposure_user_factors"]
    learned = Objective("low_variance", "joint")
    with_features = build(
        learned, optimiser, mapped, exposure=POPULARITY, features=np.ones((N_USERS, 2))
    )
    assert type(with_features) is ReferenceEngine
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="no CUDA card"):
            build(objective, optimiser, factors, name="cuda")
