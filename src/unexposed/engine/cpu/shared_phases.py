"""The step of one of several ranks: its phases, with sums over ranks between them.

A rank lays out its own pairs, but for items it takes the rows that any rank touches, in an order
that all ranks know. Gradients of these rows stand in `on_items` one after another, zero where this
rank has no pair; Python adds up the first rows of `on_items` over ranks, and every rank goes on
with the same sums. What is summed in a step, in rows:

sum_look_ahead      ω′_i − ω_i                     (bilevel: of items with validation pairs)
sum_validation      g_i = ∂L_val/∂ω_i at ω′        (bilevel)
sum_batch_items     g_i = ∂L_train/∂ω_i at ω′      (bilevel_on_batch)
sum_gate            the gradients on w and b       (joint: with the items)
sum_items           the gradients on ω_i
"""

from typing import NamedTuple

from unexposed.engine.cpu.compile import Array, call_python, jit, jit_entry, wait_for_all
from unexposed.engine.cpu.exposure_phases import (
    find_gates,
    gate_gradient,
    go_along_batch_users,
    go_along_item,
    go_along_users,
    look_ahead_users,
    step_exposure_users,
    step_gate,
    sum_gate,
    sum_over_users,
    validate_items,
)
from unexposed.engine.cpu.grouping import share_out
from unexposed.engine.cpu.layout import (
    AHEAD,
    BILEVEL,
    BILEVEL_ON_BATCH,
    CHUNK,
    FROZEN,
    GIVEN,
    JOINT,
    RELEVANCE_RATES,
    ROW_COST,
    PairMarks,
    Step,
    find_guides,
    lay_out_pairs,
)
from unexposed.engine.cpu.phases import step_users
from unexposed.engine.cpu.rows import (
    adam_of_terms,
    add_scaled,
    correct_rates,
    fetch,
    hold,
    put,
    put_zero,
)

GATE_ROWS = 2  # w, and b in a row of its own


class Span(NamedTuple):
    """Consecutive batches: the own clicks of each, and what all ranks have together."""

    bounds: Array  # (batches + 1,): where the own clicks of each begin
    n_clicks: Array  # (batches,): of all ranks
    item_start: Array  # (batches + 1,): where the items of each begin
    item_row: Array  # that any rank touches
    item_times: Array  # how many pairs of all ranks have each


class Others(NamedTuple):
    """How a kernel reaches the other ranks, and which rows it sums with them."""

    address: int  # of the function that adds up the first rows of `on_items` over ranks
    failed: Array  # (1,): not 0 once it could not
    n_guided: Array  # (batches laid out,): items of the batch with validation pairs on any rank
    guided: Array  # (batches laid out, items): the number of each among these


@jit
def lay_out_shared_items(s: Step, b: int, span: Span, n: int) -> None:
    """Give batch b the items of all ranks, and find its own pairs of each."""
    plan = s.plan
    pair_item, place, row = plan.pair_item[b], s.work.place_items[b], plan.item_row[b]
    start, item_at, item_pairs = plan.item_start[b], plan.pair_item_at[b], plan.item_pairs[b]
    first = span.item_start[n]
    n_items = span.item_start[n + 1] - first
    start[0] = start[1] = 0
    for h in range(n_items):
        row[h] = span.item_row[first + h]
        place[row[h]] = h
        start[h + 2] = 0
    for k in range(plan.n_pairs[b]):
        h = place[pair_item[k]]
        item_at[k] = h
        start[h + 2] += 1
    for h in range(n_items):
        start[h + 2] += start[h + 1]
        place[row[h]] = -1
    for k in range(plan.n_pairs[b]):  # start[h + 1] is where the next pair of item h goes
        h = item_at[k] + 1
        item_pairs[start[h]] = k
        start[h] += 1
    plan.n_items[b], plan.n_clicks[b] = n_items, span.n_clicks[n]
    share_out(start, n_items, ROW_COST, CHUNK, plan.item_share[b])


@jit
def number_guided(s: Step, o: Others, b: int) -> None:
    """Number the items of batch b that have validation pairs on any rank."""
    n = 0
    for h in range(s.plan.n_items[b]):
        if s.plan.item_guide[b, h] >= 0:
            o.guided[b, h] = n
            n += 1
    o.n_guided[b] = n


@jit
def add_up(s: Step, o: Others, n_rows: int, thread: int) -> bool:
    """Replace the first rows of `on_items` by their sums over ranks; whether that worked."""
    wait_for_all(s.barrier, s.n_threads)
    if thread == 0:
        o.failed[0] = call_python(o.address, n_rows)
    wait_for_all(s.barrier, s.n_threads)
    return o.failed[0] == 0


@jit
def row_of(s: Step, o: Others, b: int, h: int) -> int:
    """The row in which ω′ and g of an item are summed; −1: it needs neither."""
    if s.options.strategy != BILEVEL:
        return h
    return o.guided[b, h] if s.plan.item_guide[b, h] >= 0 else -1


