"""How an estimate agrees with the truth, on runs whose answer is known."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from unexposed.evaluation import agreement
from unexposed.evaluation.agreement import Run, agreements, dissent, spearman


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(agreement, "RESAMPLES", 200)


def runs(noise: dict[str, float], *, n_runs=8, n_models=16, seed=0):
    """Runs in which each estimate is the truth plus noise of this deviation."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(n_runs):
        truth = rng.normal(size=n_models)
        found.append(
            Run(truth, {k: truth + sd * rng.normal(size=n_models) for k, sd in noise.items()})
        )
    return found


def test_spearman_is_the_usual_one_with_ties_and_0_for_a_constant():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 4, (2, 5, 12)).astype(float)
    usual = [spearmanr(x, y).statistic for x, y in zip(a, b, strict=True)]
    assert spearman(a, b) == pytest.approx(usual)
    assert spearman(np.ones(4), np.arange(4.0)) == 0


def test_an_estimate_that_is_the_truth_wins_and_has_no_regret():
    found = agreements(runs({"default": 1.0, "truth": 0.0}), default="default", seed=0)
    assert found["truth"].spearman == found["truth"].kendall == pytest.approx(1)
    assert found["truth"].regret == 0
    assert found["truth"].wins == 1
    assert found["truth"].differs
    assert found["default"].regret > 0
    assert found["default"].interval == (0, 0)
    assert not found["default"].differs


def test_estimates_that_are_equally_good_differ_by_no_more_than_chance():
    found = agreements(runs({"default": 1.0, "other": 1.0}), default="default", seed=0)
    assert not found["other"].differs
    assert 0.05 < found["other"].wins < 0.95
    low, high = found["other"].interval
    assert low <= found["other"].difference <= high


def test_a_run_counts_by_its_weight_and_not_at_all_below_0():
    one, other = (
        Run(r.truth, r.said, w)
        for r, w in zip(runs({"a": 1.0}, n_runs=2), (3.0, -2.0), strict=True)
    )
    found = agreements([one, other], default="a", seed=0)["a"]
    assert found.spearman == pytest.approx(float(spearman(one.said["a"], one.truth)))
    assert found.spearman_sd == pytest.approx(0)


def test_identical_estimates_share_their_wins():
    same = [Run(run.truth, run.said | {"twin": run.said["one"]}) for run in runs({"one": 1.0})]
    found = agreements(same, default="one", seed=0)
    assert found["one"].wins == found["twin"].wins == pytest.approx(0.5)


def test_regret_is_the_truth_given_away_by_the_chosen_model():
    one = Run(np.array([0.1, 0.5, 0.9]), {"default": np.array([0.0, 1.0, 0.5])})
    found = agreements([one], default="default", seed=0)["default"]
    assert found.regret == pytest.approx(0.4)
    assert found.spearman == pytest.approx(0.5)


def test_a_criterion_dissents_only_beyond_the_standard_error_of_the_chosen():
    rated = {
        "a": {"uniform": [0.5, 0.01], "popular": [0.40, 0.02]},
        "b": {"uniform": [0.4, 0.01], "popular": [0.41, 0.02]},
    }
    assert dissent(rated, "a") == {}
    rated["b"]["popular"][0] = 0.43
    assert dissent(rated, "a") == {"popular": "b"}
    assert dissent(rated, "b") == {"uniform": "a"}
