"""The exposure that learns after every epoch: its steps, its start, and where it leads."""

from typing import Any

import numpy as np
import pytest
import torch

from small import clicks_of, quick
from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.reference import ReferenceEngine
from unexposed.maths import item_level
from unexposed.maths.item_level import FORMS, Block, Factors
from unexposed.maths.losses import low_variance
from unexposed.maths.relevance import DotProduct, WithFeatures
from unexposed.progress import Silent
from unexposed.sampling.samples import Drawing
from unexposed.sampling.validation import ValidationSet
from unexposed.training import exposure_clock
from unexposed.training.exposure_clock import ExposureClock
from unexposed.training.side import Side

N_USERS, N_ITEMS, DIM = 24, 6, 3
RATE = 0.1
NO_PAIRS = np.zeros(0, dtype=np.int32)
each_form = pytest.mark.parametrize("form", FORMS)
RNG = np.random.default_rng(0)
USERS, COLUMNS = np.indices((N_USERS, N_ITEMS))
# user 0 has no clicks, everyone else a different number
CLICKS = clicks_of((USERS > 0) & ((USERS % N_ITEMS == COLUMNS) | (USERS % (2 + COLUMNS) == 1)))
SHARE = item_level.log_share(CLICKS.item_counts)
GUIDE = ValidationSet(
    RNG.integers(N_USERS, size=30, dtype=np.int32),
    RNG.integers(N_ITEMS, size=30, dtype=np.int32),
    RNG.random(30) < 0.5,
)
FACTORS = Factors(
    RNG.normal(size=(N_USERS, DIM)).astype(np.float32),
    RNG.normal(size=(N_ITEMS, DIM)).astype(np.float32),
)


def start(form: str) -> Any:
    return FORMS[form].start(np.exp(SHARE / 2), SHARE)


def clock(form: str = "items", *, seed: int = 0, **settings: Any) -> ExposureClock:
    usual = {
        "learned_from": CLICKS,
        "drawing": Drawing(1, "unbiased"),  # every unclicked pair has the weight 1
        "given": (NO_PAIRS, NO_PAIRS),
        "relevance": DotProduct(DIM, 0.0),
        "on_training": False,
        "learning_rate": RATE,
        "weight_decay": 0.0,
        "rng": np.random.default_rng(seed),
    }
    return ExposureClock(form, start(form), SHARE, GUIDE, **usual | settings)


def alpha(of: ExposureClock) -> Any:
    return of.state()["exposure.alpha"].copy()


def whole_block() -> Block:
    clicked = CLICKS.users - 1, CLICKS.items
    return Block(slice(1, None), clicked, np.ones((N_USERS - 1, 1), dtype=np.float32))


# The step


@each_form
@pytest.mark.parametrize("on_training", [False, True])
def test_the_first_step_descends_the_gradient_over_all_users_with_clicks(form, on_training):
    assert CLICKS.user_counts[0] == 0 < CLICKS.user_counts[1:].min()
    moved = clock(form, on_training=on_training)
    exposure, before = moved.table(), alpha(moved)
    if on_training:
        gradient = item_level.train_gradient(FACTORS, exposure, whole_block())
    else:
        direction = item_level.validation_gradient(
            FACTORS, GUIDE.users, GUIDE.items, GUIDE.relevant
        )
        gradient = item_level.hypergradient(FACTORS, direction, exposure, whole_block())
    table = moved.step(FACTORS)
    # Adam's first step has the size of the learning rate
    expected = before - RATE * np.sign(FORMS[form].carry(gradient, before, SHARE))
    np.testing.assert_allclose(alpha(moved), expected, rtol=1e-5)
    np.testing.assert_allclose(table, FORMS[form].table(expected, SHARE), rtol=1e-5)
    # its moments are of the gradient itself
    first = moved.state()["exposure.first"] / 0.1
    np.testing.assert_allclose(first, FORMS[form].carry(gradient, before, SHARE), rtol=1e-4)


def test_a_column_of_ones_gives_the_step_no_direction():
    ones = Factors(FACTORS.users.copy(), FACTORS.items.copy())
    ones.users[:, 2] = ones.items[:, 1] = 1
    free, held = clock(), clock(relevance=DotProduct(1, 0.0, "both"))
    free.step(ones)
    held.step(ones)
    direction = item_level.validation_gradient(ones, GUIDE.users, GUIDE.items, GUIDE.relevant)
    direction.users[:, 2] = direction.items[:, 1] = 0
    gradient = item_level.hypergradient(ones, direction, clock().table(), whole_block())
    expected = 0.1 * FORMS["items"].carry(gradient, start("items"), SHARE)
    np.testing.assert_allclose(held.state()["exposure.first"], expected, rtol=1e-4)
    assert not np.allclose(free.state()["exposure.first"], expected, rtol=1e-2)


