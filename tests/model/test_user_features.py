"""New users with features have an exposure of their own, and learn their vectors with it."""

import numpy as np
import pytest

from small import quick
from unexposed.data.clicks import Clicks
from unexposed.data.features import Features
from unexposed.data.ids import Ids
from unexposed.data.read_features import read_features
from unexposed.errors import InputError
from unexposed.methods import load
from unexposed.model.model import Model
from unexposed.progress import Silent
from unexposed.ranking import blocks
from unexposed.training.side import Side

SETTINGS = {"epochs": 10, "exposure_learning_rate": 0.02, "refit": False}


def table(users: list, rng: np.random.Generator) -> dict:
    sides = rng.choice(["left", "right"], len(users)).tolist()
    return {"user": users, "side": sides, "age": rng.normal(40, 9, len(users))}


@pytest.fixture(scope="module")
def given(small_world) -> tuple[Clicks, dict, Features]:
    clicks = small_world.clicks(0)
    known = table(clicks.user_ids.values.tolist(), np.random.default_rng(0))
    return clicks, known, read_features(known, clicks, role="user")


@pytest.fixture(scope="module")
def model(given) -> Model:
    side = Side(user_features=given[2])
    return quick("ubo", **SETTINGS).fit(given[0], seed=0, side=side, progress=Silent())


@pytest.fixture
def newcomers(given) -> Clicks:
    """Three users with the same clicks."""
    rows, items = np.divmod(np.arange(9), 3)
    ids = Ids.of(["first", "second", "third"])
    return Clicks.from_pairs(rows, items, user_ids=ids, item_ids=given[0].item_ids)


def features_of(model: Model, newcomers: Clicks, **columns) -> Features:
    source = {"user": newcomers.user_ids.values.tolist(), **columns}
    return read_features(source, newcomers, role="user", encoding=model.encoding("user"))


def test_the_map_stays_in_the_model_and_gives_known_users_their_exposure(given, model, tmp_path):
    clicks, _, features = given
    model.save(tmp_path / "model")
    again = load(tmp_path / "model", verify=True)
    assert again.encoding("user") == features.encoding
    weight = again.parameters["exposure_feature_weight"]
    expected = features.of(clicks.user_ids) @ weight
    np.testing.assert_allclose(again.parameters["exposure_user_factors"], expected, atol=1e-6)


def test_a_new_user_has_the_exposure_of_a_known_one_with_the_same_features(
    given, model, newcomers, monkeypatch
):
    known = given[1]
    monkeypatch.setattr(blocks, "BLOCK_ENTRIES", 2 * 60)  # two users at a time
    columns = {"side": known["side"][:3], "age": known["age"][:3]}
    features = features_of(model, newcomers, **columns)
    items = given[0].item_ids.values.tolist()
    for larger in (
        model.fold_in(newcomers, user_features=features),
        model.of_users(newcomers, user_features=features),
    ):
        for at, name in enumerate(newcomers.user_ids.values):
            found = larger.exposure([name] * len(items), items)
            expected = model.exposure([known["user"][at]] * len(items), items)
            np.testing.assert_allclose(found, expected, rtol=1e-5)
    # so users with the same clicks learn different vectors
    vectors = larger.parameters["user_factors"]
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-4
    monkeypatch.undo()
    at_once = model.of_users(newcomers, user_features=features).parameters["user_factors"]
    np.testing.assert_allclose(at_once, vectors, rtol=1e-4, atol=1e-6)
    rows = features.of(newcomers.user_ids)
    by_array = model.of_users(newcomers, user_features=rows).parameters["user_factors"]
    np.testing.assert_array_equal(by_array, at_once)


def test_users_left_out_for_lack_of_known_clicks_do_not_shift_the_features(model, newcomers):
    items = Ids.of([*newcomers.item_ids.values.tolist(), 999])
    away = np.where(newcomers.users == 0, 60, newcomers.items)  # the first clicked unknown items
    clicks = Clicks.from_pairs(newcomers.users, away, user_ids=newcomers.user_ids, item_ids=items)
    columns = {"side": ["left", "right", "left"], "age": [20, 40, 60]}
    features = features_of(model, newcomers, **columns)
    whole = model.of_users(newcomers, user_features=features)
    part = model.of_users(clicks, user_features=features)
    assert part.user_ids.values.tolist() == ["second", "third"]
    for name in ("user_factors", "exposure_user_factors"):
        np.testing.assert_array_equal(part.parameters[name], whole.parameters[name][1:])


def test_an_update_goes_on_from_the_map(given, model):
    clicks, _, features = given
    with pytest.raises(InputError, match="user_features: give it again"):
        model.update(clicks)
    again = model.update(clicks, epochs=1, side=Side(user_features=features), progress=Silent())
    before, after = (m.parameters["exposure_feature_weight"] for m in (model, again))
    assert 0 < np.abs(after - before).max() < 0.2
    assert np.corrcoef(before.ravel(), after.ravel())[0, 1] > 0.9


def test_features_that_a_model_cannot_use_are_refused(given, model, newcomers):
    plain = quick("ubo", epochs=1).fit(given[0], progress=Silent())
    mf = quick("mf", epochs=1).fit(given[0], progress=Silent())
    wmf = quick("wmf", epochs=1).fit(given[0], progress=Silent())
    for fitted, words in (
        (plain, "trained without user features, so it cannot use those of new users"),
        (mf, "mf cannot use user_features"),
        (wmf, "wmf cannot use user_features"),
        (model, "user_features have 2 columns, and the model knows 4"),
    ):
        with pytest.raises(InputError, match=words) as refused:
            fitted.fold_in(newcomers, user_features=np.ones((3, 2)))
        assert "\n" not in str(refused.value)
