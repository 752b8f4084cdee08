"""The data of a step: the parameters, the pairs of a batch, scratch space, the table of phases.

A batch is laid out by users, so that all pairs of a user lie together, and by items. One table of
shapes describes the arrays of a `Plan`, another the arrays of `Work`.
"""

from collections import namedtuple
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unexposed.engine.cpu.compile import Array

BLOCK = 64  # validation pairs of an item that one thread adds up; blocks are then added in order
CHUNK = 32  # rows that a thread takes together: their data stays in the cache
NEAR, FAR = 8, 16  # rows between the current one and the one prefetched
ROW_COST = 3  # of Adam on a row, in pairs
RELEVANCE_RATES, EXPOSURE_RATES, GATE_RATES = range(3)  # rows of the rates
# Codes of `bilevel.STRATEGIES`
STRATEGIES = (None, "bilevel", "joint", "alternate", "bilevel_on_batch", "frozen")
STRATEGY_CODES = {name: code for code, name in enumerate(STRATEGIES)}
GIVEN, BILEVEL, JOINT, ALTERNATE, BILEVEL_ON_BATCH, FROZEN = STRATEGY_CODES.values()

# The phases of a step, by strategy. Four of them make sums over users, which workers add up:
# AHEAD ω′_i, ALONG g_i = ∂L_outer/∂ω_i at ω′, GATE the gradient on w and b, ITEMS the one on ω_i.
GATES, LOOK, AHEAD, VALIDATE, ALONG_BATCH, ALONG, EXPOSURE, GATE, USERS, ITEMS = range(10)
PHASES = {
    None: (USERS, ITEMS),
    "frozen": (GATES, LOOK, USERS, ITEMS),
    # both gradients at one point
    "joint": (GATES, LOOK, EXPOSURE, GATE, USERS, ITEMS),
    "alternate": (GATES, LOOK, EXPOSURE, GATE, GATES, USERS, ITEMS),
    "bilevel": (GATES, LOOK, AHEAD, VALIDATE, ALONG, EXPOSURE, GATE, GATES, USERS, ITEMS),
    "bilevel_on_batch": (
        *(GATES, LOOK, AHEAD, ALONG_BATCH, ALONG, EXPOSURE, GATE, GATES, USERS, ITEMS),
    ),
}
GATE_ROWS = 2  # w, and b in a row of its own


class Tables(NamedTuple):
    """The parameters with their moments (see `rows.py`), the rates and the given exposure."""

    dim: int
    users: Array  # ω_u
    items: Array  # ω_i
    exposure_users: Array  # e_u
    gate: Array  # w, then b in a row of its own
    rates: Array  # (3, 2): learning rate and weight decay of ω, of e, of the gate
    exposure: Array  # (n_users or 1, n_items): m, or the θ of the gate
    decays: Array  # (dim): 1 for a column of ω with weight decay, 0 for one without
    fixed_of_users: int  # the column of ω_u that never moves, −1 without
    fixed_of_items: int


class Guide(NamedTuple):
    """The validation pairs in parts, one for each step; their users and items are numbered.

    Part j has the groups user_part[j] … user_part[j + 1] − 1, each the pairs of one user, and the
    groups item_part[j] … of one item's pairs, which are cut into blocks.
    """

    n_parts: int
    scale: Array  # (parts): a part stands for all pairs
    user_row: Array  # the user of each number
    item_row: Array
    user_number: Array  # the number of each user, −1 without a validation pair
    item_number: Array
    user_part: Array  # (parts + 1)
    user_group: Array  # (groups): the number of the group's user
    user_start: Array  # (groups + 1): its pairs
    user_items: Array  # (pairs): the item's number of each, by user
    user_relevant: Array
    item_part: Array
    item_group: Array
    item_blocks: Array  # (groups + 1): its blocks
    block_group: Array  # (blocks)
    block_start: Array  # (blocks + 1): their pairs
    item_users: Array
    item_relevant: Array
    ahead_users: Array  # ω′ of each number; ω_u of one that the batch does not touch
    ahead_items: Array


INT, FLAG, REAL, DOUBLE = "int32", "float32", "real", "float64"

