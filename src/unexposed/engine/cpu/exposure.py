"""The phases in which the exposure learns: `bilevel.py` in closed form.

GATES        r of every item
LOOK         x and s of every pair; ω′_u where it is needed
AHEAD        ω′_i where it is needed                            (bilevel, bilevel_on_batch)
VALIDATE     g_i = ∂L_val/∂ω_i at ω′, in blocks                 (bilevel)
ALONG_BATCH  gᵤᵀωᵢ of every pair, g_u = ∂L_train/∂ω_u at ω′     (bilevel_on_batch)
ALONG        gᵢᵀωᵤ of every pair                                (bilevel, bilevel_on_batch)
EXPOSURE     gᵤᵀωᵢ of every pair (bilevel); ∂/∂m of every pair, carried into e_u; Adam on e_u
GATE         ∂/∂m carried into w and b; Adam on w and b
"""

from typing import Any

import numpy as np

from unexposed.engine.cpu.batch import sum_over_users
from unexposed.engine.cpu.compile import Array, jit, jit_inline
from unexposed.engine.cpu.formulas import (
    all_odds_against,
    gated,
    low_variance_cross_slope,
    low_variance_exposure_slope,
    low_variance_slope,
    odds_against,
    slopes_if_shown,
    through_gate,
)
from unexposed.engine.cpu.layout import (
    ALTERNATE,
    BILEVEL,
    BILEVEL_ON_BATCH,
    CHUNK,
    EXPOSURE_RATES,
    FAR,
    FROZEN,
    GATE_RATES,
    GATE_ROWS,
    JOINT,
    NEAR,
    Step,
)
from unexposed.engine.cpu.rows import (
    adam,
    add_scaled,
    dot,
    fetch,
    hold,
    put,
    put_zero,
    sum_up,
    two_dots,
)


@jit_inline
def exposure_of(s: Step, b: int, item_at: Array, popularity: Array, k: Any) -> tuple[float, float]:
    """m and 1 − m of pair k, from r of its item and the odds against s, unless m is given."""
    work, h = s.work, item_at[k]
    m, q = gated(work.gate[h], work.gate_rest[h], work.seen_odds[k], float(popularity[k]))
    if s.marked is None:
        return m, q
    known = float(s.plan.pair_known[b, k])
    return (m, q) if known != known else (known, 1 - known)


@jit
def find_gates(s: Step, b: int, thread: int) -> None:
    """r = σ(wᵀωᵢ + b) and 1 − r of every item."""
    t, plan, work = s.tables, s.plan, s.work
    dim, gate = t.dim, t.gate
    for h in range(plan.item_share[b, thread], plan.item_share[b, thread + 1]):
        logit = dot(gate, 0, t.items, 3 * dim * plan.item_row[b, h], dim) + gate[3 * dim]
        odds = odds_against(logit)
        work.gate[h] = 1 / (1 + odds)
        work.gate_rest[h] = odds / (1 + odds)


# looking ahead: ω′ = ω − η ∂L_train/∂ω --------------------------------------------------------


