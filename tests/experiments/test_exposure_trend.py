"""The correlation of learned and true exposure is watched without disturbing what is watched."""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from unexposed.data.clicks import Split
from unexposed.errors import InputError
from unexposed.evaluation.protocols import exposure_correlation
from unexposed.experiments import spec as experiment
from unexposed.experiments.data import open_data
from unexposed.experiments.kinds import exposure_trend
from unexposed.experiments.kinds.exposure_trend import ceiling, observations, trend
from unexposed.experiments.task import Task
from unexposed.methods import make
from unexposed.methods.trained import TrainedMethod
from unexposed.model.model import Model
from unexposed.model.recommender import Vectors
from unexposed.progress import Silent
from unexposed.training import loop as training
from unexposed.training.given import Side

QUICK = {"epochs": 3, "dim": 6, "patience": 0}
WATCHED = {
    "expomf": make("expomf", **QUICK),
    "cjmf": make("cjmf", n_models=2, batch_size=64, learning_rate=0.02, **QUICK),
    "bilevel": make("ubo", batch_size=64, exposure_learning_rate=0.02, negatives=4, **QUICK),
    "joint": make("ubo", strategy="joint", batch_size=64, negatives=4, **QUICK),
    "frozen": make("ubo", strategy="frozen", batch_size=64, negatives=4, **QUICK),
}
watched = pytest.mark.parametrize("method", WATCHED.values(), ids=WATCHED)


@pytest.fixture(scope="module")
def split(small_world) -> Split:
    return small_world.split(seed=1)


def watch(method, split, world, *, iterations=4):
    return trend(method, split, world.exposure, iterations=iterations, seed=5, progress=Silent())


@dataclass(frozen=True)
class Told(TrainedMethod):
    """Says of exposure what it is told to, and learns nothing."""

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


# the correlation


def test_truth_itself_correlates_fully(split, small_world):
    found = watch(Told(epochs=1, says=small_world.exposure), split, small_world)
    assert found["epochs"] == [pytest.approx(1)]
    assert found["iterations"] == [pytest.approx(1), pytest.approx(1)]


def test_any_rising_line_through_truth_correlates_fully_and_a_falling_one_inversely(
    split, small_world
):
    for slope, expected in ((0.3, 1), (-0.3, -1)):

        def says(users, by=slope):
            return 0.5 + by * small_world.exposure(users)

        found = watch(Told(epochs=1, says=says), split, small_world)
        assert found["epochs"] == [pytest.approx(expected, abs=1e-6)]


def test_a_user_with_a_constant_exposure_is_left_out(split, small_world):
    def says(users):
        block = small_world.exposure(users).copy()
        block[users % 2 == 0] = 0.25  # nothing to correlate
        return block

    found = watch(Told(epochs=1, says=says), split, small_world)
    assert found["epochs"] == [pytest.approx(1)]


def test_a_constant_exposure_has_no_correlation(split, small_world):
    def says(users):
        return np.full((len(users), small_world.n_items), 0.25, dtype=np.float32)

    found = watch(Told(epochs=1, says=says), split, small_world)
    assert found["epochs"] == [None]
    assert found["last"] is None


def test_blocks_of_users_give_the_correlation_of_all_at_once(split, small_world, monkeypatch):
    method = WATCHED["bilevel"]
    model = method.fit(split.train, split.held_out, progress=Silent())
    at_once = exposure_correlation(model, small_world.exposure)
    monkeypatch.setattr("unexposed.ranking.blocks.BLOCK_ENTRIES", 7 * small_world.n_items)
    assert exposure_correlation(model, small_world.exposure) == pytest.approx(at_once, rel=1e-6)
    every = np.arange(small_world.n_users, dtype=np.int32)
    pairs = zip(method.exposure(model.parameters, every), small_world.exposure(every), strict=True)
    by_hand = np.mean([np.corrcoef(a, b)[0, 1] for a, b in pairs])
    assert at_once == pytest.approx(by_hand, rel=1e-5)


# watching


@watched
def test_last_epoch_is_that_of_the_fitted_model(method, split, small_world):
    nothing = split.held_out.pick(np.zeros(len(split.held_out), dtype=bool))
    model = method.fit(split.train, nothing, seed=5, progress=Silent())  # keeps the last epoch
    found = watch(method, split, small_world)
    assert found["epochs"][-1] == exposure_correlation(model, small_world.exposure)
    assert found["last"] == found["epochs"][-1]


@watched
def test_watching_more_iterations_changes_nothing(method, split, small_world):
    without, many = (watch(method, split, small_world, iterations=n) for n in (0, 50))
    assert without["epochs"] == many["epochs"]
    assert without["facts"] == many["facts"]
    assert without["iterations"] == many["iterations"][:1]


