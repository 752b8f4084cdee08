"""What ranks find out together about their own parts of a log: sums, means, the smallest of all.

Outside a process group the own part is everything, and the same functions give the plain answer.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unexposed import ranks

BLOCK = 1 << 20  # users counted at a time: no rank holds a number of every user
DIGIT = 8  # bits looked at in a round


class Moments(NamedTuple):
    """How many values all ranks have, their mean and their standard deviation."""

    n: int
    mean: float
    deviation: float


def moments(*columns: NDArray[np.float64], ddof: int = 0) -> list[Moments]:
    """The moments of each column of values, of which every rank has a part."""
    if ranks.current() is None:
        return [Moments(len(c), float(c.mean()), float(c.std(ddof=ddof))) for c in columns]
    sums = ranks.summed(np.array([(len(c), c.sum()) for c in columns], dtype=np.float64))
    n, means = sums[:, 0], sums[:, 1] / np.maximum(sums[:, 0], 1)
    own = [((c - mean) ** 2).sum() for c, mean in zip(columns, means, strict=True)]
    squares = ranks.summed(np.array(own)) / np.maximum(n - ddof, 1)
    return [
        Moments(int(k), float(m), math.sqrt(q)) for k, m, q in zip(n, means, squares, strict=True)
    ]


def mean(values: NDArray[np.float64]) -> float:
    """The mean of the values of all ranks."""
    if ranks.current() is None:
        return float(values.mean())
    n, total = ranks.summed(np.array([len(values), values.sum()], dtype=np.float64))
    return float(total / max(n, 1))


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
    found, shifts = np.uint64(0), range(0, 64, DIGIT)
    longer = ranks.summed(np.array([np.count_nonzero(keys >> np.uint64(s)) for s in shifts]))
    for shift in shifts[: max(1, int((longer > 0).sum()))][::-1]:
        digits = (keys >> np.uint64(shift)).astype(np.int64) & (2**DIGIT - 1)
        counts = ranks.summed(np.bincount(digits, minlength=2**DIGIT))
        digit = int(np.searchsorted(np.cumsum(counts), n))
        n -= int(counts[:digit].sum())
        keys = keys[digits == digit]
        found = found | np.uint64(digit << shift)
    return found, n
