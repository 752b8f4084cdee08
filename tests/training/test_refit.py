"""Once the epoch is chosen, a second training uses all clicks, held-out ones included."""

from dataclasses import replace

import numpy as np
import pytest

from small import BRIEF, TRAINED, assert_same_parameters, make_with
from unexposed.errors import Interrupted
from unexposed.progress import Silent, Tick
from unexposed.training import checkpoint

QUICK = BRIEF | {"quality_window": 1, "refit": False}


class Ender(Silent):
    """Ends the second training in its nth epoch."""

    def __init__(self, epoch: int, error: type[BaseException]) -> None:
        self.epoch, self.error = epoch, error

    def __call__(self, tick: Tick) -> None:
        if "all clicks" in tick.label and tick.epoch == self.epoch:
            raise self.error


@pytest.fixture
def halves(small_world):
    return small_world.clicks(0).hold_out(fraction=0.3, seed=5)


@pytest.mark.parametrize("name", TRAINED)
def test_the_second_training_runs_on_all_clicks_up_to_the_best_epoch(name, halves):
    method = make_with(name, QUICK)
    first = method.fit(*halves, seed=3, progress=Silent())
    model = replace(method, refit=True).fit(*halves, seed=3, progress=Silent())
    train, held_out = halves
    every, none = train.union(held_out), held_out.pick(np.zeros(len(held_out), dtype=bool))
    best = first.facts["best_epoch"]
    by_hand = replace(method, epochs=best).fit(every, none, seed=3, progress=Silent())
    assert_same_parameters(model, by_hand)
    assert model.facts["refitted_on"] == len(every)
    assert "refitted_on" not in replace(method, epochs=1, refit=True).fit(every, none).facts
    for fact in ("best_epoch", "best_value", "held_out", "losses", "ended"):
        assert model.facts[fact] == first.facts[fact]
    with pytest.raises(AssertionError):
        assert_same_parameters(model, first)


@pytest.mark.parametrize("epoch", [1, 2])
def test_ctrl_c_in_the_second_training_keeps_the_first(epoch, halves):
    method = make_with("mf", QUICK)
    first = method.fit(*halves, progress=Silent())
    assert first.facts["best_epoch"] >= 2
    with pytest.raises(Interrupted) as stopped:
        replace(method, refit=True).fit(*halves, progress=Ender(epoch, KeyboardInterrupt))
    cut = stopped.value.result
    assert_same_parameters(cut, first)
    assert cut.facts["ended"] == "interrupted"
    assert "refitted_on" not in cut.facts


@pytest.mark.parametrize("name", TRAINED)
def test_a_training_killed_during_the_second_resumes_to_the_same_bits(name, halves, tmp_path):
    class Killed(BaseException):
        pass

    method = make_with(name, QUICK | {"refit": True, "criterion": "plain"})
    whole = method.fit(*halves, progress=Silent())
    assert whole.facts["best_epoch"] >= 2
    folder = tmp_path / "kept.safetensors"
    given = {"checkpoint": folder, "checkpoint_every": 0, "resume": True}
    with pytest.raises(Killed):
        method.fit(*halves, **given, progress=Ender(2, Killed))
    assert checkpoint.second_of(folder).exists()
    resumed = method.fit(*halves, **given, progress=Silent())
    assert_same_parameters(whole, resumed)
    resumed.save(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
