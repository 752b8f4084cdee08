"""The fast CPU engine: factor models, every step in closed form, compiled by numba.

It gives the parameters that `reference` gives, and the same bits for any number of threads.
`losses.py`, `exposure.py` and `bilevel.py` say what it computes, `step.py` how.
"""

import time
from contextlib import nullcontext
from typing import Any

import numba
import numpy as np
from numpy.typing import DTypeLike, NDArray

from unexposed.engine.cpu.batch import new_guide
from unexposed.engine.cpu.compile import on_threads
from unexposed.engine.cpu.formulas import LOSS_CODES
from unexposed.engine.cpu.layout import (
    BLOCK,
    CHUNK,
    GATE_ROWS,
    LINE,
    PHASES,
    PLAN,
    STRATEGY_CODES,
    USERS,
    WORK,
    Batch,
    Guide,
    Options,
    PairMarks,
    Plan,
    Span,
    Step,
    Tables,
    Work,
    Workers,
    aligned_zeros,
    arrays,
)
from unexposed.engine.cpu.rows import whole
from unexposed.engine.cpu.step import run
from unexposed.engine.objective import (
    FACTORS,
    PRODUCT,
    Initial,
    Objective,
    Optimiser,
    check_objective,
    check_samples,
    loss_code,
    put_back,
)
from unexposed.engine.workers import RowSums, Shared, threads_of
from unexposed.maths.relevance import Relevance
from unexposed.sampling.marks import Marks
from unexposed.sampling.samples import Batches, Samples
from unexposed.sampling.validation import ValidationSet

LEARNED = ("users", "items", "exposure_users", "gate")
NUMBA_CONFIG: Any = numba.config
RUN: Any = run
BATCHES = 64  # whose items workers tell each other at once
ALONE = Workers(0, True, np.zeros(1, dtype=np.int64))
NOTHING = np.zeros(0, dtype=np.int64), *(np.zeros(0, dtype=np.int32) for _ in range(2))
SPAN = 4_000_000  # about the pairs of one call to the kernel, which cannot be interrupted
RETRY = 16  # calls after which the slower number of threads is tried again
PAIRS_A_THREAD = 128  # of a batch; with fewer, threads mostly wait for each other


