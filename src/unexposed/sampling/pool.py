"""A list of items for each user, from which the items of its clicks are drawn."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.data.pairs import Indices
from unexposed.sampling.chances import Chances


@dataclass(frozen=True, eq=False)
class Pool:
    """The listed items of each user, with the sums of their chances; a list may be empty."""

    user_start: NDArray[np.int64]  # (users + 1,)
    items: Indices
    sums: NDArray[Any]  # (items + 1,): whole numbers where all are alike

    @staticmethod
    def of(users: Indices, items: Indices, *, n_users: int, law: Chances) -> "Pool":
        """The lists of these pairs, which are ordered by user."""
        start = np.searchsorted(users, np.arange(n_users + 1))
        if law.uniform:
            return Pool(start, items, np.arange(len(items) + 1))
        return Pool(start, items, np.concatenate([[0.0], np.cumsum(law.of_item[items])]))

    def redrawn(
        self,
        users: Indices,
        start: NDArray[np.int64],
        items: Indices,
        rng: np.random.Generator,
    ) -> Indices:
        """The items of samples, each drawn one replaced by an item of its user's list.

        A user with an empty list keeps the items that were drawn.
        """
        drawn = np.ones(len(items), dtype=bool)
        drawn[start[:-1]] = False
        of = np.repeat(users, np.diff(start) - 1)
        first, end = self.user_start[of], self.user_start[of + 1]
        value = self.sums[first] + rng.random(len(of)) * (self.sums[end] - self.sums[first])
        at = np.floor(value) if self.sums.dtype.kind == "i" else self._place(value)
        listed = first < end
        at = np.clip(at.astype(np.int64), first, end - 1)[listed]  # clipped: what rounding moved
        found = items[drawn]
        found[listed] = self.items[at]
        out = items.copy()
        out[drawn] = found
        return out

    def _place(self, value: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.searchsorted(self.sums, value, side="right") - 1
