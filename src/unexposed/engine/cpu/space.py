"""The arrays that a kernel writes, and how many threads run it."""

from typing import Any

import numpy as np

from unexposed.engine.cpu.layout import (
    BLOCK,
    CHUNK,
    GATE_ROWS,
    LINE,
    PLAN,
    WORK,
    Guide,
    Plan,
    Work,
    arrays,
)

RETRY = 16  # calls after which the slower number of threads is tried again


class Pace:
    """How many threads to use: all, or one where other programs keep the cores busy.

    Threads wait for each other many times a batch, so they are slower than a single thread
    unless all of them run. Any number gives the same bits: the engine takes the faster.
    """

    def __init__(self, threads: int, *, fixed: bool) -> None:
        self._all, self._fixed = threads, fixed
        self._seconds: dict[int, float] = {}  # for a click, when last tried
        self._calls = 0

    def threads(self, *, most: int) -> int:
        many = min(self._all, most)
        if self._fixed or many == 1:
            return many
        untried = [n for n in (many, 1) if n not in self._seconds]
        if untried:
            return untried[0]
        faster, slower = sorted((many, 1), key=lambda n: self._seconds[n])
        return slower if self._calls % RETRY == 0 else faster

    def note(self, threads: int, seconds: float) -> None:
        self._calls += 1
        self._seconds[threads] = seconds


class Space:
    """The arrays that the kernel writes, for batches up to some size and one number of threads."""

    def __init__(
        self,
        guide: Guide,
        *,
        clicks: int,
        pairs: int,
        threads: int,
        marked: bool,
        on_batch: bool,
        n_users: int,
        n_items: int,
        width: int,
        dtype: np.dtype[Any],
    ) -> None:
        self._holds = (clicks, pairs, threads, marked)
        sizes = {
            "batches": threads,
            "threads": threads,
            "clicks": clicks,
            "pairs": pairs,
            "marked_pairs": pairs if marked else 0,
            "dim": width,
            "gate": GATE_ROWS * width,
            "line": LINE,
            "kinds": 3,
            "chunks": pairs // CHUNK + 1,
            "ahead_clicks": clicks if on_batch else 0,
            "ahead_pairs": pairs if on_batch else 0,
            "guide_groups": int(np.diff(guide.item_part).max(initial=0)),
            "guide_blocks": int(np.diff(guide.item_blocks[guide.item_part]).max(initial=0)),
            "own": max(BLOCK, int(np.diff(guide.user_start).max(initial=0))),
            "n_users": n_users,
            "n_items": n_items,
        }
        self.plan = Plan(*arrays(PLAN, sizes, dtype))
        self.work = Work(*arrays(WORK, sizes, dtype))

    def holds(self, clicks: int, pairs: int, n_threads: int, marked: bool) -> bool:
        most_clicks, most_pairs, *others = self._holds
        return others == [n_threads, marked] and clicks <= most_clicks and pairs <= most_pairs
