"""Criteria are compared in worlds of the log's clicks alone."""

import numpy as np
import pytest

from unexposed.data.simulate import world
from unexposed.errors import InputError
from unexposed.evaluation import agreement
from unexposed.ranking.held_out import CRITERIA
from unexposed.tuning import criteria
from unexposed.tuning.criteria import MOST, spread, study

TINY = {"worlds": 2, "models": 3, "epochs": 2}


@pytest.fixture(scope="module")
def clicks():
    return world(150, 40, seed=0).clicks(seed=0)


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(agreement, "RESAMPLES", 50)


def test_a_study_judges_every_criterion_in_every_world_and_split(clicks):
    found = study(clicks, **TINY, splits=2)
    assert list(found.agreements) == [name for name in CRITERIA if name != "shown"]
    assert [(run.split, run.run.truth.shape) for run in found.runs] == [(0, (3,)), (1, (3,))] * 2
    first, second, third, _ = found.runs
    assert first.dials == second.dials != third.dials
    assert (first.run.truth != second.run.truth).all()
    assert abs(first.n_clicks - len(clicks)) < 5 * len(clicks) ** 0.5
    document = found.document()
    assert document["best"] == found.best
    assert len(document["worlds"]) == 4
    highest = max(a.spearman for a in found.agreements.values())
    assert found.agreements[found.best].spearman == highest


def test_where_it_is_known_what_was_shown_the_criterion_that_asks_for_it_competes():
    made = world(150, 40, relevance_rate=0.6, seed=0)
    given, own = study(made.clicks(0), **TINY, shown=made.disliked(0)), study(made.log(0), **TINY)
    for found in (given, own):
        assert list(found.agreements) == list(CRITERIA)
        assert found.document()["criteria"]["shown"]["about"] == CRITERIA["shown"].about
    rates = [run.dials.relevance_rate for run in given.runs]
    assert rates == pytest.approx([0.6, 0.6], abs=0.1)  # the rate of the world that made the log


def test_the_same_seed_gives_the_same_study_and_another_gives_another(clicks):
    one, same, other = (study(clicks, **TINY, seed=seed).document() for seed in (0, 0, 1))
    assert one == same
    assert one["worlds"][0]["truth"] != other["worlds"][0]["truth"]


def test_ctrl_c_keeps_the_worlds_that_are_done(clicks, monkeypatch):
    run, said = criteria._run, []

    def interrupted(*given, **more):
        if said:
            raise KeyboardInterrupt
        said.append("one")
        return run(*given, **more)

    monkeypatch.setattr(criteria, "_run", interrupted)
    found = study(clicks, **TINY, say=said.append)
    assert found.interrupted
    assert len(found.runs) == 1
    assert "the 1 worlds finished before" in said[-1]
    with pytest.raises(KeyboardInterrupt):
        study(clicks, **TINY)


@pytest.mark.parametrize("n_clicks", [100, 2000, 10**5, 10**7])
def test_the_spread_of_models_fits_a_log_of_any_size(n_clicks):
    made = spread(n_clicks, models=MOST, epochs=5)
    assert len(made) == MOST  # all labels differ
    sizes = {method.batch_size for method in made.values() if hasattr(method, "batch_size")}
    assert len(sizes) == 1
    assert 32 <= sizes.pop() <= 1024


def test_judgements_small_logs_and_sizes_that_make_no_sense_are_refused(clicks):
    with pytest.raises(InputError, match="on Clicks, got Judgements"):
        study(world(40, 20, seed=0).split(seed=0).judged)
    for given, message in (
        ({"models": 2}, "models must be between 3 and 60, got 2"),
        ({"worlds": 0}, "worlds must be at least 1"),
        ({"splits": 0}, "splits must be at least 1"),
    ):
        with pytest.raises(InputError, match=message):
            study(clicks, **given)
    with pytest.raises(InputError, match="at least 100 clicks, got 50"):
        study(clicks.pick(np.arange(50)))
