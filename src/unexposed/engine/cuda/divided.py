"""One of several workers on a GPU: its samples of some batches, and the sums between kernels.

Every worker has the samples of its own users, and of the items the rows that any worker touches.
Only these rows are added up: the whole table never has fewer bytes, and Adam must know the touched
rows in any case. The workers mark the rows of many batches at a time, a byte for each item and
batch, and add up the marks where they lie: on cards, no host waits for them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from unexposed.engine.workers import Exchange
from unexposed.late import Tensor, torch
from unexposed.sampling.samples import Samples

SPAN = 1 << 22  # pairs of all workers, about, whose items the workers mark at a time
MARKS = 1 << 26  # marks at a time, at most, where one batch does not have more
# what users share and a phase of `pairs` or `validate` fills: a table, and a part of its rows
FILLS = {
    "AHEAD": ("item_factors", "AHEAD"),
    "ALONG": ("item_factors", "ALONG"),
    "GRADIENT": ("item_factors", "GRADIENT"),
    "EXPOSURE_GRADIENT": ("gate", "GRADIENT"),
}
READS = ("ALONG", "EXPOSURE_GRADIENT")  # phases that read what earlier ones have filled


class Sums:
    """What users share, added up over workers: sums of gradients, of a loss, of a count."""

    def __init__(
        self, exchange: Exchange, tables: Mapping[str, Tensor], kernels: Any, dim: int
    ) -> None:
        self._exchange, self._tables, self._kernels, self._dim = exchange, tables, kernels, dim
        self._both = torch.arange(2, device=tables["item_factors"].device)  # of the gate, w and b
        self._waiting: list[tuple[str, str]] = []  # filled on this worker alone

    def of(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return self._exchange.total(values)

    def meet(self) -> None:
        """Wait on the host: a worker that has failed is noticed here, and by a card it is not."""
        self.number(1)

    def number(self, own: int) -> int:
        """The sum of a count over workers."""
        return int(self.of({"count": torch.tensor([own], dtype=torch.int64)})["count"])

    def touched(self, keys: Tensor, n_keys: int) -> Tensor:
        """The keys below `n_keys` that any worker has, ascending."""
        marks = torch.zeros(n_keys, dtype=torch.uint8, device=keys.device)  # at most 64 workers
        marks[keys] = 1
        return self.of({"marks": marks})["marks"].nonzero().squeeze(1)

    def note(self, name: str, phase: str) -> None:
        """Remember what this kernel has filled."""
        if name != "adam":
            self._waiting.append(FILLS[phase])

    def add_up(self, rows: Tensor, *, before: tuple[str, str]) -> None:
        """Add up over workers, at these rows of items, what this kernel is about to read."""
        name, phase = before
        if not self._waiting or (name != "adam" and phase not in READS):
            return
        parts = {table: self._part(table, part) for table, part in self._waiting}
        at = {table: self._both if table == "gate" else rows for table in parts}
        own = {table: sums.index_select(0, at[table]) for table, sums in parts.items()}
        for table, total in self.of(own).items():
            parts[table].index_copy_(0, at[table], total)
        self._waiting.clear()

    def _part(self, table: str, part: str) -> Tensor:
        """One part of every row of a table, (rows, dim)."""
        return self._tables[table][:, getattr(self._kernels, part).value, : self._dim]


class Span:
    """This worker's samples of some batches on the GPU, and the items that any worker touches."""

    def __init__(self, samples: Samples, batch_size: int, items: Tensor, sums: Sums) -> None:
        device = items.device
        self._batch_size, self._n_items = batch_size, len(items)
        self._bounds = samples.bounds(batch_size)  # of own clicks
        count = len(self._bounds) - 1
        self.n_clicks: list[int] = np.diff(self._bounds).tolist()
        self._on_all_workers = np.minimum(
            batch_size, samples.n_clicks - batch_size * np.arange(count)
        )
        item = torch.from_numpy(samples.items).to(device)
        batch = torch.from_numpy(np.diff(samples.start[self._bounds])).to(device)
        keys = torch.repeat_interleave(batch) * self._n_items + item
        found = sums.touched(keys, count * self._n_items)
        starts = self._n_items * torch.arange(count + 1, device=device)
        self._first_row = torch.searchsorted(found, starts).cpu().numpy()
        self._touched = found % self._n_items
        self._device = device
        self.columns = {
            "batch_size": batch_size,
            "click_user": torch.from_numpy(samples.users).to(device),
            "click_start": torch.from_numpy(samples.start).to(device),
            "click_weight": torch.from_numpy(samples.weight).to(device, items.dtype),
            "pair_item": item,
            "touched": self._touched,
        }

    def rows_of(self, number: int) -> Tensor:
        """The item rows that any worker touches in this batch of the span, ascending."""
        return self._touched[self._first_row[number] : self._first_row[number + 1]]

    def states(self, *, base: int, steps: int, batches: int) -> Tensor:
        """The `state` of each batch, (batches, places of `kernels.py`).

        The kernels count steps from the click that a batch starts at, which is not a multiple of
        the batch size here: hence the difference.
        """
        first, number = self._bounds[:-1], np.arange(len(self.n_clicks))
        state = [
            *(first, first, self._bounds[1:], np.full_like(first, base)),
            steps + number - first // self._batch_size,
            *(self._on_all_workers, batches + number, self._first_row[:-1], self._first_row[1:]),
        ]
        return torch.from_numpy(np.stack(state, axis=1)).to(self._device)


def batches_a_span(samples: Samples, batch_size: int, pairs: int, n_items: int) -> int:
    """How many batches have about SPAN of all workers' pairs: the same number on every worker."""
    by_pairs = SPAN * samples.n_clicks // max(1, batch_size * pairs)
    return max(1, min(by_pairs, MARKS // n_items))
