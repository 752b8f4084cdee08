"""Models updated with newer clicks."""

from dataclasses import replace

import numpy as np
import pytest

from small import COMPOSED, METHODS, UPDATING, make_with
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.labelled import Impressions
from unexposed.data.worlds.simulate import world
from unexposed.errors import InputError
from unexposed.methods import load
from unexposed.methods.composed import ComposedMethod
from unexposed.methods.mf import MF
from unexposed.progress import Silent
from unexposed.training.side import Side

N_OLD, N_ITEMS = 60, 40


def quick(name, **settings):
    return make_with(name, {"dim": 6, "epochs": 20, "patience": 0, "batch_size": 64} | settings)


@pytest.fixture(scope="module")
def log() -> Clicks:
    return world(80, 50, seed=2).clicks(0)


@pytest.fixture(scope="module")
def older(log) -> Clicks:
    """Clicks of the first users on the first items, ids as text."""
    here = (log.users < N_OLD) & (log.items < N_ITEMS)
    return Clicks.from_pairs(
        log.users[here],
        log.items[here],
        user_ids=Ids.of(f"u{n}" for n in range(N_OLD)),
        item_ids=Ids.of(f"i{n}" for n in range(N_ITEMS)),
    )


@pytest.fixture(scope="module")
def newer(log) -> Clicks:
    """All other clicks, users and items in an order of their own."""
    here = (log.users >= N_OLD) | (log.items >= N_ITEMS)
    return Clicks.from_pairs(
        79 - log.users[here],
        49 - log.items[here],
        user_ids=Ids.of(f"u{79 - n}" for n in range(80)),
        item_ids=Ids.of(f"i{49 - n}" for n in range(50)),
    )


def named(clicks):
    users, items = clicks.user_ids.values[clicks.users], clicks.item_ids.values[clicks.items]
    return set(zip(users, items, strict=True))


@pytest.mark.parametrize("name", UPDATING)
def test_new_users_and_items_join_and_the_old_keep_their_places(name, older, newer, tmp_path):
    model = quick(name).fit(older, progress=Silent())
    updated = model.update(newer, epochs=2, progress=Silent())
    assert updated.user_ids.values[:N_OLD].tolist() == older.user_ids.values.tolist()
    assert len(updated.user_ids) == 80
    assert len(updated.item_ids) == 50
    assert named(updated.clicks) == named(older) | named(newer)
    assert updated.method == model.method
    assert np.isfinite(updated.score(["u79", "u0"], ["i49", "i0"])).all()
    updated.save(tmp_path / "model")
    assert load(tmp_path / "model").recommend(["u70"], 3).equals(updated.recommend(["u70"], 3))


@pytest.mark.parametrize("name", COMPOSED)
def test_training_starts_from_the_model_and_new_users_from_fold_in(name, older, newer):
    model = quick(name, learning_rate=0.01).fit(older, progress=Silent())
    still = type(model)(
        quick(name, learning_rate=1e-12, exposure_learning_rate=0.0),
        model.parameters,
        model.clicks,
        model.facts,
    )
    updated = still.update(newer, epochs=1, progress=Silent())
    for table in set(updated.parameters) - {"popularity", "exposure"}:
        rows = len(model.parameters[table])
        np.testing.assert_allclose(
            updated.parameters[table][:rows], model.parameters[table], atol=1e-6, err_msg=table
        )
    folded = still.fold_in(newer)
    same = [f"u{n}" for n in range(60, 80) if folded.user_ids.index([f"u{n}"])[0] >= 0]
    assert len(same) > 10
    np.testing.assert_allclose(
        updated.parameters["user_factors"][updated.user_ids.index(same)],
        folded.parameters["user_factors"][folded.user_ids.index(same)],
        atol=1e-6,
    )


def test_the_epoch_is_chosen_on_newer_clicks_and_the_settings_stay(older, newer, monkeypatch):
    model = quick("mf").fit(older, progress=Silent())
    seen = {}
    train = MF.train

    def spy(self, given):
        seen.update(clicks=given.clicks, held_out=given.held_out, epochs=self.epochs)
        return train(self, given)

    monkeypatch.setattr(MF, "train", spy)
    updated = model.update(newer, progress=Silent())
    assert len(seen["held_out"]) == int(0.1 * len(newer))
    assert named(seen["held_out"]) <= named(newer)
    assert named(seen["clicks"]) == named(older) | named(newer) - named(seen["held_out"])
    assert seen["epochs"] == 2  # a tenth of the method's
    assert updated.method.epochs == 20
    assert updated.facts["epochs_before"] == model.facts["best_epoch"]
    again = updated.update(newer, epochs=3, progress=Silent())
    assert seen["epochs"] == 3
    before = updated.facts["best_epoch"] + updated.facts["epochs_before"]
    assert again.facts["epochs_before"] == before
    assert again.facts["updates"] == 2
    assert again.clicks.counts.sum() == updated.clicks.counts.sum() + newer.counts.sum()


@pytest.mark.parametrize("name", [name for name in METHODS if name not in UPDATING])
def test_other_methods_refuse_an_update(name, older, newer):
    model = quick(name, epochs=1).fit(older, progress=Silent())
    with pytest.raises(InputError, match=f"{name} cannot be updated: fit it again"):
        model.update(newer)


def test_side_information_must_be_given_again(older, newer):
    model = quick("umf").fit(older, side=Side(exposure=np.full(N_ITEMS, 0.5)), progress=Silent())
    with pytest.raises(InputError, match=r"trained with exposure: give it again"):
        model.update(newer)
    updated = model.update(newer, side=Side(exposure=np.full(50, 0.4)), progress=Silent())
    np.testing.assert_allclose(updated.exposure(["u0"], ["i45"]), 0.4)


def test_the_impressions_of_the_newer_log_are_used_under_their_raw_ids(older, newer, monkeypatch):
    shown = Impressions.from_pairs(
        np.repeat(np.arange(80), 3),
        np.tile([0, 20, 49], 80),
        user_ids=newer.user_ids,
        item_ids=newer.item_ids,
    )
    wanted = named(shown) - named(older) - named(newer)
    seen, made = [], ComposedMethod.learning_data
    monkeypatch.setattr(
        ComposedMethod,
        "learning_data",
        lambda method, clicks, side: seen.append(made(method, clicks, side)) or seen[-1],
    )
    model = quick("mf", negatives_from="unclicked").fit(older, progress=Silent())
    model = replace(model, method=replace(model.method, negatives_from="shown"))
    updated = model.update(replace(newer, shown=shown), epochs=1, progress=Silent())
    users, items = seen[-1].pool
    raw = updated.user_ids.values[users], updated.item_ids.values[items]
    assert set(zip(*raw, strict=True)) == wanted
    assert "side" not in updated.facts  # a later update needs no impressions again
