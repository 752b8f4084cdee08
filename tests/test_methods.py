"""The contract that every method in METHODS keeps."""

import numpy as np
import pytest

from small import (
    PERSONAL,
    TRAINED,
    assert_same_parameters,
    clicks_of,
    fitted,
    quick,
)
from unexposed.errors import InputError
from unexposed.methods import METHODS, load, make
from unexposed.model.model import Model
from unexposed.model.recommender import Recommender
from unexposed.progress import Silent
from unexposed.ranking import blocks
from unexposed.settings import known
from unexposed.training.side import Side

ON_CLOCK = ["ubo with items", "ubo with an exponent"]


@pytest.fixture(scope="module", params=[*METHODS, "ubo with biases", "bpr with biases", *ON_CLOCK])
def brief(request, checkerboard) -> Model:
    """Every method after two epochs on the checkerboard."""
    return fitted(request.param, checkerboard[0], epochs=2)


@pytest.mark.parametrize("name", [*PERSONAL, "ubo with items"])
def test_finds_the_item_withheld_from_the_checkerboard(name, checkerboard):
    clicks, answers = checkerboard
    model = fitted(name, clicks)
    users, withheld = zip(*answers, strict=True)
    # of the 13 items a user has not clicked only the withheld one has its colour
    first = model.recommend(users, k=1)["item"].to_list()
    found = sum(a == b for a, b in zip(first, withheld, strict=True))
    assert found >= 0.8 * len(answers)  # by chance: one in thirteen
    scores = model.scores(np.arange(24, dtype=np.int32))
    if model.method.scale == "probability":
        assert ((scores >= 0) & (scores <= 1)).all()
    if model.method.scale == "logit":
        assert scores.min() < 0 < scores.max()


@pytest.mark.parametrize("name", [*METHODS, *ON_CLOCK])
def test_the_seed_decides_every_bit_whatever_was_fitted_before(name, small_world):
    clicks, method = small_world.clicks(0), quick(name, epochs=3)
    first = method.fit(clicks, seed=0, progress=Silent())
    method.fit(small_world.clicks(1), seed=0, progress=Silent())
    assert_same_parameters(first, method.fit(clicks, seed=0, progress=Silent()))
    if name in (*TRAINED, *ON_CLOCK, "random"):
        users = np.arange(10, dtype=np.int32)
        other = method.fit(clicks, seed=1, progress=Silent())
        assert not np.array_equal(first.scores(users), other.scores(users))


@pytest.mark.parametrize("name", [*TRAINED, *ON_CLOCK])
def test_an_epoch_run_step_by_step_gives_the_same_bits(name, small_world):
    clicks = small_world.clicks(0)
    at_once, by_steps = (
        quick(name).trainee(clicks, seed=0, side=Side(), progress=Silent()) for _ in range(2)
    )
    for _ in range(2):
        loss = at_once.epoch()
        losses = list(by_steps.steps())
        assert np.mean(losses) == pytest.approx(loss, rel=1e-9)
    sweeps = quick(name).pairs_of_epoch(clicks) == clicks.n_users * clicks.n_items
    assert len(losses) > 1 or sweeps  # a sweep over everything is one step
    for key, array in at_once.parameters().items():
        assert array.tobytes() == by_steps.parameters()[key].tobytes(), key


@pytest.mark.parametrize("name", [*METHODS, *ON_CLOCK])
def test_users_and_items_without_clicks_and_a_user_who_clicked_all_are_scored(name):
    some = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
    everything = some | np.array([[1], [0], [0], [0]])
    for matrix in (some, everything):
        model = fitted(name, clicks_of(matrix), epochs=2)
        scores = model.scores(np.arange(4, dtype=np.int32))
        assert scores.shape == (4, 4)
        assert np.isfinite(scores).all()
    assert len(model.recommend([0], k=2)) == 0  # nothing is left to recommend


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_its_own_name_and_refuses_unknown_settings_with_the_nearest(name):
    assert METHODS[name].name == name
    settings = list(known(METHODS[name]))
    wrong = settings[0][:-1] + "x" if settings else "dim"
    with pytest.raises(InputError, match=name) as refused:
        make(name, **{wrong: 1})
    assert wrong in str(refused.value)
    assert not settings or "did you mean" in str(refused.value)


