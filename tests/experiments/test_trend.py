"""Watching the correlation of learned and true exposure, and the clock, disturbs no training."""

import math
from dataclasses import replace

import numpy as np
import pytest

import timing
from trend import ceiling, trend
from unexposed.data.split import Split
from unexposed.errors import InputError
from unexposed.evaluation.protocols import exposure_correlation
from unexposed.methods import make
from unexposed.methods.umf import UMF
from unexposed.model.model import Model
from unexposed.progress import Silent
from unexposed.training.side import Side

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


@pytest.fixture
def told(monkeypatch):
    """Make a method whose exposure is given."""

    def told(exposure):
        monkeypatch.setattr(UMF, "exposure", lambda self, parameters, users: exposure(users))
        return UMF(**QUICK)

    return told


# watching


@pytest.mark.parametrize("method", WATCHED.values(), ids=WATCHED)
def test_watching_any_number_of_iterations_leaves_the_training_as_it_is(method, split, small_world):
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
    assert found["epochs"][model.facts["best_epoch"] - 1] == correlation(model.parameters)
    assert found["last"] == found["epochs"][-1]


def test_a_loss_that_is_not_finite_ends_the_trend(split, small_world, monkeypatch):
    losses, start = iter([1.0, 1.0, math.nan]), UMF.trainee

    def trainee(self, clicks, **given):
        steps = {"steps": lambda: iter([next(losses)]), "epoch": lambda: next(losses)}
        return replace(start(self, clicks, **given), **steps)

    monkeypatch.setattr(UMF, "trainee", trainee)
    found = watch(UMF(**QUICK), split, small_world, iterations=1)
    assert len(found["epochs"]) == 2
    assert found["facts"]["ended"] == "the loss was not finite"


def test_a_constant_exposure_has_no_correlation(split, small_world, told):
    found = watch(told(lambda users: np.ones((len(users), 60))), split, small_world)
    assert {*found["iterations"], *found["epochs"], found["last"]} == {None}


@pytest.mark.parametrize(
    ("name", "lack"), [("popularity", "does not learn by epochs"), ("mf", "no exposure model")]
)
def test_a_method_without_a_trend_is_refused_by_name(name, lack, split, small_world):
    with pytest.raises(InputError, match=f"{name} .*{lack}"):
        watch(make(name), split, small_world)


def test_no_exposure_that_is_equal_for_all_users_passes_the_ceiling(split, small_world, told):
    highest = ceiling(small_world.exposure, split.train)
    every = small_world.exposure(np.arange(small_world.n_users))
    centred = every - every.mean(axis=1, keepdims=True)
    best = (centred / np.linalg.norm(centred, axis=1, keepdims=True)).mean(axis=0)
    rng = np.random.default_rng(0)
    guesses = [every.mean(axis=0), *(best + 0.1 * best.std() * rng.normal(size=(20, len(best))))]

    def reaches(guess):
        method = told(lambda users: np.broadcast_to(guess, (len(users), len(guess))))
        return exposure_correlation(Model(method, {}, split.train, {}), small_world.exposure)

    assert reaches(best) == pytest.approx(highest, rel=1e-6)
    assert all(reaches(guess) < highest for guess in guesses)


# timing


class Clock:
    """A clock that only the trainee moves."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


def test_neither_getting_ready_nor_the_first_epoch_is_timed(small_world, monkeypatch):
    clock, takes = Clock(), iter([30.0, 1.0, 2.0, 3.0])
    method = make("mf", epochs=3, dim=4, negatives=3, engine="reference")
    start = type(method).trainee

    def trainee(self, clicks, **given):
        clock.now += 60
        return replace(start(self, clicks, **given), epoch=epoch)

    def epoch() -> float:
        clock.now += next(takes)
        return 0.5

    monkeypatch.setattr(timing, "time", clock)
    monkeypatch.setattr(type(method), "trainee", trainee)
    found = timing.epochs(method, small_world.clicks(0), seed=0, progress=Silent())
    assert found["epoch_seconds"] == [1, 2, 3]
    assert found["median"] == 2
    with pytest.raises(InputError, match="popularity does not learn by epochs"):
        timing.epochs(make("popularity"), small_world.clicks(0), seed=0, progress=Silent())


def test_the_ratio_is_the_median_over_repeats_that_have_both():
    took = {("relmf", 0): [1.0, 2.0, 9.0], ("ubo", 0): [3.0, 4.0, 5.0]}
    took |= {("relmf", 1): [1.0], ("ubo", 1): [3.0], ("relmf", 2): [1.0]}
    lines = [{"arm": a, "seed": s, "epoch_seconds": seconds} for (a, s), seconds in took.items()]
    assert timing.ratio(lines, over="ubo", under="relmf") == 2.5  # of 2 and 3
    assert timing.ratio(lines, over="cjmf", under="relmf") is None
