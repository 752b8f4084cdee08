"""The contract: what every method in METHODS keeps to."""

import numpy as np
import pytest

from small import PERSONAL, QUICK, TRAINED, make_with
from unexposed.data.clicks import Clicks, Judgements
from unexposed.errors import InputError
from unexposed.methods import METHODS, load, make
from unexposed.model.model import Model
from unexposed.progress import Silent
from unexposed.settings import known
from unexposed.training.given import Side


def quick(name: str, **settings: object) -> object:
    return make_with(name, QUICK | settings)


def fitted(name: str, clicks: Clicks, *, seed: int = 0, **settings: object) -> Model:
    return quick(name, **settings).fit(clicks, seed=seed, progress=Silent())


@pytest.mark.parametrize("name", METHODS)
def test_every_method_is_listed_under_its_own_name(name):
    assert METHODS[name].name == name


@pytest.mark.parametrize("name", PERSONAL)
def test_finds_the_item_withheld_from_the_checkerboard(name, checkerboard):
    clicks, answers = checkerboard
    model = fitted(name, clicks)
    users, withheld = zip(*answers, strict=True)
    # of the 13 items a user has not clicked only the withheld one has its colour
    first = model.recommend(users, k=1)["item"].to_list()
    found = sum(a == b for a, b in zip(first, withheld, strict=True))
    assert found >= 0.8 * len(answers)  # by chance: one in thirteen


@pytest.mark.parametrize("name", METHODS)
def test_same_seed_gives_the_same_bits(name, small_world):
    clicks = small_world.clicks(0)
    one, two = (fitted(name, clicks, epochs=3) for _ in range(2))
    assert one.parameters.keys() == two.parameters.keys()
    for key, array in one.parameters.items():
        assert array.tobytes() == two.parameters[key].tobytes(), key


@pytest.mark.parametrize("name", TRAINED)
def test_epochs_taken_step_by_step_give_the_bits_that_whole_ones_give(name, small_world):
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


@pytest.mark.parametrize("name", [*TRAINED, "random"])
def test_another_seed_gives_other_scores(name, small_world):
    clicks = small_world.clicks(0)
    users = np.arange(10, dtype=np.int32)
    one, two = (fitted(name, clicks, epochs=3, seed=s) for s in (0, 1))
    assert not np.array_equal(one.scores(users), two.scores(users))


@pytest.mark.parametrize("name", METHODS)
def test_fitting_again_forgets_what_was_fitted_before(name, small_world):
    method = quick(name, epochs=3)
    method.fit(small_world.clicks(1), seed=0, progress=Silent())
    again = method.fit(small_world.clicks(0), seed=0, progress=Silent())
    fresh = fitted(name, small_world.clicks(0), epochs=3)
    for key, array in again.parameters.items():
        assert array.tobytes() == fresh.parameters[key].tobytes(), key


@pytest.mark.parametrize("name", METHODS)
def test_scores_are_finite_for_every_user_also_without_clicks(name, small_world):
    clicks = small_world.clicks(0)
    without_first = clicks.pick(clicks.users > 0)
    model = fitted(name, without_first, epochs=3)
    scores = model.scores(np.arange(clicks.n_users, dtype=np.int32))
    assert scores.shape == (clicks.n_users, clicks.n_items)
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("name", METHODS)
def test_a_user_who_clicked_everything_and_an_item_without_clicks_are_no_obstacle(name):
    from unexposed.data.ids import Ids

    users, items = np.array([0, 0, 0, 1, 2]), np.array([0, 1, 2, 0, 1])
    clicks = Clicks.from_pairs(users, items, user_ids=Ids.range(4), item_ids=Ids.range(4))
    full = Clicks.from_pairs(
        np.append(users, 0), np.append(items, 3), user_ids=Ids.range(4), item_ids=Ids.range(4)
    )
    for log in (clicks, full):
        model = fitted(name, log, epochs=2)
        assert np.isfinite(model.score([0, 3], [3, 3])).all()
    assert len(model.recommend([0], k=2)) == 0  # nothing is left to recommend


@pytest.mark.parametrize("name", METHODS)
def test_unknown_settings_are_refused_by_name_with_the_nearest(name):
    settings = list(known(METHODS[name]))
    wrong = settings[0][:-1] + "x" if settings else "dim"
    with pytest.raises(InputError, match=name) as refused:
        make(name, **{wrong: 1})
    assert wrong in str(refused.value)
    if settings:
        assert "did you mean" in str(refused.value)


@pytest.mark.parametrize("name", TRAINED)
@pytest.mark.parametrize("bad", [0, -1, 2.5, "ten", None, True, float("nan")])
def test_a_bad_dim_is_refused(name, bad):
    with pytest.raises(InputError, match="setting dim"):
        make(name, dim=bad)


def test_an_unknown_method_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="did you mean 'popularity'"):
        make("populrity")


@pytest.mark.parametrize("name", METHODS)
def test_raw_ids_go_in_and_come_out(name, checkerboard):
    clicks, _ = checkerboard
    model = fitted(name, clicks, epochs=2)
    table = model.recommend(["user 3", "user 0"], k=4)
    assert table["user"].to_list() == ["user 3"] * 4 + ["user 0"] * 4
    assert table["rank"].to_list() == [1, 2, 3, 4] * 2
    shown = set(table.filter(table["user"] == "user 3")["item"])
    own = clicks.users == 3
    assert not shown & {f"item {i}" for i in clicks.items[own]}  # clicked items are hidden
    scores = table["score"].to_list()
    pairs = model.score(table["user"].to_list(), table["item"].to_list())
    np.testing.assert_allclose(scores, pairs, rtol=1e-5)
    assert scores[:4] == sorted(scores[:4], reverse=True)


