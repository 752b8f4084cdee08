"""Lists for requests that come together are made together: one matrix product for all of them.

A product with twenty users takes little longer than one with two. While a batch is computed, the
requests that come meanwhile wait, and make the next one: the busier the service, the larger its
batches. Nobody waits for a batch to fill.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from starlette.exceptions import HTTPException

from unexposed.serve.messages import Entry
from unexposed.serve.model import Options, ServedModel

ENTRIES = 4_000_000  # scores of a batch at most: memory stays bounded for any catalogue
ROWS = 64  # users of a batch at most: nobody waits long for others
MOST_WAITING = 4_000  # users whose lists may wait


@dataclass(frozen=True, eq=False)
class Waiting:
    """Users of one request, and where their lists go."""

    model: ServedModel
    options: Options
    k: int
    rows: Sequence[int]
    answer: asyncio.Future[list[list[Entry]]]


class Batches:
    """Makes lists in one thread, batch after batch, while `run` runs."""

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()
        self._arrived = asyncio.Event()

    async def lists(
        self, model: ServedModel, rows: Sequence[int], k: int, options: Options
    ) -> list[list[Entry]]:
        """The lists of these users (indices)."""
        if sum(len(one.rows) for one in self._waiting) + len(rows) > MOST_WAITING:
            raise HTTPException(503, "too many requests wait; try again", {"retry-after": "1"})
        size, loop = batch_size(model), asyncio.get_running_loop()
        parts = [
            Waiting(model, options, k, rows[begin : begin + size], loop.create_future())
            for begin in range(0, len(rows), size)
        ]
        self._waiting.extend(parts)
        self._arrived.set()
        return [entries for part in parts for entries in await part.answer]

    async def run(self) -> None:
        """Answer what waits, until cancelled."""
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="lists") as thread:
            while await self._arrived.wait():
                batch = self._next()
                try:
                    answers = await loop.run_in_executor(thread, lists_of, batch)
                except Exception as error:
                    for one in batch:
                        one.answer.set_exception(error)
                else:
                    for one, answer in zip(batch, answers, strict=True):
                        if not one.answer.done():  # its request may have ended
                            one.answer.set_result(answer)

    def _next(self) -> list[Waiting]:
        """The oldest request that waits, and others that can be served with it."""
        first = self._waiting.popleft()
        batch, room, others = [first], batch_size(first.model) - len(first.rows), deque[Waiting]()
        for one in self._waiting:
            alike = one.model is first.model and one.options == first.options
            if alike and len(one.rows) <= room:
                batch.append(one)
                room -= len(one.rows)
            else:
                others.append(one)
        self._waiting = others
        if not others:
            self._arrived.clear()
        return batch


def batch_size(model: ServedModel) -> int:
    """How many users are served together at most."""
    return max(1, min(ROWS, ENTRIES // model.log.n_items))


def lists_of(batch: Sequence[Waiting]) -> list[list[list[Entry]]]:
    """The lists of each request of a batch."""
    rows = np.array([row for one in batch for row in one.rows], dtype=np.int32)
    lengths = np.array([one.k for one in batch for _ in one.rows])
    lists = iter(batch[0].model.lists(rows, lengths, batch[0].options))
    return [[next(lists) for _ in one.rows] for one in batch]