@jit
def look_ahead(s: Step, b: int, thread: int) -> None:
    """x and s of every pair at ω; ω′_u = ω_u − η·Σ weight·∂L2/∂x·ω_i where it is needed."""
    t, plan, guide, work, options = s.tables, s.plan, s.guide, s.work, s.options
    dim, users, items, strategy = t.dim, t.users, t.items, options.strategy
    pair_item, user_row, user_start = plan.pair_item[b], plan.user_row[b], plan.user_start[b]
    last_user, last_pair = plan.n_users[b] - 1, plan.n_pairs[b] - 1
    stop = plan.user_share[b, thread + 1]
    for first in range(plan.user_share[b, thread], stop, CHUNK):
        last = min(first + CHUNK, stop)
        begin, end = user_start[first], user_start[last]
        for g in range(first, last):
            user, soon = 3 * dim * user_row[g], 3 * dim * user_row[min(g + NEAR, last_user)]
            fetch(users, soon, dim)
            fetch(t.exposure_users, soon, dim)
            for k in range(user_start[g], user_start[g + 1]):
                fetch(items, 3 * dim * pair_item[min(k + FAR, last_pair)], dim)
                item = 3 * dim * pair_item[k]
                x, seen = two_dots(users, t.exposure_users, user, items, item, dim)
                work.logit[k], work.seen_logit[k] = x, seen + options.offset
        all_odds_against(work.logit, work.odds, begin, end)
        all_odds_against(work.seen_logit, work.seen_odds, begin, end)
        if strategy == FROZEN:
            continue
        look_ahead_slopes(s, b, begin, end)
        if strategy not in (BILEVEL, BILEVEL_ON_BATCH):
            continue
        for g in range(first, last):
            ahead, at = work.ahead_users, g
            if strategy == BILEVEL:
                if plan.user_guide[b, g] < 0:
                    continue
                ahead, at = guide.ahead_users, guide.user_number[user_row[g]]
            put(ahead, dim * at, users, 3 * dim * user_row[g], dim)
            for k in range(user_start[g], user_start[g + 1]):
                add_scaled(ahead, dim * at, items, 3 * dim * pair_item[k], work.slope[k], dim)
            hold(ahead, dim * at, t.fixed_of_users, 1)


@jit
def look_ahead_slopes(s: Step, b: int, begin: int, end: int) -> None:
    """−η·weight·∂L2/∂x of some pairs, how far ω′ lies ahead; weight·∂L2/∂m without look-ahead."""
    plan, work, options = s.plan, s.work, s.options
    click, popularity, weight = plan.pair_click[b], plan.pair_exposure[b], plan.pair_weight[b]
    item_at, straight = plan.pair_item_at[b], options.strategy in (JOINT, ALTERNATE)
    for k in range(np.uint64(begin), np.uint64(end)):
        m, q = exposure_of(s, b, item_at, popularity, k)
        t = work.odds[k]
        work.along[k], work.direct[k] = 0, 0
        if straight:
            work.direct[k] = weight[k] * low_variance_exposure_slope(t, click[k], m, q)
        else:
            rise = low_variance_slope(t, click[k], m, q)
            work.slope[k] = -options.lookahead * weight[k] * rise


@jit_inline
def row_of(s: Step, b: int, h: int) -> int:
    """The row of `on_items` for ω′ and g of an item; −1: it needs neither."""
    return s.plan.item_sum[b, h] if s.options.strategy == BILEVEL else h


@jit_inline
def ahead_of(s: Step, b: int, h: int) -> tuple[Array, int]:
    """The table and the place of ω′_i."""
    if s.options.strategy == BILEVEL:
        number = s.guide.item_number[s.plan.item_row[b, h]]
        return s.guide.ahead_items, s.tables.dim * number
    return s.work.ahead_items, s.tables.dim * h


@jit
def sum_ahead_items(s: Step, b: int, thread: int) -> None:
    """−η·Σ weight·∂L2/∂x·ω_u of every item that needs ω′; ω_i is added by the first worker."""
    t, plan, work = s.tables, s.plan, s.work
    dim, users, slope = t.dim, t.users, work.slope
    item_pairs, user_at, user_row = plan.item_pairs[b], plan.pair_user_at[b], plan.user_row[b]
    for h in range(plan.item_share[b, thread], plan.item_share[b, thread + 1]):
        at = dim * row_of(s, b, h)
        if at < 0:
            continue
        target = work.on_items
        if s.workers.address == 0:
            target, at = ahead_of(s, b, h)
        if s.workers.leads:
            put(target, at, t.items, 3 * dim * plan.item_row[b, h], dim)
        else:
            put_zero(target, at, dim)
        for j in range(plan.item_start[b, h], plan.item_start[b, h + 1]):
            k = item_pairs[j]
            add_scaled(target, at, users, 3 * dim * user_row[user_at[k]], slope[k], dim)


