"""How sure a mean or a difference is: over users within a run, and over seeds beside it.

Values come as (seeds, users), one row for each training run; a single run may come as one row, or
as one value per user.

The unit of the intervals and tests is the user. The claim is about users like these, who are a
sample; seeds are a choice of ours, share all data, and are too few to test with: five pairs of
seeds cannot reach p < 0.06 by sign flips. So each user's value is first averaged over the seeds.
What is left of the chance of training is then part of each user's value, and the test sees it as
far as it differs between users. A lucky seed that lifts all users alike it cannot see: that is what
the standard deviation over seeds shows, and why a table carries both.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unexposed.errors import InputError

PERMUTATIONS = 10_000
_CHUNK = 2**22  # numbers drawn at once: 64 MB with what is made of them


@dataclass(frozen=True)
class Paired:
    """A mean difference, and how often chance alone gives one as large in either direction."""

    difference: float
    p_value: float


@dataclass(frozen=True)
class Comparison:
    """A method beside the best one: its mean less the best mean, and the test of that."""

    difference: float
    p_value: float
    p_holm: float
    significant: bool


def mean_sd(values_by_seed: ArrayLike) -> tuple[float, float]:
    """The mean over seeds of the mean over users, and its sample deviation over seeds.

    With n − 1 in the divisor; the deviation of a single seed is 0.
    """
    by_seed = _table(values_by_seed).mean(axis=1)
    sd = by_seed.std(ddof=1) if len(by_seed) > 1 else 0.0
    return float(by_seed.mean()), float(sd)


def bootstrap_interval(
    values: ArrayLike, *, seed: int, level: float = 0.95, resamples: int = 2000
) -> tuple[float, float]:
    """A confidence interval of the mean over users, by resampling users.

    Efron's percentile interval; with one user it is that user's value twice.
    """
    if not 0 < level < 1:
        raise InputError(f"the confidence level must lie between 0 and 1, got {level}")
    _check_repeats(resamples, "resamples")
    user_values = _table(values).mean(axis=0)
    n_users = len(user_values)
    generator = np.random.default_rng(seed)
    means = [
        user_values[generator.integers(n_users, size=(rows, n_users))].mean(axis=1)
        for rows in _chunks(resamples, n_users)
    ]
    low, high = np.quantile(np.concatenate(means), [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def paired_test(
    a: ArrayLike, b: ArrayLike, *, seed: int, permutations: int = PERMUTATIONS
) -> Paired:
    """Whether a and b differ in the mean over users: a two-sided sign-flip permutation test.

    If neither were better, each user's difference could as well have had the other sign. The
    p-value is (1 + flips that end at least as far from 0 as the data) / (1 + flips): never 0.
    """
    _check_repeats(permutations, "permutations")
    a, b = _table(a), _table(b)
    if a.shape[1] != b.shape[1]:
        raise InputError(f"a paired test needs the same users, got {a.shape[1]} and {b.shape[1]}")
    differences = a.mean(axis=0) - b.mean(axis=0)
    return Paired(float(differences.mean()), _sign_flip(differences, seed, permutations))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Each p-value adjusted for their number, by Holm (1979), in the order given.

    The j-th smallest of n is multiplied by n − j + 1, is at least what the smaller ones became, and
    at most 1. Holds whatever the dependence between the tests.
    """
    for name, p in p_values.items():
        if not 0 <= p <= 1:
            raise InputError(f"a p-value must lie in [0, 1], got {p} for {name!r}")
    adjusted = dict(p_values)
    reached = 0.0
    for smaller, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        reached = max(reached, min(1.0, (len(p_values) - smaller) * p_values[name]))
        adjusted[name] = reached
    return adjusted


def against_best(
    values: Mapping[str, ArrayLike],
    *,
    seed: int,
    significance: float = 0.05,
    permutations: int = PERMUTATIONS,
) -> dict[str, Comparison]:
    """Each method beside the one with the highest mean, with Holm's correction for their number.

    The best itself, the first of equals, is listed with no difference and takes no part in the
    correction. That it was picked on these same values is not corrected for: a p-value just below
    the line against a method just below the best is weaker evidence than it looks.
    """
    if not values:
        raise InputError("there is no method to compare")
    best = max(values, key=lambda name: mean_sd(values[name])[0])
    tests = {
        name: paired_test(values[name], values[best], seed=seed, permutations=permutations)
        for name in values
    }
    adjusted = holm({name: test.p_value for name, test in tests.items() if name != best})
    adjusted[best] = 1.0
    return {
        name: Comparison(
            test.difference, test.p_value, adjusted[name], adjusted[name] <= significance
        )
        for name, test in tests.items()
    }


def _sign_flip(differences: NDArray[np.float64], seed: int, permutations: int) -> float:
    differences = differences[differences != 0]  # a flip leaves the others as they are
    if len(differences) == 0:
        return 1.0
    total = differences.sum()
    # sums that are equal on paper must count as equal after rounding
    as_far = abs(total) - 1e-12 * np.abs(differences).sum()
    generator = np.random.default_rng(seed)
    n_bytes = 4 * -(-len(differences) // 32)  # a row in whole draws of the generator
    n_extreme = 0
    for rows in _chunks(permutations, len(differences)):
        drawn = np.frombuffer(generator.bytes(rows * n_bytes), dtype=np.uint8)
        flipped = np.unpackbits(drawn.reshape(rows, n_bytes), axis=1, count=len(differences))
        sums = total - 2 * (flipped.astype(np.float64) @ differences)
        n_extreme += int((np.abs(sums) >= as_far).sum())
    return (1 + n_extreme) / (1 + permutations)


def _chunks(n_rows: int, row_length: int) -> list[int]:
    """n_rows cut into as few numbers of rows as keep a chunk's draws within bounds."""
    rows = max(_CHUNK // row_length, 1)
    return [min(rows, n_rows - done) for done in range(0, n_rows, rows)]


def _table(values: ArrayLike) -> NDArray[np.float64]:
    """The values as (seeds, users), all of them numbers."""
    table = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if table.ndim != 2 or table.size == 0:
        raise InputError(f"values must be seeds × users, at least one each, got {table.shape}")
    if not np.isfinite(table).all():
        raise InputError("values must be finite: leave out the users a metric is not defined for")
    return table


def _check_repeats(n: int, what: str) -> None:
    if n < 1:
        raise InputError(f"there must be at least 1 of the {what}, got {n}")