def test_raw_ids_go_in_and_come_out(brief, checkerboard):
    clicks, _ = checkerboard
    table = brief.recommend(["user 3", "user 0"], k=4)
    assert table["user"].to_list() == ["user 3"] * 4 + ["user 0"] * 4
    assert table["rank"].to_list() == [1, 2, 3, 4] * 2
    shown = set(table.filter(table["user"] == "user 3")["item"])
    own = clicks.users == 3
    assert not shown & {f"item {i}" for i in clicks.items[own]}  # clicked items are hidden
    scores = table["score"].to_list()
    pairs = brief.score(table["user"].to_list(), table["item"].to_list())
    np.testing.assert_allclose(scores, pairs, rtol=1e-5)
    assert scores[:4] == sorted(scores[:4], reverse=True)


def test_a_saved_model_recommends_the_same(brief, tmp_path):
    brief.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.method == brief.method
    users = brief.user_ids.values.tolist()
    assert again.recommend(users, k=5).equals(brief.recommend(users, k=5))


def test_exposure_is_a_probability_alike_for_pairs_and_rows(brief, monkeypatch):
    if not brief.has_exposure:
        with pytest.raises(InputError, match="has no exposure model"):
            brief.exposure(["user 0"], ["item 0"])
        return
    users = np.array([5, 0, 5, 23, 7], dtype=np.int32)
    items = np.array([1, 2, 3, 0, 23], dtype=np.int32)
    expected = brief.method.exposure(brief.parameters, users)[np.arange(5), items]
    assert ((expected > 0) & (expected <= 1)).all()
    pairs = [f"user {u}" for u in users], [f"item {i}" for i in items]
    np.testing.assert_allclose(brief.exposure(*pairs), expected, rtol=1e-5)
    monkeypatch.setattr(blocks, "BLOCK_ENTRIES", 48)  # two users at a time
    by_rows = Recommender.pair_exposure(brief.method, brief.parameters, users, items)
    np.testing.assert_allclose(by_rows, expected, rtol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_judgements_and_an_empty_log_cannot_be_trained_on(name, small_world):
    split = small_world.split(seed=0)
    for given in ((split.judged,), (split.train, split.judged)):
        with pytest.raises(InputError, match="learns from Clicks"):
            quick(name).fit(*given)
    with pytest.raises(InputError, match="without clicks"):
        quick(name).fit(split.train.pick(slice(0, 0)))


@pytest.mark.parametrize("name", METHODS)
def test_side_information_a_method_cannot_use_is_refused(name, small_world):
    clicks = small_world.clicks(0)
    sides = {
        "exposure": Side(exposure=np.full(clicks.n_items, 0.5)),
        "user_features": Side(user_features=np.ones((clicks.n_users, 2))),
        "item_features": Side(item_features=np.ones((clicks.n_items, 2))),
    }
    for part, side in sides.items():
        if part in METHODS[name].takes:
            # a gate starts from popularity alone
            made = "ubo with items" if (name, part) == ("ubo", "exposure") else name
            model = quick(made, epochs=1).fit(clicks, side=side, progress=Silent())
            assert np.isfinite(model.score([0], [0])).all()
        else:
            with pytest.raises(InputError, match=f"cannot use {part}"):
                quick(name).fit(clicks, side=side)


def test_an_unknown_method_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'popularity'"):
        make("populrity")


def test_a_method_that_cannot_score_is_refused_when_it_is_made():
    class Silence(METHODS["popularity"]):
        scores = Recommender.scores

    with pytest.raises(TypeError, match="Silence must define `scores` or `vectors`"):
        Silence()
