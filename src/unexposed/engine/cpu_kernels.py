"""The compiled steps of the fast CPU engine: `losses.py` and `bilevel.py` in closed form.

A table of rows is one flat array: row r of `users` begins at 3·dim·r and holds the value, then
Adam's two moments; dim is that of the model filled up to whole vectors (`lanes.py`) with zeros.
Numbers of a pair (its logit, its slope) are worked out in float64, rows in the engine's own type.

A batch is cut into phases with a barrier between them. In a phase each row has one owner, who adds
up its gradient in a fixed order; which thread that is does not matter, so any number of threads
gives the same bits. The pairs of a batch ("entries") are put in the order of their users first,
and users taken a chunk at a time: what is gathered for them stays in the nearest cache.
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

from unexposed.engine.lanes import fill, load, root, store, total, width

F = TypeVar("F", bound=Callable[..., Any])
cgutils: Any = numba.core.cgutils
Array = Any  # of numbers, one-dimensional unless told otherwise

# Codes of what `losses.LOSSES` and `bilevel.STRATEGIES` name
INVERSE_PROPENSITY, LOW_VARIANCE, INVERSE_PROPENSITY_SQUARED, LOW_VARIANCE_SQUARED, PAIRWISE = (
    range(5)
)
GIVEN, BILEVEL, JOINT, ALTERNATE, BILEVEL_ON_BATCH, FROZEN = range(6)

AHEAD, FAR_AHEAD = 8, 16  # rows between the one worked on and the one asked of the memory
BLOCK = 64  # validation pairs of an item that are added up by one thread, and then in order
CHUNK = 32  # users that are taken together; the gradient on w is added up chunk by chunk
MOST_EXPONENT = 300.0  # products of two e^±300 are finite; p is 0 or 1 in every digit long before


def jit(function: F) -> F:
    """Compile for use in other kernels.

    Sums may be reordered (so that they use the vector units), the same way at every call; NaN and
    infinity keep their meaning.
    """
    return _compiled(function, liberties={"reassoc", "contract", "nsz"})


def jit_inline(function: F) -> F:
    """The same, for what is too short to be called: a call hands over each array in seven parts."""
    return _compiled(function, liberties={"reassoc", "contract", "nsz"}, forceinline=True)


def jit_as_written(function: F) -> F:
    """The same, for arithmetic whose order must be kept."""
    return _compiled(function, liberties={"contract"}, forceinline=True)


def jit_entry(function: F) -> F:
    """The same as `jit`, to be called from Python, without its lock, and kept on disk."""
    liberties = {"reassoc", "contract", "nsz"}
    return _compiled(function, liberties=liberties, inner=False)


def _compiled(
    function: F, *, liberties: set[str], inner: bool = True, forceinline: bool = False
) -> F:
    njit: Any = numba.njit
    return njit(
        nogil=True,
        cache=not inner,
        error_model="numpy",
        fastmath=liberties,
        forceinline=forceinline,
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
    user_count: Array  # the steps that each row has taken
    item_count: Array
    seer_count: Array
    gate_count: Array
    rates: Array  # of ω, as `cpu.adam_rates` gives them
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
    entry_exposure: Array  # m as given, or θ
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
    n_guided: Array
    guided: Array  # the users of the batch that have a group
    item_group: Array
    block_start: Array  # the first block of each item of the batch
    block_item: Array  # the validation number of the block's item
    block_begin: Array  # the validation pairs of a block
    block_end: Array
    pairs_before: Array  # in the blocks before this one
    block_share: Array


class Work(NamedTuple):
    """Scratch space of one batch."""

    logit: Array  # x = ωᵤᵀωᵢ of each entry
    seen_logit: Array  # eᵤᵀωᵢ + offset
    gate_logit: Array  # wᵀωᵢ + b
    odds: Array  # e⁻ˣ
    seen_odds: Array
    gate_odds: Array
    slope: Array  # ∂L/∂x, in the type of the rows
    along: Array  # gᵤᵀωᵢ + gᵢᵀωᵤ
    direct: Array  # ∂L/∂m that does not go through ω′
    gate_slope: Array  # the gradient on wᵀωᵢ + b, in the type of the rows
    loss: Array
    blocks: Array  # partial sums of g_i
    old_users: Array  # ω_u of each user of the batch, as it was before its step
    gate: Array  # (threads, …): every thread takes the same steps on a copy of w and b
    gate_count: Array
    gate_chunks: Array  # sums of the gradient on w, one for each chunk of users
    gate_chunk_slope: Array  # and on b
    own: Array  # (threads, dim)
    own_slope: Array  # (threads, pairs): slopes of the validation pairs that a thread is at
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
        read, second_cache, data = (ir.Constant(number, c) for c in (0, 2, 1))
        builder.call(prefetch, [builder.bitcast(pointer, byte), read, second_cache, data])
        return context.get_dummy_value()

    return types.none(array, types.intp), generate


_prefetch: Any = intrinsic(_ask_for_line)


# Rows ----------------------------------------------------------------------------------------
# Lengths are whole vectors; offsets unsigned, so that no loop checks for negative ones.


@jit_inline
def dot(left: Array, at: int, right: Array, other: int, dim: int) -> Any:
    at_, other_ = np.uint64(at), np.uint64(other)
    sums = load(left, at_) * load(right, other_)
    for k in range(width(left), np.uint64(dim), width(left)):
        sums = sums + load(left, at_ + k) * load(right, other_ + k)
    return total(sums)


@jit_inline
def three_dots(
    left: Array, also: Array, at: int, gate: Array, right: Array, other: int, dim: int
) -> Any:
    """The same row of two tables, and the gate's first, each times a row of another."""
    at_, other_ = np.uint64(at), np.uint64(other)
    row = load(right, other_)
    first, second, third = load(left, at_) * row, load(also, at_) * row, load(gate, 0) * row
    for k in range(width(left), np.uint64(dim), width(left)):
        row = load(right, other_ + k)
        first = first + load(left, at_ + k) * row
        second = second + load(also, at_ + k) * row
        third = third + load(gate, k) * row
    return total(first), total(second), total(third)


