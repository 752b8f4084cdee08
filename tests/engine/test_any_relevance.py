"""Any relevance model under the reference engine: every loss, every strategy, a whole method."""

from dataclasses import dataclass, replace
from typing import ClassVar, get_args

import numpy as np
import pytest
import torch

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.worlds.simulate import world
from unexposed.engine.objective import Objective, Optimiser, Strategy
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.maths.exposure import gated
from unexposed.maths.losses import LOSSES, PAIRWISE_LOSSES, low_variance
from unexposed.maths.relevance import (
    RELEVANCE,
    DotProduct,
    Relevance,
    Table,
    WithFeatures,
    normal,
)
from unexposed.methods import load, make
from unexposed.progress import Silent
from unexposed.sampling.samples import Samples
from unexposed.sampling.validation import ValidationSet

USERS, ITEMS, DIM, ETA, OFFSET = 5, 6, 3, 0.3, 0.4
FIRST_MOMENT = 0.1  # 1 − β₁: what the first moment holds of the gradient after one step


@dataclass(frozen=True)
class Bent(Relevance):
    """logit = tanh(ω_u M)ᵀω_i + b_i, which is not a dot product."""

    dim: int
    scale: float = 0.3
    biases: str = "none"
    tables: ClassVar[dict[str, Table]] = {
        "user_rows": Table("users"),
        "item_rows": Table("items"),
        "item_bias": Table("items"),
        "mixing": Table("shared"),
    }

    @property
    def width(self):
        return self.dim

    def initial(self, n_users, n_items, rng, rows=None):
        return {
            "user_rows": normal(rng, (n_users, self.dim), self.scale, rows),
            "item_rows": normal(rng, (n_items, self.dim), self.scale),
            "item_bias": normal(rng, (n_items,), self.scale),
            "mixing": normal(rng, (self.dim, self.dim), self.scale),
        }

    def logits(self, tables, users, items):
        bent = torch.tanh(tables["user_rows"][users] @ tables["mixing"])
        return (bent * tables["item_rows"][items]).sum(dim=1) + tables["item_bias"][items]

    def item_vectors(self, tables, items):
        return tables["item_rows"][items]


FEATURES = np.array(  # item 0 has none, no item has the last
    [[0, 0, 0, 0], [1, -0.5, 0, 0], [0, 2, 0, 0], [1, 0, 1, 0], [0, 0, 1, 0], [1, 1, 0, 0]]
)
MODELS = {
    "bent": Bent(DIM),
    "features": WithFeatures(
        DotProduct(DIM, 0.3), FEATURES.astype(np.float32), np.arange(ITEMS) != 4
    ),
}
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
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


def start(model):
    """The tables at the start, away from it: those of features would be 0."""
    rng = np.random.default_rng(0)
    alpha = {
        "exposure_user_factors": rng.normal(0, 0.5, (USERS, DIM)),
        "gate_weight": rng.normal(0, 0.5, DIM),
        "gate_bias": np.array([0.2]),
    }
    omega = model.initial(USERS, ITEMS, rng)
    moved = {name: values + rng.normal(0, 0.2, values.shape) for name, values in omega.items()}
    return {name: values.astype(np.float64) for name, values in (moved | alpha).items()}


ALPHA = ("exposure_user_factors", "gate_weight", "gate_bias")


