"""The phases of a step on the pairs of one batch, and the loop over batches.

`layout.PHASES` says which phases a strategy takes, in which order; all threads wait for each other
after each. In a phase each row has one owner, which adds up its gradient in a fixed order; any
thread can be the owner, so any number of threads gives the same bits. Scalars of a pair are
computed in float64, rows in the engine's own type.

Sums over the users of an item stand in `on_items`. Where several workers train together, each has
the sums of its own users, and they add them up there (`workers.py`).
"""

from typing import Any

import numpy as np

from unexposed.engine.cpu.batch import find_guides, lay_out_items, lay_out_pairs, sum_over_users
from unexposed.engine.cpu.compile import (
    Array,
    call_python,
    jit,
    jit_entry,
    jit_inline,
    wait_for_all,
)
from unexposed.engine.cpu.exposure import (
    exposure_of,
    find_gates,
    gate_gradient,
    go_along_batch_users,
    go_along_items,
    go_along_users,
    look_ahead,
    put_ahead_items,
    step_exposure_users,
    step_gate,
    sum_ahead_items,
    sum_along_items,
    sum_gate,
    validate_items,
)
from unexposed.engine.cpu.formulas import (
    PAIRWISE,
    all_odds_against,
    logarithm,
    low_variance_slope,
    low_variance_value,
    pairwise_scale,
    value_and_slope,
)
from unexposed.engine.cpu.layout import (
    AHEAD,
    ALONG,
    ALONG_BATCH,
    BILEVEL,
    CHUNK,
    EXPOSURE,
    FAR,
    GATE,
    GATE_ROWS,
    GATES,
    GIVEN,
    ITEMS,
    LOOK,
    NEAR,
    RELEVANCE_RATES,
    USERS,
    VALIDATE,
    Batch,
    Span,
    Step,
)
from unexposed.engine.cpu.rows import adam_of_terms, correct_rates, dot, fetch, hold, put, sum_up

# the step of the relevance ---------------------------------------------------------------------


@jit
def step_users(s: Step, b: int, thread: int) -> None:
    """The slope of every pair, and Adam on every user; the old ω_u is saved for the items."""
    t, plan, guide, work, options = s.tables, s.plan, s.guide, s.work, s.options
    dim, users, items, own = t.dim, t.users, t.items, work.own[thread]
    pair_item, user_row, user_start = plan.pair_item[b], plan.user_row[b], plan.user_start[b]
    stop, rates = plan.user_share[b, thread + 1], work.rates[thread, RELEVANCE_RATES]
    mean = 1.0 / plan.n_clicks[b]
    for first in range(plan.user_share[b, thread], stop, CHUNK):
        last = min(first + CHUNK, stop)
        begin, end = user_start[first], user_start[last]
        if options.strategy != GIVEN:
            learned_slopes(s, b, begin, end)
        else:
            find_logits(s, b, first, last)
            if options.loss >= PAIRWISE:
                pairwise_slopes(s, b, begin, end)
            else:
                given_slopes(s, b, begin, end)
        for g in range(first, last):
            user = user_row[g]
            fetch(users, 3 * dim * user_row[min(g + NEAR, stop - 1)], 3 * dim)
            put(work.old_users, dim * g, users, 3 * dim * user, dim)
            one, behind = user_start[g], user_start[g + 1]
            sum_up(own, 0, items, 3 * dim, pair_item, work.slope, one, behind, dim)
            hold(own, 0, t.fixed_of_users, 0)
            adam_of_terms(users, user, own, 0, rates, (behind - one) * mean, t.decays, dim)
            if options.strategy == BILEVEL and guide.user_number[user] >= 0:
                number = guide.user_number[user]
                put(guide.ahead_users, dim * number, users, 3 * dim * user, dim)


@jit
def find_logits(s: Step, b: int, first: int, last: int) -> None:
    """x and e⁻ˣ of every pair of some users."""
    t, plan, work = s.tables, s.plan, s.work
    dim, users, items = t.dim, t.users, t.items
    pair_item, user_row, user_start = plan.pair_item[b], plan.user_row[b], plan.user_start[b]
    last_user, last_pair = plan.n_users[b] - 1, plan.n_pairs[b] - 1
    for g in range(first, last):
        user = 3 * dim * user_row[g]
        fetch(users, 3 * dim * user_row[min(g + NEAR, last_user)], dim)
        for k in range(user_start[g], user_start[g + 1]):
            fetch(items, 3 * dim * pair_item[min(k + FAR, last_pair)], dim)
            work.logit[k] = dot(users, user, items, 3 * dim * pair_item[k], dim)


