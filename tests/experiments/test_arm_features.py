"""An arm is given the features of its data set, which say so in its identity and its row."""

from pathlib import Path

import numpy as np
import pytest

from unexposed.data import datasets
from unexposed.data.clicks import Ratings
from unexposed.data.datasets import RatingData
from unexposed.data.ids import Ids
from unexposed.errors import InputError
from unexposed.experiments import spec
from unexposed.experiments.data import open_data
from unexposed.experiments.task import Experiment, Task

TEXT = """
kind = "compare"
seeds = 1
[data]
dataset = "coat"
[settings]
epochs = 1
[methods.mf]
[methods.mf-items]
method = "mf"
item_features = true
[methods.ubo-both]
method = "ubo"
user_features = true
item_features = true
"""


def read(folder: Path, text: str = TEXT) -> Experiment:
    (folder / "small.toml").write_text(text)
    return spec.read(folder / "small.toml")


@pytest.fixture
def coat(monkeypatch) -> RatingData:
    """A data set of 20 users and 10 items, with features."""
    users, items = (column.ravel().astype(np.int32) for column in np.indices((20, 10)))
    values = 1 + (users * 7 + items * 3) % 5
    ratings = Ratings(users, items, values.astype(np.float32), Ids.range(20), Ids.range(10))
    rng = np.random.default_rng(0)
    rows = (rng.normal(size=(n, 3)).astype(np.float32) for n in (20, 10))
    data = RatingData(ratings, ratings, *rows)
    monkeypatch.setattr(datasets, "load", lambda name, data_dir=None: data)
    return data


def test_an_arm_has_the_features_it_asks_for(tmp_path, coat):
    experiment = read(tmp_path)
    data = open_data(experiment.data, experiment.protocol)

    def side(label: str):
        arm = experiment.arms[label]
        return Task(experiment, label, arm.method, 0, data).side

    assert side("mf").given() == set()
    assert side("mf-items").given() == {"item_features"}
    np.testing.assert_array_equal(side("ubo-both").user_features, coat.user_features)
    np.testing.assert_array_equal(side("ubo-both").item_features, coat.item_features)


def test_features_are_part_of_an_arm_s_identity_and_named_in_its_row(tmp_path):
    experiment = read(tmp_path)
    plain, given, both = experiment.arms.values()
    assert "features" not in experiment.identity(plain)  # stored results still count
    assert experiment.identity(given)["features"] == ["item_features"]
    assert [arm.given for arm in (plain, given)] == ["", "given item features"]
    assert both.given == "given user features and item features"
    assert all(arm.features == () for arm in spec.miniature(experiment).arms.values())


def test_features_that_a_method_or_the_data_does_not_have_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"mf-items: random cannot use item_features; these can"):
        read(tmp_path, TEXT.replace('method = "mf"', 'method = "random"'))
    world = read(tmp_path, TEXT.replace('dataset = "coat"', "simulate = { users = 30 }"))
    data = open_data(world.data, world.protocol)
    with pytest.raises(InputError, match="item_features = true needs a data set that has them"):
        _ = Task(world, "mf-items", world.arms["mf-items"].method, 0, data).side
