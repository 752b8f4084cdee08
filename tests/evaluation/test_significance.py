"""Intervals cover, tests keep their level, corrections match those worked by hand."""

from itertools import product

import numpy as np
import pytest
import scipy.stats

from unexposed.errors import InputError
from unexposed.evaluation import significance as statistics
from unexposed.evaluation.significance import (
    against_best,
    bootstrap_interval,
    holm,
    mean_sd,
    paired_test,
)

# mean and deviation


def test_mean_and_deviation_are_over_seeds_of_the_mean_over_users():
    values = [[0.0, 2.0], [2.0, 2.0], [3.0, 3.0]]  # user means 1, 2 and 3
    assert mean_sd(values) == pytest.approx((2.0, 1.0))
    assert mean_sd([[1.0, 2.0]]) == mean_sd([1.0, 2.0]) == (1.5, 0.0)
    by_user = np.array([1.0, 2.0, 3.0, 4.0])
    seeds = np.array([by_user + 10, by_user - 10])  # they differ, the mean of each user does not
    assert bootstrap_interval(seeds, seed=0) == bootstrap_interval(by_user, seed=0)
    assert paired_test(seeds, by_user / 2, seed=0) == paired_test(by_user, by_user / 2, seed=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_sd([[1.0, np.nan]]), "finite"),
        (lambda: mean_sd(np.zeros((2, 0))), "at least one each"),
        (lambda: paired_test([1.0, 2.0], [3.0], seed=0), "same users, got 2 and 1"),
        (lambda: holm({"a": 1.1}), "for 'a'"),
        (lambda: holm({"a": float("nan")}), "for 'a'"),
        (lambda: against_best({}, seed=0), "no method"),
    ],
)
def test_impossible_arguments_are_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


# bootstrap


def test_the_interval_covers_the_truth_as_often_as_it_says():
    generator = np.random.default_rng(0)
    covered = 0
    for seed in range(300):
        values = generator.normal(3, 1, size=60)
        low, high = bootstrap_interval(values, seed=seed, resamples=200)
        covered += low <= 3 <= high
    assert 0.90 < covered / 300 < 0.98


@pytest.mark.parametrize("function", [bootstrap_interval, paired_test])
def test_the_result_depends_on_the_seed_and_not_on_the_chunks(function, monkeypatch):
    generator = np.random.default_rng(5)
    tables = [generator.normal(0.1, 1, size=(2, 37)), generator.normal(size=(2, 37))]
    tables = tables[: 1 if function is bootstrap_interval else 2]
    whole = function(*tables, seed=7)
    assert function(*tables, seed=7) == whole
    assert function(*tables, seed=8) != whole
    monkeypatch.setattr(statistics, "_CHUNK", 37 * 13)
    assert function(*tables, seed=7) == whole


# paired test


def test_the_p_value_estimates_the_share_of_all_sign_flips():
    difference = np.array([0.9, -0.4, 1.3, 0.2, 0.8, -0.1, 0.7, 0.5])
    flips = [abs(np.dot(signs, difference)) for signs in product([-1, 1], repeat=8)]
    exact = np.mean(np.array(flips) >= difference.sum() - 1e-9)
    test = paired_test(difference, np.zeros(8), seed=0, permutations=20_000)
    assert test.difference == pytest.approx(difference.mean())
    assert test.p_value == pytest.approx(exact, abs=4 * np.sqrt(exact * (1 - exact) / 20_000))


def test_without_an_effect_p_values_are_uniform():
    generator = np.random.default_rng(6)
    p_values = [
        paired_test(*generator.normal(size=(2, 1, 30)), seed=seed, permutations=199).p_value
        for seed in range(400)
    ]
    assert scipy.stats.kstest(p_values, "uniform").pvalue > 0.01
    assert 0.02 < np.mean(np.array(p_values) <= 0.05) < 0.09


def test_the_test_is_two_sided():
    a, b = np.random.default_rng(9).normal(size=(2, 4, 25))
    there, back = paired_test(a, b, seed=1), paired_test(b, a, seed=1)
    assert there.p_value == back.p_value
    assert there.difference == pytest.approx(-back.difference)
    assert paired_test(a, a, seed=0) == statistics.Paired(0.0, 1.0)
    assert paired_test(a + 9, a, seed=0, permutations=999).p_value == 1 / 1000  # never 0


# Holm


def test_holm_by_hand():
    # in order .005, .01, .03, .04: × 4, 3, 2, 1 is .02, .03, .06, .04, and .04 is raised to .06
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})
    assert adjusted == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert list(adjusted) == ["a", "b", "c", "d"]
    assert holm({"a": 0.6, "b": 0.7}) == {"a": 1.0, "b": 1.0}
    assert holm({"a": 0.04}) == {"a": 0.04}


# against the best


def methods():
    generator = np.random.default_rng(13)
    base = generator.random((3, 100))
    noise = generator.normal(0, 0.05, size=(3, 100))
    noise -= noise.mean()
    return {"close": base - 0.001 + noise, "best": base, "far": base - 0.3 + noise}


def test_each_method_is_compared_with_the_highest_mean():
    values = methods()
    compared = against_best(values, seed=0)
    assert list(compared) == list(values)
    others = {name: paired_test(values[name], values["best"], seed=0) for name in ("close", "far")}
    corrected = holm({name: test.p_value for name, test in others.items()})  # without the best
    for name, test in others.items():
        found = compared[name]
        assert (found.difference, found.p_value) == (test.difference, test.p_value)
        assert found.p_holm == corrected[name]
        assert found.significant == (name == "far")
    assert compared["best"] == statistics.Difference(0, 1, 1, False)