@jit
def put_ahead_items(s: Step, b: int, thread: int) -> None:
    """ω′_i, from the sums."""
    plan, dim = s.plan, s.tables.dim
    for h in range(plan.item_share[b, thread], plan.item_share[b, thread + 1]):
        row = row_of(s, b, h)
        if row >= 0:
            ahead, at = ahead_of(s, b, h)
            if s.workers.address != 0:
                put(ahead, at, s.work.on_items, dim * row, dim)
            hold(ahead, at, s.tables.fixed_of_items, 1)


# g = ∂L/∂ω at ω′, and how pairs lie along it ----------------------------------------------------


@jit
def validate_items(s: Step, b: int, part: int, thread: int) -> None:
    """Parts of g_i = ∂L_val/∂ω_i at ω′: sums of (p − relevant)·ω′_u over validation pairs of i."""
    t, plan, guide, work, n_threads = s.tables, s.plan, s.guide, s.work, s.n_threads
    dim, users, items = t.dim, guide.ahead_users, guide.ahead_items
    own, logit = work.own_slope[thread], work.own_logit[thread]
    first = guide.item_part[part]
    first_block = guide.item_blocks[first]
    last_pair = len(guide.item_users) - 1
    for j in range(first_block + thread, guide.item_blocks[guide.item_part[part + 1]], n_threads):
        of = guide.block_group[j]
        if plan.guide_item_at[b, of - first] < 0:
            continue
        begin, n = guide.block_start[j], guide.block_start[j + 1] - guide.block_start[j]
        item = dim * guide.item_group[of]
        for k in range(n):
            fetch(users, dim * guide.item_users[min(begin + k + FAR, last_pair)], dim)
            logit[k] = dot(users, dim * guide.item_users[begin + k], items, item, dim)
            own[k] = 1 if guide.item_relevant[begin + k] else 0
        slopes_if_shown(logit, own, guide.scale[part], n)
        rows, at = guide.item_users[begin:], dim * (j - first_block)
        sum_up(work.blocks, at, users, dim, rows, own, 0, n, dim)


@jit
def sum_along_items(s: Step, b: int, part: int, thread: int) -> None:
    """g_i of every item: from its blocks of validation pairs, or over its pairs (BiOpt2).

    Alone, a worker goes along it at once.
    """
    plan, guide, work, dim = s.plan, s.guide, s.work, s.tables.dim
    first_block, alone = guide.item_blocks[guide.item_part[part]], s.workers.address == 0
    for h in range(plan.item_share[b, thread], plan.item_share[b, thread + 1]):
        target, at = work.on_items, dim * row_of(s, b, h)
        if at < 0:
            continue
        if alone:
            target, at = work.own[thread], 0
        if s.options.strategy == BILEVEL_ON_BATCH:
            sum_over_users(target, at, work.ahead_users, s, b, h)
        else:
            of = plan.item_guide[b, h]
            first = guide.item_blocks[of] - first_block
            last = guide.item_blocks[of + 1] - first_block
            if first == last:  # of other workers
                put_zero(target, at, dim)
            else:
                put(target, at, work.blocks, dim * first, dim)
            for j in range(first + 1, last):
                add_scaled(target, at, work.blocks, dim * j, 1, dim)
        if alone:
            go_along_item(s, b, h, target, at)


@jit
def go_along_items(s: Step, b: int, thread: int) -> None:
    """gᵢᵀωᵤ of every pair, from the sums of all workers."""
    for h in range(s.plan.item_share[b, thread], s.plan.item_share[b, thread + 1]):
        at = s.tables.dim * row_of(s, b, h)
        if at >= 0:
            go_along_item(s, b, h, s.work.on_items, at)


