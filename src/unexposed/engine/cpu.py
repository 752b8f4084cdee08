"""The fast CPU engine: factor models, every step in closed form, compiled by numba.

It gives the parameters that `reference` gives, and the same bits for any number of threads. What
it computes is read in `losses.py`, `exposure.py` and `bilevel.py`; how, in `cpu_kernels.py`.
"""

import math
import threading
import time
from typing import Any

import numba
import numpy as np
from numpy.typing import DTypeLike, NDArray

from unexposed.engine import RELEVANCE, Initial, Objective, Optimiser, has_closed_form, put_back
from unexposed.engine import cpu_kernels as kernels
from unexposed.engine.adam import BETA1, BETA2, EPSILON
from unexposed.engine.lanes import whole
from unexposed.errors import InputError
from unexposed.sampling import Pairs, Triples
from unexposed.validation import ValidationSet

LOSS_CODES = {
    "inverse_propensity": kernels.INVERSE_PROPENSITY,
    "low_variance": kernels.LOW_VARIANCE,
    "inverse_propensity_squared": kernels.INVERSE_PROPENSITY_SQUARED,
    "low_variance_squared": kernels.LOW_VARIANCE_SQUARED,
    "pairwise": kernels.PAIRWISE,
}
STRATEGY_CODES = {
    None: kernels.GIVEN,
    "bilevel": kernels.BILEVEL,
    "joint": kernels.JOINT,
    "alternate": kernels.ALTERNATE,
    "bilevel_on_batch": kernels.BILEVEL_ON_BATCH,
    "frozen": kernels.FROZEN,
}
LEARNED = ("users", "items", "seers", "gate", "ahead_users", "ahead_items")
COUNTS = ("user_count", "item_count", "seer_count", "gate_count")
NUMBA_CONFIG: Any = numba.config
RUN: Any = kernels.run
PLANNED = 16  # batches laid out ahead of their steps
SPAN = 4_000_000  # samples of one call to the kernel: it cannot be interrupted
CACHE_LINE = 64  # bytes
LINE = 16  # numbers that fill one at least: what threads write is kept apart
RETRY = 16  # calls after which the number of threads that was slower is tried again
PAIRS_A_THREAD = 128  # of a batch; with fewer, a thread would mostly wait


