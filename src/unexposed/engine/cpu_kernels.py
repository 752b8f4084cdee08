"""The compiled steps of the fast CPU engine: `losses.py` and `bilevel.py` in closed form.

A table of rows is one flat array: row r of `users` begins at 3·dim·r and holds the value, then
Adam's two moments. Numbers of a pair (its logit, its slope) are worked out in float64, rows in the
engine's own type.

A batch is cut into phases with a barrier between them. In a phase each row has one owner, who adds
up its gradient in a fixed order; which thread that is does not matter, so any number of threads
gives the same bits. The pairs of a batch ("entries") are put in the order of their users first.
"""

import math
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numba.core.cgutils
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])
cgutils: Any = numba.core.cgutils
Array = Any  # of numbers, one-dimensional unless told otherwise

# Codes of what `losses.LOSSES` and `bilevel.STRATEGIES` name
INVERSE_PROPENSITY, LOW_VARIANCE, INVERSE_PROPENSITY_SQUARED, LOW_VARIANCE_SQUARED, PAIRWISE = (
    range(5)
)
GIVEN, BILEVEL, JOINT, ALTERNATE, BILEVEL_ON_BATCH, FROZEN = range(6)

AHEAD, FAR_AHEAD = 4, 8  # rows between the one worked on and the one asked of the memory
BLOCK = 64  # terms of a long sum that one thread adds up; the parts are then added in order
MOST_EXPONENT = 300.0  # products of two e^±300 are finite; p is 0 or 1 in every digit long before


def jit(function: F) -> F:
    """Compile for use in other kernels.

    Sums may be reordered (so that they use the vector units), the same way at every call; NaN and
    infinity keep their meaning.
    """
    return _compiled(function, liberties={"reassoc", "contract", "nsz"})


def jit_as_written(function: F) -> F:
    """The same, for arithmetic whose order must be kept."""
    return _compiled(function, liberties={"contract"})


def jit_entry(function: F) -> F:
    """The same as `jit`, to be called from Python, without its lock, and kept on disk."""
    liberties = {"reassoc", "contract", "nsz"}
    return _compiled(function, liberties=liberties, inner=False)


def _compiled(function: F, *, liberties: set[str], inner: bool = True) -> F:
    njit: Any = numba.njit
    return njit(
        nogil=True,
        cache=not inner,
        error_model="numpy",
        fastmath=liberties,
        no_cpython_wrapper=inner,  # half of the time that compilation takes
        no_cfunc_wrapper=True,
        _nrt=False,  # no reference counts, for which threads would contend: nothing is allocated
    )(function)


class Model(NamedTuple):
    """The parameters with their moments, and what is given."""

    dim: int
    users: Array  # ω_u
    items: Array  # ω_i
    seers: Array  # e_u
    gate: Array  # w, then b in a row of its own
    user_power: Array  # two for each row: β₁ and β₂ to the power of its count of steps
    item_power: Array
    seer_power: Array
    gate_power: Array
    rates: Array  # of ω, as `adam_rates` gives them
    exposure_rates: Array  # of e
    gate_rates: Array  # of w and b
    exposure: Array  # (n_users or 1, n_items): m, or the θ of the gate
    ahead_users: Array  # ω′ of each user of the validation set; of each row of the batch (BiOpt2)
    ahead_items: Array


class Validation(NamedTuple):
    """The validation pairs, users and items numbered among those that occur in it."""

    user_number: Array  # of each user, −1 without a pair
    item_number: Array
    users: Array  # of each pair
    items: Array
    relevant: Array
    scale: float  # a part of the pairs stands for all of them


class Groups(NamedTuple):
    """The validation pairs of a step, by user and by item; one row a batch, or one for all."""

    user_start: Array  # (batches, users + 1)
    user_items: Array  # (batches, pairs): the items of a user's pairs
    user_relevant: Array
    item_start: Array
    item_users: Array
    item_relevant: Array


class Plan(NamedTuple):
    """Some batches, each with its pairs in the order of their users; one row a batch."""

    n_entries: Array
    entry_user: Array
    entry_item: Array
    entry_user_place: Array  # among the users of the batch
    entry_item_place: Array
    entry_click: Array
    entry_weight: Array
    n_users: Array
    user_rows: Array  # the users of the batch
    user_start: Array  # where the entries of each begin
    user_share: Array  # (batches, threads + 1): the users that each thread owns
    n_items: Array
    item_rows: Array
    item_start: Array
    item_entries: Array  # the entries of each item
    item_share: Array
    user_group: Array  # the user's group of validation pairs, −1 without
    item_group: Array
    block_start: Array  # the first block of each item of the batch
    block_item: Array  # the validation number of the block's item
    block_begin: Array  # the validation pairs of a block
    block_end: Array
    block_share: Array


class Work(NamedTuple):
    """Scratch space of one batch."""

    logit: Array  # x = ωᵤᵀωᵢ of each entry
    seen_logit: Array  # eᵤᵀωᵢ + offset
    odds: Array  # e⁻ˣ
    seen_odds: Array
    slope: Array  # ∂L/∂x, in the type of the rows
    along: Array  # gᵤᵀωᵢ + gᵢᵀωᵤ
    direct: Array  # ∂L/∂m that does not go through ω′
    gate_slope: Array  # the gradient on wᵀωᵢ + b
    loss: Array
    gate_open: Array  # r of each item of the batch
    gate_shut: Array  # 1 − r
    item_slope: Array
    on_users: Array  # a gradient for each user of the batch
    blocks: Array  # partial sums of g_i
    gate_blocks: Array  # partial sums of the gradient on w
    gate_block_slope: Array  # and on b
    own: Array  # a row for each thread
    own_slope: Array  # (threads, BLOCK): slopes of the validation pairs that a thread is at
    own_logit: Array
    place_users: Array  # (threads, n_users): −1 everywhere between uses
    place_items: Array
    place_validation_users: Array
    place_validation_items: Array
    order: Array  # (threads, entries)
    keys: Array


class Options(NamedTuple):
    """The objective in numbers."""

    loss: int
    strategy: int
    offset: float
    lookahead: float
    validation_batch: int  # 0: all pairs at every step


# Threads -------------------------------------------------------------------------------------


def _atomic(operation: str) -> Any:
    @intrinsic
    def atomic(typing_context: Any, array: Any, index: Any, value: Any) -> Any:
        del typing_context, index, value

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            shape_of = context.make_array(signature.args[0])(context, builder, arguments[0])
            pointer = cgutils.get_item_pointer(
                context, builder, signature.args[0], shape_of, [arguments[1]]
            )
            if operation == "add":
                return builder.atomic_rmw("add", pointer, arguments[2], "seq_cst")
            if operation == "load":
                return builder.load_atomic(pointer, "seq_cst", 8)
            builder.store_atomic(arguments[2], pointer, "seq_cst", 8)
            return arguments[2]

        return types.int64(array, types.intp, types.int64), generate

    return atomic