@jit_inline
def go_along_item(s: Step, b: int, h: int, direction: Array, at: int) -> None:
    """Add gᵢᵀωᵤ of every unclicked pair; a click has no hypergradient (appendix B)."""
    t, plan, work = s.tables, s.plan, s.work
    hold(direction, at, t.fixed_of_items, 0)
    for j in range(plan.item_start[b, h], plan.item_start[b, h + 1]):
        k = plan.item_pairs[b, j]
        if plan.pair_click[b, k] == 0:
            user = 3 * t.dim * plan.user_row[b, plan.pair_user_at[b, k]]
            work.along[k] += dot(direction, at, t.users, user, t.dim)


@jit
def go_along_users(s: Step, b: int, part: int, thread: int) -> None:
    """gᵤᵀωᵢ of every pair: g_u = ∂L_val/∂ω_u at ω′, where the user has validation pairs."""
    t, plan, guide, work = s.tables, s.plan, s.guide, s.work
    dim, users, items, direction = t.dim, guide.ahead_users, guide.ahead_items, work.own[thread]
    own, logit = work.own_slope[thread], work.own_logit[thread]
    for g in range(plan.user_share[b, thread], plan.user_share[b, thread + 1]):
        of = plan.user_guide[b, g]
        if of < 0:
            continue
        begin, n = guide.user_start[of], guide.user_start[of + 1] - guide.user_start[of]
        user = dim * guide.user_group[of]
        for k in range(n):
            logit[k] = dot(users, user, items, dim * guide.user_items[begin + k], dim)
            own[k] = 1 if guide.user_relevant[begin + k] else 0
        slopes_if_shown(logit, own, guide.scale[part], n)
        sum_up(direction, 0, items, dim, guide.user_items[begin:], own, 0, n, dim)
        go_along_user(s, b, g, direction)


@jit
def go_along_batch_users(s: Step, b: int, thread: int) -> None:
    """gᵤᵀωᵢ for g_u = ∂L_train/∂ω_u at ω′, and ∂L_train/∂m there (BiOpt2)."""
    t, plan, work = s.tables, s.plan, s.work
    dim, users, items, direction = t.dim, work.ahead_users, work.ahead_items, work.own[thread]
    item_at, slope, user_start = plan.pair_item_at[b], work.slope, plan.user_start[b]
    popularity = plan.pair_exposure[b]
    for g in range(plan.user_share[b, thread], plan.user_share[b, thread + 1]):
        begin, end = user_start[g], user_start[g + 1]
        for k in range(begin, end):
            click, weight, h = plan.pair_click[b, k], plan.pair_weight[b, k], item_at[k]
            m, q = exposure_of(s, b, item_at, popularity, k)
            odds = odds_against(dot(users, dim * g, items, dim * h, dim))
            slope[k] = weight * low_variance_slope(odds, click, m, q)
            work.direct[k] = weight * low_variance_exposure_slope(odds, click, m, q)
        sum_up(direction, 0, items, dim, item_at, slope, begin, end, dim)
        go_along_user(s, b, g, direction)


@jit_inline
def go_along_user(s: Step, b: int, g: int, direction: Array) -> None:
    """Add gᵤᵀωᵢ of every unclicked pair of a user."""
    t, plan, work = s.tables, s.plan, s.work
    hold(direction, 0, t.fixed_of_users, 0)
    for k in range(plan.user_start[b, g], plan.user_start[b, g + 1]):
        if plan.pair_click[b, k] == 0:
            item = 3 * t.dim * plan.pair_item[b, k]
            work.along[k] += dot(direction, 0, t.items, item, t.dim)


# the step of the exposure ----------------------------------------------------------------------