@jit
def sum_look_ahead(s: Step, o: Others, b: int, thread: int) -> None:
    """ω′_i − ω_i = −η·Σ weight·∂L2/∂x·ω_u over own pairs."""
    t, plan, work = s.tables, s.plan, s.work
    dim, item_pairs, user_at, user_row = (
        t.dim,
        plan.item_pairs[b],
        plan.pair_user_at[b],
        plan.user_row[b],
    )
    for h in range(plan.item_share[b, thread], plan.item_share[b, thread + 1]):
        row = row_of(s, o, b, h)
        if row < 0:
            continue
        put_zero(work.on_items, dim * row, dim)
        for j in range(plan.item_start[b, h], plan.item_start[b, h + 1]):
            k = item_pairs[j]
            user = 3 * dim * user_row[user_at[k]]
            add_scaled(work.on_items, dim * row, t.users, user, work.slope[k], dim)


@jit
def look_ahead_shared_items(s: Step, o: Others, b: int, thread: int) -> None:
    """ω′_i, from the sums of all ranks."""
    t, plan, guide, work = s.tables, s.plan, s.guide, s.work
    dim = t.dim
    for h in range(plan.item_share[b, thread], plan.item_share[b, thread + 1]):
        row, item = row_of(s, o, b, h), plan.item_row[b, h]
        if row < 0:
            continue
        ahead, at = work.ahead_items, h
        if s.options.strategy == BILEVEL:
            ahead, at = guide.ahead_items, guide.item_number[item]
        put(ahead, dim * at, t.items, 3 * dim * item, dim)
        add_scaled(ahead, dim * at, work.on_items, dim * row, 1, dim)
        hold(ahead, dim * at, t.fixed_of_items, 1)


@jit
def sum_validation(s: Step, o: Others, b: int, part: int, thread: int) -> None:
    """g_i = ∂L_val/∂ω_i at ω′ over own validation pairs, from its blocks."""
    plan, guide, work, dim = s.plan, s.guide, s.work, s.tables.dim
    first_block = guide.item_blocks[guide.item_part[part]]
    for h in range(plan.item_share[b, thread], plan.item_share[b, thread + 1]):
        of = plan.item_guide[b, h]
        if of < 0:
            continue
        at = dim * o.guided[b, h]
        put_zero(work.on_items, at, dim)
        for j in range(guide.item_blocks[of], guide.item_blocks[of + 1]):
            add_scaled(work.on_items, at, work.blocks, dim * (j - first_block), 1, dim)


@jit
def sum_items(s: Step, b: int, users: Array, thread: int) -> None:
    """Σ slope·(row of the user) over own pairs of each item: the gradient on ω_i, or on ω′_i."""
    t, plan, work = s.tables, s.plan, s.work
    for h in range(plan.item_share[b, thread], plan.item_share[b, thread + 1]):
        if plan.item_start[b, h] == plan.item_start[b, h + 1]:
            put_zero(work.on_items, t.dim * h, t.dim)
            continue
        sum_over_users(work.on_items, t.dim * h, users, s, b, h)
        hold(work.on_items, t.dim * h, t.fixed_of_items, 0)


@jit
def go_along_shared_items(s: Step, o: Others, b: int, thread: int) -> None:
    """gᵢᵀωᵤ of every own pair, from the sums g_i of all ranks."""
    plan, work, dim = s.plan, s.work, s.tables.dim
    for h in range(plan.item_share[b, thread], plan.item_share[b, thread + 1]):
        row = row_of(s, o, b, h)
        if row >= 0:
            put(work.own[thread], 0, work.on_items, dim * row, dim)
            go_along_item(s, b, h, work.own[thread])


@jit
def learn_shared_exposure(s: Step, o: Others, b: int, part: int, thread: int) -> bool:
    """As `learn_exposure`; whether all sums over ranks worked. The gate of `joint` moves later."""
    strategy, n_threads, barrier = s.options.strategy, s.n_threads, s.barrier
    find_gates(s, b, thread)
    wait_for_all(barrier, n_threads)
    look_ahead_users(s, b, thread)
    if strategy == FROZEN:
        return True
    if strategy in (BILEVEL, BILEVEL_ON_BATCH):
        n_rows = o.n_guided[b] if strategy == BILEVEL else s.plan.n_items[b]
        wait_for_all(barrier, n_threads)
        sum_look_ahead(s, o, b, thread)
        if not add_up(s, o, n_rows, thread):
            return False
        look_ahead_shared_items(s, o, b, thread)
        wait_for_all(barrier, n_threads)
        if strategy == BILEVEL:
            validate_items(s, b, part, thread)
            wait_for_all(barrier, n_threads)
            sum_validation(s, o, b, part, thread)
        else:
            go_along_batch_users(s, b, thread)
            wait_for_all(barrier, n_threads)
            sum_items(s, b, s.work.ahead_users, thread)
        if not add_up(s, o, n_rows, thread):
            return False
        go_along_shared_items(s, o, b, thread)
        wait_for_all(barrier, n_threads)
        if strategy == BILEVEL:
            go_along_users(s, b, part, thread)
    step_exposure_users(s, b, thread)
    wait_for_all(barrier, n_threads)
    gate_gradient(s, b, thread)
    if strategy == JOINT:
        return True
    wait_for_all(barrier, n_threads)
    if thread == 0:
        sum_gate(s, b, 0)
    if not add_up(s, o, GATE_ROWS, thread):
        return False
    if thread == 0:
        step_gate(s, 0)
    wait_for_all(barrier, n_threads)
    find_gates(s, b, thread)
    wait_for_all(barrier, n_threads)
    return True


