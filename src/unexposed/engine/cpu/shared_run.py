"""What a rank of the CPU engine exchanges with the others: lists of items, and sums of rows.

Which items a batch touches is told for many batches at once, so that a step costs its sums alone.
"""

import ctypes
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.engine.cpu import shared_phases
from unexposed.engine.cpu.compile import on_threads
from unexposed.engine.cpu.layout import Step
from unexposed.engine.cpu.shared_phases import Others, Span
from unexposed.late import Tensor, torch
from unexposed.ranks import Ranks
from unexposed.sampling.samples import Samples

COUNT_ROWS: Any = shared_phases.count_rows
RUN_SHARED: Any = shared_phases.run_shared
FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)
BATCHES = 64  # whose items are told at once
Lists = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]  # ends, items, times


class ItemLists:
    """Tells the ranks which items each batch touches on any of them."""

    def __init__(self, ranks: Ranks, n_items: int) -> None:
        self._ranks, self._n_items = ranks, n_items
        self._place = np.full(n_items, -1, dtype=np.int32)

    def span(self, samples: Samples, batch_size: int) -> Span:
        """These samples as batches, with the items that any rank has in each."""
        bounds = samples.bounds(batch_size)
        n_batches = len(bounds) - 1
        n_clicks = np.full(n_batches, batch_size, dtype=np.int64)
        n_clicks[-1:] -= batch_size * n_batches - samples.n_clicks  # the last one is shorter
        own = self._own(samples, bounds)
        return Span(bounds, n_clicks, *(self._of_all(*own) if n_batches else own))

    def everywhere(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The distinct numbers, ascending, that any rank has among its own."""
        own = torch.from_numpy(np.unique(numbers))
        return np.unique(torch.cat(self._ranks.gather_any(own)).numpy())

    def _own(self, samples: Samples, bounds: NDArray[np.int64]) -> Lists:
        items, once = np.require(samples.items, np.int32, ["C", "W"]), np.zeros(0, dtype=np.int32)
        return self._counted(items, once, samples.start[bounds][None])

    def _of_all(
        self, ends: NDArray[np.int64], rows: NDArray[np.int32], times: NDArray[np.int32]
    ) -> Lists:
        """Gather the lists, or add up a count for every item: whichever sends fewer bytes."""
        size = self._ranks.size
        found = self._ranks.gather(torch.from_numpy(ends), [len(ends)] * size)
        every_end = torch.stack(found).numpy()
        lengths = every_end[:, -1].tolist()
        # a rank receives 8 bytes for each entry of a list, padded to the longest; of a sum it
        # sends and receives 4 bytes for each item
        if size * max(lengths) > self._n_items * (len(ends) - 1):
            return self._added_up(ends, rows, times)
        own = torch.from_numpy(np.stack([rows, times], axis=1))
        lists = torch.cat(self._ranks.gather(own, lengths)).numpy()
        begin = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        rows, times = (np.ascontiguousarray(column) for column in lists.T)
        return self._counted(rows, times, every_end + begin[:, None])

    def _added_up(
        self, ends: NDArray[np.int64], rows: NDArray[np.int32], times: NDArray[np.int32]
    ) -> Lists:
        n_batches = len(ends) - 1
        counts = np.zeros((n_batches, self._n_items), dtype=np.int32)
        counts[np.repeat(np.arange(n_batches), np.diff(ends)), rows] = times
        self._ranks.add_up(torch.from_numpy(counts))
        batch, row = np.nonzero(counts)
        ends = np.searchsorted(batch, np.arange(n_batches + 1))
        return ends, row.astype(np.int32), counts[batch, row]

    def _counted(
        self, rows: NDArray[np.int32], times: NDArray[np.int32], bounds: NDArray[np.int64]
    ) -> Lists:
        found, often = (np.empty(len(rows), dtype=np.int32) for _ in range(2))
        ends = np.empty(bounds.shape[1], dtype=np.int64)
        COUNT_ROWS(rows, times, np.ascontiguousarray(bounds), self._place, found, often, ends)
        return ends, found[: ends[-1]].copy(), often[: ends[-1]].copy()


class SharedRun:
    """The kernel of a rank, with the sums over ranks that it asks for."""

    def __init__(self, ranks: Ranks, n_items: int, dim: int) -> None:
        self.lists = ItemLists(ranks, n_items)
        self._ranks, self._dim = ranks, dim
        self._packed = torch.zeros(0)

    def leader_first(self, work: Callable[[], Any]) -> None:
        """Do this on one rank of each machine, then on the others, which find what it cached."""
        is_leader = int(os.environ.get("LOCAL_RANK") or self._ranks.rank) == 0
        if is_leader:
            work()
        self._ranks.gather(torch.zeros(1), [1] * self._ranks.size)
        if not is_leader:
            work()

    def add_up(self, numbers: NDArray[Any]) -> None:
        """Replace the numbers by their sums over ranks."""
        self._ranks.add_up(torch.from_numpy(numbers))

    def run(self, step: Step, losses: NDArray[np.float64], *given: Any) -> None:
        """Call the kernel with what `run_shared` is given, up to the steps taken before."""
        table = torch.from_numpy(step.work.on_items.reshape(-1, step.tables.dim))
        raised: list[BaseException] = []

        def add_up(n_rows: int) -> int:
            try:
                self._add_up_rows(table[:n_rows])
            except BaseException as error:  # a kernel would lose it, even Ctrl-C
                raised.append(error)
            return len(raised)

        function = FUNCTION(add_up)
        shape = step.plan.item_guide.shape
        others = Others(
            address=ctypes.cast(function, ctypes.c_void_p).value or 0,
            failed=np.zeros(1, dtype=np.int64),
            n_guided=np.zeros(shape[0], dtype=np.int32),
            guided=np.zeros(shape, dtype=np.int32),
        )

        def work(thread: int) -> None:
            RUN_SHARED(*given, step, others, thread, losses)

        on_threads(work, step.n_threads)
        if raised:
            raise raised[0]

    def _add_up_rows(self, rows: Tensor) -> None:
        """Sum rows over ranks, without the columns that pad them."""
        n_rows, width = rows.shape
        if n_rows == 0:
            return
        if width == self._dim:
            self._ranks.add_up(rows)
            return
        size = n_rows * self._dim
        if len(self._packed) < size or self._packed.dtype != rows.dtype:
            self._packed = rows.new_empty(size)
        packed = self._packed[:size].reshape(n_rows, self._dim)
        packed.copy_(rows[:, : self._dim])
        self._ranks.add_up(packed)
        rows[:, : self._dim] = packed


def threads_of(cores: int, ranks: Ranks | None) -> int:
    """The threads of a rank: its share of the cores.

    Launchers tell how many ranks run on a machine; where none does, we take it that all do. What
    the user has set for each process stays.
    """
    if ranks is None or "NUMBA_NUM_THREADS" in os.environ:
        return cores
    beside = int(os.environ.get("LOCAL_WORLD_SIZE") or ranks.size)
    return max(1, cores // max(1, min(beside, ranks.size)))