@jit
def step_exposure_users(s: Step, b: int, thread: int) -> None:
    """∂/∂m of every pair, carried into e_u; Adam on e_u; s at the new e_u."""
    t, plan, work, options = s.tables, s.plan, s.work, s.options
    dim, items, own = t.dim, t.items, work.own[thread]
    exposure_users = t.exposure_users
    pair_item, user_row, user_start = plan.pair_item[b], plan.user_row[b], plan.user_start[b]
    stop, rates = plan.user_share[b, thread + 1], work.rates[thread, EXPOSURE_RATES]
    for first in range(plan.user_share[b, thread], stop, CHUNK):
        last = min(first + CHUNK, stop)
        begin, end = user_start[first], user_start[last]
        carry_to_exposure(s, b, begin, end)
        for g in range(first, last):
            fetch(exposure_users, 3 * dim * user_row[min(g + NEAR, stop - 1)], 3 * dim)
            one, behind, user = user_start[g], user_start[g + 1], user_row[g]
            sum_up(own, 0, items, 3 * dim, pair_item, work.slope, one, behind, dim)
            adam(exposure_users, user, own, 0, rates, dim)
            if options.strategy == JOINT:  # there ω descends at the same m
                continue
            for k in range(one, behind):
                seen = dot(exposure_users, 3 * dim * user, items, 3 * dim * pair_item[k], dim)
                work.seen_logit[k] = seen + options.offset
        if options.strategy != JOINT:
            all_odds_against(work.seen_logit, work.seen_odds, begin, end)


@jit
def carry_to_exposure(s: Step, b: int, begin: int, end: int) -> None:
    """∂/∂m of some pairs, and with it the gradients on eᵤᵀωᵢ and on wᵀωᵢ + b.

    Through ω′ it is −η·weight·∂²L2/∂x∂m·(gᵤᵀωᵢ + gᵢᵀωᵤ) (`bilevel._through_step`).
    """
    plan, work = s.plan, s.work
    click, popularity, weight = plan.pair_click[b], plan.pair_exposure[b], plan.pair_weight[b]
    item_at = plan.pair_item_at[b]
    for k in range(np.uint64(begin), np.uint64(end)):
        h, theta, odds = item_at[k], float(popularity[k]), work.seen_odds[k]
        gate, rest, seen = work.gate[h], work.gate_rest[h], 1 / (1 + odds)
        q = gated(gate, rest, odds, theta)[1]
        cross = low_variance_cross_slope(work.odds[k], click[k], q)
        by_m = work.direct[k] - s.options.lookahead * weight[k] * cross * work.along[k]
        if s.marked is not None:
            known = plan.pair_known[b, k]
            by_m = by_m if known != known else 0.0  # a given m does not learn
        work.slope[k], work.gate_slope[k] = through_gate(by_m, gate, rest, seen, odds * seen, theta)


@jit
def gate_gradient(s: Step, b: int, thread: int) -> None:
    """The gradient on w and b, a sum for each chunk of items."""
    t, plan, work = s.tables, s.plan, s.work
    dim, stop = t.dim, plan.item_share[b, thread + 1]
    for first in range(plan.item_share[b, thread], stop, CHUNK):
        chunk, on_bias = first // CHUNK, 0.0
        put_zero(work.on_gate, dim * chunk, dim)
        for h in range(first, min(first + CHUNK, stop)):
            slope = 0.0
            for j in range(plan.item_start[b, h], plan.item_start[b, h + 1]):
                slope += work.gate_slope[plan.item_pairs[b, j]]
            row = 3 * dim * plan.item_row[b, h]
            add_scaled(work.on_gate, dim * chunk, t.items, row, slope, dim)
            on_bias += slope
        work.on_bias[chunk] = on_bias


@jit
def sum_gate(s: Step, b: int) -> None:
    """The gradient on w in the first row of `on_items`, the gradient on b in the next."""
    work, dim, on_bias = s.work, s.tables.dim, 0.0
    put_zero(work.on_items, 0, GATE_ROWS * dim)
    for j in range((s.plan.n_items[b] + CHUNK - 1) // CHUNK):
        add_scaled(work.on_items, 0, work.on_gate, dim * j, 1, dim)
        on_bias += work.on_bias[j]
    work.on_items[dim] = on_bias


@jit
def step_gate(s: Step) -> None:
    """Adam on w and b."""
    rates = s.work.rates[0, GATE_RATES]
    for row in range(GATE_ROWS):
        adam(s.tables.gate, row, s.work.on_items, s.tables.dim * row, rates, s.tables.dim)
