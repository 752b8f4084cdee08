"""Timing covers epochs and nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from small import make_with
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.errors import InputError
from unexposed.experiments.kinds import timing
from unexposed.progress import Silent


class Clock:
    """A clock that only the trainee moves."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


def quick(name: str, **settings):
    return make_with(name, {"epochs": 2, "dim": 4, "n_models": 2, "negatives": 3} | settings)


def timed(method, clicks):
    return timing.epochs(method, clicks, seed=0, progress=Silent())


def test_neither_getting_ready_nor_the_first_epoch_is_timed(small_world, monkeypatch):
    clock, takes = Clock(), iter([30.0, 1.0, 2.0, 3.0])
    method = quick("mf", epochs=3, engine="reference")
    start = type(method).trainee

    def trainee(self, clicks, **given):
        clock.now += 60
        return replace(start(self, clicks, **given), epoch=epoch)

    def epoch() -> float:
        clock.now += next(takes)
        return 0.5

    monkeypatch.setattr(timing, "time", clock)
    monkeypatch.setattr(type(method), "trainee", trainee)
    found = timed(method, small_world.clicks(0))
    assert found["epoch_seconds"] == [1, 2, 3]
    assert found["median"] == 2
    with pytest.raises(InputError, match="popularity does not learn by epochs"):
        timed(quick("popularity"), small_world.clicks(0))


@pytest.mark.parametrize(
    ("name", "settings", "samples"),
    [
        ("mf", {"negatives_from": "unclicked"}, 5 + 3 * 2),  # the first user has clicked everything
        ("mf", {"negatives_from": "catalogue"}, 5 + 3 * 5),
        ("mf", {"pairs": "all"}, 3 * 3),  # three users have a click
        ("ubo", {"negatives_from": "unclicked"}, 5 + 3 * 2),
        ("cjmf", {}, 5 + 3 * 2),
        ("bpr", {"negatives_from": "unclicked"}, 5 + 3 * 2),
        ("wmf", {}, 4 * 3),  # every pair of the matrix
        ("expomf", {}, 4 * 3),
    ],
)
def test_samples_of_an_epoch_by_hand(name, settings, samples):
    clicks = Clicks.from_pairs(
        np.array([0, 0, 0, 1, 2]),
        np.array([0, 1, 2, 0, 1]),
        user_ids=Ids.range(4),
        item_ids=Ids.range(3),
    )
    assert quick(name, **settings).pairs_of_epoch(clicks) == samples


def test_the_ratio_is_the_median_over_repeats_that_have_both():
    took = {("relmf", 0): [1.0, 2.0, 9.0], ("ubo", 0): [3.0, 4.0, 5.0]}
    took |= {("relmf", 1): [1.0], ("ubo", 1): [3.0], ("relmf", 2): [1.0]}
    lines = [{"arm": a, "seed": s, "epoch_seconds": seconds} for (a, s), seconds in took.items()]
    assert timing.ratio(lines, over="ubo", under="relmf") == 2.5  # of 2 and 3
    assert timing.ratio(lines, over="cjmf", under="relmf") is None
