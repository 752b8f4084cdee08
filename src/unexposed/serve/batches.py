"""Lists for requests that come together are made together: one matrix product for all of them.

A product with twenty users takes little longer than one with two. While a batch is computed, the
requests that come meanwhile wait, and make the next one: the busier the service, the larger its
batches. Nobody waits for a batch to fill.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from unexposed.serve.held import Chosen, Held, Options

ENTRIES = 4_000_000  # scores of a batch at most: memory stays bounded for any catalogue
ROWS = 64  # users of a batch at most: nobody waits long for others
MOST_WAITING = 4_000  # users whose lists may wait
MOST_APART = 200  # requests of other kinds that may wait

T = TypeVar("T")


class Busy(Exception):
    """More requests wait than can be answered soon: status 503."""


@dataclass(frozen=True, eq=False)
class Asked:
    """The users of one request, or some of them."""

    held: Held
    options: Options
    k: int
    rows: Sequence[int]
    answer: asyncio.Future[list[Chosen]]


class Work:
    """The two threads beside the event loop: one makes lists in batches, one all that is slower."""

    def __init__(self) -> None:
        self._lists = ThreadPoolExecutor(1, thread_name_prefix="lists")
        self._others = ThreadPoolExecutor(1, thread_name_prefix="others")
        self._waiting: deque[Asked] = deque()
        self._n_waiting = 0  # users
        self._n_apart = 0
        self._running = False

    async def lists(
        self, held: Held, rows: Sequence[int], k: int, options: Options
    ) -> list[Chosen]:
        """The lists of these users (indices)."""
        if self._n_waiting + len(rows) > MOST_WAITING:
            raise Busy
        loop = asyncio.get_running_loop()
        size = batch_size(held)
        asked = [
            Asked(held, options, k, rows[begin : begin + size], loop.create_future())
            for begin in range(0, len(rows), size)
        ]
        self._waiting.extend(asked)
        self._n_waiting += len(rows)
        if not self._running:
            self._running = True
            loop.call_soon(self._next)  # after the requests that are being read now
        return [found for one in asked for found in await one.answer]

    async def apart(self, job: Callable[[], T]) -> T:
        """The result of a job that would hold up the event loop."""
        if self._n_apart >= MOST_APART:
            raise Busy
        self._n_apart += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._others, job)
        finally:
            self._n_apart -= 1

    def close(self) -> None:
        for pool in (self._lists, self._others):
            pool.shutdown(wait=False, cancel_futures=True)

    def _next(self) -> None:
        batch = self._take()
        if not batch:
            self._running = False
            return
        job = asyncio.get_running_loop().run_in_executor(self._lists, made, batch)
        job.add_done_callback(lambda done: self._give(batch, done))

    def _take(self) -> list[Asked]:
        """The oldest request that waits, and others that can be served with it."""
        batch: list[Asked] = []
        others: list[Asked] = []
        room = 0
        while self._waiting:
            one = self._waiting.popleft()
            if not batch:
                room = batch_size(one.held)
            first = batch[0] if batch else one
            if one.held is first.held and one.options == first.options and len(one.rows) <= room:
                batch.append(one)
                room -= len(one.rows)
                self._n_waiting -= len(one.rows)
            else:
                others.append(one)
            if room == 0:
                break
        self._waiting.extendleft(reversed(others))
        return batch

    def _give(self, batch: list[Asked], done: asyncio.Future[list[list[Chosen]]]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        for number, one in enumerate(batch):
            if one.answer.done():  # its request has ended
                continue
            if error is not None:
                one.answer.set_exception(error)
            else:
                one.answer.set_result(done.result()[number])
        self._next()


def batch_size(held: Held) -> int:
    """How many users are served together at most."""
    return max(1, min(ROWS, ENTRIES // held.model.clicks.n_items))


def made(batch: Sequence[Asked]) -> list[list[Chosen]]:
    """The lists of each request of a batch; a short list is the head of a longer one."""
    first, longest = batch[0], max(one.k for one in batch)
    rows = np.array([row for one in batch for row in one.rows], dtype=np.int32)
    lists = iter(first.held.lists(rows, longest, first.options))
    return [[_head(next(lists), one.k) for _ in one.rows] for one in batch]


def _head(found: Chosen, k: int) -> Chosen:
    if len(found.items) <= k:
        return found
    return Chosen(*(None if part is None else part[:k] for part in found))  # type: ignore[arg-type]
