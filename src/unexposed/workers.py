"""The processes ("workers") of one training: what they tell each other, and how they end together.

A process group of torch.distributed comes from torchrun, Ray Train, Spark's TorchDistributor or the
caller. Every worker runs the same program on the same input; outside a group, and in a group of
one, `together` gives None. Reading a log asks for a group too, without waiting for torch: where
nobody has imported torch, there is no process group.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import count
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from unexposed.errors import InputError
from unexposed.late import Tensor, dist, torch

Value = TypeVar("Value")
LIMIT = 1800.0  # seconds that a worker waits for the others; one that ended is noticed at once
STAY = 5.0  # seconds that a failed worker stays, at most, for the others to learn why
_numbers = count()  # every worker opens its groups in the same order


class _Lost(InputError):
    """The other workers gave no answer."""


class Workers:
    """The workers of one training, with a gloo group of their own, so with a time limit of ours."""

    def __init__(self) -> None:
        self.number, self.size = dist.get_rank(), dist.get_world_size()
        self._failure = f"unexposed/{next(_numbers)}/failure"
        self._store: Any = dist.distributed_c10d._get_default_store()
        self._group: Any = None

    def meet(self) -> Workers:
        """Connect with the others, and wait until all are connected.

        Without the wait a worker that fails at once would close a connection that is half made.
        """
        limit = timedelta(seconds=LIMIT)
        self._group = _answer(lambda: dist.new_group(backend="gloo", timeout=limit))
        self.add_up(torch.zeros(1))
        return self

    def add_up(self, buffer: Tensor) -> None:
        """Replace the buffer by its sum over workers: the same bits on all of them."""
        if buffer.is_cuda:
            self._add_up_on_cards(buffer)
            return
        _answer(lambda: dist.all_reduce(buffer, group=self._group))

    def sum(self, values: NDArray[Any]) -> NDArray[Any]:
        """The sum of an array over workers, which all have it in the same shape."""
        total = torch.from_numpy(values.copy())
        self.add_up(total)
        return total.numpy()

    def gather(self, rows: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        """The rows of every worker, whose number of rows all know."""
        longest = max(lengths)
        own = rows.new_zeros((longest, *rows.shape[1:]))  # gloo gathers equal shapes
        own[: len(rows)] = rows
        found = [torch.empty_like(own) for _ in lengths]
        _answer(lambda: dist.all_gather(found, own, group=self._group))
        return [part[:n] for part, n in zip(found, lengths, strict=True)]

    def gather_any(self, rows: Tensor) -> list[Tensor]:
        """The rows of every worker, each with a number of rows that the others learn here."""
        lengths = self.gather(torch.tensor([len(rows)]), [1] * self.size)
        return self.gather(rows, [int(n) for n in lengths])

    def led(self, work: Callable[[], Value]) -> Value:
        """The result of this work, done by the first worker alone, so that all go on alike."""
        found = [work() if self.number == 0 else None]
        _answer(lambda: dist.broadcast_object_list(found, src=0, group=self._group))
        return found[0]  # type: ignore[return-value]

    def check_alike(self, given: dict[str, Any]) -> None:
        """Refuse workers that were given different things, by name."""
        every = self.every(given)
        for number, other in enumerate(every):
            names = [n for n in {**every[0], **other} if every[0].get(n) != other.get(n)]
            if names:
                raise InputError(
                    f"workers 0 and {number} differ in {names[0]}: give every worker the same log, "
                    "method and seed"
                )

    def explained(self, error: BaseException) -> BaseException:
        """The error of this worker, or the one that ended the training on another.

        The first worker to fail leaves its reason; what the others raise counts as shown there.
        """
        self._failed = True
        own = f"{self.number} {self._reason(error)}"
        try:
            first = self._store.compare_set(self._failure, "", own).decode()  # in one step
            if self._store.add(f"{self._failure}/known", 1) == self.size:
                self._store.set(f"{self._failure}/known to all", "")
        except RuntimeError:  # the store went with the worker that kept it
            return error
        if first == own:
            return error
        if isinstance(error, _Lost):
            error = InputError(first.partition(" ")[2])
        if isinstance(error, InputError):
            error.shown_elsewhere = True
        return error

    def outlast(self) -> None:
        """After a failure, stay until all know its reason: the first worker may keep it."""
        if self._failed and self.number == 0:
            with suppress(RuntimeError):  # a worker that was killed will never know
                self._store.wait([f"{self._failure}/known to all"], timedelta(seconds=STAY))

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, _Lost):
            return str(error)
        kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
        return f"worker {self.number} failed: {kind}{error}"

    def every(self, value: Value) -> list[Value]:
        """What each worker gives, in their order: small values of any type."""
        found: list[Any] = [None] * self.size
        _answer(lambda: dist.all_gather_object(found, value, group=self._group))
        return found

    def close(self) -> None:
        """Leave; a worker that still waits for this one fails at once."""
        self._leave_cards()
        if self._group is not None:
            dist.destroy_process_group(self._group)
        self._group = None  # with its last reference the connections close

    _cards: Any = None  # the group that adds up on cards, made when it is first needed
    _failed = False

    def _add_up_on_cards(self, buffer: Tensor) -> None:
        """Add up by NCCL, or on the host where workers share a card, which NCCL refuses."""
        if self._cards is None:
            self._cards = self._meet_on_cards(own_card())
        if self._cards is not self._group:
            _answer(lambda: dist.all_reduce(buffer, group=self._cards))
            return
        on_host = buffer.cpu()
        self.add_up(on_host)
        buffer.copy_(on_host)

    def _meet_on_cards(self, card: str) -> Any:
        cards: list[Any] = [None] * self.size
        _answer(lambda: dist.all_gather_object(cards, card, group=self._group))
        if "" in cards or len(set(cards)) < self.size:
            return self._group
        limit = timedelta(seconds=LIMIT)
        return _answer(lambda: dist.new_group(backend="nccl", timeout=limit))

    def _leave_cards(self) -> None:
        if self._cards is not None and self._cards is not self._group:
            # a card may still wait for a worker that has failed
            gone: Any = dist.distributed_c10d._abort_process_group
            (gone if self._failed else dist.destroy_process_group)(self._cards)
        self._cards = None


def own_card() -> str:
    """A name that no other card has; empty where NCCL is not there."""
    return str(torch.cuda.get_device_properties().uuid) if dist.is_nccl_available() else ""


_open: Workers | None = None  # so that what runs inside of `together` opens no second group


def several() -> bool:
    """Whether a process group of more than one worker is there."""
    if "torch.distributed" not in sys.modules:
        return False
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


def leads() -> bool:
    """Whether this process talks: the first worker, and one process alone."""
    return not several() or dist.get_rank() == 0


@contextmanager
def together() -> Iterator[Workers | None]:
    """Work with all of the process group inside this block: where one fails, all do.

    Gives the group, to pass on; None outside of a process group.
    """
    global _open
    if _open is not None or not several():
        yield _open
        return
    workers = _open = Workers()
    try:
        workers.meet()
        yield workers
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            raise
        first = workers.explained(error)
        if first is error:
            raise
        raise first from error
    finally:
        _open = None
        workers.close()
        workers.outlast()


def led(work: Callable[[], Value], workers: Workers | None) -> Value:
    """The result of this work, done by the first worker where there are several."""
    return work() if workers is None else workers.led(work)


# sums and means over all workers; of one process alone where there are none


def summed(values: NDArray[Any], workers: Workers | None) -> NDArray[Any]:
    return values if workers is None else workers.sum(values)


def in_all(n: int, workers: Workers | None) -> int:
    return int(summed(np.array([n], dtype=np.int64), workers)[0])


def mean(values: NDArray[np.float64], workers: Workers | None) -> float:
    if workers is None:
        return float(values.mean())
    n, total = workers.sum(np.array([len(values), values.sum()], dtype=np.float64))
    return float(total / max(n, 1))


class Moments(NamedTuple):
    """How many values there are, their mean and their standard deviation."""

    n: int
    mean: float
    deviation: float


def moments(*columns: NDArray[np.float64], ddof: int = 0, workers: Workers | None) -> list[Moments]:
    """The moments of each column of values, of which every worker has a part."""
    if workers is None:
        return [Moments(len(c), float(c.mean()), float(c.std(ddof=ddof))) for c in columns]
    sums = workers.sum(np.array([(len(c), c.sum()) for c in columns], dtype=np.float64))
    n, means = sums[:, 0], sums[:, 1] / np.maximum(sums[:, 0], 1)
    own = [((c - mean) ** 2).sum() for c, mean in zip(columns, means, strict=True)]
    squares = workers.sum(np.array(own)) / np.maximum(n - ddof, 1)
    return [
        Moments(int(k), float(m), math.sqrt(q)) for k, m, q in zip(n, means, squares, strict=True)
    ]


def _tensor(values: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.require(values, requirements=["C", "W"]))  # torch wants to write


def _answer(call: Callable[[], Value]) -> Value:
    try:
        return call()
    except RuntimeError as error:  # of gloo: a closed connection, or the time limit
        # frames of its traceback hold the group, whose connections close with the last reference
        raise _Lost(
            f"another worker has ended, or gave no answer within {LIMIT:.0f} s: see that every "
            "worker runs the same training, and start all of them again"
        ) from error.with_traceback(None)
