"""With the epoch chosen, a second training has all clicks, the held-out ones too."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from small import BRIEF, TRAINED, assert_same_parameters, make_with
from unexposed.progress import Silent, Tick
from unexposed.training import checkpoint
from unexposed.training import loop as training

QUICK = BRIEF | {"snips_window": 1, "refit": False}


class Ender(Silent):
    """Ends the second training at an epoch of it."""

    def __init__(self, epoch: int, error: type[BaseException]) -> None:
        self.epoch, self.error = epoch, error

    def __call__(self, tick: Tick) -> None:
        if "all clicks" in tick.label and tick.epoch == self.epoch:
            raise self.error


@pytest.fixture
def halves(small_world):
    return small_world.clicks(0).hold_out(fraction=0.3, seed=5)


@pytest.mark.parametrize("name", TRAINED)
def test_it_is_the_training_on_all_clicks_for_as_many_epochs_as_were_best(name, halves):
    method = make_with(name, QUICK)
    first = method.fit(*halves, seed=3, progress=Silent())
    model = replace(method, refit=True).fit(*halves, seed=3, progress=Silent())
    train, held_out = halves
    every, none = train.union(held_out), held_out.pick(np.zeros(len(held_out), dtype=bool))
    best = first.facts["best_epoch"]
    by_hand = replace(method, epochs=best).fit(every, none, seed=3, progress=Silent())
    assert_same_parameters(model, by_hand)
    assert model.facts["refitted_on"] == len(every)
    for fact in ("best_epoch", "best_value", "held_out", "losses", "ended"):
        assert model.facts[fact] == first.facts[fact]
    with pytest.raises(AssertionError):
        assert_same_parameters(model, first)


@pytest.mark.parametrize("epoch", [1, 2])
def test_ctrl_c_in_the_second_training_keeps_the_first(epoch, halves):
    method = make_with("mf", QUICK)
    first = method.fit(*halves, progress=Silent())
    assert first.facts["best_epoch"] >= 2
    cut = replace(method, refit=True).fit(*halves, progress=Ender(epoch, KeyboardInterrupt))
    assert_same_parameters(cut, first)
    assert cut.facts["ended"] == "interrupted"
    assert "refitted_on" not in cut.facts


def test_ctrl_c_before_its_first_epoch_is_over_keeps_the_first_too():
    def train():
        raise KeyboardInterrupt

    first = {"user_factors": np.ones(3)}
    facts = {"ended": training.COMPLETE, "seconds": 1.0, "best_epoch": 3}
    kept, told = training.refitted(first, facts, train, n_clicks=9)
    assert kept is first
    assert told == facts | {"ended": training.INTERRUPTED}


def test_without_held_out_clicks_there_is_nothing_to_train_again(halves):
    train, held_out = halves
    none = held_out.pick(np.zeros(len(held_out), dtype=bool))
    model = make_with("mf", QUICK | {"refit": True}).fit(train, none, progress=Silent())
    assert_same_parameters(model, make_with("mf", QUICK).fit(train, none, progress=Silent()))
    assert "refitted_on" not in model.facts


@pytest.mark.parametrize("name", TRAINED)
def test_killed_in_the_second_training_it_goes_on_to_the_same_bits(name, halves, tmp_path):
    class Killed(BaseException):
        pass

    method = make_with(name, QUICK | {"refit": True, "snips_exponent": 0.0})
    whole = method.fit(*halves, progress=Silent())
    assert whole.facts["best_epoch"] >= 2
    folder = tmp_path / "kept"
    given = {"checkpoint": folder, "checkpoint_every": 0, "resume": True}
    with pytest.raises(Killed):
        method.fit(*halves, **given, progress=Ender(2, Killed))
    assert checkpoint.second_of(folder).is_dir()
    resumed = method.fit(*halves, **given, progress=Silent())
    assert_same_parameters(whole, resumed)
    resumed.save(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_the_second_training_is_found_where_the_first_kept_nothing(tmp_path: Path):
    assert not checkpoint.is_kept(tmp_path / "kept")
    checkpoint.second_of(tmp_path / "kept").mkdir()
    assert checkpoint.is_kept(tmp_path / "kept")
