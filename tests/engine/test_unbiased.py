"""Given the exposure, the log's bias towards exposed items is gone; and sampling adds none."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import expit, logit

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.worlds.simulate import world
from unexposed.engine.adam import BETA1
from unexposed.engine.objective import Objective, Optimiser
from unexposed.engine.reference import ReferenceEngine
from unexposed.maths.losses import LOSSES
from unexposed.methods import make
from unexposed.progress import Silent
from unexposed.sampling.samples import Drawing, Samples
from unexposed.training.side import Side

# exposure follows a long tail drawn at random: it is unrelated to relevance
WORLD = world(
    600, 80, popularity_bias=1.0, relevance_bias=0.0, exposure_rate=0.3, relevance_rate=0.4, seed=11
)
USERS = np.arange(WORLD.n_users, dtype=np.int32)
SETTINGS = {
    "dim": 4,
    "epochs": 60,
    "learning_rate": 0.02,
    "weight_decay": 1e-6,
    "pairs": "all",
    "patience": 0,
}


def test_the_true_exposure_removes_the_bias_that_a_plain_model_takes_from_the_log():
    clicks, true_exposure = WORLD.clicks(seed=0), WORLD.exposure(USERS)
    true_relevance = WORLD.relevance(USERS).mean(axis=0)
    exposure = np.log(true_exposure.mean(axis=0))
    assert abs(np.corrcoef(exposure, true_relevance)[0, 1]) < 0.2
    nothing_held_out = clicks.pick(np.zeros(len(clicks), dtype=bool))

    def errors(name, **given):
        """How far the mean estimated relevance of each item is off, on the logit scale."""
        model = make(name, **SETTINGS).fit(clicks, nothing_held_out, progress=Silent(), **given)
        estimate = expit(model.scores(USERS)).mean(axis=0)
        return logit(estimate) - logit(true_relevance)

    plain, corrected = errors("mf"), errors("umf", side=Side(exposure=true_exposure))
    assert np.corrcoef(plain, exposure)[0, 1] > 0.8  # it takes exposed items for relevant ones
    assert abs(np.corrcoef(corrected, exposure)[0, 1]) < 0.3
    assert np.abs(corrected).mean() < 0.25 * np.abs(plain).mean()


# the gradient

LOG = Clicks.from_pairs(  # one click, four, all six, none
    np.array([0] + [1] * 4 + [2] * 6),
    np.array([3, 0, 1, 2, 3, *range(6)]),
    user_ids=Ids.range(4),
    item_ids=Ids.range(6),
)
FACTORS = {
    "user_factors": np.random.default_rng(1).normal(size=(4, 2)),
    "item_factors": np.random.default_rng(2).normal(size=(6, 2)),
}
EXPOSURE = np.random.default_rng(3).uniform(0.2, 1, (4, 6))
both_estimators = pytest.mark.parametrize("loss", ["inverse_propensity", "low_variance"])


def computed_gradient(loss: str, samples: Samples) -> np.ndarray:
    """∂/∂ω of the sum over these samples: a step descends their sum divided by the clicks."""
    engine = ReferenceEngine(
        Objective(loss), Optimiser(1e-3, 0.0), FACTORS, exposure=EXPOSURE, dtype=torch.float64
    )
    engine.step(samples)
    state = engine.state()
    first = [state[f"{name}.first"].reshape(-1) for name in FACTORS]
    return len(samples) * np.concatenate(first) / (1 - BETA1)  # Adam's first moment after a step


def gradient_of_all_pairs(loss: str) -> np.ndarray:
    """∂/∂ω of the sum over every pair of the users with a click."""
    users, items = (torch.tensor(table, requires_grad=True) for table in FACTORS.values())
    total = loss_of_all_pairs(loss, users, items)
    return np.concatenate(
        [g.reshape(-1).numpy() for g in torch.autograd.grad(total, (users, items))]
    )


def loss_of_all_pairs(loss: str, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
    clicks = torch.tensor(LOG.matrix().toarray()).double()
    value = LOSSES[loss].value(users @ items.T, clicks, torch.tensor(EXPOSURE))
    return value[clicks.sum(dim=1) > 0].sum()


def estimated_gradient(
    loss: str, drawing: Drawing, *, by_item: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """The mean of an epoch's gradient, and its standard error, from 60 × 50 epochs."""
    rng, sampler = np.random.default_rng(6), drawing.sampler(LOG)
    n_groups, n_epochs = 60, 50
    epochs = [[sampler.draw(rng) for _ in range(n_epochs)] for _ in range(n_groups)]
    found = [computed_gradient(loss, joined(group, by_item=by_item)) for group in epochs]
    each = np.array(found) / n_epochs
    return each.mean(axis=0), each.std(axis=0, ddof=1) / np.sqrt(n_groups)


def joined(epochs: list[Samples], *, by_item: bool) -> Samples:
    counts = np.concatenate([np.diff(samples.start) for samples in epochs])
    return Samples(
        np.concatenate([samples.users for samples in epochs]),
        np.concatenate([[0], np.cumsum(counts)]),
        np.concatenate([samples.items for samples in epochs]),
        np.concatenate([samples.weight for samples in epochs]),
        epochs[0].item_weight if by_item else None,
    )


@both_estimators
@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_the_expected_gradient_of_weighted_draws_is_the_gradient_of_the_sum_over_all_pairs(
    loss, exponent
):
    exact, drawing = gradient_of_all_pairs(loss), Drawing(2, "unbiased", exponent=exponent)
    mean, error = estimated_gradient(loss, drawing)
    assert (error < 0.05 * np.abs(exact).max()).all()
    assert (np.abs(mean - exact) <= 4 * error + 1e-6 * np.abs(exact).max()).all()
    # without the weights it is biased, and without those of the items
    plain = [estimated_gradient(loss, replace(drawing, weighting="none"))]
    plain += [estimated_gradient(loss, drawing, by_item=False)] if exponent > 0 else []
    for mean, error in plain:
        assert (np.abs(mean - exact) / np.maximum(error, 1e-9)).max() > 10


@both_estimators
def test_every_pair_gives_the_gradient_of_the_sum_over_all_pairs_exactly(loss):
    samples = Drawing(2, every_pair=True).samples(LOG, np.random.default_rng(0))
    exact = gradient_of_all_pairs(loss)
    np.testing.assert_allclose(computed_gradient(loss, samples), exact, rtol=1e-9, atol=1e-12)
    in_batches = [computed_gradient(loss, batch) for batch in samples.batches(4)]
    np.testing.assert_allclose(np.sum(in_batches, axis=0), exact, rtol=1e-9, atol=1e-12)
