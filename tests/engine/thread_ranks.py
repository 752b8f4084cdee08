"""Workers that are threads of one process, for tests of engines that exchange gradients."""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from engine_problem import Problem
from numpy.typing import NDArray
from torch import Tensor

from unexposed.engine.workers import Shared
from unexposed.workers import Workers

USER_TABLES = ("user_factors", "exposure_user_factors")


class Board:
    """Where the ranks put what they tell each other."""

    def __init__(self, size: int) -> None:
        self.parts: list[Any] = [None] * size
        self.barrier = threading.Barrier(size, timeout=600)  # one may compile

    def told(self, rank: int, part: Any) -> list[Any]:
        """What every rank tells."""
        self.parts[rank] = part
        self.barrier.wait()
        parts = list(self.parts)
        self.barrier.wait()
        return parts


class ThreadRank(Workers):
    """One of several threads; it counts its sums, and leaves out the one of this number."""

    def __init__(self, rank: int, board: Board, *, leaves_out: int = -1) -> None:
        self.rank, self.size = rank, len(board.parts)
        self.number = rank
        self._board = board
        self._leaves_out, self.sums = leaves_out, 0

    def add_up(self, buffer: Tensor) -> None:
        parts = self._board.told(self.rank, buffer.clone())
        if self.sums != self._leaves_out:
            buffer.copy_(torch.stack(parts).sum(dim=0))
        self.sums += 1

    def gather(self, rows: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        parts = self._board.told(self.rank, rows.clone())
        assert [len(part) for part in parts] == list(lengths)
        return parts


class Divided(Shared):
    """An exchange whose rank holds what the test gives it."""

    def __init__(self, ranks: Workers) -> None:
        self._ranks = ranks

    def cut(self, tables: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return dict(tables)

    def whole(self, tables: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: table.clone() for name, table in tables.items()}


def on_threads(size: int, work: Callable[[ThreadRank], Any], **options: Any) -> list[Any]:
    """What each rank finds."""
    board = Board(size)

    def of_rank(rank: int) -> Any:
        try:
            return work(ThreadRank(rank, board, **options))
        except BaseException:
            board.barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return [found.result() for found in [pool.submit(of_rank, r) for r in range(size)]]


def cut(problem: Problem, owner: NDArray[Any], rank: int) -> Problem:
    """The part of a problem that a rank holds, owner[u] being the rank of user u."""
    users = np.flatnonzero(owner == rank)
    row = np.full(len(owner), -1, dtype=np.int32)
    row[users] = np.arange(len(users))
    tables, shown = problem.parameters, problem.exposure
    return problem._replace(
        parameters={n: t[users] if n in USER_TABLES else t for n, t in tables.items()},
        samples=problem.samples.own(row),
        validation=problem.validation.own(row),
        exposure={n: t[users] if n == "pair" and t is not None else t for n, t in shown.items()},
    )


def joined(owner: NDArray[Any], found: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The tables of all users, from the tables of each rank."""
    tables = {name: table.copy() for name, table in found[0].items()}
    for name in set(tables) & set(USER_TABLES):
        tables[name] = np.empty((len(owner), *tables[name].shape[1:]), tables[name].dtype)
        for rank, of_rank in enumerate(found):
            tables[name][owner == rank] = of_rank[name]
    return tables
