"""Ranks as threads of one process: they take turns, and meet where they add up."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass
class Meeting:
    """Where so many ranks meet; only one of them runs at a time."""

    size: int
    told: list[Any] = field(default_factory=list)
    turn: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.told = [None] * self.size
        self.barrier = threading.Barrier(self.size, timeout=240)

    def run(self, works: list[Callable[[], Any]]) -> list[Any]:
        """What each rank's work gives; the first failure ends all of them."""
        found: list[Any] = [None] * self.size
        failures: list[BaseException] = []

        def on_rank(rank: int) -> None:
            with self.turn:
                try:
                    found[rank] = works[rank]()
                except BaseException as error:
                    failures.append(error)
                    self.barrier.abort()

        threads = [threading.Thread(target=on_rank, args=(rank,)) for rank in range(self.size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return found

    def tell(self, rank: int, value: Any) -> list[Any]:
        """What every rank has told at this meeting."""
        self.told[rank] = value
        self._wait()
        every = list(self.told)
        self._wait()
        return every

    def _wait(self) -> None:
        self.turn.release()
        try:
            self.barrier.wait()
        finally:
            self.turn.acquire()


@dataclass
class InThreads:
    """The `Exchange` of one of these ranks; it counts the calls and bytes of `total`."""

    meeting: Meeting
    rank: int
    n_bytes: list[int] = field(default_factory=list)

    def touched(self, items: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        every = self.meeting.tell(self.rank, items)
        return np.unique(np.concatenate(every), return_counts=True)

    def total(self, gradients: Mapping[str, Tensor]) -> dict[str, Tensor]:
        shared = {n: g.detach().clone() for n, g in gradients.items()}
        self.n_bytes.append(sum(g.numel() * g.element_size() for g in shared.values()))
        every = self.meeting.tell(self.rank, shared)
        sums = {n: torch.stack([other[n] for other in every]).sum(0) for n in shared}
        return {**gradients, **sums}

    def whole(self, tables: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: table.clone() for name, table in tables.items()}