def test_a_look_ahead_moves_the_weights_that_features_share():
    """Against autograd: d/dm of L_val(θ − η ∂L_train/∂θ) over η at 0, θ = (ω_u, ω_i, W)."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(N_ITEMS, 2)).astype(np.float32)
    model = WithFeatures(DotProduct(DIM, 0.0), rows, np.ones(N_ITEMS, dtype=bool))
    tables = {
        "user_factors": FACTORS.users,
        "item_factors": FACTORS.items,
        "item_feature_weight": rng.normal(size=(2, DIM)).astype(np.float32),
    }
    whole = model.kept(tables)
    moved, without = clock(relevance=model), clock()
    for one in (moved, without):
        one.step(Factors(whole["user_factors"], whole["item_factors"]))
    leaves = {k: torch.tensor(v, dtype=torch.float64).requires_grad_() for k, v in tables.items()}
    m = torch.tensor(clock().table(), dtype=torch.float64).requires_grad_()
    users, items = map(torch.from_numpy, np.nonzero(~CLICKS.matrix().toarray().astype(bool)))
    taken = users > 0  # user 0 has no clicks
    logit = model.logits(leaves, users[taken], items[taken])
    train = low_variance(logit, torch.zeros(()), m[items[taken]]).sum()
    pairs = (torch.from_numpy(column).long() for column in (GUIDE.users, GUIDE.items))
    relevant = torch.from_numpy(GUIDE.relevant).double()
    valid = low_variance(model.logits(leaves, *pairs), relevant, torch.ones(())).sum()
    theta = list(leaves.values())
    ahead = torch.autograd.grad(train, theta, create_graph=True)
    against = torch.autograd.grad(valid, theta)
    along = sum((a * b).sum() for a, b in zip(ahead, against, strict=True))
    (expected,) = torch.autograd.grad(-along, m)
    found = 0.1 * FORMS["items"].carry(expected.numpy(), start("items"), SHARE)
    np.testing.assert_allclose(moved.state()["exposure.first"], found, rtol=1e-3, atol=1e-5)
    assert not np.allclose(without.state()["exposure.first"], found, rtol=0.05)


def test_decay_pulls_towards_the_start_and_not_towards_zero(monkeypatch):
    monkeypatch.setattr(item_level, "hypergradient", lambda *_: np.zeros(N_ITEMS))
    pulled = clock(weight_decay=0.1)
    pulled.step(FACTORS)
    np.testing.assert_array_equal(alpha(pulled), start("items"))  # without a gradient it stays
    state = pulled.state()
    away = start("items") + np.array([1, -1, 0.5, -0.5, 2, -2])
    pulled.restore({name: a.copy() for name, a in state.items()} | {"exposure.alpha": away})
    for _ in range(200):
        pulled.step(FACTORS)
    assert np.abs(alpha(pulled) - start("items")).max() < 0.1


@each_form
def test_a_restored_clock_continues_to_the_same_bits(form):
    whole, other = clock(form), clock(form, seed=9)
    whole.step(FACTORS)
    kept = {name: array.copy() for name, array in whole.state().items()}
    other.step(Factors(-FACTORS.users, FACTORS.items))
    other.restore(kept)
    for one in (whole, other):
        for _ in range(3):
            one.step(FACTORS)
    for name, array in whole.state().items():
        assert array.tobytes() == other.state()[name].tobytes(), name
    assert whole.table().tobytes() == other.table().tobytes()


@each_form
def test_learning_starts_where_a_frozen_exposure_stays(form, small_world):
    clicks = small_world.clicks(0)
    begun, frozen = (
        trainee(clicks, exposure_model=form, strategy=strategy)
        for strategy in ("bilevel", "frozen")
    )
    start = begun.parameters()["exposure"]
    for _ in range(2):
        frozen.epoch()
    np.testing.assert_array_equal(start, frozen.parameters()["exposure"])


@pytest.mark.parametrize("on_training", [False, True])
def test_a_part_of_the_users_stands_for_all_of_them(on_training, monkeypatch):
    whole = clock(on_training=on_training)
    whole.step(FACTORS)
    monkeypatch.setattr(exposure_clock, "PAIRS_A_STEP", 5 * N_ITEMS)

    def drawn(seed: int) -> Any:
        part = clock(on_training=on_training, seed=seed)
        part.step(FACTORS)
        return part.state()["exposure.first"]

    np.testing.assert_array_equal(drawn(0), drawn(0))
    assert not np.array_equal(drawn(0), drawn(1))
    found = np.array([drawn(seed) for seed in range(1000)])
    error = found.std(axis=0) / np.sqrt(len(found))
    assert (np.abs(found.mean(axis=0) - whole.state()["exposure.first"]) < 4 * error).all()


# Beside a training


ITEMS = {"exposure_model": "items", "exposure_learning_rate": 0.05}


def trainee(clicks: Any, **settings: Any) -> Any:
    method = quick("ubo", **(ITEMS | settings))
    return method.trainee(clicks, seed=0, side=Side(), progress=Silent())


def test_the_next_epoch_trains_with_the_exposure_that_was_learned(small_world, monkeypatch):
    clicks = small_world.clicks(0)
    tables, given = {}, []
    for kind in (CpuEngine, ReferenceEngine):

        def recorded(self: Any, table: Any, give: Any = kind.give_exposure) -> None:
            given.append(table)
            give(self, table)

        monkeypatch.setattr(kind, "give_exposure", recorded)
    for engine in ("reference", "cpu"):
        for strategy in ("bilevel", "frozen"):
            training = trainee(clicks, engine=engine, strategy=strategy)
            found = []
            for _ in range(2):
                training.epoch()
                found.append(training.parameters())
                if strategy != "frozen":
                    np.testing.assert_array_equal(given.pop(), found[-1]["exposure"])
            tables[engine, strategy] = found
            assert not given
    for engine in ("reference", "cpu"):
        learned, frozen = tables[engine, "bilevel"], tables[engine, "frozen"]
        assert np.abs(learned[0]["exposure"] - frozen[0]["exposure"]).max() > 0.005
        assert np.abs(learned[1]["exposure"] - learned[0]["exposure"]).max() > 0.005
        np.testing.assert_array_equal(frozen[0]["exposure"], frozen[1]["exposure"])
    for one, other in zip(tables["reference", "bilevel"], tables["cpu", "bilevel"], strict=True):
        for name, table in one.items():
            np.testing.assert_allclose(table, other[name], rtol=1e-3, atol=1e-4, err_msg=name)
