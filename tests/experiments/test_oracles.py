"""An oracle is the world's exposure or a part of it, reaches the method, and is part of a line."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unexposed.data.worlds.simulate import World, world
from unexposed.errors import InputError
from unexposed.evaluation.protocols import protocol
from unexposed.experiments import data as experiment_data
from unexposed.experiments import oracles, results
from unexposed.experiments import run as running
from unexposed.experiments import spec as experiments
from unexposed.experiments.task import Experiment
from unexposed.methods import METHODS
from unexposed.progress import Silent

TEXT = """
kind = "compare"
seeds = 1
[data]
simulate = { users = 60, items = 30 }
[settings]
epochs = 2
dim = 4
[methods.mf]
[methods.umf]
[methods.umf-true]
method = "umf"
exposure = "true"
"""


def read(folder: Path, text: str) -> Experiment:
    (folder / "small.toml").write_text(text)
    return experiments.read(folder / "small.toml")


@pytest.fixture(scope="module")
def small() -> World:
    return world(70, 40, popularity_bias=1, relevance_bias=0.5)


def correlation(made: World, table: np.ndarray) -> float:
    truth = made.exposure(np.arange(made.n_users))
    rows = np.broadcast_to(table, truth.shape)
    return float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(truth, rows, strict=True)]))


# The tables


def test_the_true_exposure_is_the_worlds(small):
    np.testing.assert_array_equal(oracles.true(small), small.exposure(np.arange(70)))


def test_item_means_are_the_same_for_everyone_and_user_level_differs_by_a_factor(small):
    truth = oracles.true(small).astype(np.float64)
    np.testing.assert_allclose(oracles.item_means(small), truth.mean(axis=0), rtol=1e-5)
    table = oracles.user_level(small)
    inside = (table < 1).all(axis=1)
    assert inside.any()
    np.testing.assert_allclose(table[inside].mean(axis=1), truth.mean(axis=1)[inside], rtol=1e-4)
    ratio = table[inside] / oracles.item_means(small)
    np.testing.assert_allclose(ratio, ratio[:, :1].repeat(40, axis=1), rtol=1e-4)


def test_user_level_is_the_whole_truth_of_a_world_of_rank_one():
    made = world(50, 20, popularity_bias=1, relevance_bias=0, exposure_rate=0.001)  # σ(x) ≈ exp(x)
    np.testing.assert_allclose(oracles.user_level(made), oracles.true(made), rtol=0.05)


def test_every_oracle_can_be_given_where_exposure_is_rarest(small):
    for oracle in oracles.ORACLES.values():
        table = oracle(replace(small, exposure_power=60.0))
        assert ((table > 0) & (table <= 1)).all()


# In an experiment


@pytest.mark.parametrize(
    ("method", "oracle"),
    [
        (name, oracle)
        for name, method in METHODS.items()
        for oracle in oracles.ORACLES
        # ease and ubo have one exposure for each item
        if "exposure" in method.takes and (name not in ("ease", "ubo") or oracle == "item_means")
    ],
)
def test_a_method_that_takes_exposure_is_trained_with_the_one_named(tmp_path, method, oracle):
    text = f"{TEXT}[methods.asked]\nmethod = '{method}'\nexposure = '{oracle}'\n"
    if method == "ubo":  # learned, it would move
        text += "settings = { exposure_model = 'items', strategy = 'frozen' }\n"
    experiment = read(tmp_path, text)
    (line,) = running.run(
        experiment, results.Results(tmp_path, "out"), progress=Silent(), only=["asked"]
    )
    made = experiment_data.open_data(experiment.data, experiment.protocol).world
    assert line["exposure"] == oracle
    expected = correlation(made, oracles.ORACLES[oracle](made))
    assert line["exposure_correlation"] == pytest.approx(expected, abs=1e-4)


def test_a_line_of_a_world_has_the_correlation_where_the_model_has_an_exposure(tmp_path):
    lines = running.run(read(tmp_path, TEXT), results.Results(tmp_path, "out"), progress=Silent())
    found = {line["arm"]: line.get("exposure_correlation", "absent") for line in lines}
    assert found["mf"] == "absent"
    assert found["umf"] < found["umf-true"] == pytest.approx(1, abs=1e-5)
    values = {li["arm"]: li["protocols"]["ubo-ijcai22"]["values"]["dcg@3"] for li in lines}
    assert values["umf"] != values["umf-true"]


@pytest.mark.parametrize("now", ["exposure = 'item_means'", ""])
def test_a_result_with_another_exposure_is_not_current(tmp_path, now):
    path = results.Results(tmp_path, "out")
    running.run(read(tmp_path, TEXT), path, progress=Silent(), only=["umf-true"])
    (line,) = path.read()
    assert running.is_current(read(tmp_path, TEXT), line)
    assert not running.is_current(read(tmp_path, TEXT.replace('exposure = "true"', now)), line)


def test_a_result_from_before_oracles_counts_for_an_arm_without_one(tmp_path):
    experiment = read(tmp_path, TEXT)
    running.run(experiment, results.Results(tmp_path, "out"), progress=Silent(), only=["umf"])
    (line,) = results.Results(tmp_path, "out").read()
    del line["exposure"]
    assert running.is_current(experiment, line)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"true"', '"ture"', "no exposure 'ture'; did you mean 'true'"),
        ('method = "umf"', 'method = "mf"', "mf cannot be given an exposure; these can: .*umf"),
        ("simulate = { users = 60, items = 30 }", "dataset = 'coat'", ".*needs a world whose expo"),
        ('"compare"', '"timing"', "kind 'timing' gives no exposure"),
    ],
)
def test_an_oracle_that_cannot_be_is_refused_in_one_sentence(tmp_path, old, new, complaint):
    with pytest.raises(InputError, match=f"small.toml, umf-true: {complaint}"):
        read(tmp_path, TEXT.replace(old, new))


def test_data_without_a_world_has_no_oracle():
    data = experiment_data.open_data(
        {"simulate": {"users": 9, "items": 9, "seed": 0}}, protocol("ubo-ijcai22")
    )
    assert data.side(None).given() == set()
    with pytest.raises(InputError, match="needs a world"):
        replace(data, world=None).side("true")
