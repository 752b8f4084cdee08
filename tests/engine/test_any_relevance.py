"""Any relevance model under the reference engine: every loss, every strategy, a whole method."""

from dataclasses import dataclass
from typing import ClassVar, get_args

import numpy as np
import pytest
import torch

from unexposed.data.simulate import world
from unexposed.engine.objective import Objective, Optimiser, Strategy
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.maths.exposure import gated
from unexposed.maths.losses import LOSSES, PAIRWISE_LOSSES, low_variance
from unexposed.maths.relevance import Touched, rows_of
from unexposed.methods import METHODS, load
from unexposed.methods.composed import ComposedMethod, Composition, PairSettings
from unexposed.methods.exposures import Gated, Popularity
from unexposed.sampling.samples import Samples
from unexposed.sampling.validation import ValidationSet
from unexposed.training.strategy import ExposureLearning, Guide

USERS, ITEMS, DIM, ETA, OFFSET = 5, 6, 3, 0.3, 0.4
FIRST_MOMENT = 0.1  # 1 − β₁: what the first moment holds of the gradient after one step


@dataclass(frozen=True)
class Bent:
    """logit = tanh(ω_u M)ᵀω_i + b_i, which is not a dot product."""

    dim: int
    scale: float = 0.3

    def initial(self, n_users, n_items, rng):
        shapes = {
            "user_rows": (n_users, self.dim),
            "item_rows": (n_items, self.dim),
            "item_bias": (n_items,),
            "mixing": (self.dim, self.dim),
        }
        drawn = {name: rng.normal(0, self.scale, shape) for name, shape in shapes.items()}
        return {name: values.astype(np.float32) for name, values in drawn.items()}

    def touched(self, tables, users, items):
        whole = torch.arange(self.dim)
        return {
            "user_rows": rows_of(users),
            "item_rows": rows_of(items),
            "item_bias": rows_of(items),
            "mixing": Touched(whole, torch.full_like(whole, len(users))),
        }

    def logits(self, tables, users, items):
        bent = torch.tanh(tables["user_rows"][users] @ tables["mixing"])
        return (bent * tables["item_rows"][items]).sum(dim=1) + tables["item_bias"][items]

    def item_vectors(self, tables, items):
        return tables["item_rows"][items]

    def scores(self, tables, users):
        bent = np.tanh(tables["user_rows"][users] @ tables["mixing"])
        return bent @ tables["item_rows"].T + tables["item_bias"]


BENT = Bent(DIM)
BATCH = Samples(
    np.array([0, 3, 0], dtype=np.int32),
    np.array([0, 3, 5, 8]),
    np.array([1, 4, 5, 2, 0, 3, 1, 5], dtype=np.int32),
    np.array([0.5, 2.0, 1.5], dtype=np.float32),
)
VALIDATION = ValidationSet(
    np.array([0, 2, 3, 0], dtype=np.int32),
    np.array([1, 4, 2, 3], dtype=np.int32),
    np.array([1, 1, 0, 0], dtype=bool),
)
POPULARITY = np.linspace(0.2, 0.9, ITEMS)
OPTIMISER = Optimiser(1e-3, 0.0, lookahead=ETA)


def start():
    rng = np.random.default_rng(0)
    alpha = {
        "exposure_user_factors": rng.normal(0, 0.5, (USERS, DIM)),
        "gate_weight": rng.normal(0, 0.5, DIM),
        "gate_bias": np.array([0.2]),
    }
    omega = BENT.initial(USERS, ITEMS, rng)
    return {name: values.astype(np.float64) for name, values in (omega | alpha).items()}


ALPHA = ("exposure_user_factors", "gate_weight", "gate_bias")


def step(objective, parameters, *, optimiser=OPTIMISER, **given):
    """The gradient of each table, read from Adam's first moments, and the tables after a step."""
    engine = ReferenceEngine(
        objective, optimiser, parameters, relevance=BENT, dtype=torch.float64, **given
    )
    engine.step(BATCH)
    state = engine.state()
    gradients = {name: state[f"{name}.first"] / FIRST_MOMENT for name in parameters}
    return gradients, engine.parameters()


def by_differences(value, parameters, name, step=1e-5):
    """∂value/∂parameters[name], entry by entry."""
    found = np.zeros_like(parameters[name])
    for at in np.ndindex(found.shape):
        both = []
        for sign in (1, -1):
            moved = {k: v.copy() for k, v in parameters.items()}
            moved[name][at] += sign * step
            both.append(float(value({k: torch.tensor(v) for k, v in moved.items()})))
        found[at] = (both[0] - both[1]) / (2 * step)
    return found


def columns():
    pairs = BATCH.pairs()
    return (
        torch.from_numpy(pairs.users).long(),
        torch.from_numpy(pairs.items).long(),
        torch.from_numpy(pairs.click).double(),
        torch.from_numpy(pairs.weight).double(),
    )


@pytest.mark.parametrize("loss", [*LOSSES, *PAIRWISE_LOSSES])
def test_the_step_descends_the_loss_of_the_batch(loss):
    users, items, click, weight = columns()
    first = torch.from_numpy(np.repeat(BATCH.start[:-1], np.diff(BATCH.start)))

    def value(tables):
        logit = BENT.logits(tables, users, items)
        if loss in PAIRWISE_LOSSES:
            drawn = click == 0
            shown = torch.tensor(POPULARITY)[items][first[drawn]]
            difference = logit[first[drawn]] - logit[drawn]
            each = weight[drawn] * PAIRWISE_LOSSES[loss].value(difference, shown)
        else:
            each = weight * LOSSES[loss].value(logit, click, torch.tensor(POPULARITY)[items])
        return each.sum() / len(BATCH)

    parameters = {name: table for name, table in start().items() if name not in ALPHA}
    found, _ = step(Objective(loss), parameters, exposure=POPULARITY)
    for name in parameters:
        expected = by_differences(value, parameters, name)
        np.testing.assert_allclose(found[name], expected, atol=1e-7, err_msg=name)
        assert np.abs(expected).max() > 1e-3, name