@pytest.mark.parametrize("name", METHODS)
def test_a_saved_model_recommends_the_same(name, checkerboard, tmp_path):
    clicks, _ = checkerboard
    model = fitted(name, clicks, epochs=2)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.method == model.method
    users = model.user_ids.values.tolist()
    assert again.recommend(users, k=5).equals(model.recommend(users, k=5))


@pytest.mark.parametrize("name", METHODS)
def test_exposure_is_a_probability_where_the_method_has_one(name, checkerboard):
    clicks, _ = checkerboard
    model = fitted(name, clicks, epochs=2)
    users, items = ["user 0", "user 1"], ["item 0", "item 5"]
    if model.method.exposure(model.parameters, np.zeros(1, dtype=np.int32)) is None:
        with pytest.raises(InputError, match="has no exposure model"):
            model.exposure(users, items)
        return
    values = model.exposure(users, items)
    assert ((values > 0) & (values <= 1)).all()
    table = model.recommend(["user 0"], k=3)
    expected = model.exposure(table["user"].to_list(), table["item"].to_list())
    np.testing.assert_allclose(table["exposure"].to_numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("name", METHODS)
def test_the_exposure_of_pairs_is_that_of_whole_rows(name, checkerboard, monkeypatch):
    from unexposed.model import recommender
    from unexposed.ranking import blocks

    model = fitted(name, checkerboard[0], epochs=2)
    users = np.array([5, 0, 5, 23, 7], dtype=np.int32)
    items = np.array([1, 2, 3, 0, 23], dtype=np.int32)
    whole = model.method.exposure(model.parameters, users)
    if whole is None:
        return
    expected = whole[np.arange(5), items]
    np.testing.assert_allclose(
        model.method.pair_exposure(model.parameters, users, items), expected, rtol=1e-5
    )
    monkeypatch.setattr(blocks, "BLOCK_ENTRIES", 48)  # two users at a time
    by_default = recommender.Recommender.pair_exposure
    found = by_default(model.method, model.parameters, users, items)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("name", METHODS)
def test_a_score_said_to_be_a_probability_is_one(name, checkerboard):
    model = fitted(name, checkerboard[0])
    scores = model.scores(np.arange(24, dtype=np.int32))
    if model.method.scale == "probability":
        assert ((scores >= 0) & (scores <= 1)).all()
    if model.method.scale == "logit":
        assert scores.min() < 0 < scores.max()


@pytest.mark.parametrize("name", METHODS)
def test_judgements_cannot_be_trained_on(name, small_world):
    split = small_world.split(seed=0)
    assert isinstance(split.judged, Judgements)
    with pytest.raises(InputError, match="learns from Clicks"):
        quick(name).fit(split.judged)
    with pytest.raises(InputError, match="learns from Clicks"):
        quick(name).fit(split.train, split.judged)


@pytest.mark.parametrize("name", METHODS)
def test_side_information_a_method_cannot_use_is_refused(name, small_world):
    clicks = small_world.clicks(0)
    sides = {
        "exposure": Side(exposure=np.full(clicks.n_items, 0.5)),
        "user_features": Side(user_features=np.ones((clicks.n_users, 2))),
    }
    for part, side in sides.items():
        if part in METHODS[name].takes:
            model = quick(name, epochs=1).fit(clicks, side=side, progress=Silent())
            assert np.isfinite(model.score([0], [0])).all()
        else:
            with pytest.raises(InputError, match=f"cannot use {part}"):
                quick(name).fit(clicks, side=side)


def test_k_outside_the_catalogue_is_refused(checkerboard):
    model = fitted("popularity", checkerboard[0])
    for k in (0, -1, 25):
        with pytest.raises(InputError, match="k must be between 1 and 24 items"):
            model.recommend(["user 0"], k=k)


def test_an_unknown_user_or_item_is_named(checkerboard):
    model = fitted("popularity", checkerboard[0])
    with pytest.raises(InputError, match="never trained on user 'nobody'"):
        model.recommend(["user 0", "nobody"])
    with pytest.raises(InputError, match="never trained on item 'nothing'"):
        model.score(["user 0"], ["nothing"])
    with pytest.raises(InputError, match="give a list of user ids"):
        model.recommend("user 0")


def test_similar_items_of_the_checkerboard_have_its_colour(checkerboard):
    model = fitted("mf", checkerboard[0])
    near = model.similar_items("item 4", k=5)["item"].to_list()
    assert "item 4" not in near
    assert all(int(item.split()[1]) % 2 == 0 for item in near)
    with pytest.raises(InputError, match="no item vectors"):
        fitted("popularity", checkerboard[0]).similar_items("item 4")


def test_an_empty_log_is_refused(checkerboard):
    clicks = checkerboard[0]
    with pytest.raises(InputError, match="without clicks"):
        make("mf").fit(clicks.pick(np.zeros(len(clicks), dtype=bool)))


def test_ubo_refuses_a_validation_set_that_leaves_no_click_to_train_on(small_world):
    greedy = make("ubo", validation_users=1.0, validation_items=0, validation_in_training=False)
    with pytest.raises(InputError, match="none is left to train on"):
        greedy.fit(small_world.split(seed=0).train, seed=0)