@jit_inline
def fetch(table: Array, at: int, length: int) -> None:
    """Have a stretch of a table on its way from memory while other rows are worked on."""
    k: Any = at
    while k < at + length:
        _prefetch(table, k)
        k += np.int64(2 * width(table))  # a cache line


@jit_inline
def fetch_record(table: Array, count: Array, row: int, dim: int) -> None:
    """The same for a row with its moments and its count."""
    _prefetch(count, row)
    fetch(table, 3 * dim * row, 3 * dim)


@jit_inline
def put(target: Array, at: int, source: Array, other: int, dim: int) -> None:
    at_, other_ = np.uint64(at), np.uint64(other)
    for k in range(np.uint64(0), np.uint64(dim), width(target)):
        store(target, at_ + k, load(source, other_ + k))


@jit_inline
def put_zero(target: Array, at: int, dim: int) -> None:
    nothing = fill(target, target.dtype.type(0))
    for k in range(np.uint64(0), np.uint64(dim), width(target)):
        store(target, np.uint64(at) + k, nothing)


@jit_inline
def add_scaled(target: Array, at: int, source: Array, other: int, scale: Any, dim: int) -> None:
    put_sum(target, at, target, at, source, other, scale, dim)


@jit_inline
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
    by = fill(target, scale)
    for k in range(np.uint64(0), np.uint64(dim), width(target)):
        store(target, at_ + k, load(base, base_ + k) + by * load(source, other_ + k))


@jit_inline
def put_scaled(target: Array, at: int, source: Array, other: int, scale: Any, dim: int) -> None:
    at_, other_ = np.uint64(at), np.uint64(other)
    by = fill(target, scale)
    for k in range(np.uint64(0), np.uint64(dim), width(target)):
        store(target, at_ + k, by * load(source, other_ + k))


@jit_inline
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
    """target = Σ scale[k]·source[rows[k]] over the entries k of a user, of which there are some.

    Two at once, for each waits for what was stored before it.
    """
    put_scaled(target, at, source, stride * rows[begin], scale[begin], dim)
    twos = begin + 1 + (end - begin - 1) // 2 * 2
    for j in range(begin + 1, twos, 2):
        one, other = np.uint64(stride * rows[j]), np.uint64(stride * rows[j + 1])
        by_one, by_other = fill(target, scale[j]), fill(target, scale[j + 1])
        for k in range(np.uint64(0), np.uint64(dim), width(target)):
            both = by_one * load(source, one + k) + by_other * load(source, other + k)
            store(target, np.uint64(at) + k, load(target, np.uint64(at) + k) + both)
    if twos < end:
        add_scaled(target, at, source, stride * rows[twos], scale[twos], dim)


