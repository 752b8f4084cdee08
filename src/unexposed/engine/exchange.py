"""How ranks train one model: users are divided, items and gate are replicated.

A rank holds the rows of its own users, with their moments, and learns from their clicks alone; no
other rank touches them. Every rank holds all items and the gate. The gradient of a batch is a sum
over its pairs, so on what users share it is the sum of the ranks' gradients: they add these up
between gradient and update, and then all take the same step. W ranks that together have the clicks
of one process's batch make its step, up to the order of sums.

The ranks tell each other which item rows a batch touches, and how often: an all-reduce of just
these rows suffices, whose bytes follow the batch and not the catalogue.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from unexposed.late import Tensor, torch
from unexposed.ranks import Ranks


class Exchange(Protocol):
    """What a rank takes of a batch, and what it adds to the gradients of the others."""

    def touched(self, items: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The items that any rank has among these, ascending, and how often all have each."""
        ...

    def total(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Gradients by table, summed over ranks: of tables that users share."""
        ...


class Alone:
    """One process, which holds everything."""

    def touched(self, items: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        return np.unique(items, return_counts=True)

    def total(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(gradients)


class Shared:
    """One of several ranks, which holds its own users and all items."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def touched(self, items: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        own = torch.from_numpy(np.stack(np.unique(items, return_counts=True), axis=1))
        found = torch.cat(self._ranks.gather_any(own.long())).numpy()
        rows, place = np.unique(found[:, 0], return_inverse=True)
        return rows, np.bincount(place, found[:, 1], len(rows)).astype(np.int64)

    @property
    def ranks(self) -> Ranks:
        """All ranks of the training."""
        return self._ranks

    def total(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        buffer = torch.cat([g.detach().reshape(-1) for g in gradients.values()])
        self._ranks.add_up(buffer)
        parts = buffer.split_with_sizes([g.numel() for g in gradients.values()])
        named = zip(gradients.items(), parts, strict=True)
        return {name: part.reshape(g.shape) for (name, g), part in named}