@jit
def step_shared_items(s: Step, o: Others, b: int, span: Span, n: int, thread: int) -> bool:
    """The gradients of all items, summed over ranks, then Adam; whether the sum worked.

    The gate of `joint` moves here as well: its gradient travels with the items'.
    """
    t, plan, guide, work = s.tables, s.plan, s.guide, s.work
    dim, rates, mean = t.dim, work.rates[thread, RELEVANCE_RATES], 1.0 / plan.n_clicks[b]
    is_joint, n_items = s.options.strategy == JOINT, plan.n_items[b]
    sum_items(s, b, work.old_users, thread)
    if is_joint and thread == 0:
        sum_gate(s, b, n_items)
    if not add_up(s, o, n_items + (GATE_ROWS if is_joint else 0), thread):
        return False
    for h in range(plan.item_share[b, thread], plan.item_share[b, thread + 1]):
        fetch(t.items, 3 * dim * plan.item_row[b, min(h + AHEAD, n_items - 1)], 3 * dim)
        item, terms = plan.item_row[b, h], span.item_times[span.item_start[n] + h]
        adam_of_terms(t.items, item, work.on_items, dim * h, rates, terms * mean, t.decays, dim)
        if s.options.strategy == BILEVEL and guide.item_number[item] >= 0:
            put(guide.ahead_items, dim * guide.item_number[item], t.items, 3 * dim * item, dim)
    if is_joint and thread == 0:
        step_gate(s, n_items)
    return True


@jit_entry
def run_shared(
    users: Array,
    start: Array,
    items: Array,
    weight: Array,
    item_weight: Array,
    marks: PairMarks | None,
    span: Span,
    steps: int,
    s: Step,
    o: Others,
    thread: int,
    losses: Array,
) -> None:
    """As `phases.run`, on the own part of each batch; the losses are those of own pairs."""
    plan, work, n_threads, n_batches = s.plan, s.work, s.n_threads, len(span.n_clicks)
    for first in range(0, n_batches, n_threads):
        count = min(n_threads, n_batches - first)
        if thread < count:
            n = first + thread
            begin, end = span.bounds[n], span.bounds[n + 1]
            clicks = users[begin:end], start[begin : end + 1], items, weight[begin:end]
            lay_out_pairs(plan, thread, work, *clicks, item_weight, marks, s.tables.exposure)
            lay_out_shared_items(s, thread, span, n)
            if s.options.strategy == BILEVEL:
                find_guides(plan, thread, work, s.guide, (steps + n) % s.guide.n_parts)
                number_guided(s, o, thread)
        wait_for_all(s.barrier, n_threads)
        for b in range(count):
            before = steps + first + b
            correct_rates(work.rates[thread], s.tables.rates, before + 1)
            if s.options.strategy != GIVEN:
                part = before % s.guide.n_parts
                if not learn_shared_exposure(s, o, b, part, thread):
                    return
            step_users(s, b, thread)
            wait_for_all(s.barrier, n_threads)
            if not step_shared_items(s, o, b, span, first + b, thread):
                return
            if thread == 0:
                total = 0.0
                for k in range(plan.n_pairs[b]):
                    total += work.loss[k]
                losses[first + b] = total
            wait_for_all(s.barrier, n_threads)


@jit_entry
def count_rows(
    rows: Array, times: Array, bounds: Array, place: Array, found: Array, often: Array, ends: Array
) -> None:
    """The distinct rows of each batch, and how often it has them, from several lists of rows.

    List w has rows[bounds[w, n] : bounds[w, n + 1]] for batch n, each `times` as often, or once if
    there are no times. What is found for batch n ends at ends[n + 1]. `place` is −1 for every row,
    before and after.
    """
    at = 0
    ends[0] = 0
    for n in range(bounds.shape[1] - 1):
        first = at
        for w in range(bounds.shape[0]):
            for k in range(bounds[w, n], bounds[w, n + 1]):
                h = place[rows[k]]
                if h < 0:
                    h = at
                    place[rows[k]] = h
                    found[h], often[h] = rows[k], 0
                    at += 1
                often[h] += times[k] if len(times) else 1
        for h in range(first, at):
            place[found[h]] = -1
        ends[n + 1] = at