@watched
def test_an_epoch_ends_with_the_iteration_of_its_last_batch(method, split, small_world):
    found = watch(method, split, small_world, iterations=10_000)
    batches = (len(found["iterations"]) - 1) // 3
    assert (batches == 1) == (method.name == "expomf")  # a round of EM is all of its epoch
    assert found["iterations"][batches::batches] == found["epochs"]


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_iterations_go_on_in_the_next_epoch(iterations, split, small_world):
    found = watch(WATCHED["expomf"], split, small_world, iterations=iterations)
    assert found["iterations"][1:] == found["epochs"][:iterations]


def test_first_iteration_is_the_start(split, small_world):
    method = WATCHED["bilevel"]
    found = watch(method, split, small_world, iterations=7)
    assert len(found["iterations"]) == 8
    start = method.trainee(split.train, seed=5, side=Side(), progress=Silent())
    model = Model(method, start.parameters(), split.train, {})
    assert found["iterations"][0] == exposure_correlation(model, small_world.exposure)
    assert found["iterations"][0] != found["iterations"][1]


@watched
def test_held_out_quality_beside_each_epoch_is_that_of_fit(method, split, small_world):
    model = method.fit(split.train, split.held_out, seed=5, progress=Silent())
    found = watch(method, split, small_world)
    assert found["facts"]["held_out"] == model.facts["held_out"]
    assert found["facts"]["losses"] == pytest.approx(model.facts["losses"])


def test_a_loss_that_is_not_finite_ends_the_trend(split, small_world):
    method = Told(epochs=4, says=small_world.exposure, losses=(1.0, 1.0, math.nan, 1.0))
    found = watch(method, split, small_world, iterations=1)
    assert len(found["epochs"]) == 2
    assert found["facts"]["ended"] == "the loss was not finite"


@pytest.mark.parametrize(
    ("name", "lack"), [("popularity", "does not learn by epochs"), ("mf", "no exposure model")]
)
def test_a_method_without_a_trend_is_refused_by_name(name, lack, split, small_world):
    with pytest.raises(InputError, match=f"{name} .*{lack}"):
        watch(make(name), split, small_world)


# the ceiling


def test_no_exposure_that_is_the_same_for_every_user_passes_the_ceiling(split, small_world):
    highest = ceiling(small_world.exposure, split.train)
    every = small_world.exposure(np.arange(small_world.n_users))
    centred = every - every.mean(axis=1, keepdims=True)
    best = (centred / np.linalg.norm(centred, axis=1, keepdims=True)).mean(axis=0)
    rng = np.random.default_rng(0)
    guesses = [every.mean(axis=0), np.median(every, axis=0), *rng.normal(size=(20, len(best)))]
    guesses += [best + 0.1 * best.std() * rng.normal(size=len(best)) for _ in range(20)]

    def reaches(guess):
        def says(users):
            return np.broadcast_to(guess, (len(users), len(guess)))

        return watch(Told(epochs=1, says=says), split, small_world)["last"]

    assert reaches(best) == pytest.approx(highest, rel=1e-6)
    assert all(reaches(guess) < highest for guess in guesses)


def test_ceiling_is_one_where_all_users_see_alike(split, small_world):
    one = small_world.exposure(np.array([3]))

    def alike(users):
        return np.repeat(one, len(users), axis=0)

    assert ceiling(alike, split.train) == pytest.approx(1)


# the paper's observations


def line(arm, iterations, epochs, *, seed=0, data="ml_100k"):
    return {
        "arm": arm,
        "seed": seed,
        "data": {"semi_synthetic": data, "power": 0.5},
        "iterations": iterations,
        "epochs": epochs,
    }


def lines_of_the_paper(data="ml_100k"):
    """As the paper saw it: all high early, joint falls, UBO stays, and above."""
    return [
        line("expomf", [0.1, 0.7, 0.9], [0.9, 0.9], data=data),
        line("cjmf", [0.1, 0.7, 0.85], [0.85, 0.8], data=data),
        line("ubo-joint", [0.5, 0.8, 0.88], [0.8, 0.6], data=data),
        line("ubo", [0.5, 0.85, 0.9], [0.92, 0.91], data=data),
    ]


def verdicts(lines, **arms):
    return [(o["observation"], o["holds"]) for o in observations(lines, **arms)]


def test_what_the_paper_saw_holds_of_trends_like_its_own():
    assert verdicts(lines_of_the_paper()) == [
        ("all four reach a high correlation early", True),
        ("ubo-joint decays", True),
        ("ubo stays stable", True),
    ]
    assert verdicts(lines_of_the_paper("amazon_cds")) == [
        ("all four reach a high correlation early", True),
        ("ubo stays stable", True),
        ("ubo stays above joint all along", True),
    ]


