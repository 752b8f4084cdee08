"""How workers train one model: users are divided, items and gate are replicated.

A worker holds the rows of its own users, with their moments, and learns from their clicks alone; no
other worker touches them. Every worker holds all items and the gate. The gradient of a batch is a
sum over its pairs, so on what users share it is the sum of the workers' gradients: they add these
up between gradient and update, and then all take the same step. W workers that together have the
clicks of one process's batch make its step, up to the order of sums.

The workers tell each other which item rows a batch touches, and how often: an all-reduce of just
these rows suffices, whose bytes follow the batch and not the catalogue.
"""

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from unexposed.engine.cpu import batch
from unexposed.engine.cpu.layout import Span, Workers
from unexposed.late import Tensor, torch
from unexposed.sampling.samples import Samples
from unexposed.workers import Workers as Group

COUNT_ROWS: Any = batch.count_rows
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
Lists = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]  # ends, items, times


class Exchange(Protocol):
    """What a worker takes of a batch, and what it adds to the gradients of the others."""

    def touched(self, items: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The items that any worker has among these, ascending, and how often all have each."""
        ...

    def total(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Gradients by table, summed over workers: of tables that users share."""
        ...


class Alone:
    """One process, which holds everything."""

    def touched(self, items: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        return np.unique(items, return_counts=True)

    def total(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return dict(gradients)


class Shared:
    """One of several workers, which holds its own users and all items."""

    def __init__(self, workers: Group) -> None:
        self._workers = workers

    def touched(self, items: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        own = torch.from_numpy(np.stack(np.unique(items, return_counts=True), axis=1))
        found = torch.cat(self._workers.gather_any(own.long())).numpy()
        rows, place = np.unique(found[:, 0], return_inverse=True)
        return rows, np.bincount(place, found[:, 1], len(rows)).astype(np.int64)

    @property
    def workers(self) -> Group:
        """All workers of the training."""
        return self._workers

    def total(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        buffer = torch.cat([g.detach().reshape(-1) for g in gradients.values()])
        self._workers.add_up(buffer)
        parts = buffer.split_with_sizes([g.numel() for g in gradients.values()])
        named = zip(gradients.items(), parts, strict=True)
        return {name: part.reshape(g.shape) for (name, g), part in named}


class RowSums:
    """What a worker's CPU kernel exchanges: lists of items for many batches, and sums of rows."""

    def __init__(self, workers: Group, n_items: int, dim: int) -> None:
        self._workers, self._dim = workers, dim
        self._place = np.full(n_items, -1, dtype=np.int32)
        self._packed = torch.zeros(0)

    def listed(self, samples: Samples, span: Span) -> Span:
        """The span with the items that any worker has in each of its batches."""
        items, once = np.require(samples.items, np.int32, ["C", "W"]), np.zeros(0, dtype=np.int32)
        lists = self._counted(items, once, samples.start[span.bounds][None])
        if len(span.n_clicks):
            lists = self._of_all(*lists)
        return span._replace(item_start=lists[0], item_row=lists[1], item_times=lists[2])

    def everywhere(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The distinct numbers, ascending, that any worker has among its own."""
        own = torch.from_numpy(np.unique(numbers))
        return np.unique(torch.cat(self._workers.gather_any(own)).numpy())

    def add_up(self, numbers: NDArray[Any]) -> None:
        """Replace the numbers by their sums over workers."""
        self._workers.add_up(torch.from_numpy(numbers))

    def leader_first(self, work: Callable[[], Any]) -> None:
        """Do this on one worker of each machine, then on the others, which find what it cached."""
        is_leader = int(os.environ.get("LOCAL_RANK") or self._workers.number) == 0
        if is_leader:
            work()
        self._workers.gather(torch.zeros(1), [1] * self._workers.size)
        if not is_leader:
            work()

    @contextmanager
    def reachable(self, rows: NDArray[Any]) -> Iterator[Workers]:
        """Let a kernel add up the first of these rows; raise here what went wrong there."""
        table, raised = torch.from_numpy(rows), list[BaseException]()

        def add_up(n_rows: int) -> int:
            try:
                self._add_up_rows(table[:n_rows])
            except BaseException as error:  # a kernel would lose it, even Ctrl-C
                raised.append(error)
            return len(raised)

        function = FUNCTION(add_up)
        address = ctypes.cast(function, ctypes.c_void_p).value or 0
        yield Workers(address, self._workers.number == 0, np.zeros(1, dtype=np.int64))
        if raised:
            raise raised[0]

    def _of_all(
        self, ends: NDArray[np.int64], rows: NDArray[np.int32], times: NDArray[np.int32]
    ) -> Lists:
        size = self._workers.size
        every_end = torch.stack(self._workers.gather(torch.from_numpy(ends), [len(ends)] * size))
        lengths = every_end[:, -1].tolist()
        own = torch.from_numpy(np.stack([rows, times], axis=1))
        lists = torch.cat(self._workers.gather(own, lengths)).numpy()
        begin = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        rows, times = (np.ascontiguousarray(column) for column in lists.T)
        return self._counted(rows, times, every_end.numpy() + begin[:, None])

    def _counted(
        self, rows: NDArray[np.int32], times: NDArray[np.int32], bounds: NDArray[np.int64]
    ) -> Lists:
        found, often = (np.empty(len(rows), dtype=np.int32) for _ in range(2))
        ends = np.empty(bounds.shape[1], dtype=np.int64)
        COUNT_ROWS(rows, times, np.ascontiguousarray(bounds), self._place, found, often, ends)
        return ends, found[: ends[-1]].copy(), often[: ends[-1]].copy()

    def _add_up_rows(self, rows: Tensor) -> None:
        """Sum rows over workers, without the columns that pad them."""
        n_rows, width = rows.shape
        if n_rows == 0 or width == self._dim:
            return self._workers.add_up(rows) if n_rows else None
        size = n_rows * self._dim
        if len(self._packed) < size or self._packed.dtype != rows.dtype:
            self._packed = rows.new_empty(size)
        packed = self._packed[:size].reshape(n_rows, self._dim)
        packed.copy_(rows[:, : self._dim])
        self._workers.add_up(packed)
        rows[:, : self._dim] = packed
        return None


def threads_of(cores: int, workers: Group | None) -> int:
    """The threads of a worker: its share of the cores.

    Launchers tell how many workers run on a machine; where none does, we take it that all do. What
    the user has set for each process stays.
    """
    if workers is None or "NUMBA_NUM_THREADS" in os.environ:
        return cores
    beside = int(os.environ.get("LOCAL_WORLD_SIZE") or workers.size)
    return max(1, cores // max(1, min(beside, workers.size)))