@pytest.mark.parametrize("strategy", get_args(Strategy))
def test_a_step_descends_the_losses_of_its_strategy(strategy):
    """Exposure: hypergradients against differences of the outer loss, one relevance step ahead.

    Relevance: the joint strategy takes both gradients at the same point, the others take the
    gradient of ω with the new exposure.
    """
    users, items, click, weight = columns()
    omega = [name for name in start() if name not in ALPHA]
    fixed = torch.tensor(start()["item_rows"])  # m reads ω_i, but is a constant to ω

    def train_loss(tables):
        m = gated(
            tables["exposure_user_factors"][users],
            fixed[items],
            tables["gate_weight"],
            tables["gate_bias"],
            torch.tensor(POPULARITY)[items],
            offset=OFFSET,
        )
        return (weight * low_variance(BENT.logits(tables, users, items), click, m)).sum()

    def value(tables):
        if strategy in ("joint", "alternate"):
            return train_loss(tables)
        leaves = [tables[name].requires_grad_() for name in omega]
        slopes = torch.autograd.grad(train_loss(tables), leaves)
        moved = zip(omega, leaves, slopes, strict=True)
        ahead = tables | {name: (leaf - ETA * slope).detach() for name, leaf, slope in moved}
        if strategy == "bilevel_on_batch":
            return train_loss(ahead)
        logit = BENT.logits(
            ahead,
            torch.from_numpy(VALIDATION.users).long(),
            torch.from_numpy(VALIDATION.items).long(),
        )
        relevant = torch.from_numpy(VALIDATION.relevant).double()
        return low_variance(logit, relevant, torch.ones(())).sum()

    found, after = step(
        Objective("low_variance", strategy, offset=OFFSET),
        start(),
        exposure=POPULARITY,
        validation=VALIDATION,
    )
    for name in ALPHA:
        if strategy == "frozen":
            assert (found[name] == 0).all()
            continue
        expected = by_differences(value, start(), name)
        np.testing.assert_allclose(found[name], expected, atol=1e-7, err_msg=name)
        assert np.abs(expected).max() > 1e-4, name
    seen = start() if strategy == "joint" else start() | {name: after[name] for name in ALPHA}
    for name in omega:
        expected = by_differences(train_loss, seen, name) / len(BATCH)
        np.testing.assert_allclose(found[name], expected, atol=1e-7, err_msg=name)


def test_exposure_decays_once_for_each_touched_row_and_has_its_own_rates():
    rates = {"exposure_learning_rate": 0.02, "gate_pace": 0.25}
    plain, decaying = (
        step(
            Objective("low_variance", "joint"),
            start(),
            optimiser=Optimiser(1e-3, 0.0, exposure_weight_decay=decay, **rates),
            exposure=POPULARITY,
        )
        for decay in (0.0, 0.1)
    )
    for name, rate in zip(ALPHA, (0.02, 0.005, 0.005), strict=True):
        decay = 0.1 * start()[name]
        if name == "exposure_user_factors":
            decay[[1, 2, 4]] = 0  # users without a pair; user 0 has six
        np.testing.assert_allclose(decaying[0][name] - plain[0][name], decay, atol=1e-12)
        expected = start()[name] - rate * np.sign(decaying[0][name])  # Adam's first step
        np.testing.assert_allclose(decaying[1][name], expected, atol=1e-6)


@dataclass(frozen=True)
class BentMethod(PairSettings, ComposedMethod):
    """A method with this relevance and a learned exposure."""

    name: ClassVar[str] = "bent"

    def composition(self):
        guide = Guide(0.5, 1, "popular", 0, True)
        return Composition(
            relevance=Bent(self.dim, 0.1),
            loss="low_variance",
            exposure=Gated(Popularity(0.5, 0.01), 0.0, 0.0, 0.1, item_table="item_rows"),
            drawing=self.pair_drawing(self.negatives, self.negatives_from),
            learning=ExposureLearning("bilevel", 1e-3, 0.0, 1.0, 1e-2, guide),
        )


def test_a_method_of_any_relevance_learns_saves_and_refuses_the_rest(tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS, "bent", BentMethod)
    clicks = world(60, 30, seed=1).clicks(0)
    settings = {"dim": 4, "epochs": 25, "learning_rate": 0.02, "batch_size": 64}
    model = BentMethod(**settings).fit(clicks, seed=0)
    assert model.facts["engine"] == "reference"
    assert model.facts["losses"][-1] < 0.9 * model.facts["losses"][0]
    model.save(tmp_path / "model")
    users = clicks.user_ids.values[:5].tolist()
    again = load(tmp_path / "model").recommend(users, k=3)
    assert again.equals(model.recommend(users, k=3))
    with pytest.raises(InputError, match="no item vectors"):
        model.similar_items(clicks.item_ids.values[0])
    with pytest.raises(InputError, match="cannot fold in"):
        model.recommend_for(clicks.item_ids.values[:3].tolist())
    with pytest.raises(InputError, match="dot products only"):
        BentMethod(**settings, engine="cpu").fit(clicks)