@jit
def given_slopes(s: Step, b: int, begin: int, end: int) -> None:
    """∂L/∂x of some pairs where the exposure is given."""
    plan, work = s.plan, s.work
    click, exposure, weight = plan.pair_click[b], plan.pair_exposure[b], plan.pair_weight[b]
    mean = 1.0 / plan.n_clicks[b]
    all_odds_against(work.logit, work.odds, begin, end)
    for k in range(np.uint64(begin), np.uint64(end)):
        m = known_or(float(exposure[k]), s, b, k)
        value, slope = value_and_slope(s.options.loss, work.logit[k], work.odds[k], click[k], m)
        work.slope[k] = mean * weight[k] * slope
        work.loss[k] = mean * weight[k] * value


@jit
def learned_slopes(s: Step, b: int, begin: int, end: int) -> None:
    """∂L2/∂x of some pairs at the learned exposure."""
    plan, work = s.plan, s.work
    click, popularity, weight = plan.pair_click[b], plan.pair_exposure[b], plan.pair_weight[b]
    mean, item_at = 1.0 / plan.n_clicks[b], plan.pair_item_at[b]
    for k in range(np.uint64(begin), np.uint64(end)):
        odds = work.odds[k]
        m, q = exposure_of(s, b, item_at, popularity, k)
        work.slope[k] = mean * weight[k] * low_variance_slope(odds, click[k], m, q)
        work.loss[k] = mean * weight[k] * low_variance_value(odds, click[k], m, q)


@jit_inline
def known_or(m: float, s: Step, b: int, k: Any) -> float:
    """The m that is given for pair k, or this m where none is."""
    if s.marked is None:
        return m
    known = float(s.plan.pair_known[b, k])
    return m if known != known else known  # NaN: not given


@jit
def pairwise_slopes(s: Step, b: int, begin: int, end: int) -> None:
    """∂/∂x of `losses.PAIRWISE_LOSSES`, for a click and each item drawn for it."""
    plan, work = s.plan, s.work
    click, exposure, weight = plan.pair_click[b], plan.pair_exposure[b], plan.pair_weight[b]
    mean = 1.0 / plan.n_clicks[b]
    clicked, scale = 0.0, 1.0
    for k in range(begin, end):
        if click[k] > 0:
            clicked = work.logit[k]
            scale = pairwise_scale(s.options.loss, known_or(float(exposure[k]), s, b, k))
        work.logit[k] = clicked - work.logit[k]
        work.slope[k] = scale
    all_odds_against(work.logit, work.odds, begin, end)
    for k in range(np.uint64(begin), np.uint64(end)):
        odds, drawn = work.odds[k], 1.0 - click[k]
        scale = work.slope[k]
        work.slope[k] = drawn * mean * weight[k] * odds / (1 + odds) * scale
        work.loss[k] = drawn * mean * weight[k] * logarithm(1 + odds) * scale
    at = begin
    for k in range(begin, end):
        if click[k] > 0:
            at = k
        else:
            work.slope[at] -= work.slope[k]


@jit
def sum_items(s: Step, b: int, thread: int) -> None:
    """The gradients of the thread's items; alone, a worker moves each chunk while it is at hand."""
    t, plan = s.tables, s.plan
    dim, stop = t.dim, plan.item_share[b, thread + 1]
    for first in range(plan.item_share[b, thread], stop, CHUNK):
        last = min(first + CHUNK, stop)
        for h in range(last, min(last + CHUNK, stop)):
            fetch(t.items, 3 * dim * plan.item_row[b, h], 3 * dim)
        for h in range(first, last):
            sum_over_users(s.work.on_items, dim * h, s.work.old_users, s, b, h)
        if s.workers.address == 0:
            step_items(s, b, first, last, thread)