class CpuEngine:
    """The steps of `ReferenceEngine`, with parameters and moments in flat tables of rows.

    Where items are `held`, only the rows of users learn. With an `exchange`, users, samples and
    validation pairs are those of this worker; one that is alone is a single process.
    """

    def __init__(
        self,
        objective: Objective,
        optimiser: Optimiser,
        parameters: Initial,
        *,
        exposure: NDArray[Any] | None = None,
        features: NDArray[Any] | None = None,
        validation: ValidationSet | None = None,
        relevance: Relevance = PRODUCT,
        marked: bool = False,
        held: bool = False,
        exchange: Shared | None = None,
        dtype: DTypeLike = np.float32,
        threads: int | None = None,
    ) -> None:
        check_objective("cpu", objective, parameters, features, validation)
        workers = None if exchange is None or exchange.workers.size == 1 else exchange.workers
        self._objective = objective
        self._marked = marked  # whether its samples will have marks: what `compile` compiles
        self._dtype = np.dtype(dtype)
        self._threads = threads or threads_of(NUMBA_CONFIG.NUMBA_NUM_THREADS, workers)
        self._n_users, self._dim = parameters["user_factors"].shape
        self._n_items = len(parameters["item_factors"])
        self._width = whole(self._dim, self._dtype.itemsize)
        self._names = list(parameters)
        self._tables = self._new_tables(optimiser, parameters, exposure, relevance)
        self._shared = None if workers is None else RowSums(workers, self._n_items, self._dim)
        is_guided = objective.strategy == "bilevel"
        self._guide = new_guide(
            validation if is_guided else None,
            n_parts=objective.validation_parts(validation),
            n_users=self._n_users,
            n_items=self._n_items,
            width=self._width,
            dtype=self._dtype,
            everywhere=self._shared.everywhere if self._shared and is_guided else np.unique,
        )
        self._refresh_guide()
        self._options = Options(
            loss_code("cpu", objective, LOSS_CODES),
            STRATEGY_CODES[objective.strategy],
            float(objective.offset),
            float(optimiser.lookahead),
        )
        phases = (USERS,) if held else PHASES[objective.strategy]
        self._phases = np.array(phases, dtype=np.int64)
        self._steps = 0  # taken so far
        self._space: Space | None = None
        self._pace = Pace(self._threads, fixed=threads is not None)

    def epoch(self, samples: Samples, *, batch_size: int) -> float:
        check_samples(samples, n_users=self._n_users, n_items=self._n_items)
        if self._space is None:
            self.compile()
        batch_size = max(1, min(batch_size, samples.n_clicks))
        span = max(1, SPAN * len(samples) // max(1, len(samples.items)) // batch_size)
        if self._shared is not None:
            span = BATCHES  # the same on every worker
        parts = [
            self._run(part, part.steps(batch_size, self._steps))
            for part in samples.batches(span * batch_size)
        ]
        if not parts:
            return 0.0
        losses = np.concatenate(parts)
        if self._shared is not None:
            self._shared.add_up(losses)
        return float(losses.mean())

    def learn(self, samples: Samples, batches: Batches) -> None:
        check_samples(samples, n_users=self._n_users, n_items=self._n_items)
        self._run(samples, batches)

    def parameters(self) -> dict[str, NDArray[Any]]:
        tables = self._tables
        found = {
            "user_factors": self._values(tables.users),
            "item_factors": self._values(tables.items),
        }
        if self._objective.strategy is not None:
            gate = self._values(tables.gate)
            found["exposure_user_factors"] = self._values(tables.exposure_users)
            found["gate_weight"], found["gate_bias"] = gate[0], gate[1, :1]
        return {name: found[name].copy() for name in self._names}

    def state(self) -> dict[str, NDArray[Any]]:
        return self._learned() | {"steps": np.array([self._steps])}

    def restore(self, state: Initial) -> None:
        put_back(self._learned(), state)
        self._steps = int(state["steps"][0])
        self._refresh_guide()

    @property
    def user_arrays(self) -> frozenset[str]:
        return frozenset({"users", "exposure_users"})

    def give_exposure(self, table: NDArray[Any]) -> None:
        self._tables.exposure[:] = table

    def _learned(self) -> dict[str, NDArray[Any]]:
        """Views (rows, 3, dim) of the tables: values and both moments."""
        tables = {name: getattr(self._tables, name) for name in LEARNED}
        return {name: self._rows(table)[:, :, : self._dim] for name, table in tables.items()}

    def compile(self) -> None:
        """Compile the kernel, or load it from the cache: the first time takes seconds."""
        rows = np.zeros(0, dtype=np.int32)
        start, weight = np.zeros(1, dtype=np.int64), np.zeros(0, dtype=np.float32)
        marks = Marks.empty() if self._marked else None
        nothing = Samples(rows, start, rows, weight, marks=marks)
        batches = nothing.steps(1, 0)
        if self._shared is None:
            self._run(nothing, batches)
        else:
            self._shared.leader_first(lambda: self._run(nothing, batches))

    def _new_tables(
        self,
        optimiser: Optimiser,
        parameters: Initial,
        exposure: NDArray[Any] | None,
        relevance: Relevance,
    ) -> Tables:
        o = optimiser
        users, items = (self._table(parameters[name]) for name in FACTORS)
        exposure_users = gate = np.zeros(0, dtype=self._dtype)
        if self._objective.strategy is not None:
            exposure_users = self._table(parameters["exposure_user_factors"])
            bias = np.zeros(self._dim)
            bias[0] = np.asarray(parameters["gate_bias"]).reshape(-1)[0]
            gate = self._table(np.stack([np.asarray(parameters["gate_weight"]), bias]))
        rates = [
            (o.learning_rate, o.weight_decay),
            (o.exposure_learning_rate, o.exposure_weight_decay),
            (o.exposure_learning_rate * o.gate_pace, o.exposure_weight_decay),
        ]
        if exposure is None:
            exposure = np.ones(self._n_items)
        shown = np.require(np.atleast_2d(exposure), self._dtype, ["C", "W"])
        of_users, of_items = (relevance.tables[name] for name in FACTORS)
        decays = aligned_zeros((self._width,), self._dtype)
        decays[: of_users.decaying] = 1  # alike for both tables
        return Tables(
            self._width,
            *(users, items, exposure_users, gate),
            np.array(rates),
            shown,
            decays,
            *(-1 if c.fixed is None else c.fixed for c in (of_users, of_items)),
        )

    def _table(self, values: NDArray[Any]) -> NDArray[Any]:
        """The values with room for their moments, padded to whole vectors, flattened."""
        table = aligned_zeros((len(values), 3, self._width), self._dtype)
        table[:, 0, : self._dim] = values
        return table.reshape(-1)

    def _rows(self, table: NDArray[Any]) -> NDArray[Any]:
        return table.reshape(-1, 3, self._width)

    def _values(self, table: NDArray[Any]) -> NDArray[Any]:
        return self._rows(table)[:, 0, : self._dim]

    def _refresh_guide(self) -> None:
        """Copy the current rows of the validation set's users and items."""
        guide, tables = self._guide, self._tables
        for ahead, rows, table in (
            (guide.ahead_users, guide.user_row, tables.users),
            (guide.ahead_items, guide.item_row, tables.items),
        ):
            ahead.reshape(-1, self._width)[:] = self._rows(table)[rows, 0]

    def _run(self, samples: Samples, batches: Batches) -> NDArray[np.float64]:
        """Learn from each batch; return their losses, of own pairs where workers share them."""
        losses = np.zeros(len(batches.n_clicks))
        clicks = int(np.diff(batches.bounds).max(initial=1))
        pairs = int(np.diff(samples.start[batches.bounds]).max(initial=1))
        n_threads = self._pace.threads(most=max(1, pairs // PAIRS_A_THREAD))
        marked = samples.marks is not None
        span = Span(*batches, *NOTHING)
        if self._shared is not None:
            span = self._shared.listed(samples, span)
            pairs = max(pairs, int(np.diff(span.item_start).max(initial=0)))
        space = self._space_for(clicks, pairs, n_threads, marked)
        kinds = (np.int32, np.int64, np.int32, np.float32, np.float32)
        by_item = np.zeros(0) if samples.item_weight is None else samples.item_weight
        columns = (samples.users, samples.start, samples.items, samples.weight, by_item)
        required = [np.require(c, k, ["C", "W"]) for c, k in zip(columns, kinds, strict=True)]
        marks = None if samples.marks is None else _pair_marks(samples.marks)
        given = Batch._make([*required, marks])
        work: Any = space.work
        rows = work.on_items.reshape(-1, self._width)
        begin = time.perf_counter()
        with nullcontext(ALONE) if self._shared is None else self._shared.reachable(rows) as others:
            step = Step(
                *(self._tables, space.plan, self._guide, work, self._options),
                *(self._phases, others, n_threads, np.zeros(64, dtype=np.int64)),
                True if marked else None,
            )
            on_threads(lambda thread: RUN(given, span, step, thread, losses), n_threads)
        if len(losses):
            self._pace.note(n_threads, (time.perf_counter() - begin) / max(1, len(samples)))
            self._steps = int(batches.before[-1]) + 1
        return losses

    def _space_for(self, clicks: int, pairs: int, n_threads: int, marked: bool) -> "Space":
        """Room for such batches; where workers share them, room for somewhat larger ones."""
        if self._space is None or not self._space.holds(clicks, pairs, n_threads, marked):
            if self._shared is not None:
                clicks, pairs = clicks + clicks // 4, pairs + pairs // 4
            self._space = Space(
                self._guide,
                clicks=clicks,
                pairs=pairs,
                threads=n_threads,
                marked=marked,
                on_batch=self._objective.strategy == "bilevel_on_batch",
                n_users=self._n_users,
                n_items=self._n_items,
                width=self._width,
                dtype=self._dtype,
            )
        return self._space


def _pair_marks(marks: Marks) -> PairMarks:
    columns = (marks.click, marks.weight, marks.exposure)
    return PairMarks(*(np.require(c, np.float32, ["C", "W"]) for c in columns))


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
