"""Workers that are threads of one process: they take turns, and meet where they add up."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from engine_problem import Problem
from numpy.typing import NDArray
from torch import Tensor

from unexposed.workers import Workers

USER_TABLES = ("user_factors", "exposure_user_factors")


class Board:
    """Where the workers put what they tell each other; one runs at a time."""

    def __init__(self, size: int) -> None:
        self.parts: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=600)  # one may compile
        self.turn = threading.Lock()

    def tell(self, number: int, part: Any) -> list[Any]:
        """What every worker tells."""
        self.parts[number] = part
        self._wait()
        parts = list(self.parts)
        self._wait()
        return parts

    def _wait(self) -> None:
        self.turn.release()
        try:
            self.barrier.wait()
        finally:
            self.turn.acquire()


class ThreadWorker(Workers):
    """One of several threads; it counts its sums, and leaves out the one of this number."""

    def __init__(self, number: int, board: Board, *, leaves_out: int = -1) -> None:
        self.number, self.size = number, len(board.parts)
        self._board = board
        self._leaves_out, self.sums = leaves_out, 0

    def add_up(self, buffer: Tensor) -> None:
        parts = self._board.tell(self.number, buffer.clone())
        if self.sums != self._leaves_out:
            buffer.copy_(torch.stack(parts).sum(dim=0))
        self.sums += 1

    def gather(self, rows: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        parts = self._board.tell(self.number, rows.clone())
        assert [len(part) for part in parts] == list(lengths)
        return parts


def on_threads(size: int, work: Callable[[ThreadWorker], Any], **options: Any) -> list[Any]:
    """What each worker returns."""
    board = Board(size)

    def of_worker(number: int) -> Any:
        with board.turn:
            try:
                return work(ThreadWorker(number, board, **options))
            except BaseException:
                board.barrier.abort()
                raise

    with ThreadPoolExecutor(size) as pool:
        return [result.result() for result in [pool.submit(of_worker, r) for r in range(size)]]


def cut(problem: Problem, owner: NDArray[Any], number: int) -> Problem:
    """The part of a problem that a worker holds, owner[u] being the worker of user u."""
    users = np.flatnonzero(owner == number)
    row = np.full(len(owner), -1, dtype=np.int32)
    row[users] = np.arange(len(users))
    tables, shown = problem.parameters, problem.exposure
    return problem._replace(
        parameters={n: t[users] if n in USER_TABLES else t for n, t in tables.items()},
        samples=problem.samples.own(row),
        validation=problem.validation.own(row),
        exposure={n: t[users] if n == "pair" and t is not None else t for n, t in shown.items()},
    )


def joined(owner: NDArray[Any], parts: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The tables of all users, from the tables of each worker."""
    tables = {name: table.copy() for name, table in parts[0].items()}
    for name in set(tables) & set(USER_TABLES):
        tables[name] = np.empty((len(owner), *tables[name].shape[1:]), tables[name].dtype)
        for number, own in enumerate(parts):
            tables[name][owner == number] = own[name]
    return tables