PLAN: dict[str, tuple[str, ...]] = {  # one row for each batch that is laid out
    "n_clicks": (INT, "batches"),
    "n_pairs": (INT, "batches"),
    "pair_item": (INT, "batches", "pairs"),
    "pair_user_at": (INT, "batches", "pairs"),  # the place of its user in the batch's users
    "pair_item_at": (INT, "batches", "pairs"),
    "pair_click": (FLAG, "batches", "pairs"),  # 1 for a click, 0 for an item drawn for it
    "pair_weight": (FLAG, "batches", "pairs"),
    "pair_exposure": (REAL, "batches", "pairs"),  # m as given, or θ
    "pair_known": (FLAG, "batches", "marked_pairs"),  # m of a marked pair, NaN for the learned one
    "n_users": (INT, "batches"),
    "user_row": (INT, "batches", "clicks"),
    "user_start": (INT, "batches", "clicks+2"),  # where the pairs of each user begin
    "user_share": (INT, "batches", "threads+1"),  # the users of each thread
    "n_items": (INT, "batches"),
    "item_row": (INT, "batches", "pairs"),
    "item_start": (INT, "batches", "pairs+2"),
    "item_pairs": (INT, "batches", "pairs"),
    "item_times": (INT, "batches", "pairs"),  # of several workers: all their pairs of each item
    "item_share": (INT, "batches", "threads+1"),
    "item_sum": (INT, "batches", "pairs"),  # by validation pairs: the row of `on_items`, or −1
    "n_sums": (INT, "batches"),
    "user_guide": (INT, "batches", "clicks"),  # the user's group of validation pairs, −1 without
    "item_guide": (INT, "batches", "pairs"),
    "guide_item_at": (INT, "batches", "guide_groups"),  # the place of a group's item, −1 without
}
WORK: dict[str, tuple[str, ...]] = {
    "logit": (DOUBLE, "pairs"),  # x = ωᵤᵀωᵢ
    "odds": (DOUBLE, "pairs"),  # e⁻ˣ
    "seen_logit": (DOUBLE, "pairs"),  # eᵤᵀωᵢ + offset
    "seen_odds": (DOUBLE, "pairs"),
    "gate": (DOUBLE, "pairs"),  # r of each item of the batch
    "gate_rest": (DOUBLE, "pairs"),  # 1 − r
    "slope": (REAL, "pairs"),  # ∂L/∂x
    "along": (DOUBLE, "pairs"),  # gᵤᵀωᵢ + gᵢᵀωᵤ
    "direct": (DOUBLE, "pairs"),  # ∂L/∂m that does not go through ω′
    "gate_slope": (DOUBLE, "pairs"),  # the gradient on wᵀωᵢ + b
    "loss": (DOUBLE, "pairs"),
    "old_users": (REAL, "clicks*dim"),  # ω_u before its step
    "on_items": (REAL, "pairs*dim+gate"),  # sums over users, for items or for the gate
    "on_gate": (REAL, "chunks*dim"),  # of w, a sum for each chunk of items
    "on_bias": (DOUBLE, "chunks"),
    "blocks": (REAL, "guide_blocks*dim"),  # partial sums of g_i
    "ahead_users": (REAL, "ahead_clicks*dim"),  # ω′ of each row of the batch (BiOpt2)
    "ahead_items": (REAL, "ahead_pairs*dim"),
    "rates": (DOUBLE, "threads", "kinds", "kinds"),  # of this step, see `rows.correct_rates`
    "own": (REAL, "threads", "dim+line"),
    "own_slope": (REAL, "threads", "own"),
    "own_logit": (DOUBLE, "threads", "own"),
    "place_users": (INT, "threads", "n_users"),  # −1 everywhere between uses
    "place_items": (INT, "threads", "n_items"),
    "number": (INT, "threads", "clicks"),
    "order": (INT, "threads", "clicks"),
    "click_start": (INT, "threads", "clicks+2"),
}
Plan: Any = namedtuple("Plan", list(PLAN))  # type: ignore[misc]
Work: Any = namedtuple("Work", list(WORK))  # type: ignore[misc]


class PairMarks(NamedTuple):
    """`sampling.marks.Marks` of the samples."""

    click: Array
    weight: Array
    exposure: Array


class Batch(NamedTuple):
    """The columns of `Samples`."""

    users: Array
    start: Array
    items: Array
    weight: Array
    item_weight: Array  # (items,), or empty: 1 for each
    marks: Any  # None, or PairMarks


class Span(NamedTuple):
    """Consecutive batches: the own clicks of each, and what all workers have together."""

    bounds: Array  # (batches + 1,): where the own clicks of each begin
    n_clicks: Array  # (batches,): of all workers
    before: Array  # (batches,): steps taken before each
    item_start: Array  # (batches + 1,): where the items of each begin; empty where alone
    item_row: Array  # that any worker touches
    item_times: Array  # how many pairs of all workers have each


class Workers(NamedTuple):
    """How a kernel reaches the other workers."""

    address: int  # of the function that adds up the first rows of `on_items`; 0 where alone
    leads: bool  # whether this worker's sums start with what is added once
    failed: Array  # (1,): not 0 once it could not


class Options(NamedTuple):
    """The objective as numbers."""

    loss: int
    strategy: int
    offset: float
    lookahead: float


class Step(NamedTuple):
    """The first argument of every phase of a step."""

    tables: Tables
    plan: Any  # Plan
    guide: Guide
    work: Any  # Work
    options: Options
    phases: Array
    workers: Workers
    n_threads: int
    barrier: Array
    marked: Any  # None, or True where the samples have marks: each is compiled by itself


def arrays(
    table: Mapping[str, tuple[str, ...]], sizes: Mapping[str, int], real: np.dtype[Any]
) -> list[NDArray[Any]]:
    """The arrays of a table of shapes, filled with 0, or with −1 where they hold places."""

    def size(text: str) -> int:
        for sign, join in (("+", int.__add__), ("*", int.__mul__)):
            if sign in text:
                left, right = text.split(sign)
                return join(size(left), size(right))
        return int(text) if text.isdigit() else sizes[text]

    found = []
    for name, (kind, *shape) in table.items():
        dtype = real if kind == REAL else np.dtype(kind)
        array = aligned_zeros(tuple(size(s) for s in shape), dtype)
        if name.startswith("place"):
            array.fill(-1)
        found.append(array)
    return found


def aligned_zeros(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Zeros that begin on a cache line, so that no vector straddles two."""
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    memory = np.zeros(n_bytes + CACHE_LINE, dtype=np.uint8)
    begin = -memory.ctypes.data % CACHE_LINE
    return memory[begin : begin + n_bytes].view(dtype).reshape(shape)


CACHE_LINE = 64  # bytes
LINE = 16  # numbers that fill at least one: threads write to lines of their own