class CpuEngine:
    """As `ReferenceEngine`, with the parameters and their moments in flat tables of rows."""

    def __init__(
        self,
        objective: Objective,
        optimiser: Optimiser,
        parameters: Initial,
        *,
        exposure: NDArray[Any] | None = None,
        features: NDArray[Any] | None = None,
        validation: ValidationSet | None = None,
        dtype: DTypeLike = np.float32,
        threads: int | None = None,
    ) -> None:
        if not has_closed_form(objective, parameters, features):
            raise InputError(f"the cpu engine does not know {objective}; use the reference engine")
        if objective.strategy == "bilevel" and validation is None:
            raise InputError("the strategy 'bilevel' needs a validation set")
        self._objective = objective
        self._dtype = np.dtype(dtype)
        self._threads = threads or NUMBA_CONFIG.NUMBA_NUM_THREADS
        self._n_users, self._dim = parameters["user_factors"].shape
        self._n_items = len(parameters["item_factors"])
        self._width = whole(self._dim, self._dtype.itemsize)
        self._names = list(parameters)
        guide = validation if objective.strategy == "bilevel" else None
        self._validation, self._groups = _validation(
            guide, objective.validation_batch, self._n_users, self._n_items
        )
        self._model = self._new_model(optimiser, parameters, exposure)
        self._options = kernels.Options(
            LOSS_CODES[objective.loss],
            STRATEGY_CODES[objective.strategy],
            float(objective.offset),
            float(optimiser.lookahead),
            self._validation_batch,
        )
        self._turn = 0
        self._spaces: dict[tuple[int, int], _Space] = {}
        self._pace = _Pace(self._threads, fixed=threads is not None)

    def epoch(self, samples: Pairs | Triples, *, batch_size: int) -> float:
        self._check(samples)
        if not self._spaces:
            self.compile()
        span = max(1, SPAN // batch_size) * batch_size
        parts = [self._run(part, batch_size) for part in samples.batches(span)]
        return float(np.concatenate(parts).mean()) if parts else 0.0

    def parameters(self) -> dict[str, NDArray[Any]]:
        model = self._model
        found = {
            "user_factors": self._values(model.users),
            "item_factors": self._values(model.items),
        }
        if self._objective.strategy is not None:
            gate = self._values(model.gate)
            found["exposure_user_factors"] = self._values(model.seers)
            found["gate_weight"], found["gate_bias"] = gate[0], gate[1, :1]
        return {name: found[name].copy() for name in self._names}

    def state(self) -> dict[str, NDArray[Any]]:
        return self._tables() | {"turn": np.array([self._turn])}

    def restore(self, state: Initial) -> None:
        put_back(self._tables(), state)
        self._turn = int(state["turn"][0])

    def _tables(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self._model, name) for name in (*LEARNED, *COUNTS)}

    def compile(self) -> None:
        """Have the kernel ready: seconds the first time on a machine, from its cache later."""
        self._run(_nothing(pairwise=self._objective.loss == "pairwise"), 1)

    @property
    def _validation_batch(self) -> int:
        """Validation pairs of a step, 0 for all, as in the reference."""
        size = self._objective.validation_batch
        return 0 if size >= len(self._validation.users) else size

    def _new_model(
        self, optimiser: Optimiser, parameters: Initial, exposure: NDArray[Any] | None
    ) -> kernels.Model:
        o = optimiser
        learned = self._objective.strategy is not None
        users, items = (self._table(parameters[name]) for name in RELEVANCE)
        if learned:
            seers = self._table(parameters["exposure_user_factors"])
            bias = np.zeros(self._dim)
            bias[0] = np.asarray(parameters["gate_bias"]).reshape(-1)[0]
            gate = self._table(np.stack([np.asarray(parameters["gate_weight"]), bias]))
        else:
            seers = gate = np.zeros(0, dtype=self._dtype)
        if exposure is None:
            exposure = np.ones(self._n_items)
        ahead_users = self._ahead(parameters["user_factors"], self._validation.user_number)
        ahead_items = self._ahead(parameters["item_factors"], self._validation.item_number)
        counts = [
            np.zeros(len(table) // (3 * self._width), dtype=np.int32)
            for table in (users, items, seers, gate)
        ]
        return kernels.Model(
            dim=self._width,
            users=users,
            items=items,
            seers=seers,
            gate=gate,
            user_count=counts[0],
            item_count=counts[1],
            seer_count=counts[2],
            gate_count=counts[3],
            rates=adam_rates(o.learning_rate, o.weight_decay),
            exposure_rates=adam_rates(o.exposure_learning_rate, o.exposure_weight_decay),
            gate_rates=adam_rates(o.exposure_learning_rate * o.gate_pace, o.exposure_weight_decay),
            exposure=np.require(np.atleast_2d(exposure), self._dtype, ["C", "W"]),
            ahead_users=ahead_users,
            ahead_items=ahead_items,
        )

    def _table(self, values: NDArray[Any]) -> NDArray[Any]:
        """The values with room for their moments, in whole vectors, flat."""
        table = aligned_zeros(len(values) * 3 * self._width, self._dtype)
        table.reshape(-1, 3, self._width)[:, 0, : self._dim] = values
        return table

    def _values(self, table: NDArray[Any]) -> NDArray[Any]:
        return table.reshape(-1, 3, self._width)[:, 0, : self._dim]

    def _ahead(self, values: NDArray[Any], number: NDArray[Any]) -> NDArray[Any]:
        """A row for each that has a number."""
        used = values[number >= 0]
        table = aligned_zeros(len(used) * self._width, self._dtype)
        table.reshape(-1, self._width)[:, : self._dim] = used
        return table

    def _check(self, samples: Pairs | Triples) -> None:
        if len(samples) == 0:
            return
        columns = [("user", samples.users, self._n_users), ("item", samples.items, self._n_items)]
        if isinstance(samples, Triples):
            columns.append(("item", samples.negatives, self._n_items))
        for what, rows, n in columns:
            if rows.min() < 0 or rows.max() >= n:
                raise InputError(f"a sample names {what} {rows.max()}, but there are {n}")

    def _run(self, samples: Pairs | Triples, batch_size: int) -> NDArray[np.float64]:
        """The loss of each batch, having learned from it."""
        losses = np.zeros(-(-len(samples) // batch_size))
        n_threads = self._pace.threads(most=max(1, batch_size // PAIRS_A_THREAD))
        size = (batch_size, n_threads)
        space = self._spaces.get(size) or self._spaces.setdefault(size, _Space(self, *size))
        columns = _columns(samples)
        begin = time.perf_counter()

        def work(thread: int) -> None:
            RUN(
                *columns,
                batch_size,
                self._turn,
                space.model,
                self._validation,
                space.groups,
                space.plan,
                space.work,
                self._options,
                thread,
                n_threads,
                space.barrier,
                losses,
            )

        others = [threading.Thread(target=work, args=(t,)) for t in range(1, n_threads)]
        for thread in others:
            thread.start()
        work(0)
        for thread in others:
            thread.join()
        if len(samples):
            self._pace.note(n_threads, (time.perf_counter() - begin) / len(samples))
            self._turn += len(losses)
        return losses


class _Pace:
    """How many threads to use: all, or one where others keep the cores busy.

    Threads that wait for each other many times a batch are slower than one where they do not
    all run. Any number gives the same bits, so the engine is free to take the faster.
    """

    def __init__(self, threads: int, *, fixed: bool) -> None:
        self._all, self._fixed = threads, fixed
        self._seconds: dict[int, float] = {}  # a sample, when last tried
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


class _Space:
    """What the kernel writes into, for one size of batch and one number of threads."""

    def __init__(self, engine: CpuEngine, batch_size: int, n_threads: int) -> None:
        objective, validation, dim = engine._objective, engine._validation, engine._width
        entries = batch_size * (2 if objective.loss == "pairwise" else 1)
        batches = max(PLANNED, n_threads)
        part = engine._validation_batch
        used = part or len(validation.users)
        blocks = used // kernels.BLOCK + entries + 1
        chunks = entries // kernels.CHUNK + 1

        def integers(*shape: int) -> NDArray[np.int32]:
            return np.zeros(shape, dtype=np.int32)

        def real(*shape: int) -> NDArray[Any]:
            return aligned_zeros(math.prod(shape), engine._dtype).reshape(shape)

        def places(n: int) -> NDArray[np.int32]:
            return np.full((n_threads, n + 1), -1, dtype=np.int32)

        self.barrier = np.zeros(64, dtype=np.int64)
        self.model = engine._model
        if objective.strategy == "bilevel_on_batch":  # ω′ of every row of the batch
            ahead = [real(entries * dim) for _ in range(2)]
            self.model = self.model._replace(ahead_users=ahead[0], ahead_items=ahead[1])
        n_users, n_items = (
            len(a) // dim for a in (engine._model.ahead_users, engine._model.ahead_items)
        )
        self.groups = engine._groups
        if part:
            self.groups = kernels.Groups(
                integers(batches, part + 2),
                integers(batches, part),
                np.zeros((batches, part), dtype=np.bool_),
                integers(batches, part + 2),
                integers(batches, part),
                np.zeros((batches, part), dtype=np.bool_),
            )
            place_users, place_items = places(n_users), places(n_items)
        else:  # each has the group of its own number
            place_users, place_items = places(n_users), places(n_items)
            place_users[:, :-1] = np.arange(n_users)
            place_items[:, :-1] = np.arange(n_items)
        self.plan = kernels.Plan(
            n_entries=integers(batches),
            entry_user=integers(batches, entries),
            entry_item=integers(batches, entries),
            entry_user_place=integers(batches, entries),
            entry_item_place=integers(batches, entries),
            entry_click=np.zeros((batches, entries), dtype=np.float32),
            entry_weight=np.zeros((batches, entries), dtype=np.float32),
            entry_exposure=real(batches, entries),
            n_users=integers(batches),
            user_rows=integers(batches, entries),
            user_start=integers(batches, entries + 2),
            user_share=integers(batches, n_threads + 1),
            n_items=integers(batches),
            item_rows=integers(batches, entries),
            item_start=integers(batches, entries + 2),
            item_entries=integers(batches, entries),
            item_share=integers(batches, n_threads + 1),
            user_group=integers(batches, entries),
            n_guided=integers(batches),
            guided=integers(batches, entries + 1),
            item_group=integers(batches, entries),
            block_start=integers(batches, entries + 1),
            block_item=integers(batches, blocks),
            block_begin=integers(batches, blocks),
            block_end=integers(batches, blocks),
            pairs_before=integers(batches, blocks + 1),
            block_share=integers(batches, n_threads + 1),
        )
        self.work = kernels.Work(
            logit=np.zeros(entries),
            seen_logit=np.zeros(entries),
            gate_logit=np.zeros(entries),
            odds=np.zeros(entries),
            seen_odds=np.zeros(entries),
            gate_odds=np.zeros(entries),
            slope=real(entries),
            along=np.zeros(entries),
            direct=np.zeros(entries),
            gate_slope=real(entries),
            loss=np.zeros(entries),
            blocks=real(blocks * dim),
            old_users=real(entries * dim),
            gate=real(n_threads, 6 * dim + LINE),
            gate_count=integers(n_threads, LINE),
            gate_chunks=real(chunks * dim),
            gate_chunk_slope=np.zeros(chunks),
            own=real(n_threads, dim + LINE),
            own_slope=real(n_threads, max(kernels.BLOCK, used)),
            own_logit=np.zeros((n_threads, max(kernels.BLOCK, used))),
            place_users=places(engine._n_users),
            place_items=places(engine._n_items),
            place_validation_users=place_users,
            place_validation_items=place_items,
            order=integers(n_threads, 3 * max(entries, part)),
            keys=integers(n_threads, max(entries, part)),
        )


def _validation(
    validation: ValidationSet | None, part: int, n_users: int, n_items: int
) -> tuple[kernels.Validation, kernels.Groups]:
    """The validation pairs by number, and all of them grouped."""
    none = np.zeros(0, dtype=np.int32)
    users = none if validation is None else validation.users
    items = none if validation is None else validation.items
    relevant = np.zeros(0, bool) if validation is None else np.array(validation.relevant, bool)
    user_number, pair_users = _numbered(users, n_users)
    item_number, pair_items = _numbered(items, n_items)
    n = len(users)
    scale = n / part if 0 < part < n else 1.0
    by_user = np.lexsort([pair_items, pair_users])
    by_item = np.lexsort([pair_users, pair_items])  # an item's users one after the other in memory
    groups = kernels.Groups(
        _starts(pair_users),
        pair_items[by_user][None],
        relevant[by_user][None],
        _starts(pair_items),
        pair_users[by_item][None],
        relevant[by_item][None],
    )
    return (
        kernels.Validation(user_number, item_number, pair_users, pair_items, relevant, scale),
        groups,
    )


def _numbered(rows: NDArray[Any], n: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """A number for each row that occurs (−1 for the rest), and that of each pair."""
    number = np.full(n, -1, dtype=np.int32)
    distinct, of_pair = np.unique(rows, return_inverse=True)
    number[distinct] = np.arange(len(distinct), dtype=np.int32)
    return number, of_pair.astype(np.int32)


def _starts(numbers: NDArray[np.int32]) -> NDArray[np.int32]:
    """Where the pairs of each number begin when sorted by it, as one row."""
    counts = np.bincount(numbers)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)[None]


def adam_rates(learning_rate: float, weight_decay: float) -> NDArray[np.float64]:
    """What `kernels.adam` reads; the corrections of `engine/adam.py` for each count of steps.

    They end where β₂ to that power is lost beside 1.
    """
    power = np.arange(1 + math.ceil(math.log(1e-17, BETA2)))[1:]
    by_count = np.stack([1 / (1 - BETA1**power), 1 / np.sqrt(1 - BETA2**power)], axis=1)
    fixed = [learning_rate, weight_decay, BETA1, 1 - BETA1, BETA2, 1 - BETA2, EPSILON]
    return np.concatenate([fixed, [0, 0], by_count.reshape(-1)])


def aligned_zeros(n: int, dtype: DTypeLike) -> NDArray[Any]:
    """Zeros that begin on a cache line, so that no vector lies on two."""
    kind = np.dtype(dtype)
    memory = np.zeros(n * kind.itemsize + CACHE_LINE, dtype=np.uint8)
    begin = -memory.ctypes.data % CACHE_LINE
    return memory[begin : begin + n * kind.itemsize].view(kind)


def _columns(samples: Pairs | Triples) -> tuple[NDArray[Any], ...]:
    """Users, items, negatives, click and weight, as the one layout that the kernel is made for."""
    nothing: NDArray[Any] = np.zeros(0, dtype=np.float32)
    if isinstance(samples, Triples):
        columns: tuple[NDArray[Any], ...]
        columns = (samples.users, samples.items, samples.negatives, nothing, nothing)
    else:
        columns = (samples.users, samples.items, nothing, samples.click, samples.weight)
    types = (np.int32, np.int32, np.int32, np.float32, np.float32)
    return tuple(np.require(c, t, ["C", "W"]) for c, t in zip(columns, types, strict=True))


def _nothing(*, pairwise: bool) -> Pairs | Triples:
    rows = np.zeros(0, dtype=np.int32)
    if pairwise:
        return Triples(rows, rows, rows)
    return Pairs(rows, rows, np.zeros(0, np.float32), np.zeros(0, np.float32))