@jit_inline
def adam(
    table: Array,
    count: Array,
    row: int,
    gradient: Array,
    at: int,
    scale: Any,
    rates: Array,
    dim: int,
) -> None:
    """Move a row against scale·gradient, as `engine/adam.py` has it."""
    n = min(count[row] + 1, (len(rates) - FIXED_RATES) // 2 - 1)
    count[row] = n
    real = table.dtype.type
    step = fill(table, real(rates[0] * rates[FIXED_RATES + 2 * n]))
    correction = fill(table, real(rates[FIXED_RATES + 2 * n + 1]))
    decay, beta1, rest1 = (
        fill(table, real(rates[1])),
        fill(table, real(rates[2])),
        fill(table, real(rates[3])),
    )
    beta2, rest2, epsilon = (
        fill(table, real(rates[4])),
        fill(table, real(rates[5])),
        fill(table, real(rates[6])),
    )
    by, at_ = fill(table, real(scale)), np.uint64(at)
    value = np.uint64(3 * dim * row)
    first = value + np.uint64(dim)
    second = first + np.uint64(dim)
    for k in range(np.uint64(0), np.uint64(dim), width(table)):
        old = load(table, value + k)
        slope = by * load(gradient, at_ + k) + decay * old
        mean = beta1 * load(table, first + k) + rest1 * slope
        square = beta2 * load(table, second + k) + rest2 * slope * slope
        store(table, first + k, mean)
        store(table, second + k, square)
        store(table, value + k, old - step * mean / (root(square) * correction + epsilon))


FIXED_RATES = 7  # before the corrections, two for each count of steps


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


@jit_as_written
def logarithm(x: float) -> float:
    """log x of a positive x, as `exponential` is made; NaN stays NaN.

    x = 2ⁿ·y with y in [√½, √2); log y = 2·artanh s = 2·(s + s³/3 + …), s = (y − 1)/(y + 1).
    """
    bits = np.float64(x).view(np.int64) - ROOT_HALF_BITS
    n = float(bits >> np.int64(52))
    y = np.int64((bits & MANTISSA) + ROOT_HALF_BITS).view(np.float64)
    s = (y - 1.0) / (y + 1.0)
    square = s * s
    series = 1 / 21
    series = series * square + 1 / 19
    series = series * square + 1 / 17
    series = series * square + 1 / 15
    series = series * square + 1 / 13
    series = series * square + 1 / 11
    series = series * square + 1 / 9
    series = series * square + 1 / 7
    series = series * square + 1 / 5
    series = series * square + 1 / 3
    return n * LOG_2 + 2 * (s + s * square * series) + (x - x)


ROOT_HALF_BITS = np.int64(np.float64(math.sqrt(0.5)).view(np.int64))
MANTISSA = np.int64(2**52 - 1)


@jit_inline
def odds_against(logit: Any) -> float:
    """t = e⁻ˣ = (1 − p)/p."""
    return exponential(-max(-MOST_EXPONENT, min(MOST_EXPONENT, float(logit))))


@jit
def all_odds_against(logit: Array, odds: Array, begin: int, end: int) -> None:
    for k in range(np.uint64(begin), np.uint64(end)):
        odds[k] = odds_against(logit[k])


@jit_inline
def low_variance_slope(t: float, click: Any, m: float, q: float) -> float:
    """`losses.low_variance_gradient`: −(1 − p) for a click, mp(1 − p)/(1 − mp) without one."""
    return t / (1 + t) * (-1.0 if click > 0 else m / (q + t))


@jit_inline
def low_variance_exposure_slope(t: float, click: Any, m: float, q: float) -> float:
    """`losses.low_variance_exposure_gradient`: −1/m for a click, p/(1 − mp) without one."""
    if click > 0:
        return -1 / m
    return 1 / (q + t)


@jit_inline
def low_variance_cross_slope(t: float, click: Any, q: float) -> float:
    """`losses.low_variance_cross_gradient`: 0 for a click, p(1 − p)/(1 − mp)² without one."""
    if click > 0:
        return 0.0
    return t / (q + t) / (q + t)


@jit_inline
def low_variance_value(t: float, click: Any, m: float, q: float) -> float:
    """`losses.low_variance`: −log(mp) for a click, −log(1 − mp) without one."""
    return -logarithm((m if click > 0 else q + t) / (1 + t))


@jit_inline
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
        return (1 - weight) * logit - logarithm(p), slope  # log(1 − p) = log p − x
    return weight * not_p * not_p + (1 - weight) * p * p, 2 * p * not_p * slope


@jit
def slopes_if_shown(logit: Array, slope: Array, scale: float, n: int) -> None:
    """scale·∂L2/∂x at m = 1, −(1 − p) where relevant and p where not, in place of `relevant`."""
    for k in range(np.uint64(n)):
        t = odds_against(logit[k])
        slope[k] = scale * (-t if slope[k] > 0 else 1.0) / (1 + t)


@jit_inline
def gated(gate_odds: float, seen_odds: float, popularity: float) -> tuple[float, float]:
    """m and 1 − m of `exposure.gated`: r·s + (1 − r)·θ and r·(1 − s) + (1 − r)·(1 − θ)."""
    gate, seen = 1 / (1 + gate_odds), 1 / (1 + seen_odds)
    m = gate * (seen + gate_odds * popularity)
    return m, gate * (seen_odds * seen + gate_odds * (1 - popularity))


# The plan of a batch --------------------------------------------------------------------------


@jit
def group(
    keys: Array, n: int, place: Array, rows: Array, start: Array, number: Array, order: Array
) -> int:
    """Positions by key, keys in the order they first come; how many keys there are.

    `place`, −1 for every key before, says afterwards where each key's group is.
    """
    n_rows = count_rows(keys, n, 1, place, rows, start, number)
    put_in_order(number, n, start, order)
    return n_rows


@jit_inline
def count_rows(
    keys: Array, n: int, each: int, place: Array, rows: Array, start: Array, number: Array
) -> int:
    """Number the keys as they first come; how many there are.

    Key g, of `each` entries every time it comes, gets its entries from start[g + 1] on. They are
    handed out from there, so that in the end they lie between start[g] and start[g + 1].
    """
    n_rows = 0
    start[0] = start[1] = 0
    for k in range(n):
        _prefetch(place, keys[min(k + FAR_AHEAD, n - 1)])
        key = keys[k]
        g = place[key]
        if g < 0:
            g = n_rows
            place[key] = g
            rows[g] = key
            start[g + 2] = 0
            n_rows += 1
        number[k] = g
        start[g + 2] += each
    for g in range(n_rows):
        start[g + 2] += start[g + 1]
    return n_rows


@jit_inline
def put_in_order(number: Array, n: int, start: Array, order: Array) -> None:
    """The positions of each number, one after the other."""
    for k in range(n):
        g = number[k] + 1
        order[start[g]] = k
        start[g] += 1


@jit
def forget(place: Array, rows: Array, n_rows: int) -> None:
    for g in range(n_rows):
        place[rows[g]] = -1


@jit
def share_out(start: Array, n_rows: int, row_cost: int, unit: int, share: Array) -> None:
    """Cut rows into one run for each thread, of about equal cost: that of a row and its terms.

    Runs begin at multiples of `unit`.
    """
    n_threads = len(share) - 1
    total_cost = row_cost * n_rows + start[n_rows]
    row = 0
    for thread in range(n_threads):
        share[thread] = min(row, n_rows)
        goal = total_cost * (thread + 1) // n_threads
        while row < n_rows and row_cost * row + start[row] < goal:
            row += unit
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
    exposure: Array,
) -> None:
    """Put the pairs of batch b in the order of their users, and find the entries of each item.

    A triple is two entries, that of the clicked item and that of the other.
    """
    pairwise = len(negatives) > 0
    each = 2 if pairwise else 1
    n = len(users)
    number, place = work.order[thread], work.place_users[thread]
    user_rows, user_start = plan.user_rows[b], plan.user_start[b]
    n_users = count_rows(users, n, each, place, user_rows, user_start, number)
    forget(place, user_rows, n_users)
    entry_user, entry_item = plan.entry_user[b], plan.entry_item[b]
    entry_user_place, entry_item_place = plan.entry_user_place[b], plan.entry_item_place[b]
    by_user = 1 if len(exposure) > 1 else 0
    for k in range(n):
        g = number[k]
        at = user_start[g + 1]
        user_start[g + 1] = at + each
        entry_user[at], entry_user_place[at], entry_item[at] = users[k], g, items[k]
        if pairwise:
            entry_user[at + 1], entry_user_place[at + 1] = users[k], g
            entry_item[at + 1] = negatives[k]
        else:
            plan.entry_click[b, at], plan.entry_weight[b, at] = click[k], weight[k]
            plan.entry_exposure[b, at] = exposure[by_user * users[k], items[k]]
    place = work.place_items[thread]
    item_rows, item_start = plan.item_rows[b], plan.item_start[b]
    n_items = count_rows(entry_item, each * n, 1, place, item_rows, item_start, entry_item_place)
    forget(place, item_rows, n_items)
    put_in_order(entry_item_place, each * n, item_start, plan.item_entries[b])
    plan.n_entries[b], plan.n_users[b], plan.n_items[b] = each * n, n_users, n_items
    share_out(user_start, n_users, ROW_COST, CHUNK, plan.user_share[b])
    share_out(item_start, n_items, ROW_COST, 1, plan.item_share[b])


