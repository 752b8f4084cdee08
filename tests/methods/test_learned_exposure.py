"""An exposure of items, learned from judged pairs that were shown, improves exposure and ranking.

In these worlds exposure follows a rank drawn by lot, so popularity mixes what is shown with what
is liked, and only a guide can tell them apart.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from unexposed.data.worlds.simulate import World, world
from unexposed.errors import InputError
from unexposed.evaluation.protocols import by_truth, exposure_correlation
from unexposed.evaluation.significance import bootstrap_interval
from unexposed.experiments.data import drawn
from unexposed.maths import item_level
from unexposed.maths.item_level import Factors, validation_losses
from unexposed.methods import make
from unexposed.methods.ubo import UBO
from unexposed.model.model import Model
from unexposed.progress import Silent
from unexposed.sampling.validation import ValidationSet
from unexposed.training.side import Side
from world_inputs import item_means

SETTINGS = {
    "exposure_model": "items",
    "epoch_by": "validation",
    "exposure_learning_rate": 0.03,
    "exposure_weight_decay": 1e-3,
    "dim": 4,
    "epochs": 100,
    "patience": 0,
    "biases": True,
    "weighting": "unbiased",
    "negatives_exponent": 0.5,
    "learning_rate": 1e-2,
    "weight_decay": 0.05,
}
WORLDS = (0, 2, 3)


@lru_cache
def luck(seed: int) -> World:
    """A world where luck, not quality, decides what is shown."""
    return world(
        300,
        60,
        popularity_bias=0.9,
        relevance_bias=0,
        exposure_rate=0.3,
        relevance_rate=0.3,
        seed=seed,
    )


def disliked(of: World, share: float = 1) -> ValidationSet:
    """A share of the pairs that the log of a world showed, with what users think of them."""
    return ValidationSet(*drawn(of, share, seed=0, shown=True))


def fit(of: World, exposure: NDArray[np.float32] | None = None, **settings: Any) -> Model:
    side = Side(exposure=exposure, validation=disliked(of))
    clicks, method = of.clicks(0), make("ubo", **(SETTINGS | settings))
    nothing = clicks.pick(slice(0, 0))  # held out: the guide chooses the epoch
    return method.fit(clicks, nothing, seed=0, side=side, progress=Silent())


class Judged(NamedTuple):
    """What a way of training reaches in every world."""

    correlation: list[float]  # of exposure with the truth, one for each world
    quality: NDArray[np.float64]  # true DCG, of the users of all worlds


def judged(*, known: bool = False, **settings: Any) -> Judged:
    correlation, quality = [], []
    for seed in WORLDS:
        of = luck(seed)
        model = fit(of, item_means(of) if known else None, **settings)
        correlation.append(exposure_correlation(model, of.exposure))
        quality.append(by_truth(model.scores, of, of.clicks(0)).values["dcg@3"])
    return Judged(correlation, np.concatenate(quality))


@pytest.fixture(scope="module")
def frozen() -> Judged:
    return judged(strategy="frozen")


@pytest.fixture(scope="module")
def known() -> Judged:
    """With the item means of the true exposure, which nobody needs to learn."""
    return judged(known=True, strategy="frozen")


def claims(learned: Judged, frozen: Judged, known: Judged) -> dict[str, bool]:
    gain = learned.quality - frozen.quality
    pairs = zip(learned.correlation, frozen.correlation, strict=True)
    return {
        "exposure is nearer to the truth in every world": all(a > b + 0.02 for a, b in pairs),
        "users get better lists": bootstrap_interval(gain, seed=0)[0] > 0,
        "at least half of what can be gained": bool(
            gain.mean() >= 0.5 * (known.quality - frozen.quality).mean()
        ),
    }


def test_learning_gains_at_least_half_of_what_the_true_item_means_gain(frozen, known):
    assert bootstrap_interval(known.quality - frozen.quality, seed=0)[0] > 0.03  # there is room
    found = claims(judged(), frozen, known)
    assert all(found.values()), found


@pytest.mark.parametrize(("factor", "holds"), [(-1, 0), (0, 1)])
def test_a_step_the_other_way_or_none_gains_nothing(factor, holds, frozen, known, monkeypatch):
    right = item_level.hypergradient
    monkeypatch.setattr(item_level, "hypergradient", lambda *given: factor * right(*given))
    found = claims(judged(), frozen, known)
    # without a step other draws may happen to serve users better
    assert sum(found.values()) <= holds, found
    assert not found["at least half of what can be gained"]


# The half of a guide that chooses the epoch


def test_the_halves_of_a_guide_are_disjoint_and_cover_it(small_world):
    clicks = small_world.clicks(0)
    learning = UBO(epoch_by="validation").learning()
    given = disliked(small_world, 0.3)
    for guide, whole in ((None, learning.guide.from_log(clicks)), (given, given)):
        learns, checks = learning.halves(clicks, guide)
        assert abs(len(learns) - len(checks)) <= 1
        pairs = [
            sorted(zip(part.keys(clicks.n_items).tolist(), part.relevant.tolist(), strict=True))
            for part in (learns, checks, whole)
        ]
        assert not set(pairs[0]) & set(pairs[1])
        assert sorted(pairs[0] + pairs[1]) == pairs[2]


def test_the_epoch_has_the_least_loss_on_the_half_that_teaches_nothing():
    of = luck(0)
    clicks, guide = of.clicks(0), disliked(of, 0.5)
    method = make("ubo", **(SETTINGS | {"epochs": 80, "learning_rate": 0.03, "refit": False}))

    def fit_to(given: ValidationSet) -> Model:
        return method.fit(clicks, seed=0, side=Side(validation=given), progress=Silent())

    def flipped(part: ValidationSet) -> ValidationSet:
        """The guide with the labels of this half turned round."""
        keys = guide.keys(clicks.n_items)
        turned = guide.relevant ^ np.isin(keys, part.keys(clicks.n_items))
        return ValidationSet(guide.users, guide.items, turned)

    learns, checks = method.learning().halves(clicks, guide)
    model = fit_to(guide)
    losses = -np.array(model.facts["held_out"])
    assert model.facts["best_epoch"] == 1 + losses.argmin() < len(losses)
    tables = Factors(model.parameters["user_factors"], model.parameters["item_factors"])
    kept = validation_losses(tables, checks.users, checks.items, checks.relevant).mean()
    assert kept == pytest.approx(losses.min(), rel=1e-6) == -model.facts["best_value"]
    # one half moves the training and not the choice, the other only the choice
    other = fit_to(flipped(checks))
    assert other.facts["losses"] == model.facts["losses"]
    assert other.facts["best_epoch"] != model.facts["best_epoch"]
    assert fit_to(flipped(learns)).facts["losses"] != model.facts["losses"]


# Refusals


def test_what_a_learned_exposure_cannot_do_is_one_sentence(small_world):
    clicks = small_world.clicks(0)
    table = np.full((clicks.n_users, clicks.n_items), 0.5)

    def refused(said: str, side: Side | None = None, **settings: Any) -> None:
        with pytest.raises(InputError, match=said) as error:
            make("ubo", epochs=1, **settings).fit(clicks, side=side, progress=Silent())
        assert "\n" not in str(error.value)

    for strategy in ("bilevel", "frozen"):
        refused(
            "exposure_model=gated starts from popularity: use exposure_model=items",
            Side(exposure=table[0]),
            strategy=strategy,
        )
    for form in ("items", "popularity"):
        refused(
            f"exposure_model={form} is the same for all users: give one value for each of 60 "
            "items, not 120 × 60",
            Side(exposure=table),
            exposure_model=form,
        )
        refused(
            f"exposure_model={form} is the same for all users, so user_features have no use",
            Side(user_features=np.ones((clicks.n_users, 2))),
            exposure_model=form,
        )
        refused(
            f"exposure_model={form} learns after every epoch, not on a batch: use strategy",
            exposure_model=form,
            strategy="bilevel_on_batch",
        )
    single = ValidationSet(clicks.users[:1], clicks.items[:1], np.array([True]))
    refused("has a single pair, too few", Side(validation=single), epoch_by="validation")