def step(model, objective, parameters, *, optimiser=OPTIMISER, **given):
    """The gradient of each table, read from Adam's first moments, and the tables after a step."""
    engine = ReferenceEngine(
        objective, optimiser, parameters, relevance=model, dtype=torch.float64, **given
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


@each_model
@pytest.mark.parametrize("loss", [*LOSSES, *PAIRWISE_LOSSES])
def test_the_step_descends_the_loss_of_the_batch(loss, model):
    users, items, click, weight = columns()
    first = torch.from_numpy(np.repeat(BATCH.start[:-1], np.diff(BATCH.start)))

    def value(tables):
        logit = model.logits(tables, users, items)
        if loss in PAIRWISE_LOSSES:
            drawn = click == 0
            shown = torch.tensor(POPULARITY)[items][first[drawn]]
            difference = logit[first[drawn]] - logit[drawn]
            each = weight[drawn] * PAIRWISE_LOSSES[loss].value(difference, shown)
        else:
            each = weight * LOSSES[loss].value(logit, click, torch.tensor(POPULARITY)[items])
        return each.sum() / len(BATCH)

    parameters = {name: table for name, table in start(model).items() if name not in ALPHA}
    found, _ = step(model, Objective(loss), parameters, exposure=POPULARITY)
    for name in parameters:
        expected = by_differences(value, parameters, name)
        np.testing.assert_allclose(found[name], expected, atol=1e-7, err_msg=name)
        assert np.abs(expected).max() > 1e-3, name


@each_model
@pytest.mark.parametrize("strategy", get_args(Strategy))
def test_a_step_descends_the_losses_of_its_strategy(strategy, model):
    """Exposure: hypergradients against differences of the outer loss, one relevance step ahead.

    Relevance: the joint strategy takes both gradients at the same point, the others take the
    gradient of ω with the new exposure.
    """
    users, items, click, weight = columns()
    omega = [name for name in start(model) if name not in ALPHA]
    at_start = {name: torch.tensor(table) for name, table in start(model).items()}
    fixed = model.item_vectors(at_start, items)  # m reads ω_i, but is a constant to ω

    def train_loss(tables):
        m = gated(
            tables["exposure_user_factors"][users],
            fixed,
            tables["gate_weight"],
            tables["gate_bias"],
            torch.tensor(POPULARITY)[items],
            offset=OFFSET,
        )
        return (weight * low_variance(model.logits(tables, users, items), click, m)).sum()

    def value(tables):
        if strategy in ("joint", "alternate"):
            return train_loss(tables)
        leaves = [tables[name].requires_grad_() for name in omega]
        slopes = torch.autograd.grad(train_loss(tables), leaves)
        moved = zip(omega, leaves, slopes, strict=True)
        ahead = tables | {name: (leaf - ETA * slope).detach() for name, leaf, slope in moved}
        if strategy == "bilevel_on_batch":
            return train_loss(ahead)
        logit = model.logits(
            ahead,
            torch.from_numpy(VALIDATION.users).long(),
            torch.from_numpy(VALIDATION.items).long(),
        )
        relevant = torch.from_numpy(VALIDATION.relevant).double()
        return low_variance(logit, relevant, torch.ones(())).sum()

    found, after = step(
        model,
        Objective("low_variance", strategy, offset=OFFSET),
        start(model),
        exposure=POPULARITY,
        validation=VALIDATION,
    )
    for name in ALPHA:
        if strategy == "frozen":
            assert (found[name] == 0).all()
            continue
        expected = by_differences(value, start(model), name)
        np.testing.assert_allclose(found[name], expected, atol=1e-7, err_msg=name)
        assert np.abs(expected).max() > 1e-4, name
    moved = {} if strategy == "joint" else {name: after[name] for name in ALPHA}
    seen = start(model) | moved
    for name in omega:
        expected = by_differences(train_loss, seen, name) / len(BATCH)
        np.testing.assert_allclose(found[name], expected, atol=1e-7, err_msg=name)


def test_a_weight_of_a_feature_decays_once_for_each_pair_of_an_item_that_has_it():
    model = MODELS["features"]
    parameters = {name: table for name, table in start(model).items() if name not in ALPHA}
    plain, decaying = (
        step(model, Objective("low_variance"), parameters, optimiser=Optimiser(1e-3, decay))
        for decay in (0.0, 0.1)
    )
    items = BATCH.items
    pairs = (FEATURES[items] != 0).sum(axis=0)[:, None]
    assert pairs[:, 0].tolist() == [5, 5, 2, 0]
    expected = 0.1 * pairs / len(BATCH) * parameters["item_feature_weight"]
    found = decaying[0]["item_feature_weight"] - plain[0]["item_feature_weight"]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    # no item has the last feature: its weights stay
    after = decaying[1]["item_feature_weight"][3]
    np.testing.assert_array_equal(after, parameters["item_feature_weight"][3])


def test_features_move_the_bias_of_an_item_and_never_its_column_of_ones():
    product = DotProduct(DIM, 0.3, "both", start=-1.0)
    model = WithFeatures(product, FEATURES.astype(np.float32), np.ones(ITEMS, dtype=bool))
    parameters = model.initial(USERS, ITEMS, np.random.default_rng(0))
    _, after = step(model, Objective("low_variance"), parameters)
    assert (after["item_feature_weight"][:, DIM] == 0).all()
    assert (np.abs(after["item_feature_weight"][:3, DIM + 1]) > 0).all()
    assert (model.kept(after)["item_factors"][:, DIM] == 1).all()


def test_an_item_that_nobody_clicked_starts_without_a_vector_of_its_own():
    tables = MODELS["features"].initial(USERS, ITEMS, np.random.default_rng(0))
    assert (tables["item_factors"][4] == 0).all()
    assert (tables["item_factors"][[0, 1, 2, 3, 5]] != 0).all()


def test_combined_and_separated_item_vectors_undo_each_other():
    model = MODELS["features"]
    tables = {k: v.astype(np.float32) for k, v in start(model).items()}
    again = model.continued(model.kept(tables))
    np.testing.assert_allclose(again["item_factors"], tables["item_factors"], atol=1e-6)
    users = np.arange(USERS)
    scores = DotProduct(DIM, 0.3).scores(model.kept(tables), users)
    np.testing.assert_allclose(model.scores(tables, users), scores, atol=1e-6)
    assert np.abs(scores - DotProduct(DIM, 0.3).scores(tables, users)).max() > 0.1


def test_scores_are_the_logits_of_a_user_against_every_item():
    model = MODELS["bent"]
    tables = model.initial(USERS, ITEMS, np.random.default_rng(0))
    expected = np.tanh(tables["user_rows"][[3, 1]] @ tables["mixing"]) @ tables["item_rows"].T
    found = model.scores(tables, np.array([3, 1]))
    np.testing.assert_allclose(found, expected + tables["item_bias"], atol=1e-6)


# a whole method

CLICKS = world(60, 30, seed=1).clicks(0)
SETTINGS = {"dim": 4, "epochs": 25, "learning_rate": 0.02, "batch_size": 64, "relevance": "bent"}
NEWCOMER = CLICKS.item_ids.values[CLICKS.items[CLICKS.users == 7]].tolist()


@pytest.fixture
def bent(monkeypatch):
    """All that it takes to add a relevance: a class, and a line."""
    monkeypatch.setitem(RELEVANCE, "bent", Bent)


@pytest.mark.parametrize("name", ["ubo", "bpr"])
def test_a_relevance_of_ones_own_trains_saves_loads_serves_and_folds_in(name, bent, tmp_path):
    model = make(name, **SETTINGS, initial_scale=0.1).fit(CLICKS, seed=0, progress=Silent())
    assert model.facts["engine"] == "reference"
    assert model.facts["losses"][-1] < 0.95 * model.facts["losses"][0]
    model.save(tmp_path / "model")
    again, users = load(tmp_path / "model"), CLICKS.user_ids.values[:5].tolist()
    assert again.recommend(users, k=3).equals(model.recommend(users, k=3))
    assert model.method.user_tables(model.parameters) >= {"user_rows"}
    model.save(tmp_path / "parted", partitioned=True)  # roles are stated, not read off a name
    assert load(tmp_path / "parted").recommend(users, k=3).equals(model.recommend(users, k=3))
    with pytest.raises(InputError, match="no item vectors"):
        model.similar_items(CLICKS.item_ids.values[0])
    with pytest.raises(InputError, match="dot products only"):
        make(name, **SETTINGS, engine="cpu").fit(CLICKS)
    # a newcomer with the clicks of a user is given much the same scores
    log = CLICKS.pick(CLICKS.users == 7)
    newcomer = Clicks.from_pairs(
        np.zeros(len(log), dtype=int), log.items, user_ids=Ids.of(["new"]), item_ids=log.item_ids
    )
    both = model.fold_in(newcomer).scores(np.array([7, 60], dtype=np.int32))
    assert np.corrcoef(both)[0, 1] > 0.8
    assert len(model.recommend_for(NEWCOMER, k=3)) == 3


def test_a_loss_without_a_kernel_trains_updates_and_folds_in(monkeypatch):
    slow = replace(LOSSES["low_variance"], kernel=None)
    settings = {n: v for n, v in SETTINGS.items() if n != "relevance"}
    method = make("umf", **settings)
    fast = method.fit(CLICKS, seed=0, progress=Silent())
    monkeypatch.setitem(LOSSES, "low_variance", slow)
    model = method.fit(CLICKS, seed=0, progress=Silent())
    assert model.facts["engine"] == "reference"
    lists = [one.recommend_for(NEWCOMER, k=3)["item"].to_list() for one in (fast, model)]
    assert lists[0] == lists[1]
    newer = Clicks.from_pairs([0], [5], user_ids=Ids.of(["new"]), item_ids=CLICKS.item_ids)
    assert len(model.update(newer, epochs=2, progress=Silent()).recommend(["new"], k=3)) == 3