@jit
def group_validation(
    validation: Validation, groups: Groups, row: int, first: int, n: int, work: Work, thread: int
) -> None:
    """The n validation pairs from `first` on, round and round, by user and by item.

    The two `place` arrays are left filled: they say which group a user or an item has.
    """
    keys, order = work.keys[thread], work.order[thread]
    in_all = len(validation.users)
    rows, number = work.order[thread][n:], work.order[thread][2 * n :]
    for k in range(n):
        keys[k] = validation.users[(first + k) % in_all]
    place = work.place_validation_users[thread]
    group(keys, n, place, rows, groups.user_start[row], number, order)
    for k in range(n):
        at = (first + order[k]) % in_all
        groups.user_items[row, k] = validation.items[at]
        groups.user_relevant[row, k] = validation.relevant[at]
    for k in range(n):
        keys[k] = validation.items[(first + k) % in_all]
    place = work.place_validation_items[thread]
    group(keys, n, place, rows, groups.item_start[row], number, order)
    for k in range(n):
        at = (first + order[k]) % in_all
        groups.item_users[row, k] = validation.users[at]
        groups.item_relevant[row, k] = validation.relevant[at]


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
    size, in_all = options.validation_batch, len(validation.users)
    if size == 0:  # grouped once, each user's and item's group being its number
        find_validation(plan, b, validation, groups, 0, work, thread)
        return
    first = (turn * size) % in_all
    group_validation(validation, groups, b, first, size, work, thread)
    find_validation(plan, b, validation, groups, b, work, thread)
    for k in range(size):
        at = (first + k) % in_all
        work.place_validation_users[thread, validation.users[at]] = -1
        work.place_validation_items[thread, validation.items[at]] = -1


@jit
def find_validation(
    plan: Plan, b: int, validation: Validation, groups: Groups, row: int, work: Work, thread: int
) -> None:
    """Which validation pairs the step on batch b needs.

    g_i is only used at unclicked pairs (appendix B: a click has no hypergradient), so an item of
    which the batch has clicks alone needs none of its validation pairs.
    """
    place = work.place_validation_users[thread]  # its last one, for the number −1, is always −1
    n_guided = 0
    for g in range(plan.n_users[b]):
        found = place[validation.user_number[plan.user_rows[b, g]]]
        plan.user_group[b, g] = found
        plan.guided[b, n_guided] = g
        n_guided += 1 if found >= 0 else 0
    plan.n_guided[b] = n_guided
    place = work.place_validation_items[thread]
    start, n_items, n_blocks = groups.item_start[row], plan.n_items[b], 0
    before = plan.pairs_before[b]
    before[0] = 0
    for h in range(n_items):
        number = validation.item_number[plan.item_rows[b, h]]
        found = place[number]
        plan.item_group[b, h] = found
        plan.block_start[b, h] = n_blocks
        if found < 0 or not _has_unclicked(plan, b, h):
            continue
        for begin in range(start[found], start[found + 1], BLOCK):
            end = min(begin + BLOCK, start[found + 1])
            plan.block_item[b, n_blocks] = number
            plan.block_begin[b, n_blocks], plan.block_end[b, n_blocks] = begin, end
            before[n_blocks + 1] = before[n_blocks] + end - begin
            n_blocks += 1
    plan.block_start[b, n_items] = n_blocks
    share_out(before, n_blocks, 4, 1, plan.block_share[b])


@jit
def _has_unclicked(plan: Plan, b: int, h: int) -> bool:
    for j in range(plan.item_start[b, h], plan.item_start[b, h + 1]):
        if plan.entry_click[b, plan.item_entries[b, j]] == 0:
            return True
    return False


# The phases of a batch ------------------------------------------------------------------------


@jit
def step_given(
    model: Model,
    plan: Plan,
    b: int,
    validation: Validation,
    work: Work,
    options: Options,
    thread: int,
) -> None:
    """The slope of every pair where the exposure is given, and a step of every user."""
    click, exposure, weight = plan.entry_click[b], plan.entry_exposure[b], plan.entry_weight[b]
    mean, stop = 1.0 / plan.n_entries[b], plan.user_share[b, thread + 1]
    for first in range(plan.user_share[b, thread], stop, CHUNK):
        last = min(first + CHUNK, stop)
        begin, end = plan.user_start[b, first], plan.user_start[b, last]
        find_logits(model, plan, b, work, first, last)
        all_odds_against(work.logit, work.odds, begin, end)
        for k in range(np.uint64(begin), np.uint64(end)):
            loss, rise = value_and_slope(
                options.loss, work.logit[k], work.odds[k], click[k], float(exposure[k])
            )
            work.slope[k] = mean * weight[k] * rise
            work.loss[k] = mean * weight[k] * loss
        step_users(model, plan, b, validation, work, False, first, last, thread)


