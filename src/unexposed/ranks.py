"""The processes ("ranks") of one training: what they tell each other, and how they end together.

A process group of torch.distributed comes from torchrun, Ray Train, Spark's TorchDistributor or the
caller. Every rank runs the same program on the same input; outside a group, and in a group of one,
nothing here does anything. Reading a log asks for them too, without waiting for torch: where nobody
has imported it, there is no process group.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from unexposed.errors import InputError
from unexposed.late import Tensor, dist, torch

Value = TypeVar("Value")
LIMIT = 1800.0  # seconds that a rank waits for the others; one that ended is noticed at once
STAY = 5.0  # seconds that a failed rank stays, at most, for the others to learn why
_numbers = count()  # every rank opens its groups in the same order


class _Lost(InputError):
    """The other ranks gave no answer."""


class Ranks:
    """The ranks of one training, with a gloo group of their own, so with a time limit of ours."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._failure = f"unexposed/{next(_numbers)}/failure"
        self._store: Any = dist.distributed_c10d._get_default_store()
        self._group: Any = None

    def meet(self) -> Ranks:
        """Connect with the others, and wait until all are connected.

        Without the wait a rank that fails at once would close a connection that is half made.
        """
        limit = timedelta(seconds=LIMIT)
        self._group = _answer(lambda: dist.new_group(backend="gloo", timeout=limit))
        self.add_up(torch.zeros(1))
        return self

    def add_up(self, buffer: Tensor) -> None:
        """Replace the buffer by its sum over ranks: the same bits on all of them."""
        if buffer.is_cuda:
            self._add_up_on_cards(buffer)
            return
        _answer(lambda: dist.all_reduce(buffer, group=self._group))

    def sum(self, values: NDArray[Any]) -> NDArray[Any]:
        """The sum of an array over ranks, which all have it in the same shape."""
        total = torch.from_numpy(values.copy())
        self.add_up(total)
        return total.numpy()

    def gather(self, rows: Tensor, lengths: Sequence[int]) -> list[Tensor]:
        """The rows of every rank, whose number of rows all ranks know."""
        longest = max(lengths)
        own = rows.new_zeros((longest, *rows.shape[1:]))  # gloo gathers equal shapes
        own[: len(rows)] = rows
        found = [torch.empty_like(own) for _ in lengths]
        _answer(lambda: dist.all_gather(found, own, group=self._group))
        return [part[:n] for part, n in zip(found, lengths, strict=True)]

    def gather_any(self, rows: Tensor) -> list[Tensor]:
        """The rows of every rank, each with a number of rows that the others learn here."""
        lengths = self.gather(torch.tensor([len(rows)]), [1] * self.size)
        return self.gather(rows, [int(n) for n in lengths])

    def led(self, work: Callable[[], Value]) -> Value:
        """What rank 0 finds; the others wait for it, so that all go on alike."""
        found = [work() if self.rank == 0 else None]
        _answer(lambda: dist.broadcast_object_list(found, src=0, group=self._group))
        return found[0]  # type: ignore[return-value]

    def check_alike(self, given: dict[str, Any]) -> None:
        """Refuse ranks that were given different things, by name."""
        every = self.every(given)
        for rank, other in enumerate(every):
            names = [n for n in {**every[0], **other} if every[0].get(n) != other.get(n)]
            if names:
                raise InputError(
                    f"ranks 0 and {rank} differ in {names[0]}: give every rank the same log, "
                    "method and seed"
                )

    def explained(self, error: BaseException) -> BaseException:
        """The error of this rank, or the one that ended the training on another rank.

        The first rank to fail leaves its reason; what the others raise counts as shown there.
        """
        self._failed = True
        own = f"{self.rank} {self._reason(error)}"
        try:
            first = self._store.compare_set(self._failure, "", own).decode()  # in one step
            if self._store.add(f"{self._failure}/known", 1) == self.size:
                self._store.set(f"{self._failure}/known to all", "")
        except RuntimeError:  # the store went with the rank that kept it
            return error
        if first == own:
            return error
        if isinstance(error, _Lost):
            error = InputError(first.partition(" ")[2])
        if isinstance(error, InputError):
            error.shown_elsewhere = True
        return error

    def outlast(self) -> None:
        """After a failure, stay until all know its reason: rank 0 may be the one that keeps it."""
        if self._failed and self.rank == 0:
            with suppress(RuntimeError):  # a rank that was killed will never know
                self._store.wait([f"{self._failure}/known to all"], timedelta(seconds=STAY))

    def _reason(self, error: BaseException) -> str:
        if isinstance(error, _Lost):
            return str(error)
        kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
        return f"rank {self.rank} failed: {kind}{error}"

    def every(self, value: Value) -> list[Value]:
        """What each rank gives, by rank: small values of any type."""
        found: list[Any] = [None] * self.size
        _answer(lambda: dist.all_gather_object(found, value, group=self._group))
        return found

    def told(self, values: NDArray[Any], sender: int) -> NDArray[Any]:
        """The values of one rank; those of the others only tell the type."""
        own = _tensor(values if self.rank == sender else values[:0])
        length = torch.tensor([len(own)])
        _answer(lambda: dist.broadcast(length, src=sender, group=self._group))
        found = own if self.rank == sender else own.new_empty(int(length))
        _answer(lambda: dist.broadcast(found, src=sender, group=self._group))
        return found.numpy()

    def exchanged(self, values: NDArray[Any], lengths: Sequence[int]) -> list[NDArray[Any]]:
        """What each rank has for this one; `lengths` says how many values go to each rank."""
        sent, own = torch.tensor(lengths, dtype=torch.int64), _tensor(values)
        come = torch.empty_like(sent)
        _answer(lambda: dist.all_to_all_single(come, sent, group=self._group))
        sizes = come.tolist()
        found = own.new_empty(sum(sizes))
        _answer(lambda: dist.all_to_all_single(found, own, sizes, sent.tolist(), group=self._group))
        return np.split(found.numpy(), np.cumsum(sizes)[:-1])

    def close(self) -> None:
        """Leave; a rank that still waits for this one fails at once."""
        self._leave_cards()
        if self._group is not None:
            dist.destroy_process_group(self._group)
        self._group = None  # with its last reference the connections close

    _cards: Any = None  # the group that adds up on cards, made when it is first needed
    _failed = False

    def _add_up_on_cards(self, buffer: Tensor) -> None:
        """Add up by NCCL, or on the host where ranks share a card, which NCCL refuses."""
        if self._cards is None:
            self._cards = self._meet_on_cards(card_of_this_rank())
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
            # a card may still wait for a rank that has failed
            gone: Any = dist.distributed_c10d._abort_process_group
            (gone if self._failed else dist.destroy_process_group)(self._cards)
        self._cards = None


