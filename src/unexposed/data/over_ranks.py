"""What ranks find out together about their own parts of a log: sums, means, the smallest of all.

Outside a process group the own part is everything, and the same functions give the plain answer.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed import ranks

BLOCK = 1 << 20  # users counted at a time: no rank holds a number of every user
DIGIT = 8  # bits looked at in a round


def mean(values: NDArray[np.float64]) -> float:
    """The mean of the values of all ranks."""
    if ranks.current() is None:
        return float(values.mean())
    total, n = ranks.summed(np.array([values.sum(), len(values)], dtype=np.float64))
    return float(total / n) if n else math.nan


def deviation(values: NDArray[np.float64], *, ddof: int = 0) -> float:
    """The standard deviation of the values of all ranks."""
    if ranks.current() is None:
        return float(values.std(ddof=ddof))
    squares = (values - mean(values)) ** 2
    total, n = ranks.summed(np.array([squares.sum(), len(values)], dtype=np.float64))
    return math.sqrt(total / (n - ddof)) if n > ddof else math.nan


def count(n: int) -> int:
    """The sum of a count over all ranks."""
    return int(ranks.summed(np.array([n], dtype=np.int64))[0])


def before(counts: NDArray[np.int64], users: NDArray[np.int64], n_users: int) -> NDArray[np.int64]:
    """How many things users before each own one have, in the whole log.

    `counts` are those of own users, `users` their indices in the whole log, ascending.
    """
    found, total = np.empty(len(users), dtype=np.int64), 0
    for begin in range(0, n_users, BLOCK):
        first, stop = np.searchsorted(users, (begin, begin + BLOCK))
        here = users[first:stop] - begin
        of_users = np.zeros(min(BLOCK, n_users - begin), dtype=np.int64)
        of_users[here] = counts[first:stop]
        of_users = ranks.summed(of_users)
        found[first:stop] = total + (np.cumsum(of_users) - of_users)[here]
        total += int(of_users.sum())
    return found


def smallest(keys: NDArray[np.uint64], places: NDArray[Any], n: int) -> NDArray[np.bool_]:
    """Which own things are among the n smallest of all ranks; ties go to the lower place.

    No two things have the same place.
    """
    if n <= 0 or count(len(keys)) <= n:
        return np.full(len(keys), n > 0)
    key, left = _nth(keys, n)
    tied = np.flatnonzero(keys == key)
    chosen = keys < key
    last, _ = _nth(places[tied].astype(np.uint64), left)
    chosen[tied] = places[tied] <= last
    return chosen


def _nth(keys: NDArray[np.uint64], n: int) -> tuple[np.uint64, int]:
    """The nth smallest key of all ranks, and its number among the equal ones (from 1).

    Digit by digit: the ranks count how many keys have each value of the next one.
    """
    found = np.uint64(0)
    for shift in range(64 - DIGIT, -1, -DIGIT):
        digits = (keys >> np.uint64(shift)).astype(np.int64) & (2**DIGIT - 1)
        counts = ranks.summed(np.bincount(digits, minlength=2**DIGIT))
        digit = int(np.searchsorted(np.cumsum(counts), n))
        n -= int(counts[:digit].sum())
        keys = keys[digits == digit]
        found = found | np.uint64(digit << shift)
    return found, n