_atomic_add, _atomic_load, _atomic_store = _atomic("add"), _atomic("load"), _atomic("store")

ARRIVED, ROUND = 0, 16  # places of the barrier, on cache lines of their own
_SPINS = 4000  # looks before a waiting thread offers its core to another
if sys.platform == "win32":

    @jit
    def _yield_core() -> None:
        pass
else:
    _sched_yield = types.ExternalFunction("sched_yield", types.intc())

    @jit
    def _yield_core() -> None:
        _sched_yield()


@jit
def wait_for_all(barrier: Array, n_threads: int) -> None:
    """Return when every thread has come here."""
    if n_threads == 1:
        return
    entered = _atomic_load(barrier, ROUND, 0)
    if _atomic_add(barrier, ARRIVED, 1) == n_threads - 1:
        _atomic_store(barrier, ARRIVED, 0)
        _atomic_add(barrier, ROUND, 1)
        return
    looks = 0
    while _atomic_load(barrier, ROUND, 0) == entered:
        looks += 1
        if looks > _SPINS:
            _yield_core()


def _ask_for_line(typing_context: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of an element that will be needed soon."""
    del typing_context, index

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array_type = signature.args[0]
        made = context.make_array(array_type)(context, builder, arguments[0])
        pointer = cgutils.get_item_pointer(context, builder, array_type, made, [arguments[1]])
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        prefetch = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte, number, number, number]),
            "llvm.prefetch.p0",
        )
        read, keep, data = (ir.Constant(number, c) for c in (0, 3, 1))
        builder.call(prefetch, [builder.bitcast(pointer, byte), read, keep, data])
        return context.get_dummy_value()

    return types.none(array, types.intp), generate


_prefetch: Any = intrinsic(_ask_for_line)


# Rows ----------------------------------------------------------------------------------------
# Offsets are unsigned: no check for negative ones, so the loops become vector instructions.


@jit
def dot(left: Array, at: int, right: Array, other: int, dim: int) -> Any:
    at_, other_ = np.uint64(at), np.uint64(other)
    total = left.dtype.type(0)
    for k in range(np.uint64(dim)):
        total += left[at_ + k] * right[other_ + k]
    return total


@jit
def dot_two(left: Array, also: Array, at: int, right: Array, other: int, dim: int) -> Any:
    """The same row of two tables times a row of a third."""
    at_, other_ = np.uint64(at), np.uint64(other)
    first, second = left.dtype.type(0), left.dtype.type(0)
    for k in range(np.uint64(dim)):
        first += left[at_ + k] * right[other_ + k]
        second += also[at_ + k] * right[other_ + k]
    return first, second


@jit
def fetch(table: Array, at: int, length: int) -> None:
    """Have a stretch of a table on its way from memory while other rows are worked on."""
    k = at
    while k < at + length:
        _prefetch(table, k)
        k += 64 // table.itemsize


@jit
def fetch_record(table: Array, power: Array, row: int, dim: int) -> None:
    """The same for a row with its moments and its count."""
    _prefetch(power, 2 * row)
    fetch(table, 3 * dim * row, 3 * dim)


@jit
def put(target: Array, at: int, source: Array, other: int, dim: int) -> None:
    at_, other_ = np.uint64(at), np.uint64(other)
    for k in range(np.uint64(dim)):
        target[at_ + k] = source[other_ + k]


@jit
def put_zero(target: Array, at: int, dim: int) -> None:
    at_ = np.uint64(at)
    for k in range(np.uint64(dim)):
        target[at_ + k] = 0


@jit
def put_scaled(target: Array, at: int, source: Array, other: int, scale: Any, dim: int) -> None:
    at_, other_ = np.uint64(at), np.uint64(other)
    for k in range(np.uint64(dim)):
        target[at_ + k] = scale * source[other_ + k]


@jit
def put_sum(
    target: Array,
    at: int,
    base: Array,
    base_at: int,
    source: Array,
    other: int,
    scale: Any,
    dim: int,
) -> None:
    at_, base_, other_ = np.uint64(at), np.uint64(base_at), np.uint64(other)
    for k in range(np.uint64(dim)):
        target[at_ + k] = base[base_ + k] + scale * source[other_ + k]


@jit
def add_four(
    target: Array, at: int, source: Array, rows: Array, first: int, scale: Array, j: int, dim: int
) -> None:
    """Add four scaled rows at once, which spares the target three ways to memory."""
    at_ = np.uint64(at)
    a, b = np.uint64(dim * rows[first]), np.uint64(dim * rows[first + 1])
    c, d = np.uint64(dim * rows[first + 2]), np.uint64(dim * rows[first + 3])
    by_a, by_b, by_c, by_d = scale[j], scale[j + 1], scale[j + 2], scale[j + 3]
    for k in range(np.uint64(dim)):
        target[at_ + k] += (by_a * source[a + k] + by_b * source[b + k]) + (
            by_c * source[c + k] + by_d * source[d + k]
        )


@jit
def add_scaled(target: Array, at: int, source: Array, other: int, scale: Any, dim: int) -> None:
    at_, other_ = np.uint64(at), np.uint64(other)
    for k in range(np.uint64(dim)):
        target[at_ + k] += scale * source[other_ + k]


@jit
def adam(
    table: Array, power: Array, row: int, gradient: Array, at: int, rates: Array, dim: int
) -> None:
    """Move a row against its gradient, as `engine/adam.py` has it."""
    power[2 * row] *= rates[2]
    power[2 * row + 1] *= rates[4]
    real = table.dtype.type
    step = real(rates[0] / (1 - power[2 * row]))
    root = real(1 / math.sqrt(1 - power[2 * row + 1]))
    decay, beta1, rest1 = real(rates[1]), real(rates[2]), real(rates[3])
    beta2, rest2, epsilon = real(rates[4]), real(rates[5]), real(rates[6])
    at_ = np.uint64(at)
    value = np.uint64(3 * dim * row)
    first = value + np.uint64(dim)
    second = first + np.uint64(dim)
    for k in range(np.uint64(dim)):
        slope = gradient[at_ + k] + decay * table[value + k]
        mean = beta1 * table[first + k] + rest1 * slope
        square = beta2 * table[second + k] + rest2 * slope * slope
        table[first + k] = mean
        table[second + k] = square
        table[value + k] -= step * mean / (math.sqrt(square) * root + epsilon)


# Numbers of a pair ----------------------------------------------------------------------------
# Everything is a sum or quotient of non-negative terms in t = e⁻ˣ and the chance q = 1 − m of not
# having been shown: p = 1/(1 + t), 1 − p = t/(1 + t), 1 − mp = (q + t)/(1 + t). Nothing cancels.


@jit_as_written
def exponential(x: float) -> float:
    """eˣ to the last digit, without a branch: loops over it become vector instructions.

    x = n·log 2 + r with |r| < 0.35; eʳ by its series, 2ⁿ by writing n into the exponent bits.
    """
    shifted = x / LOG_2 + ROUNDING  # n stands in the lowest bits
    n = shifted - ROUNDING
    r = (x - n * LOG_2_HIGH) - n * LOG_2_LOW
    series = C13
    series = series * r + C12
    series = series * r + C11
    series = series * r + C10
    series = series * r + C9
    series = series * r + C8
    series = series * r + C7
    series = series * r + C6
    series = series * r + C5
    series = series * r + C4
    series = series * r + C3
    series = series * r + C2
    series = (series * r + 1.0) * r + 1.0
    bits = np.int64((np.float64(shifted).view(np.int64) + np.int64(1023)) << np.int64(52))
    return series * np.int64(bits).view(np.float64)


LOG_2, LOG_2_HIGH, LOG_2_LOW = math.log(2), 6.93147180369123816490e-01, 1.90821492927058770002e-10
ROUNDING = 1.5 * 2.0**52
C2, C3, C4, C5, C6, C7, C8, C9, C10, C11, C12, C13 = (1 / math.factorial(k) for k in range(2, 14))


@jit
def odds_against(logit: Any) -> float:
    """t = e⁻ˣ = (1 − p)/p."""
    return exponential(-max(-MOST_EXPONENT, min(MOST_EXPONENT, float(logit))))


@jit
def all_odds_against(logit: Array, odds: Array, begin: int, end: int) -> None:
    for k in range(np.uint64(begin), np.uint64(end)):
        odds[k] = odds_against(logit[k])


@jit
def low_variance_slope(t: float, click: Any, m: float, q: float) -> float:
    """`losses.low_variance_gradient`: −(1 − p) for a click, mp(1 − p)/(1 − mp) without one."""
    return t / (1 + t) * (-1.0 if click > 0 else m / (q + t))


@jit
def low_variance_exposure_slope(t: float, click: Any, m: float, q: float) -> float:
    """`losses.low_variance_exposure_gradient`: −1/m for a click, p/(1 − mp) without one."""
    if click > 0:
        return -1 / m
    return 1 / (q + t)


@jit
def low_variance_cross_slope(t: float, click: Any, q: float) -> float:
    """`losses.low_variance_cross_gradient`: 0 for a click, p(1 − p)/(1 − mp)² without one."""
    if click > 0:
        return 0.0
    return t / (q + t) / (q + t)


@jit
def low_variance_value(t: float, click: Any, m: float, q: float) -> float:
    """`losses.low_variance`: −log(mp) for a click, −log(1 − mp) without one."""
    return -math.log((m if click > 0 else q + t) / (1 + t))


@jit
def value_and_slope(loss: int, logit: float, t: float, click: Any, m: float) -> tuple[float, float]:
    """L and ∂L/∂x of one pair, as in `losses.LOSSES`, where the exposure is given."""
    q = 1 - m
    if loss == LOW_VARIANCE:
        return low_variance_value(t, click, m, q), low_variance_slope(t, click, m, q)
    p, not_p = 1 / (1 + t), t / (1 + t)
    if loss == LOW_VARIANCE_SQUARED:  # (c − mp)²
        residual = q * p + not_p if click > 0 else -m * p
        return residual * residual, -2 * m * p * not_p * residual
    weight = click / m
    slope = (1 - weight) * p - weight * not_p  # p − c/m
    if loss == INVERSE_PROPENSITY:
        return (1 - weight) * logit - math.log(p), slope  # log(1 − p) = log p − x
    return weight * not_p * not_p + (1 - weight) * p * p, 2 * p * not_p * slope


@jit
def slopes_if_shown(logit: Array, slope: Array, scale: float, n: int) -> None:
    """scale·∂L2/∂x at m = 1, −(1 − p) where relevant and p where not, in place of `relevant`."""
    for k in range(np.uint64(n)):
        t = odds_against(logit[k])
        slope[k] = scale * (-t if slope[k] > 0 else 1.0) / (1 + t)


@jit
def gated(open_: float, shut: float, seen_odds: float, popularity: float) -> tuple[float, float]:
    """m and 1 − m of `exposure.gated`: r·s + (1 − r)·θ and r·(1 − s) + (1 − r)·(1 − θ)."""
    seen = 1 / (1 + seen_odds)
    m = open_ * seen + shut * popularity
    return m, open_ * (seen_odds * seen) + shut * (1 - popularity)


# The plan of a batch --------------------------------------------------------------------------


@jit
def group(keys: Array, n: int, place: Array, rows: Array, start: Array, order: Array) -> int:
    """Positions by key, keys in the order they first come; how many keys there are.

    `place`, −1 for every key before, says afterwards where each key's group is.
    """
    n_rows = 0
    start[0] = 0
    for k in range(n):
        _prefetch(place, keys[min(k + 2 * FAR_AHEAD, n - 1)])
        key = keys[k]
        if place[key] < 0:
            place[key] = n_rows
            rows[n_rows] = key
            n_rows += 1
            start[n_rows] = 0
        start[place[key] + 1] += 1
    for g in range(n_rows):
        start[g + 1] += start[g]
    for k in range(n):
        g = place[keys[k]]
        order[start[g]] = k
        start[g] += 1
    for g in range(n_rows, 0, -1):
        start[g] = start[g - 1]
    start[0] = 0
    return n_rows


@jit
def forget(place: Array, rows: Array, n_rows: int) -> None:
    for g in range(n_rows):
        place[rows[g]] = -1


@jit
def share_out(start: Array, n_rows: int, row_cost: int, share: Array) -> None:
    """Cut rows into one run for each thread, of about equal cost: that of a row and its terms."""
    n_threads = len(share) - 1
    total = row_cost * n_rows + start[n_rows] - start[0]
    row = 0
    for thread in range(n_threads):
        share[thread] = row
        goal = total * (thread + 1) // n_threads
        while row < n_rows and row_cost * row + start[row] - start[0] < goal:
            row += 1
    share[n_threads] = n_rows


ROW_COST = 3  # of Adam on a row, beside what one pair costs


@jit
def lay_out(
    plan: Plan,
    b: int,
    work: Work,
    thread: int,
    users: Array,
    items: Array,
    negatives: Array,
    click: Array,
    weight: Array,
) -> None:
    """Put the pairs of batch b in the order of their users, and find the entries of each item.

    A triple is two entries, that of the clicked item and that of the other.
    """
    pairwise = len(negatives) > 0
    each = 2 if pairwise else 1
    n = each * len(users)
    keys, order = work.keys[thread], work.order[thread]
    for k in range(n):
        keys[k] = users[k // each]
    place = work.place_users[thread]
    user_rows, user_start = plan.user_rows[b], plan.user_start[b]
    n_users = group(keys, n, place, user_rows, user_start, order)
    entry_user, entry_item = plan.entry_user[b], plan.entry_item[b]
    entry_user_place, entry_item_place = plan.entry_user_place[b], plan.entry_item_place[b]
    entry_click, entry_weight = plan.entry_click[b], plan.entry_weight[b]
    for k in range(n):
        source = order[k]
        entry_user[k] = keys[source]
        entry_user_place[k] = place[keys[source]]
        if pairwise:
            drawn = source % 2 == 1
            entry_item[k] = negatives[source // 2] if drawn else items[source // 2]
            entry_click[k] = 0 if drawn else 1
            entry_weight[k] = 1
        else:
            entry_item[k] = items[source]
            entry_click[k] = click[source]
            entry_weight[k] = weight[source]
    forget(place, user_rows, n_users)
    place = work.place_items[thread]
    item_rows, item_start = plan.item_rows[b], plan.item_start[b]
    n_items = group(entry_item, n, place, item_rows, item_start, plan.item_entries[b])
    for k in range(n):
        entry_item_place[k] = place[entry_item[k]]
    forget(place, item_rows, n_items)
    plan.n_entries[b], plan.n_users[b], plan.n_items[b] = n, n_users, n_items
    share_out(user_start, n_users, ROW_COST, plan.user_share[b])
    share_out(item_start, n_items, ROW_COST, plan.item_share[b])


@jit
def group_validation(
    validation: Validation, groups: Groups, row: int, first: int, n: int, work: Work, thread: int
) -> tuple[int, int]:
    """The n validation pairs from `first` on, round and round, by user and by item.

    The two `place` arrays are left filled: they say which group a user or an item has.
    """
    keys, order = work.keys[thread], work.order[thread]
    total = len(validation.users)
    rows = work.order[thread][n:]
    for k in range(n):
        keys[k] = validation.users[(first + k) % total]
    place = work.place_validation_users[thread]
    n_users = group(keys, n, place, rows, groups.user_start[row], order)
    for k in range(n):
        at = (first + order[k]) % total
        groups.user_items[row, k] = validation.items[at]
        groups.user_relevant[row, k] = validation.relevant[at]
    for k in range(n):
        keys[k] = validation.items[(first + k) % total]
    place = work.place_validation_items[thread]
    n_items = group(keys, n, place, rows, groups.item_start[row], order)
    for k in range(n):
        at = (first + order[k]) % total
        groups.item_users[row, k] = validation.users[at]
        groups.item_relevant[row, k] = validation.relevant[at]
    return n_users, n_items


@jit
def find_validation(
    plan: Plan, b: int, validation: Validation, groups: Groups, row: int, work: Work, thread: int
) -> None:
    """Which validation pairs the step on batch b needs.

    g_i is only used at unclicked pairs (appendix B: a click has no hypergradient), so an item of
    which the batch has clicks alone needs none of its validation pairs.
    """
    place = work.place_validation_users[thread]
    for g in range(plan.n_users[b]):
        number = validation.user_number[plan.user_rows[b, g]]
        plan.user_group[b, g] = place[number] if number >= 0 else -1
    place = work.place_validation_items[thread]
    start = groups.item_start[row]
    n_blocks = 0
    for h in range(plan.n_items[b]):
        number = validation.item_number[plan.item_rows[b, h]]
        found = place[number] if number >= 0 else -1
        plan.item_group[b, h] = found
        plan.block_start[b, h] = n_blocks
        if found < 0 or not _has_unclicked(plan, b, h):
            continue
        for begin in range(start[found], start[found + 1], BLOCK):
            plan.block_item[b, n_blocks] = number
            plan.block_begin[b, n_blocks] = begin
            plan.block_end[b, n_blocks] = min(begin + BLOCK, start[found + 1])
            n_blocks += 1
    plan.block_start[b, plan.n_items[b]] = n_blocks
    _share_blocks(plan.block_begin[b], plan.block_end[b], n_blocks, plan.block_share[b])


@jit
def _has_unclicked(plan: Plan, b: int, h: int) -> bool:
    for j in range(plan.item_start[b, h], plan.item_start[b, h + 1]):
        if plan.entry_click[b, plan.item_entries[b, j]] == 0:
            return True
    return False


@jit
def _share_blocks(begin: Array, end: Array, n_blocks: int, share: Array) -> None:
    n_threads = len(share) - 1
    total = 0
    for j in range(n_blocks):
        total += end[j] - begin[j]
    j, done = 0, 0
    for thread in range(n_threads):
        share[thread] = j
        while j < n_blocks and done < total * (thread + 1) // n_threads:
            done += end[j] - begin[j]
            j += 1
    share[n_threads] = n_blocks


# The phases of a batch ------------------------------------------------------------------------


@jit
def step_given(model: Model, plan: Plan, b: int, work: Work, options: Options, thread: int) -> None:
    """The slope of every pair, and with it the gradient of every user."""
    dim, users, items, slope = model.dim, model.users, model.items, work.slope
    entry_item, entry_click = plan.entry_item[b], plan.entry_click[b]
    entry_weight = plan.entry_weight[b]
    exposure, by_user = model.exposure, 1 if len(model.exposure) > 1 else 0
    user_start, n_entries = plan.user_start[b], plan.n_entries[b]
    mean = 1.0 / n_entries
    first, last = plan.user_share[b, thread], plan.user_share[b, thread + 1]
    for g in range(first, last):
        user = plan.user_rows[b, g]
        fetch(users, 3 * dim * plan.user_rows[b, min(g + FAR_AHEAD, last - 1)], dim)
        for k in range(user_start[g], user_start[g + 1]):
            fetch(items, 3 * dim * entry_item[min(k + FAR_AHEAD, n_entries - 1)], dim)
            work.logit[k] = dot(users, 3 * dim * user, items, 3 * dim * entry_item[k], dim)
    all_odds_against(work.logit, work.odds, user_start[first], user_start[last])
    for g in range(first, last):
        user = plan.user_rows[b, g]
        begin, end = user_start[g], user_start[g + 1]
        for k in range(begin, end):
            m = float(exposure[by_user * user, entry_item[k]])
            click = entry_click[k]
            loss, rise = value_and_slope(options.loss, work.logit[k], work.odds[k], click, m)
            slope[k] = mean * entry_weight[k] * rise
            work.loss[k] = mean * entry_weight[k] * loss
        sum_up(work.on_users, dim * g, items, 3 * dim, entry_item, slope, begin, end, dim)


@jit
def step_pairwise(model: Model, plan: Plan, b: int, work: Work, thread: int) -> None:
    """`losses.pairwise` and its gradient: entries 2j and 2j + 1 are a triple's two items."""
    dim, users, items, slope = model.dim, model.users, model.items, work.slope
    entry_item, user_start = plan.entry_item[b], plan.user_start[b]
    mean = 2.0 / plan.n_entries[b]
    last = plan.user_share[b, thread + 1]
    for g in range(plan.user_share[b, thread], last):
        user = plan.user_rows[b, g]
        fetch(users, 3 * dim * plan.user_rows[b, min(g + FAR_AHEAD, last - 1)], dim)
        begin, end = user_start[g], user_start[g + 1]
        for k in range(begin, end, 2):
            clicked = dot(users, 3 * dim * user, items, 3 * dim * entry_item[k], dim)
            drawn = dot(users, 3 * dim * user, items, 3 * dim * entry_item[k + 1], dim)
            t = odds_against(clicked - drawn)
            slope[k] = -mean * t / (1 + t)
            slope[k + 1] = -slope[k]
            work.loss[k] = mean * math.log1p(t)
            work.loss[k + 1] = 0
        sum_up(work.on_users, dim * g, items, 3 * dim, entry_item, slope, begin, end, dim)


@jit
def sum_up(
    target: Array,
    at: int,
    source: Array,
    stride: int,
    rows: Array,
    scale: Array,
    begin: int,
    end: int,
    dim: int,
) -> None:
    """target = Σ scale[k]·source[rows[k]] over the entries k of a user, of which there are some."""
    put_scaled(target, at, source, stride * rows[begin], scale[begin], dim)
    for k in range(begin + 1, end):
        add_scaled(target, at, source, stride * rows[k], scale[k], dim)


@jit
def open_gates(model: Model, plan: Plan, b: int, work: Work, thread: int) -> None:
    """r = σ(wᵀωᵢ + b) of every item of the batch, and 1 − r."""
    dim = model.dim
    bias = model.gate[3 * dim]
    first, last = plan.item_share[b, thread], plan.item_share[b, thread + 1]
    for h in range(first, last):
        logit = dot(model.gate, 0, model.items, 3 * dim * plan.item_rows[b, h], dim) + bias
        work.gate_open[h] = logit
    for h in range(np.uint64(first), np.uint64(last)):
        t = odds_against(work.gate_open[h])
        work.gate_open[h] = 1 / (1 + t)
        work.gate_shut[h] = t / (1 + t)


@jit
def look_at_users(
    model: Model,
    plan: Plan,
    b: int,
    validation: Validation,
    work: Work,
    options: Options,
    thread: int,
) -> None:
    """The logits of every pair; ω′_u = ω_u − η·Σ weight·∂L2/∂x·ω_i where it is needed."""
    dim, users, items, seers = model.dim, model.users, model.items, model.seers
    strategy = options.strategy
    entry_item, entry_place = plan.entry_item[b], plan.entry_item_place[b]
    entry_click, entry_weight = plan.entry_click[b], plan.entry_weight[b]
    user_start, slope, n_entries = plan.user_start[b], work.slope, plan.n_entries[b]
    ahead = strategy in (BILEVEL, BILEVEL_ON_BATCH)
    first, last = plan.user_share[b, thread], plan.user_share[b, thread + 1]
    for g in range(first, last):
        user, soon = plan.user_rows[b, g], plan.user_rows[b, min(g + FAR_AHEAD, last - 1)]
        fetch(users, 3 * dim * soon, dim)
        fetch(seers, 3 * dim * soon, dim)
        for k in range(user_start[g], user_start[g + 1]):
            fetch(items, 3 * dim * entry_item[min(k + FAR_AHEAD, n_entries - 1)], dim)
            logits = dot_two(users, seers, 3 * dim * user, items, 3 * dim * entry_item[k], dim)
            work.logit[k] = logits[0]
            work.seen_logit[k] = logits[1] + options.offset
            work.along[k] = 0
            work.direct[k] = 0
    all_odds_against(work.logit, work.odds, user_start[first], user_start[last])
    all_odds_against(work.seen_logit, work.seen_odds, user_start[first], user_start[last])
    if strategy == FROZEN:
        return
    for g in range(first, last):
        user = plan.user_rows[b, g]
        soon = min(g + FAR_AHEAD, last - 1)
        if strategy == BILEVEL and plan.user_group[b, soon] >= 0:
            number = validation.user_number[plan.user_rows[b, soon]]
            fetch(model.ahead_users, dim * number, dim)
        begin, end = user_start[g], user_start[g + 1]
        for k in range(begin, end):
            h, t = entry_place[k], work.odds[k]
            popularity = float(model.exposure[0, entry_item[k]])
            m, q = gated(work.gate_open[h], work.gate_shut[h], work.seen_odds[k], popularity)
            if ahead:
                rise = entry_weight[k] * low_variance_slope(t, entry_click[k], m, q)
                slope[k] = -options.lookahead * rise
            else:
                rise = low_variance_exposure_slope(t, entry_click[k], m, q)
                work.direct[k] = entry_weight[k] * rise
        at = -1
        if strategy == BILEVEL_ON_BATCH:
            at = g
        elif strategy == BILEVEL and plan.user_group[b, g] >= 0:
            at = validation.user_number[user]
        if at >= 0:
            row = 3 * dim * entry_item[begin]
            put_sum(
                model.ahead_users, dim * at, users, 3 * dim * user, items, row, slope[begin], dim
            )
            for k in range(begin + 1, end):
                row = 3 * dim * entry_item[k]
                add_scaled(model.ahead_users, dim * at, items, row, slope[k], dim)


@jit
def look_at_items(
    model: Model,
    plan: Plan,
    b: int,
    validation: Validation,
    work: Work,
    options: Options,
    thread: int,
) -> None:
    """ω′_i = ω_i − η·Σ weight·∂L2/∂x·ω_u where it is needed."""
    dim, users, slope = model.dim, model.users, work.slope
    item_entries, entry_user = plan.item_entries[b], plan.entry_user[b]
    for h in range(plan.item_share[b, thread], plan.item_share[b, thread + 1]):
        item = plan.item_rows[b, h]
        at = h
        if options.strategy == BILEVEL:
            if plan.item_group[b, h] < 0:
                continue
            at = validation.item_number[item]
        put(model.ahead_items, dim * at, model.items, 3 * dim * item, dim)
        for j in range(plan.item_start[b, h], plan.item_start[b, h + 1]):
            k = item_entries[j]
            row = 3 * dim * entry_user[k]
            add_scaled(model.ahead_items, dim * at, users, row, slope[k], dim)


@jit
def validate_blocks(
    model: Model,
    plan: Plan,
    b: int,
    groups: Groups,
    row: int,
    scale: float,
    work: Work,
    thread: int,
) -> None:
    """Parts of g_i = ∂L_val/∂ω_i at ω′: sums of (p − relevant)·ω′_u over validation pairs of i."""
    dim, users, items = model.dim, model.ahead_users, model.ahead_items
    item_users, item_relevant = groups.item_users[row], groups.item_relevant[row]
    own, logit = work.own_slope[thread], work.own_logit[thread]
    last_pair = len(item_users) - 1
    for j in range(plan.block_share[b, thread], plan.block_share[b, thread + 1]):
        begin, end = plan.block_begin[b, j], plan.block_end[b, j]
        item = dim * plan.block_item[b, j]
        for k in range(begin, end):
            fetch(users, dim * item_users[min(k + FAR_AHEAD, last_pair)], dim)
            logit[k - begin] = dot(users, dim * item_users[k], items, item, dim)
            own[k - begin] = 1 if item_relevant[k] else 0
        slopes_if_shown(logit, own, scale, end - begin)
        put_zero(work.blocks, dim * j, dim)
        fours = begin + (end - begin) // 4 * 4
        for k in range(begin, fours, 4):
            add_four(work.blocks, dim * j, users, item_users, k, own, k - begin, dim)
        for k in range(fours, end):
            add_scaled(work.blocks, dim * j, users, dim * item_users[k], own[k - begin], dim)


@jit
def validate_users(
    model: Model,
    plan: Plan,
    b: int,
    validation: Validation,
    groups: Groups,
    row: int,
    work: Work,
    thread: int,
) -> None:
    """g_u = ∂L_val/∂ω_u at ω′ of every user of the batch that has validation pairs."""
    dim, users, items = model.dim, model.ahead_users, model.ahead_items
    user_items, user_relevant = groups.user_items[row], groups.user_relevant[row]
    own, logit = work.own_slope[thread], work.own_logit[thread]
    user_group, user_start = plan.user_group[b], groups.user_start[row]
    first, last = plan.user_share[b, thread], plan.user_share[b, thread + 1]
    n = 0
    for g in range(first, last):
        found = user_group[g]
        if found < 0:
            continue
        user = dim * validation.user_number[plan.user_rows[b, g]]
        for k in range(user_start[found], user_start[found + 1]):
            logit[n] = dot(users, user, items, dim * user_items[k], dim)
            own[n] = 1 if user_relevant[k] else 0
            n += 1
    slopes_if_shown(logit, own, validation.scale, n)
    n = 0
    for g in range(first, last):
        found = user_group[g]
        if found < 0:
            continue
        begin, end = user_start[found], user_start[found + 1]
        put_scaled(work.on_users, dim * g, items, dim * user_items[begin], own[n], dim)
        for k in range(begin + 1, end):
            add_scaled(work.on_users, dim * g, items, dim * user_items[k], own[n + k - begin], dim)
        n += end - begin


@jit
def carry_to_items(model: Model, plan: Plan, b: int, work: Work, thread: int) -> None:
    """gᵢᵀωᵤ of the unclicked pairs, from the parts of g_i."""
    dim = model.dim
    item_entries, entry_user = plan.item_entries[b], plan.entry_user[b]
    real = work.blocks.dtype.type
    for h in range(plan.item_share[b, thread], plan.item_share[b, thread + 1]):
        first, last = plan.block_start[b, h], plan.block_start[b, h + 1]
        if first == last:
            continue
        for j in range(first + 1, last):
            add_scaled(work.blocks, dim * first, work.blocks, dim * j, real(1), dim)
        for j in range(plan.item_start[b, h], plan.item_start[b, h + 1]):
            k = item_entries[j]
            if plan.entry_click[b, k] == 0:
                row = 3 * dim * entry_user[k]
                work.along[k] = dot(work.blocks, dim * first, model.users, row, dim)


@jit
def look_again_at_users(model: Model, plan: Plan, b: int, work: Work, thread: int) -> None:
    """g_u = ∂L_train/∂ω_u at ω′, and ∂L_train/∂m there (`factor_hypergradient_on_batch`)."""
    dim, users, items = model.dim, model.ahead_users, model.ahead_items
    entry_place, slope, user_start = plan.entry_item_place[b], work.slope, plan.user_start[b]
    for g in range(plan.user_share[b, thread], plan.user_share[b, thread + 1]):
        begin, end = user_start[g], user_start[g + 1]
        for k in range(begin, end):
            h, click, weight = entry_place[k], plan.entry_click[b, k], plan.entry_weight[b, k]
            popularity = float(model.exposure[0, plan.entry_item[b, k]])
            m, q = gated(work.gate_open[h], work.gate_shut[h], work.seen_odds[k], popularity)
            t = odds_against(dot(users, dim * g, items, dim * h, dim))
            slope[k] = weight * low_variance_slope(t, click, m, q)
            work.direct[k] = weight * low_variance_exposure_slope(t, click, m, q)
        sum_up(work.on_users, dim * g, items, dim, entry_place, slope, begin, end, dim)


@jit
def look_again_at_items(model: Model, plan: Plan, b: int, work: Work, thread: int) -> None:
    """gᵢᵀωᵤ of the unclicked pairs, g_i = ∂L_train/∂ω_i at ω′."""
    dim, item_entries, own = model.dim, plan.item_entries[b], dim_row(model.dim, thread)
    for h in range(plan.item_share[b, thread], plan.item_share[b, thread + 1]):
        begin, end = plan.item_start[b, h], plan.item_start[b, h + 1]
        put_zero(work.own, own, dim)
        for j in range(begin, end):
            k = item_entries[j]
            row = dim * plan.entry_user_place[b, k]
            add_scaled(work.own, own, model.ahead_users, row, work.slope[k], dim)
        for j in range(begin, end):
            k = item_entries[j]
            row = 3 * dim * plan.entry_user[b, k]
            work.along[k] = dot(work.own, own, model.users, row, dim)


@jit
def dim_row(dim: int, thread: int) -> int:
    """Where a thread's own row begins: cache lines apart from the others'."""
    return thread * (dim + 32)


@jit
def step_seers(model: Model, plan: Plan, b: int, work: Work, options: Options, thread: int) -> None:
    """∂/∂m of every pair, carried into e_u (`factor_exposure_gradient`); Adam on e_u."""
    dim, items, seers, slope = model.dim, model.items, model.seers, work.slope
    strategy, own = options.strategy, dim_row(model.dim, thread)
    entry_item, entry_place = plan.entry_item[b], plan.entry_item_place[b]
    user_start = plan.user_start[b]
    first, last = plan.user_share[b, thread], plan.user_share[b, thread + 1]
    for g in range(first, last):
        user = plan.user_rows[b, g]
        soon = plan.user_rows[b, min(g + AHEAD, last - 1)]
        fetch_record(seers, model.seer_power, soon, dim)
        begin, end = user_start[g], user_start[g + 1]
        has_direction = strategy == BILEVEL_ON_BATCH or (
            strategy == BILEVEL and plan.user_group[b, g] >= 0
        )
        moved = False
        for k in range(begin, end):
            h, item, seen_odds = entry_place[k], entry_item[k], work.seen_odds[k]
            open_, shut = work.gate_open[h], work.gate_shut[h]
            popularity = float(model.exposure[0, item])
            by_m = work.direct[k]
            if plan.entry_click[b, k] == 0:
                along = work.along[k]
                if has_direction:
                    along += dot(work.on_users, dim * g, items, 3 * dim * item, dim)
                if along != 0:  # `_through_step`: −η·weight·∂²L2/∂x∂m·(gᵤᵀωᵢ + gᵢᵀωᵤ)
                    q = gated(open_, shut, seen_odds, popularity)[1]
                    cross = low_variance_cross_slope(work.odds[k], 0, q)
                    by_m -= options.lookahead * plan.entry_weight[b, k] * cross * along
            seen = 1 / (1 + seen_odds)
            work.gate_slope[k] = by_m * (seen - popularity) * open_ * shut  # (s − θ)·r(1 − r)
            slope[k] = by_m * open_ * seen * (seen_odds * seen)  # r·s(1 − s)
            if by_m != 0:
                if moved:
                    add_scaled(work.own, own, items, 3 * dim * item, slope[k], dim)
                else:
                    put_scaled(work.own, own, items, 3 * dim * item, slope[k], dim)
                moved = True
        if not moved:
            put_zero(work.own, own, dim)
        adam(seers, model.seer_power, user, work.own, own, model.exposure_rates, dim)
        if strategy == JOINT:
            continue  # ω descends at the same m
        for k in range(begin, end):
            seen = dot(seers, 3 * dim * user, items, 3 * dim * entry_item[k], dim)
            work.seen_logit[k] = seen + options.offset
    if strategy != JOINT:
        all_odds_against(work.seen_logit, work.seen_odds, user_start[first], user_start[last])


@jit
def sum_gate(model: Model, plan: Plan, b: int, work: Work, thread: int, n_threads: int) -> None:
    """Parts of the gradient on w and b: Σ over items of (Σ over its pairs)·ω_i."""
    dim, item_start = model.dim, plan.item_start[b]
    n_items = plan.n_items[b]
    for j in range(thread, (n_items + BLOCK - 1) // BLOCK, n_threads):
        put_zero(work.gate_blocks, dim * j, dim)
        total = 0.0
        for h in range(BLOCK * j, min(BLOCK * (j + 1), n_items)):
            on_item = 0.0
            for i in range(item_start[h], item_start[h + 1]):
                on_item += work.gate_slope[plan.item_entries[b, i]]
            if on_item == 0:
                continue
            work.item_slope[h] = on_item
            row = 3 * dim * plan.item_rows[b, h]
            add_scaled(work.gate_blocks, dim * j, model.items, row, work.item_slope[h], dim)
            total += on_item
        work.gate_block_slope[j] = total


@jit
def step_gate(model: Model, plan: Plan, b: int, work: Work) -> None:
    """Adam on w and b."""
    dim = model.dim
    real = work.gate_blocks.dtype.type
    for j in range(1, (plan.n_items[b] + BLOCK - 1) // BLOCK):
        add_scaled(work.gate_blocks, 0, work.gate_blocks, dim * j, real(1), dim)
        work.gate_block_slope[0] += work.gate_block_slope[j]
    adam(model.gate, model.gate_power, 0, work.gate_blocks, 0, model.gate_rates, dim)
    put_zero(work.gate_blocks, 0, dim)
    work.gate_blocks[0] = work.gate_block_slope[0]
    adam(model.gate, model.gate_power, 1, work.gate_blocks, 0, model.gate_rates, dim)


@jit
def step_learned(model: Model, plan: Plan, b: int, work: Work, thread: int) -> None:
    """The slope of every pair at the learned exposure, and the gradient of every user."""
    dim, slope = model.dim, work.slope
    entry_item, entry_place = plan.entry_item[b], plan.entry_item_place[b]
    entry_click, entry_weight = plan.entry_click[b], plan.entry_weight[b]
    user_start, n_entries = plan.user_start[b], plan.n_entries[b]
    mean = 1.0 / n_entries
    for g in range(plan.user_share[b, thread], plan.user_share[b, thread + 1]):
        begin, end = user_start[g], user_start[g + 1]
        for k in range(begin, end):
            fetch(model.items, 3 * dim * entry_item[min(k + FAR_AHEAD, n_entries - 1)], dim)
            h, t, click = entry_place[k], work.odds[k], entry_click[k]
            popularity = float(model.exposure[0, entry_item[k]])
            m, q = gated(work.gate_open[h], work.gate_shut[h], work.seen_odds[k], popularity)
            slope[k] = mean * entry_weight[k] * low_variance_slope(t, click, m, q)
            work.loss[k] = mean * entry_weight[k] * low_variance_value(t, click, m, q)
        sum_up(work.on_users, dim * g, model.items, 3 * dim, entry_item, slope, begin, end, dim)


@jit
def step_items(
    model: Model, plan: Plan, b: int, validation: Validation, work: Work, ahead: bool, thread: int
) -> None:
    """The gradient of every item, and Adam on it."""
    dim, users, own = model.dim, model.users, dim_row(model.dim, thread)
    item_entries, entry_user, slope = plan.item_entries[b], plan.entry_user[b], work.slope
    last, n_entries = plan.item_share[b, thread + 1], plan.n_entries[b]
    for h in range(plan.item_share[b, thread], last):
        item = plan.item_rows[b, h]
        fetch_record(
            model.items, model.item_power, plan.item_rows[b, min(h + AHEAD, last - 1)], dim
        )
        begin, end = plan.item_start[b, h], plan.item_start[b, h + 1]
        for j in range(begin, end):
            soon = item_entries[min(j + FAR_AHEAD, n_entries - 1)]
            fetch(users, 3 * dim * entry_user[soon], dim)
        k = item_entries[begin]
        put_scaled(work.own, own, users, 3 * dim * entry_user[k], slope[k], dim)
        for j in range(begin + 1, end):
            k = item_entries[j]
            add_scaled(work.own, own, users, 3 * dim * entry_user[k], slope[k], dim)
        adam(model.items, model.item_power, item, work.own, own, model.rates, dim)
        if ahead and validation.item_number[item] >= 0:
            at = dim * validation.item_number[item]
            put(model.ahead_items, at, model.items, 3 * dim * item, dim)


@jit
def step_users(
    model: Model, plan: Plan, b: int, validation: Validation, work: Work, ahead: bool, thread: int
) -> None:
    """Adam on every user."""
    dim, users = model.dim, model.users
    last = plan.user_share[b, thread + 1]
    for g in range(plan.user_share[b, thread], last):
        user = plan.user_rows[b, g]
        soon = plan.user_rows[b, min(g + AHEAD, last - 1)]
        fetch_record(users, model.user_power, soon, dim)
        if ahead and validation.user_number[soon] >= 0:
            fetch(model.ahead_users, dim * validation.user_number[soon], dim)
        adam(users, model.user_power, user, work.on_users, dim * g, model.rates, dim)
        if ahead and validation.user_number[user] >= 0:
            at = dim * validation.user_number[user]
            put(model.ahead_users, at, users, 3 * dim * user, dim)


# The epoch ------------------------------------------------------------------------------------


@jit
def learn_exposure(
    model: Model,
    plan: Plan,
    b: int,
    validation: Validation,
    groups: Groups,
    work: Work,
    options: Options,
    thread: int,
    n_threads: int,
    barrier: Array,
) -> None:
    """From the gates at the old α to the slopes at the new one, α having stepped."""
    strategy = options.strategy
    look_at_users(model, plan, b, validation, work, options, thread)
    wait_for_all(barrier, n_threads)
    if strategy == FROZEN:
        return
    if strategy in (BILEVEL, BILEVEL_ON_BATCH):
        look_at_items(model, plan, b, validation, work, options, thread)
        wait_for_all(barrier, n_threads)
        if strategy == BILEVEL:
            row = b if options.validation_batch else 0
            scale = validation.scale
            validate_users(model, plan, b, validation, groups, row, work, thread)
            validate_blocks(model, plan, b, groups, row, scale, work, thread)
            wait_for_all(barrier, n_threads)
            carry_to_items(model, plan, b, work, thread)
        else:
            look_again_at_users(model, plan, b, work, thread)
            wait_for_all(barrier, n_threads)
            look_again_at_items(model, plan, b, work, thread)
        wait_for_all(barrier, n_threads)
    step_seers(model, plan, b, work, options, thread)
    wait_for_all(barrier, n_threads)
    sum_gate(model, plan, b, work, thread, n_threads)
    wait_for_all(barrier, n_threads)
    if strategy == JOINT:  # the gates stay those of the old α
        if thread == 0:
            step_gate(model, plan, b, work)
        return
    if thread == 0:
        step_gate(model, plan, b, work)
    wait_for_all(barrier, n_threads)
    open_gates(model, plan, b, work, thread)
    wait_for_all(barrier, n_threads)


@jit_entry
def run(
    users: Array,
    items: Array,
    negatives: Array,
    click: Array,
    weight: Array,
    batch_size: int,
    turn: int,
    model: Model,
    validation: Validation,
    groups: Groups,
    plan: Plan,
    work: Work,
    options: Options,
    thread: int,
    n_threads: int,
    barrier: Array,
    losses: Array,
) -> None:
    """One thread's part of a step on each batch of the samples; thread 0 notes the losses.

    `turn` counts the parts of the validation pairs that were used before.
    """
    n = len(users)
    n_batches = (n + batch_size - 1) // batch_size
    at_once = len(plan.n_entries)
    bilevel = options.strategy == BILEVEL
    learned = options.strategy != GIVEN
    for first in range(0, n_batches, at_once):
        count = min(at_once, n_batches - first)
        for b in range(thread, count, n_threads):
            begin = (first + b) * batch_size
            end = min(begin + batch_size, n)
            lay_out(
                plan,
                b,
                work,
                thread,
                users[begin:end],
                items[begin:end],
                negatives[begin:end],
                click[begin:end],
                weight[begin:end],
            )
            if bilevel:
                plan_validation(
                    plan, b, turn + first + b, validation, groups, work, options, thread
                )
        wait_for_all(barrier, n_threads)
        for b in range(count):
            if learned:
                open_gates(model, plan, b, work, thread)
                wait_for_all(barrier, n_threads)
                learn_exposure(
                    model,
                    plan,
                    b,
                    validation,
                    groups,
                    work,
                    options,
                    thread,
                    n_threads,
                    barrier,
                )
                step_learned(model, plan, b, work, thread)
            elif options.loss == PAIRWISE:
                step_pairwise(model, plan, b, work, thread)
            else:
                step_given(model, plan, b, work, options, thread)
            wait_for_all(barrier, n_threads)
            step_items(model, plan, b, validation, work, bilevel, thread)
            wait_for_all(barrier, n_threads)
            step_users(model, plan, b, validation, work, bilevel, thread)
            if thread == 0:
                total = 0.0
                for k in range(plan.n_entries[b]):
                    total += work.loss[k]
                losses[first + b] = total
            if not learned or b == count - 1:  # else the gates of the next batch come first
                wait_for_all(barrier, n_threads)


@jit
def plan_validation(
    plan: Plan,
    b: int,
    turn: int,
    validation: Validation,
    groups: Groups,
    work: Work,
    options: Options,
    thread: int,
) -> None:
    size, total = options.validation_batch, len(validation.users)
    if size == 0:  # grouped once, each user's and item's group being its number
        find_validation(plan, b, validation, groups, 0, work, thread)
        return
    group_validation(validation, groups, b, (turn * size) % total, size, work, thread)
    find_validation(plan, b, validation, groups, b, work, thread)
    for k in range(size):
        at = ((turn * size) % total + k) % total
        work.place_validation_users[thread, validation.users[at]] = -1
        work.place_validation_items[thread, validation.items[at]] = -1