def card_of_this_rank() -> str:
    """A name that no other card has; empty where NCCL is not there."""
    return str(torch.cuda.get_device_properties().uuid) if dist.is_nccl_available() else ""


_current: Ranks | None = None


def current() -> Ranks | None:
    """The ranks that train together now; None: this process trains alone."""
    return _current


def several() -> bool:
    """Whether a process group of more than one rank is there."""
    if "torch.distributed" not in sys.modules:
        return False
    return dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1


@contextmanager
def together() -> Iterator[Ranks | None]:
    """Train with all ranks of the process group inside this block: where one fails, all do."""
    global _current
    if _current is not None or not several():
        yield _current
        return
    ranks = _current = Ranks()
    try:
        ranks.meet()
        yield ranks
    except BaseException as error:
        if isinstance(error, SystemExit) and not error.code:
            raise
        told = ranks.explained(error)
        if told is error:
            raise
        raise told from error
    finally:
        _current = None
        ranks.close()
        ranks.outlast()


def led(work: Callable[[], Value]) -> Value:
    """The result of this work, done by rank 0 where several ranks train together."""
    return work() if _current is None else _current.led(work)


def summed(values: NDArray[Any]) -> NDArray[Any]:
    """These numbers, summed over ranks where several train together."""
    return values if _current is None else _current.sum(values)


def leads() -> bool:
    """Whether this process talks: rank 0, and one process alone."""
    return not several() or dist.get_rank() == 0


def _tensor(values: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.require(values, requirements=["C", "W"]))  # torch wants to write


def _answer(call: Callable[[], Value]) -> Value:
    try:
        return call()
    except RuntimeError as error:  # of gloo: a closed connection, or the time limit
        # frames of its traceback hold the group, whose connections close with the last reference
        raise _Lost(
            f"another rank has ended, or gave no answer within {LIMIT:.0f} s: see that every rank "
            "runs the same training, and start all of them again"
        ) from error.with_traceback(None)
