"""Adam on the rows a batch touches: the one optimiser semantics of every engine.

A row that a batch does not touch keeps its values, its moments and its step count. Bias
correction goes by the row's own count, so that the first step of a rare user is as long as that
of a frequent one (lr, not the 3·lr that a global count would make of it). Weight decay is added
to the gradient (as in torch.optim.Adam), on touched rows only.
"""

from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class RowAdam:
    """The moments and step counts of one table of rows."""

    def __init__(self, table: Tensor, *, learning_rate: float, weight_decay: float) -> None:
        self._table = table
        self._learning_rate = learning_rate
        self._weight_decay = weight_decay
        self._first = torch.zeros_like(table)
        self._second = torch.zeros_like(table)
        self._count = torch.zeros(len(table), dtype=table.dtype)

    def moments(self) -> dict[str, Tensor]:
        """What a step reads and changes beside the table."""
        return {"first": self._first, "second": self._second, "count": self._count}

    def step(self, rows: Tensor, gradient: Tensor) -> None:
        """Move these rows, each given once, against their gradient."""
        row = self._table[rows]
        gradient = gradient + self._weight_decay * row
        self._count[rows] += 1
        count = self._count[rows].reshape(-1, *[1] * (row.dim() - 1))
        first = BETA1 * self._first[rows] + (1 - BETA1) * gradient
        second = BETA2 * self._second[rows] + (1 - BETA2) * gradient**2
        self._first[rows], self._second[rows] = first, second
        direction = (first / (1 - BETA1**count)) / ((second / (1 - BETA2**count)).sqrt() + EPSILON)
        self._table[rows] = row - self._learning_rate * direction


def tables_of(tables: Mapping[str, Tensor], adam: Mapping[str, RowAdam]) -> dict[str, NDArray[Any]]:
    """Tables and their moments as arrays that share their memory."""
    found = {name: table.numpy() for name, table in tables.items()}
    for name, optimiser in adam.items():
        found |= {f"{name}.{m}": t.numpy() for m, t in optimiser.moments().items()}
    return found
