"""The data of a step: the parameters, the pairs of a batch, and scratch space.

A batch is laid out by users, so that all pairs of a user lie together, and by items. One table of
shapes describes the arrays of a `Plan`, another the arrays of `Work`.
"""

from collections import namedtuple
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unexposed.engine.cpu.compile import Array, jit
from unexposed.engine.cpu.grouping import group, share_out

BLOCK = 64  # validation pairs of an item that one thread adds up; blocks are then added in order
CHUNK = 32  # rows that a thread takes together: their data stays in the cache
AHEAD, FAR_AHEAD = 8, 16  # rows between the current one and the one prefetched
ROW_COST = 3  # of Adam on a row, in pairs
RELEVANCE_RATES, EXPOSURE_RATES, GATE_RATES = range(3)  # rows of the rates
# Codes of `bilevel.STRATEGIES`
STRATEGIES = (None, "bilevel", "joint", "alternate", "bilevel_on_batch", "frozen")
STRATEGY_CODES = {name: code for code, name in enumerate(STRATEGIES)}
GIVEN, BILEVEL, JOINT, ALTERNATE, BILEVEL_ON_BATCH, FROZEN = STRATEGY_CODES.values()


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
    "item_share": (INT, "batches", "threads+1"),
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
    "on_items": (REAL, "pairs*dim+gate"),  # the gradient of each item of the batch, and of the gate
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


@jit
def lay_out_pairs(
    plan: Any,
    b: int,
    work: Any,
    users: Array,
    start: Array,
    items: Array,
    weight: Array,
    item_weight: Array,
    marks: Any,
    exposure: Array,
) -> None:
    """Put the pairs of batch b in the order of their users.

    Thread b runs this, with scratch space of its own.
    """
    number, order, click_start = work.number[b], work.order[b], work.click_start[b]
    user_row, user_start, n = plan.user_row[b], plan.user_start[b], len(users)
    n_users = group(users, n, work.place_users[b], user_row, click_start, number, order)
    pair_item, pair_user_at = plan.pair_item[b], plan.pair_user_at[b]
    pair_click, pair_weight = plan.pair_click[b], plan.pair_weight[b]
    pair_exposure = plan.pair_exposure[b]
    by_user = 1 if len(exposure) > 1 else 0
    at = 0
    for g in range(n_users):
        user_start[g] = at
        shown = exposure[by_user * user_row[g]]
        for j in range(click_start[g], click_start[g + 1]):
            c = order[j]
            pair_click[at], pair_weight[at] = 1, 1
            for k in range(start[c], start[c + 1]):
                item = items[k]
                pair_item[at], pair_user_at[at], pair_exposure[at] = item, g, shown[item]
                if k > start[c]:
                    pair_click[at], pair_weight[at] = 0, weight[c]
                    if len(item_weight):
                        pair_weight[at] *= item_weight[item]
                if marks is not None:
                    pair_click[at], pair_weight[at] = marks.click[k], marks.weight[k]
                    plan.pair_known[b, at] = marks.exposure[k]
                at += 1
    user_start[n_users] = at
    plan.n_clicks[b], plan.n_pairs[b], plan.n_users[b] = n, at, n_users
    share_out(user_start, n_users, ROW_COST, CHUNK, plan.user_share[b])


@jit
def lay_out_items(plan: Any, b: int, work: Any) -> None:
    """Find the items of batch b, and the pairs of each."""
    item_row, item_start, item_at = plan.item_row[b], plan.item_start[b], plan.pair_item_at[b]
    pairs = plan.pair_item[b], plan.n_pairs[b]
    n_items = group(*pairs, work.place_items[b], item_row, item_start, item_at, plan.item_pairs[b])
    plan.n_items[b] = n_items
    share_out(item_start, n_items, ROW_COST, CHUNK, plan.item_share[b])


@jit
def find_guides(plan: Any, b: int, work: Any, guide: Guide, part: int) -> None:
    """Which users and items of batch b have validation pairs in this part, and where."""
    user_guide, place = plan.user_guide[b], work.place_users[b]
    for g in range(plan.n_users[b]):
        place[plan.user_row[b, g]] = g
        user_guide[g] = -1
    for j in range(guide.user_part[part], guide.user_part[part + 1]):
        g = place[guide.user_row[guide.user_group[j]]]
        if g >= 0:
            user_guide[g] = j
    for g in range(plan.n_users[b]):
        place[plan.user_row[b, g]] = -1
    item_guide, place = plan.item_guide[b], work.place_items[b]
    for h in range(plan.n_items[b]):
        place[plan.item_row[b, h]] = h
        item_guide[h] = -1
    first = guide.item_part[part]
    for j in range(first, guide.item_part[part + 1]):
        h = place[guide.item_row[guide.item_group[j]]]
        plan.guide_item_at[b, j - first] = h
        if h >= 0:
            item_guide[h] = j
    for h in range(plan.n_items[b]):
        place[plan.item_row[b, h]] = -1
