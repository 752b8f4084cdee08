"""Confidence intervals and paired tests over users; standard deviations over seeds.

Values come as (seeds, users), one row for each training run; a single run may come as one row, or
as one value per user.

The unit of the intervals and tests is the user. We claim something about users like these, who are
a sample; we choose the seeds, they share all data, and they are too few to test with: five pairs
of seeds cannot reach p < 0.06 by sign flips. So each user's value is first averaged over the seeds.
The test sees the randomness of training only as far as it differs between users. It cannot see a
lucky seed that lifts all users alike: the standard deviation over seeds shows that one, which is
why a table carries both.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from unexposed.errors import InputError

PERMUTATIONS = 10_000
SIGNIFICANCE = 0.05
_CHUNK = 2**22  # numbers drawn at once: 64 MB with their float64 copies


@dataclass(frozen=True)
class Paired:
    """A mean difference, and the chance of one as large in either direction if none were real."""

    difference: float
    p_value: float


@dataclass(frozen=True)
class Difference:
    """The mean of a method minus the best mean, and the test of that difference."""

    difference: float
    p_value: float
    p_holm: float
    significant: bool


def mean_sd(values_by_seed: ArrayLike) -> tuple[float, float]:
    """Average over users, then give mean and sample deviation over seeds.

    The divisor of the deviation is n − 1; a single seed has deviation 0.
    """
    by_seed = _table(values_by_seed).mean(axis=1)
    sd = by_seed.std(ddof=1) if len(by_seed) > 1 else 0.0
    return float(by_seed.mean()), float(sd)


def bootstrap_interval(
    values: ArrayLike, *, seed: int, resamples: int = 2000
) -> tuple[float, float]:
    """95 % confidence interval of the mean over users, by resampling users.

    Efron's percentile interval; with one user both ends are that user's value.
    """
    user_values = _table(values).mean(axis=0)
    n_users = len(user_values)
    generator = np.random.default_rng(seed)
    means = [
        user_values[generator.integers(n_users, size=(rows, n_users))].mean(axis=1)
        for rows in _chunks(resamples, n_users)
    ]
    low, high = np.quantile(np.concatenate(means), [0.025, 0.975])
    return float(low), float(high)


def paired_test(
    a: ArrayLike, b: ArrayLike, *, seed: int, permutations: int = PERMUTATIONS
) -> Paired:
    """Test whether a and b differ in the mean over users, by two-sided sign flips.

    If neither were better, each user's difference could as well have the other sign. The p-value
    is (1 + flips that end at least as far from 0 as the data) / (1 + flips): never 0.
    """
    a, b = _table(a), _table(b)
    if a.shape[1] != b.shape[1]:
        raise InputError(f"a paired test needs the same users, got {a.shape[1]} and {b.shape[1]}")
    differences = a.mean(axis=0) - b.mean(axis=0)
    return Paired(float(differences.mean()), _sign_flip(differences, seed, permutations))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Adjust p-values for their number by Holm (1979); the order stays as given.

    The j-th smallest of n is multiplied by n − j + 1, then raised to the adjusted value of the one
    before it where that is larger, and capped at 1. Holds for any dependence between the tests.
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


def against_best(values: Mapping[str, ArrayLike], *, seed: int) -> dict[str, Difference]:
    """Test each method against the one with the highest mean, with Holm's correction.

    The best itself (the first among equals) is listed with no difference and does not count in
    the correction. The test does not correct for choosing the best on these same values: a p-value
    just below the threshold, for a method close to the best, is weaker evidence than it looks.
    """
    if not values:
        raise InputError("there is no method to compare")
    best = max(values, key=lambda name: mean_sd(values[name])[0])
    tests = {name: paired_test(values[name], values[best], seed=seed) for name in values}
    adjusted = holm({name: test.p_value for name, test in tests.items() if name != best})
    adjusted[best] = 1.0
    return {
        name: Difference(
            test.difference, test.p_value, adjusted[name], adjusted[name] <= SIGNIFICANCE
        )
        for name, test in tests.items()
    }


def _sign_flip(differences: NDArray[np.float64], seed: int, permutations: int) -> float:
    differences = differences[differences != 0]  # flipping a zero changes nothing
    if len(differences) == 0:
        return 1.0
    total = differences.sum()
    # sums equal in exact arithmetic must count as equal after rounding
    as_far = abs(total) - 1e-12 * np.abs(differences).sum()
    generator = np.random.default_rng(seed)
    n_bytes = 4 * -(-len(differences) // 32)  # a row takes whole 32-bit draws of the generator
    n_extreme = 0
    for rows in _chunks(permutations, len(differences)):
        drawn = np.frombuffer(generator.bytes(rows * n_bytes), dtype=np.uint8)
        flipped = np.unpackbits(drawn.reshape(rows, n_bytes), axis=1, count=len(differences))
        sums = total - 2 * (flipped.astype(np.float64) @ differences)
        n_extreme += int((np.abs(sums) >= as_far).sum())
    return (1 + n_extreme) / (1 + permutations)


def _chunks(n_rows: int, row_length: int) -> list[int]:
    """Cut n_rows into the fewest chunks of at most _CHUNK draws each."""
    rows = max(_CHUNK // row_length, 1)
    return [min(rows, n_rows - done) for done in range(0, n_rows, rows)]


def _table(values: ArrayLike) -> NDArray[np.float64]:
    """Convert values to (seeds, users) and refuse any that is not finite."""
    table = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if table.ndim != 2 or table.size == 0:
        raise InputError(f"values must be seeds × users, at least one each, got {table.shape}")
    if not np.isfinite(table).all():
        raise InputError("values must be finite: leave out the users a metric is not defined for")
    return table
