"""Watching the correlation of learned and true exposure does not disturb the training."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from unexposed.data.clicks import Split
from unexposed.errors import InputError
from unexposed.evaluation.protocols import exposure_correlation
from unexposed.experiments import spec as experiment
from unexposed.experiments.data import open_data
from unexposed.experiments.kinds import exposure_trend
from unexposed.experiments.kinds.exposure_trend import ceiling, trend
from unexposed.experiments.task import Task
from unexposed.methods import make
from unexposed.methods.trained import TrainedMethod
from unexposed.model.model import Model
from unexposed.model.recommender import Vectors
from unexposed.progress import Silent
from unexposed.training import loop as training
from unexposed.training.given import Side

QUICK = {"epochs": 3, "dim": 6, "patience": 0, "refit": False}
WATCHED = {
    "expomf": make("expomf", **QUICK),
    "cjmf": make("cjmf", n_models=2, batch_size=64, learning_rate=0.02, **QUICK),
    "ubo": make("ubo", batch_size=64, exposure_learning_rate=0.02, negatives=4, **QUICK),
}


@pytest.fixture(scope="module")
def split(small_world) -> Split:
    return small_world.split(seed=1)


def watch(method, split, world, *, iterations=4):
    return trend(method, split, world.exposure, iterations=iterations, seed=5, progress=Silent())


@dataclass(frozen=True)
class Told(TrainedMethod):
    """Returns a given exposure, and learns nothing."""

    name: ClassVar[str] = "told"
    says: object = None
    losses: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        pass

    def trainee(self, clicks, *, seed, side, progress):
        losses = iter(self.losses)
        start = {
            "user_factors": np.zeros((clicks.n_users, 1), dtype=np.float32),
            "item_factors": np.zeros((clicks.n_items, 1), dtype=np.float32),
        }
        return training.Trainee(
            lambda: (next(losses) for _ in range(1)),
            lambda: next(losses),
            start.copy,
            training.Memory.of(self.name, start, np.random.default_rng(seed)),
        )

    def vectors(self, parameters):
        return Vectors(parameters["user_factors"], parameters["item_factors"])

    def exposure(self, parameters, users):
        return self.says(users)


# watching


@pytest.mark.parametrize("method", WATCHED.values(), ids=WATCHED)
def test_the_trend_is_that_of_fit_however_many_iterations_are_watched(method, split, small_world):
    def correlation(parameters):
        model = Model(method, parameters, split.train, {})
        found = exposure_correlation(model, small_world.exposure)
        return None if np.isnan(found) else found  # ExpoMF starts with a constant exposure

    found = watch(method, split, small_world, iterations=10_000)
    start = method.trainee(split.train, seed=5, side=Side(), progress=Silent())
    assert found["iterations"][0] == correlation(start.parameters())
    batches = (len(found["iterations"]) - 1) // 3
    assert found["iterations"][batches::batches] == found["epochs"]
    few = watch(method, split, small_world, iterations=2)
    assert few["iterations"] == found["iterations"][:3]
    assert (few["epochs"], few["facts"]) == (found["epochs"], found["facts"])
    model = method.fit(split.train, split.held_out, seed=5, progress=Silent())
    assert found["facts"]["held_out"] == model.facts["held_out"]
    assert found["facts"]["losses"] == pytest.approx(model.facts["losses"])
    assert found["epochs"][model.facts["best_epoch"] - 1] == correlation(model.parameters)
    assert found["last"] == found["epochs"][-1]


def test_a_loss_that_is_not_finite_ends_the_trend(split, small_world):
    method = Told(epochs=4, says=small_world.exposure, losses=(1.0, 1.0, math.nan, 1.0))
    found = watch(method, split, small_world, iterations=1)
    assert len(found["epochs"]) == 2
    assert found["facts"]["ended"] == "the loss was not finite"


def test_a_constant_exposure_has_no_correlation(split, small_world):
    found = watch(Told(epochs=1, says=lambda u: np.ones((len(u), 60))), split, small_world)
    assert found["epochs"] == [found["last"]] == [None]


@pytest.mark.parametrize(
    ("name", "lack"), [("popularity", "does not learn by epochs"), ("mf", "no exposure model")]
)
def test_a_method_without_a_trend_is_refused_by_name(name, lack, split, small_world):
    with pytest.raises(InputError, match=f"{name} .*{lack}"):
        watch(make(name), split, small_world)


def test_no_exposure_that_is_equal_for_all_users_passes_the_ceiling(split, small_world):
    highest = ceiling(small_world.exposure, split.train)
    every = small_world.exposure(np.arange(small_world.n_users))
    centred = every - every.mean(axis=1, keepdims=True)
    best = (centred / np.linalg.norm(centred, axis=1, keepdims=True)).mean(axis=0)
    rng = np.random.default_rng(0)
    guesses = [every.mean(axis=0), *(best + 0.1 * best.std() * rng.normal(size=(20, len(best))))]

    def reaches(guess):
        method = Told(says=lambda users: np.broadcast_to(guess, (len(users), len(guess))))
        return exposure_correlation(Model(method, {}, split.train, {}), small_world.exposure)

    assert reaches(best) == pytest.approx(highest, rel=1e-6)
    assert all(reaches(guess) < highest for guess in guesses)


def test_body_is_the_trend_on_the_split_of_the_seed():
    document = {
        "kind": "exposure_trend",
        "data": {"simulate": {"users": 60, "items": 30, "seed": 0}},
        "options": {"iterations": 2},
        "settings": {"epochs": 2, "dim": 4},
        "methods": {"ubo": {}},
    }
    asked = experiment.parse(document, name="x", where="x.toml", studies=None)
    method, data = asked.arms["ubo"].method, open_data(asked.data, asked.protocol)
    found = exposure_trend.body(Task(asked, "ubo", method, 1, data))
    truth = data.world.exposure
    direct = trend(method, data.split(1), truth, iterations=2, seed=1, progress=Silent())
    assert found["epochs"] == direct["epochs"]
    assert len(found["iterations"]) == 3
    assert 0 < found["facts"]["ceiling"] <= 1