def test_one_method_that_never_gets_high_early_is_enough_to_deny_it():
    lines = lines_of_the_paper()
    lines[1]["iterations"] = [0.9, 0.7, 0.79]  # high before the first step does not count
    (early, *_) = observations(lines)
    assert early["holds"] is False
    assert early["numbers"]["cjmf"] == 0.79
    assert "0.8" in early["rule"]


def test_decay_is_a_last_epoch_more_than_a_twentieth_below_the_highest():
    lines = lines_of_the_paper()
    lines[2]["epochs"] = [0.5, 0.84]  # .04 below .88; what lies between does not count
    joint = observations(lines)[1]
    assert joint["holds"] is False
    assert joint["numbers"] == pytest.approx({"highest": 0.88, "last": 0.84, "drop": 0.04})


@pytest.mark.parametrize(
    ("epochs", "greatest", "stable"),
    [
        ([0.95, 0.91], 0.04, True),
        ([0.95, 0.89], 0.06, False),
        ([0.5, 0.95], 0.4, False),  # it comes back, but was gone
        ([0.86, 0.99], 0.04, True),  # rising is no fall
    ],
)
def test_stable_is_never_more_than_a_twentieth_below_what_was_reached(epochs, greatest, stable):
    lines = lines_of_the_paper()
    lines[3]["epochs"] = epochs
    ubo = observations(lines)[2]
    assert ubo["holds"] is stable
    assert ubo["numbers"]["greatest_fall"] == pytest.approx(greatest)


@pytest.mark.parametrize("where", ["iterations", "epochs"])
def test_one_moment_below_joint_is_enough_to_deny_above_all_along(where):
    lines = lines_of_the_paper("amazon_cds")
    lines[3][where][1] = 0.3
    above = observations(lines)[-1]
    assert above["holds"] is False
    assert above["numbers"]["least"] < 0
    assert above["numbers"]["share_above"] == 0.75  # of two iterations and two epochs


def test_observations_look_at_the_mean_over_seeds():
    lines = lines_of_the_paper()
    other = [{**li, "seed": 1} for li in lines_of_the_paper()]
    other[3]["epochs"] = [0.92, 0.71]  # one seed falls by .21, the mean by .11
    *_, ubo = observations(lines + other)
    assert ubo["holds"] is False
    assert ubo["numbers"]["last"] == pytest.approx(0.81)


def test_worlds_are_judged_apart_and_missing_methods_leave_their_observations_out():
    lines = [*lines_of_the_paper(), line("ubo", [0.5, 0.9], [0.9, 0.2], data="amazon_cds")]
    found = observations(lines)
    assert [o["world"] for o in found] == ["amazon_cds, power 0.5"] + 3 * ["ml_100k, power 0.5"]
    assert found[0]["holds"] is False


def test_other_arms_can_stand_for_ubo_and_joint():
    lines = lines_of_the_paper()
    for li in lines[2:]:
        li["arm"] += "-paper"
    assert verdicts(lines) == []
    assert len(verdicts(lines, ubo="ubo-paper", joint="ubo-joint-paper")) == 3


# as a kind of experiment


def task_of(document, arm):
    asked = experiment.parse(document, name="x", where="x.toml", studies=None)
    data = open_data(asked.data, asked.protocol)
    return Task(asked, arm, asked.arms[arm].method, 1, data)


DOCUMENT = {
    "kind": "exposure_trend",
    "data": {"simulate": {"users": 60, "items": 30, "seed": 0}},
    "options": {"iterations": 2},
    "settings": {"epochs": 2, "dim": 4},
    "methods": {"ubo": {}},
}


def test_body_is_the_trend_on_the_split_of_the_seed():
    task = task_of(DOCUMENT, "ubo")
    found = exposure_trend.body(task)
    direct = trend(
        task.method,
        task.data.split(1),
        task.data.world.exposure,
        iterations=2,
        seed=1,
        progress=Silent(),
    )
    assert found["epochs"] == direct["epochs"]
    assert len(found["iterations"]) == 3
    assert 0 < found["facts"]["ceiling"] <= 1


def test_an_unknown_option_is_refused_with_the_nearest():
    task = task_of({**DOCUMENT, "options": {"iteration": 2}}, "ubo")
    with pytest.raises(InputError, match="no 'iteration'; did you mean 'iterations'"):
        exposure_trend.body(task)


def test_data_without_a_known_world_is_refused_with_the_cure():
    task = task_of(DOCUMENT, "ubo")
    blind = replace(task, data=replace(task.data, world=None))
    with pytest.raises(InputError, match="'exposure_trend' needs a world .* semi_synthetic"):
        exposure_trend.body(blind)
