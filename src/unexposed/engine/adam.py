"""Adam on the rows a batch touches: the one optimiser semantics of every engine.

A row that a batch does not touch keeps its values and its moments. Bias correction goes by the
steps of the whole training, as in torch.optim.SparseAdam (which adds ε before the correction; here
it is added after, as in torch.optim.Adam). Weight decay is added to the gradient of touched rows:
for relevance once for each pair of the row, divided by the clicks of the batch, as if every pair
had the loss L + decay/2·(|ωᵤ|² + |ωᵢ|²); for exposure, and in CJMF, once a step. Columns of biases
have none (`relevance.Columns`).
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.late import Tensor, torch

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class RowAdam:
    """The moments of one table of rows, whose first `decaying` columns have weight decay."""

    def __init__(
        self,
        table: Tensor,
        *,
        learning_rate: float,
        weight_decay: float,
        decaying: int | None = None,
    ) -> None:
        self._table = table
        self._learning_rate = learning_rate
        self._weight_decay = torch.full_like(table[:1], weight_decay).squeeze(0)
        if decaying is not None:
            self._weight_decay[decaying:] = 0
        self._first = torch.zeros_like(table)
        self._second = torch.zeros_like(table)

    def moments(self) -> dict[str, Tensor]:
        """What a step reads and changes beside the table."""
        return {"first": self._first, "second": self._second}

    def step(
        self,
        rows: Tensor,
        gradient: Tensor,
        *,
        number: int,
        terms: Tensor | float = 1.0,
        moves: Tensor | None = None,
    ) -> None:
        """Move these rows, each given once, against their gradient, in step `number` from 1 on.

        The loss has the weight decay of each row `terms` times. Where not all entries of the rows
        move, `moves` says which do.
        """
        tables = self._table, self._first, self._second
        row, first, second = before = [table.index_select(0, rows) for table in tables]
        slope = (self._weight_decay * terms * row).add_(gradient)  # in place: fewer passes
        first = (BETA1 * first).add_((1 - BETA1) * slope)
        second = (BETA2 * second).add_(slope.square_().mul_(1 - BETA2))
        scale = (second / (1 - BETA2**number)).sqrt_().add_(EPSILON)
        moved = row - (first / (1 - BETA1**number)).mul_(self._learning_rate).div_(scale)
        for table, old, new in zip(tables, before, (moved, first, second), strict=True):
            table.index_copy_(0, rows, new if moves is None else torch.where(moves, new, old))


def memory_of(tables: Mapping[str, Tensor], adam: Mapping[str, RowAdam]) -> dict[str, Tensor]:
    """Tables and their moments, by name."""
    memory = dict(tables)
    for name, optimiser in adam.items():
        memory |= {f"{name}.{moment}": t for moment, t in optimiser.moments().items()}
    return memory


def put_back(memory: Mapping[str, Tensor], state: Mapping[str, NDArray[Any]]) -> None:
    """Copy a state into tensors of the same shapes."""
    for name, tensor in memory.items():
        if tuple(tensor.shape) != state[name].shape:
            raise ValueError(f"{name} has not the shape it has here")
        tensor.copy_(torch.from_numpy(np.array(state[name])))