@jit
def step_items(s: Step, b: int, first: int, last: int, thread: int) -> None:
    """Adam on some items, from their gradients."""
    t, plan, guide, work = s.tables, s.plan, s.guide, s.work
    dim, rates, mean = t.dim, work.rates[thread, RELEVANCE_RATES], 1.0 / plan.n_clicks[b]
    for h in range(first, last):
        item, terms = plan.item_row[b, h], plan.item_start[b, h + 1] - plan.item_start[b, h]
        if s.workers.address != 0:
            terms = plan.item_times[b, h]
        adam_of_terms(t.items, item, work.on_items, dim * h, rates, terms * mean, t.decays, dim)
        if s.options.strategy == BILEVEL and guide.item_number[item] >= 0:
            put(guide.ahead_items, dim * guide.item_number[item], t.items, 3 * dim * item, dim)


# The epoch ------------------------------------------------------------------------------------


@jit
def fill(s: Step, b: int, phase: int, part: int, thread: int) -> int:
    """Do a phase up to its sums over users; how many rows of `on_items` hold them, or −1."""
    if phase == GATES:
        find_gates(s, b, thread)
    elif phase == LOOK:
        look_ahead(s, b, thread)
    elif phase == AHEAD:
        sum_ahead_items(s, b, thread)
        return s.plan.n_sums[b]
    elif phase == VALIDATE:
        validate_items(s, b, part, thread)
    elif phase == ALONG_BATCH:
        go_along_batch_users(s, b, thread)
    elif phase == ALONG:
        sum_along_items(s, b, part, thread)
        return s.plan.n_sums[b]
    elif phase == EXPOSURE:
        if s.options.strategy == BILEVEL:
            go_along_users(s, b, part, thread)
        step_exposure_users(s, b, thread)
    elif phase == GATE:
        gate_gradient(s, b, thread)
        wait_for_all(s.barrier, s.n_threads)
        if thread == 0:
            sum_gate(s, b)
        return GATE_ROWS
    elif phase == USERS:
        step_users(s, b, thread)
    elif phase == ITEMS:
        sum_items(s, b, thread)
        return s.plan.n_items[b]
    return -1


@jit
def use(s: Step, b: int, phase: int, thread: int) -> None:
    """What a phase does with its sums over the users of all workers."""
    if phase == AHEAD:
        put_ahead_items(s, b, thread)
    elif phase == ALONG and s.workers.address != 0:
        go_along_items(s, b, thread)
    elif phase == GATE and thread == 0:
        step_gate(s)
    elif phase == ITEMS and s.workers.address != 0:
        share = s.plan.item_share[b]
        step_items(s, b, share[thread], share[thread + 1], thread)


@jit
def add_up(s: Step, n_rows: int, thread: int) -> bool:
    """Replace the first rows of `on_items` by their sums over workers; whether that worked."""
    if s.workers.address == 0:
        return True
    wait_for_all(s.barrier, s.n_threads)
    if thread == 0:
        s.workers.failed[0] = call_python(s.workers.address, n_rows)
    wait_for_all(s.barrier, s.n_threads)
    return s.workers.failed[0] == 0


@jit_entry
def run(given: Batch, span: Span, s: Step, thread: int, losses: Array) -> None:
    """One thread's part of a step on each batch of the samples; thread 0 writes the losses."""
    plan, work, n_threads, n_batches = s.plan, s.work, s.n_threads, len(span.n_clicks)
    for first in range(0, n_batches, n_threads):  # laid out side by side, then run one by one
        count = min(n_threads, n_batches - first)
        if thread < count:
            n = first + thread
            marks, exposure = given.marks, s.tables.exposure
            lay_out_pairs(plan, thread, work, given, span, n, marks, exposure)
            if s.phases[-1] == ITEMS:
                lay_out_items(plan, thread, work, span, n)
            if s.options.strategy == BILEVEL:
                find_guides(plan, thread, work, s.guide, span.before[n] % s.guide.n_parts)
        wait_for_all(s.barrier, n_threads)
        for b in range(count):
            before = span.before[first + b]
            correct_rates(work.rates[thread], s.tables.rates, before + 1)
            for phase in s.phases:
                n_rows = fill(s, b, phase, before % s.guide.n_parts, thread)
                if n_rows >= 0 and not add_up(s, n_rows, thread):
                    return
                use(s, b, phase, thread)
                if phase == ITEMS and thread == 0:
                    total = 0.0
                    for k in range(plan.n_pairs[b]):
                        total += work.loss[k]
                    losses[first + b] = total
                wait_for_all(s.barrier, n_threads)
