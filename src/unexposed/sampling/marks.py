"""Marks: what is said of single pairs, in place of what a click log alone says of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.compiled import Array, compiled
from unexposed.data.pairs import Indices

Reals = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Marks:
    """The label, the weight and the exposure of each pair of some samples.

    A pair whose exposure is NaN has the m of the model; any other m is given and never learned.
    For a pairwise loss the label is 1 for the first item of a click and 0 for the rest.
    """

    click: Reals  # (pairs,): 1 or 0
    weight: Reals  # (pairs,): the whole weight, drawn items included
    exposure: Reals  # (pairs,): m in (0, 1], or NaN

    @staticmethod
    def empty() -> "Marks":
        none = np.zeros(0, dtype=np.float32)
        return Marks(none, none, none)

    def part(self, where: slice | NDArray[np.bool_]) -> "Marks":
        """The marks of some pairs."""
        return Marks(self.click[where], self.weight[where], self.exposure[where])


@dataclass(frozen=True, eq=False)
class PairTable:
    """A number for some pairs, found by binary search among the items of a user."""

    user_start: NDArray[np.int64]  # (users + 1,)
    items: Indices  # ordered for each user
    values: Reals

    @staticmethod
    def of(users: Indices, items: Indices, values: NDArray[Any], *, n_users: int) -> "PairTable":
        """The table of pairs that are ordered by user and item."""
        start = np.searchsorted(users, np.arange(n_users + 1))
        return PairTable(start, items, np.asarray(values, dtype=np.float32))

    def look_up(self, users: Indices, items: Indices) -> Reals:
        """The number of each pair, NaN for a pair without one."""
        found = np.empty(len(users), dtype=np.float32)
        _look_up(found, self.user_start, self.items, self.values, users, items)
        return found


@compiled
def _look_up(
    found: Array, user_start: Array, listed: Array, values: Array, users: Array, items: Array
) -> None:
    for k in range(len(users)):
        low, high = user_start[users[k]], user_start[users[k] + 1]
        end = high
        while low < high:  # the first place whose item is not below
            middle = (low + high) // 2
            if listed[middle] < items[k]:
                low = middle + 1
            else:
                high = middle
        found[k] = values[low] if low < end and listed[low] == items[k] else np.nan