@jit
def step_pairwise(
    model: Model, plan: Plan, b: int, validation: Validation, work: Work, thread: int
) -> None:
    """`losses.pairwise`, and a step of every user: entries 2j and 2j + 1 are a triple's items."""
    logit, odds, slope = work.logit, work.odds, work.slope
    mean, stop = 2.0 / plan.n_entries[b], plan.user_share[b, thread + 1]
    for first in range(plan.user_share[b, thread], stop, CHUNK):
        last = min(first + CHUNK, stop)
        begin, end = plan.user_start[b, first], plan.user_start[b, last]
        find_logits(model, plan, b, work, first, last)
        for k in range(begin, end, 2):
            logit[begin + (k - begin) // 2] = logit[k] - logit[k + 1]
        all_odds_against(logit, odds, begin, begin + (end - begin) // 2)
        for k in range(begin, end, 2):
            t = odds[begin + (k - begin) // 2]
            slope[k] = -mean * t / (1 + t)
            slope[k + 1] = -slope[k]
            work.loss[k] = mean * logarithm(1 + t)
            work.loss[k + 1] = 0
        step_users(model, plan, b, validation, work, False, first, last, thread)


@jit
def find_logits(model: Model, plan: Plan, b: int, work: Work, first: int, last: int) -> None:
    """x of every pair of some users."""
    dim, users, items = model.dim, model.users, model.items
    entry_item, user_rows, user_start = plan.entry_item[b], plan.user_rows[b], plan.user_start[b]
    last_user, last_entry = plan.n_users[b] - 1, plan.n_entries[b] - 1
    for g in range(first, last):
        user = 3 * dim * user_rows[g]
        fetch_record(users, model.user_count, user_rows[min(g + FAR_AHEAD, last_user)], dim)
        for k in range(user_start[g], user_start[g + 1]):
            fetch(items, 3 * dim * entry_item[min(k + FAR_AHEAD, last_entry)], dim)
            work.logit[k] = dot(users, user, items, 3 * dim * entry_item[k], dim)


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
    entry_item, user_rows, user_start = plan.entry_item[b], plan.user_rows[b], plan.user_start[b]
    last_user, last_entry = plan.n_users[b] - 1, plan.n_entries[b] - 1
    gate, stop = work.gate[thread], plan.user_share[b, thread + 1]
    for first in range(plan.user_share[b, thread], stop, CHUNK):
        last = min(first + CHUNK, stop)
        begin, end = user_start[first], user_start[last]
        for g in range(first, last):
            user, soon = 3 * dim * user_rows[g], 3 * dim * user_rows[min(g + FAR_AHEAD, last_user)]
            fetch(users, soon, dim)
            fetch(seers, soon, dim)
            for k in range(user_start[g], user_start[g + 1]):
                fetch(items, 3 * dim * entry_item[min(k + FAR_AHEAD, last_entry)], dim)
                logits = three_dots(users, seers, user, gate, items, 3 * dim * entry_item[k], dim)
                work.logit[k] = logits[0]
                work.seen_logit[k] = logits[1] + options.offset
                work.gate_logit[k] = logits[2] + gate[3 * dim]
        all_odds_against(work.logit, work.odds, begin, end)
        all_odds_against(work.seen_logit, work.seen_odds, begin, end)
        all_odds_against(work.gate_logit, work.gate_odds, begin, end)
        if options.strategy == FROZEN:
            continue
        if options.strategy in (BILEVEL, BILEVEL_ON_BATCH):
            look_ahead(plan, b, work, options.lookahead, begin, end)
            for g in range(first, last):
                at = g
                if options.strategy == BILEVEL:
                    if plan.user_group[b, g] < 0:
                        continue
                    at = validation.user_number[user_rows[g]]
                put(model.ahead_users, dim * at, users, 3 * dim * user_rows[g], dim)
                for k in range(user_start[g], user_start[g + 1]):
                    row = 3 * dim * entry_item[k]
                    add_scaled(model.ahead_users, dim * at, items, row, work.slope[k], dim)
        else:
            look_straight(plan, b, work, begin, end)


@jit
def look_ahead(plan: Plan, b: int, work: Work, lookahead: float, begin: int, end: int) -> None:
    """−η·weight·∂L2/∂x of some entries: how much of its other row each end moves ahead by."""
    click, popularity, weight = plan.entry_click[b], plan.entry_exposure[b], plan.entry_weight[b]
    for k in range(np.uint64(begin), np.uint64(end)):
        m, q = gated(work.gate_odds[k], work.seen_odds[k], float(popularity[k]))
        work.slope[k] = -lookahead * weight[k] * low_variance_slope(work.odds[k], click[k], m, q)
        work.direct[k] = 0
        work.along[k] = 0


@jit
def look_straight(plan: Plan, b: int, work: Work, begin: int, end: int) -> None:
    """weight·∂L2/∂m of some entries, at ω itself."""
    click, popularity, weight = plan.entry_click[b], plan.entry_exposure[b], plan.entry_weight[b]
    for k in range(np.uint64(begin), np.uint64(end)):
        m, q = gated(work.gate_odds[k], work.seen_odds[k], float(popularity[k]))
        work.direct[k] = weight[k] * low_variance_exposure_slope(work.odds[k], click[k], m, q)


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
        at, begin, end = h, plan.item_start[b, h], plan.item_start[b, h + 1]
        if options.strategy == BILEVEL:
            if plan.item_group[b, h] < 0:
                continue
            at = validation.item_number[plan.item_rows[b, h]]
        put(model.ahead_items, dim * at, model.items, 3 * dim * plan.item_rows[b, h], dim)
        for j in range(begin, end):
            k, soon = item_entries[j], item_entries[min(j + FAR_AHEAD, end - 1)]
            fetch(users, 3 * dim * entry_user[soon], dim)
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
        sum_up(work.blocks, dim * j, users, dim, item_users[begin:], own, 0, end - begin, dim)


@jit
def carry_to_items(model: Model, plan: Plan, b: int, work: Work, thread: int) -> None:
    """gᵢᵀωᵤ of every pair, from the parts of g_i."""
    dim, direction, real = model.dim, work.own[thread], work.own.dtype.type
    for h in range(plan.item_share[b, thread], plan.item_share[b, thread + 1]):
        first, last = plan.block_start[b, h], plan.block_start[b, h + 1]
        if first == last:
            continue
        put(direction, 0, work.blocks, dim * first, dim)
        for j in range(first + 1, last):
            add_scaled(direction, 0, work.blocks, dim * j, real(1), dim)
        go_along_item(model, plan, b, work, h, direction)


@jit_inline
def go_along_item(model: Model, plan: Plan, b: int, work: Work, h: int, direction: Array) -> None:
    """Add gᵢᵀωᵤ of every pair of an item."""
    for j in range(plan.item_start[b, h], plan.item_start[b, h + 1]):
        k = plan.item_entries[b, j]
        user = 3 * model.dim * plan.entry_user[b, k]
        work.along[k] += dot(direction, 0, model.users, user, model.dim)


@jit_inline
def go_along_user(model: Model, plan: Plan, b: int, work: Work, g: int, direction: Array) -> None:
    """Add gᵤᵀωᵢ of every pair of a user."""
    for k in range(plan.user_start[b, g], plan.user_start[b, g + 1]):
        item = 3 * model.dim * plan.entry_item[b, k]
        work.along[k] += dot(direction, 0, model.items, item, model.dim)


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
    """gᵤᵀωᵢ of every pair: g_u = ∂L_val/∂ω_u at ω′, where the user has validation pairs."""
    dim, users, items, direction = model.dim, model.ahead_users, model.ahead_items, work.own[thread]
    user_items, user_relevant = groups.user_items[row], groups.user_relevant[row]
    own, logit = work.own_slope[thread], work.own_logit[thread]
    user_group, user_start = plan.user_group[b], groups.user_start[row]
    guided, stop = plan.guided[b], plan.user_share[b, thread + 1]
    first, last_guided = np.int64(0), plan.n_guided[b] - 1
    while first <= last_guided and guided[first] < plan.user_share[b, thread]:
        first += 1
    n, j = 0, first
    while j <= last_guided and guided[j] < stop:
        soon = guided[min(j + AHEAD, last_guided)]
        fetch(users, dim * validation.user_number[plan.user_rows[b, soon]], dim)
        found, user = user_group[guided[j]], validation.user_number[plan.user_rows[b, guided[j]]]
        for k in range(user_start[found], user_start[found + 1]):
            logit[n] = dot(users, dim * user, items, dim * user_items[k], dim)
            own[n] = 1 if user_relevant[k] else 0
            n += 1
        j += 1
    slopes_if_shown(logit, own, validation.scale, n)
    n = 0
    for i in range(first, j):
        found = user_group[guided[i]]
        begin, pairs = user_start[found], user_start[found + 1] - user_start[found]
        sum_up(direction, 0, items, dim, user_items[begin:], own[n:], 0, pairs, dim)
        go_along_user(model, plan, b, work, guided[i], direction)
        n += pairs


@jit
def look_again_at_users(model: Model, plan: Plan, b: int, work: Work, thread: int) -> None:
    """The same for g_u = ∂L_train/∂ω_u; ∂L_train/∂m at ω′ (`factor_hypergradient_on_batch`)."""
    dim, users, items, direction = model.dim, model.ahead_users, model.ahead_items, work.own[thread]
    entry_place, slope, user_start = plan.entry_item_place[b], work.slope, plan.user_start[b]
    for g in range(plan.user_share[b, thread], plan.user_share[b, thread + 1]):
        begin, end = user_start[g], user_start[g + 1]
        for k in range(begin, end):
            click, weight = plan.entry_click[b, k], plan.entry_weight[b, k]
            popularity = float(plan.entry_exposure[b, k])
            m, q = gated(work.gate_odds[k], work.seen_odds[k], popularity)
            t = odds_against(dot(users, dim * g, items, dim * entry_place[k], dim))
            slope[k] = weight * low_variance_slope(t, click, m, q)
            work.direct[k] = weight * low_variance_exposure_slope(t, click, m, q)
        sum_up(direction, 0, items, dim, entry_place, slope, begin, end, dim)
        go_along_user(model, plan, b, work, g, direction)


@jit
def look_again_at_items(model: Model, plan: Plan, b: int, work: Work, thread: int) -> None:
    """gᵢᵀωᵤ of every pair, g_i = ∂L_train/∂ω_i at ω′."""
    direction = work.own[thread]
    for h in range(plan.item_share[b, thread], plan.item_share[b, thread + 1]):
        sum_over_users(direction, 0, model.ahead_users, plan, b, work, h, model.dim)
        go_along_item(model, plan, b, work, h, direction)


@jit
def sum_over_users(
    target: Array, at: int, users: Array, plan: Plan, b: int, work: Work, h: int, dim: int
) -> None:
    """target = Σ slope·(the user's row of the batch) over the entries of an item."""
    item_entries, entry_place, slope = plan.item_entries[b], plan.entry_user_place[b], work.slope
    begin, end = plan.item_start[b, h], plan.item_start[b, h + 1]
    k = item_entries[begin]
    put_scaled(target, at, users, dim * entry_place[k], slope[k], dim)
    for j in range(begin + 1, end):
        k = item_entries[j]
        add_scaled(target, at, users, dim * entry_place[k], slope[k], dim)


@jit
def step_seers(model: Model, plan: Plan, b: int, work: Work, options: Options, thread: int) -> None:
    """∂/∂m of every pair, carried into e_u (`factor_exposure_gradient`); Adam on e_u."""
    dim, items, seers, own = model.dim, model.items, model.seers, work.own[thread]
    entry_item, user_rows, user_start = plan.entry_item[b], plan.user_rows[b], plan.user_start[b]
    stop, rates = plan.user_share[b, thread + 1], model.exposure_rates
    ahead = options.strategy in (BILEVEL, BILEVEL_ON_BATCH)
    for first in range(plan.user_share[b, thread], stop, CHUNK):
        last = min(first + CHUNK, stop)
        begin, end = user_start[first], user_start[last]
        carry_to_exposure(plan, b, work, options, ahead, begin, end)
        chunk = dim * (first // CHUNK)
        put_zero(work.gate_chunks, chunk, dim)
        on_bias = 0.0
        for g in range(first, last):
            user = user_rows[g]
            soon = user_rows[min(g + AHEAD, stop - 1)]
            fetch_record(seers, model.seer_count, soon, dim)
            one, behind = user_start[g], user_start[g + 1]
            for k in range(one, behind):
                row = 3 * dim * entry_item[k]
                add_scaled(work.gate_chunks, chunk, items, row, work.gate_slope[k], dim)
                on_bias += work.gate_slope[k]
            if behind == one + 1:
                row, slope = 3 * dim * entry_item[one], work.slope[one]
                adam(seers, model.seer_count, user, items, row, slope, rates, dim)
            else:
                sum_up(own, 0, items, 3 * dim, entry_item, work.slope, one, behind, dim)
                adam(seers, model.seer_count, user, own, 0, 1, rates, dim)
            for k in range(one, behind):
                seen = dot(seers, 3 * dim * user, items, 3 * dim * entry_item[k], dim)
                work.seen_logit[k] = seen + options.offset
        work.gate_chunk_slope[first // CHUNK] = on_bias
        if options.strategy != JOINT:  # there ω descends at the same m
            all_odds_against(work.seen_logit, work.seen_odds, begin, end)


@jit
def carry_to_exposure(
    plan: Plan, b: int, work: Work, options: Options, ahead: bool, begin: int, end: int
) -> None:
    """∂/∂m of some pairs, and with it the gradients on eᵤᵀωᵢ and on wᵀωᵢ + b.

    Through ω′ it is `_through_step`: −η·weight·∂²L2/∂x∂m·(gᵤᵀωᵢ + gᵢᵀωᵤ).
    """
    click, popularity, weight = plan.entry_click[b], plan.entry_exposure[b], plan.entry_weight[b]
    lookahead = options.lookahead if ahead else 0.0
    for k in range(np.uint64(begin), np.uint64(end)):
        gate_odds, seen_odds, theta = work.gate_odds[k], work.seen_odds[k], float(popularity[k])
        gate, seen = 1 / (1 + gate_odds), 1 / (1 + seen_odds)
        q = gated(gate_odds, seen_odds, theta)[1]
        cross = low_variance_cross_slope(work.odds[k], click[k], q)
        by_m = work.direct[k]
        if ahead:
            by_m -= lookahead * weight[k] * cross * work.along[k]
        work.gate_slope[k] = by_m * (seen - theta) * gate * (gate_odds * gate)  # (s − θ)·r(1 − r)
        work.slope[k] = by_m * gate * seen * (seen_odds * seen)  # r·s(1 − s)


@jit
def step_gate(model: Model, plan: Plan, b: int, work: Work, thread: int) -> None:
    """Adam on the thread's copy of w and b."""
    dim, own, real = model.dim, work.own[thread], work.own.dtype.type
    gate, count, rates = work.gate[thread], work.gate_count[thread], model.gate_rates
    put_zero(own, 0, dim)
    on_bias = 0.0
    for j in range((plan.n_users[b] + CHUNK - 1) // CHUNK):
        add_scaled(own, 0, work.gate_chunks, dim * j, real(1), dim)
        on_bias += work.gate_chunk_slope[j]
    adam(gate, count, 0, own, 0, 1, rates, dim)
    put_zero(own, 0, dim)
    own[0] = on_bias
    adam(gate, count, 1, own, 0, 1, rates, dim)


@jit
def step_learned(
    model: Model,
    plan: Plan,
    b: int,
    validation: Validation,
    work: Work,
    strategy: int,
    thread: int,
) -> None:
    """The slope of every pair at the learned exposure, and a step of every user."""
    click, popularity, weight = plan.entry_click[b], plan.entry_exposure[b], plan.entry_weight[b]
    mean, stop = 1.0 / plan.n_entries[b], plan.user_share[b, thread + 1]
    for first in range(plan.user_share[b, thread], stop, CHUNK):
        last = min(first + CHUNK, stop)
        begin, end = plan.user_start[b, first], plan.user_start[b, last]
        if strategy not in (JOINT, FROZEN):  # there the gates stay those of the old α
            find_gates(model, plan, b, work, begin, end, thread)
        for k in range(np.uint64(begin), np.uint64(end)):
            m, q = gated(work.gate_odds[k], work.seen_odds[k], float(popularity[k]))
            t = work.odds[k]
            work.slope[k] = mean * weight[k] * low_variance_slope(t, click[k], m, q)
            work.loss[k] = mean * weight[k] * low_variance_value(t, click[k], m, q)
        step_users(model, plan, b, validation, work, strategy == BILEVEL, first, last, thread)


@jit
def find_gates(
    model: Model, plan: Plan, b: int, work: Work, begin: int, end: int, thread: int
) -> None:
    """The gate of some entries, at the new w and b."""
    dim, gate, entry_item = model.dim, work.gate[thread], plan.entry_item[b]
    for k in range(begin, end):
        logit = dot(gate, 0, model.items, 3 * dim * entry_item[k], dim)
        work.gate_logit[k] = logit + gate[3 * dim]
    all_odds_against(work.gate_logit, work.gate_odds, begin, end)


@jit
def step_users(
    model: Model,
    plan: Plan,
    b: int,
    validation: Validation,
    work: Work,
    ahead: bool,
    first: int,
    last: int,
    thread: int,
) -> None:
    """Adam on some users; their rows as they were stay for the items."""
    dim, users, items, own = model.dim, model.users, model.items, work.own[thread]
    count, rates = model.user_count, model.rates
    entry_item, user_rows, slope = plan.entry_item[b], plan.user_rows[b], work.slope
    last_user = plan.n_users[b] - 1
    for g in range(first, last):
        user = user_rows[g]
        soon = user_rows[min(g + AHEAD, last_user)]
        fetch_record(users, count, soon, dim)
        if ahead:
            fetch(model.ahead_users, dim * max(0, validation.user_number[soon]), dim)
        begin, end = plan.user_start[b, g], plan.user_start[b, g + 1]
        put(work.old_users, dim * g, users, 3 * dim * user, dim)
        if end == begin + 1:
            adam(users, count, user, items, 3 * dim * entry_item[begin], slope[begin], rates, dim)
        else:
            sum_up(own, 0, items, 3 * dim, entry_item, slope, begin, end, dim)
            adam(users, count, user, own, 0, 1, rates, dim)
        if ahead and validation.user_number[user] >= 0:
            at = dim * validation.user_number[user]
            put(model.ahead_users, at, users, 3 * dim * user, dim)


@jit
def step_items(
    model: Model, plan: Plan, b: int, validation: Validation, work: Work, ahead: bool, thread: int
) -> None:
    """The gradient of every item, and Adam on it."""
    dim, items, count, own = model.dim, model.items, model.item_count, work.own[thread]
    item_entries, entry_place, slope = plan.item_entries[b], plan.entry_user_place[b], work.slope
    last, last_entry = plan.item_share[b, thread + 1], plan.n_entries[b] - 1
    for h in range(plan.item_share[b, thread], last):
        item = plan.item_rows[b, h]
        fetch_record(items, count, plan.item_rows[b, min(h + AHEAD, last - 1)], dim)
        begin, end = plan.item_start[b, h], plan.item_start[b, h + 1]
        for j in range(begin, end):
            soon = entry_place[item_entries[min(j + FAR_AHEAD, last_entry)]]
            fetch(work.old_users, dim * soon, dim)
        k = item_entries[begin]
        if end == begin + 1:
            row = dim * entry_place[k]
            adam(items, count, item, work.old_users, row, slope[k], model.rates, dim)
        else:
            sum_over_users(own, 0, work.old_users, plan, b, work, h, dim)
            adam(items, count, item, own, 0, 1, model.rates, dim)
        if ahead and validation.item_number[item] >= 0:
            at = dim * validation.item_number[item]
            put(model.ahead_items, at, items, 3 * dim * item, dim)


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
    """All that is known of the pairs at ω, and a step of α where it learns."""
    strategy = options.strategy
    look_at_users(model, plan, b, validation, work, options, thread)
    if strategy == FROZEN:
        return
    if strategy in (BILEVEL, BILEVEL_ON_BATCH):
        wait_for_all(barrier, n_threads)
        look_at_items(model, plan, b, validation, work, options, thread)
        wait_for_all(barrier, n_threads)
        if strategy == BILEVEL:
            row = b if options.validation_batch else 0
            validate_blocks(model, plan, b, groups, row, validation.scale, work, thread)
            wait_for_all(barrier, n_threads)
            carry_to_items(model, plan, b, work, thread)
            wait_for_all(barrier, n_threads)
            validate_users(model, plan, b, validation, groups, row, work, thread)
        else:
            look_again_at_users(model, plan, b, work, thread)
            wait_for_all(barrier, n_threads)
            look_again_at_items(model, plan, b, work, thread)
            wait_for_all(barrier, n_threads)
    step_seers(model, plan, b, work, options, thread)
    wait_for_all(barrier, n_threads)
    step_gate(model, plan, b, work, thread)


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
    if learned:
        put(work.gate[thread], 0, model.gate, 0, 6 * model.dim)
        work.gate_count[thread, 0] = model.gate_count[0]
        work.gate_count[thread, 1] = model.gate_count[1]
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
                model.exposure,
            )
            if bilevel:
                plan_validation(
                    plan, b, turn + first + b, validation, groups, work, options, thread
                )
        wait_for_all(barrier, n_threads)
        for b in range(count):
            if learned:
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
                step_learned(model, plan, b, validation, work, options.strategy, thread)
            elif options.loss == PAIRWISE:
                step_pairwise(model, plan, b, validation, work, thread)
            else:
                step_given(model, plan, b, validation, work, options, thread)
            wait_for_all(barrier, n_threads)
            step_items(model, plan, b, validation, work, bilevel, thread)
            if thread == 0:
                total_loss = 0.0
                for k in range(plan.n_entries[b]):
                    total_loss += work.loss[k]
                losses[first + b] = total_loss
            wait_for_all(barrier, n_threads)
    if learned and thread == 0:
        put(model.gate, 0, work.gate[0], 0, 6 * model.dim)
        model.gate_count[0] = work.gate_count[0, 0]
        model.gate_count[1] = work.gate_count[0, 1]
