"""Criteria are compared in worlds of a log's clicks alone, by figures whose answer is known."""

import numpy as np
import pytest
from scipy.stats import spearmanr

import criterion
from criterion import Run, agreements, spearman, spread, study
from unexposed.data.worlds.simulate import world
from unexposed.ranking.held_out import CRITERIA, DEFAULT
from world_of_log import Dials

TINY = {"worlds": 2, "models": 3, "epochs": 2}
DIALS = Dials(exposed=0.6, relevance_rate=0.2, taste=1.0, personal=0.2)


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(criterion, "RESAMPLES", 200)


def run(truth, said, likeness=1.0):
    return Run(DIALS, 0, 100, truth, said, likeness)


def runs(noise: dict[str, float], *, n_runs=8, n_models=16, seed=0):
    """Runs in which each estimate is the truth plus noise of this deviation."""
    rng = np.random.default_rng(seed)
    truths = rng.normal(size=(n_runs, n_models))
    return [
        run(truth, {k: truth + sd * rng.normal(size=n_models) for k, sd in noise.items()})
        for truth in truths
    ]


def test_spearman_is_the_usual_one_with_ties_and_0_for_a_constant():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 4, (2, 5, 12)).astype(float)
    usual = [spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)]
    assert spearman(a, b) == pytest.approx(usual)
    assert spearman(np.ones(4), np.arange(4.0)) == 0


def test_an_estimate_that_is_the_truth_wins_and_has_no_regret():
    found = agreements(runs({DEFAULT: 1.0, "truth": 0.0}), seed=0)
    assert found["truth"].spearman == found["truth"].kendall == pytest.approx(1)
    assert (found["truth"].regret, found["truth"].wins) == (0, 1)
    assert found["truth"].differs
    assert found[DEFAULT].regret > 0
    assert found[DEFAULT].interval == (0, 0)


def test_estimates_that_are_equally_good_differ_by_no_more_than_chance():
    found = agreements(runs({DEFAULT: 1.0, "other": 1.0}), seed=0)
    assert not found["other"].differs
    assert 0.05 < found["other"].wins < 0.95
    twins = [run(r.truth, r.said | {"twin": r.said[DEFAULT]}) for r in runs({DEFAULT: 1.0})]
    found = agreements(twins, seed=0)
    assert found[DEFAULT].wins == found["twin"].wins == pytest.approx(0.5)


def test_a_run_counts_by_its_likeness_and_not_at_all_below_0():
    one, other = runs({DEFAULT: 1.0}, n_runs=2)
    both = [run(one.truth, one.said, 3.0), run(other.truth, other.said, -2.0)]
    found = agreements(both, seed=0)[DEFAULT]
    assert found.spearman == pytest.approx(float(spearman(one.said[DEFAULT], one.truth)))
    assert found.spearman_sd == pytest.approx(0)


def test_regret_is_the_truth_given_away_by_the_chosen_model():
    one = run(np.array([0.1, 0.5, 0.9]), {DEFAULT: np.array([0.0, 1.0, 0.5])})
    found = agreements([one], seed=0)[DEFAULT]
    assert found.regret == pytest.approx(0.4)
    assert found.spearman == pytest.approx(0.5)


def test_a_study_judges_every_criterion_in_every_world_and_split():
    clicks = world(150, 40, seed=0).clicks(seed=0)
    found = study(clicks, **TINY, splits=2)
    assert list(found["criteria"]) == [name for name in CRITERIA if name != "shown"]
    first, second, third, fourth = found["worlds"]
    assert [one["split"] for one in found["worlds"]] == [0, 1, 0, 1]
    assert first["dials"] == second["dials"] != third["dials"] == fourth["dials"]
    assert first["truth"] != second["truth"]
    assert abs(first["clicks"] - len(clicks)) < 5 * len(clicks) ** 0.5
    highest = max(one["spearman"] for one in found["criteria"].values())
    assert found["criteria"][found["best"]]["spearman"] == highest


def test_where_it_is_known_what_was_shown_the_criterion_that_asks_for_it_competes():
    made = world(150, 40, relevance_rate=0.6, seed=0)
    given, own = study(made.clicks(0), **TINY, shown=made.disliked(0)), study(made.log(0), **TINY)
    assert list(given["criteria"]) == list(own["criteria"]) == list(CRITERIA)
    rates = [one["dials"]["relevance_rate"] for one in given["worlds"]]
    assert rates == pytest.approx([0.6, 0.6], abs=0.1)  # the rate of the world that made the log


@pytest.mark.parametrize("n_clicks", [100, 10**7])
def test_the_spread_of_models_fits_a_log_of_any_size(n_clicks):
    made = spread(n_clicks, models=60, epochs=5)
    assert len(made) == 60  # all labels differ
    sizes = {method.batch_size for method in made.values() if hasattr(method, "batch_size")}
    assert len(sizes) == 1
    assert 32 <= sizes.pop() <= 1024
