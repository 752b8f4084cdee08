# mypy: ignore-errors
"""The kernels of a training step, in Triton: gradients of a batch's pairs, then Adam on its rows.

A row of a table holds its value, its two moments, and the sums of gradients that a batch gathers:
(rows, parts, WIDTH), with zeros in the columns past the model's dim; those stay zero, so the
kernels need not know dim. Pairs add to the sums atomically: their order, and the last bits, vary.
The sums are zero between steps: the program that takes the Adam step of a row zeroes them.

Where relevance has biases, the columns of ones, USER_ONES and ITEM_ONES, gather no gradient (−1:
there is none), and the columns from DECAYING on have no weight decay.

A row that a batch touches many times is stepped once. Every click writes its number to the
`user_owner` of its user, every pair to the `item_owner` of its item; one of them is written last,
and it owns the row. Numbers grow from batch to batch, so a lower one tells an untouched row.

Where workers train together (DIVIDED), a batch has clicks of this worker and of others. The host
lists the items that any worker touches, writes the number of the batch to the `item_owner` of each,
and adds up the sums of the workers between the kernels of a step (`divided.py`).
"""

import triton
import triton.language as tl

from unexposed.engine.cuda.pair_formulas import (
    LOSS_CODES,  # noqa: F401, the engine reads it
    PAIRWISE,
    cross_slope,
    exposure_slope,
    gated,
    log_sigmoids,
    loss_and_slope,
    pairwise_scale,
    sigmoids,
)

# the parts of a row; AHEAD is ∂L_train/∂ω (ω′ = ω − η·AHEAD), ALONG ∂L/∂ω at ω′
VALUE, FIRST, SECOND, GRADIENT, AHEAD, ALONG = (tl.constexpr(i) for i in range(6))
PLAIN_PARTS, LOOK_AHEAD_PARTS = tl.constexpr(4), tl.constexpr(6)
# the phases of `pairs`: three are named by the part that they fill; this one fills the GRADIENT of
# exposure users and gate
EXPOSURE_GRADIENT = tl.constexpr(6)
# places in `state`: where this batch and the next one start among the clicks, how many clicks there
# are, the number of the first, the steps taken before it; where DIVIDED also the clicks of this
# batch on all workers, its number, and where its items lie among the `touched` ones
START, NEXT, COUNT, BASE, STEPS = (tl.constexpr(i) for i in range(5))
ON_ALL_RANKS, BATCH, FIRST_ROW, END_ROW = (tl.constexpr(i) for i in range(5, 9))
# places in `settings`, float64
RATE, EXPOSURE_RATE, GATE_RATE, DECAY, EXPOSURE_DECAY = (tl.constexpr(i) for i in range(5))
LOOKAHEAD, OFFSET, BETA1, BETA2, LOG_BETA1 = (tl.constexpr(i) for i in range(5, 10))
LOG_BETA2, EPSILON = tl.constexpr(10), tl.constexpr(11)
# where exposure comes from
SHOWN, PER_ITEM, PER_PAIR, GATED = (tl.constexpr(i) for i in range(4))
# what the exposure descends
TRAIN_LOSS, VALIDATION_AHEAD, BATCH_AHEAD = (tl.constexpr(i) for i in range(3))


@triton.jit
def _batch(state, batch_size, OPENS: tl.constexpr):
    """Where this batch starts among the clicks, and its size: 0 or less past the last click."""
    if OPENS:
        start = tl.load(state + NEXT)
        tl.store(state + START, start, mask=tl.program_id(0) == 0)
    else:
        start = tl.load(state + START)
    return start, tl.minimum(tl.load(state + COUNT) - start, batch_size)


@triton.jit
def _all_clicks(state, size, DIVIDED: tl.constexpr):
    """The clicks of a batch, whose loss is divided by them: on this worker they are `size`."""
    return tl.load(state + ON_ALL_RANKS) if DIVIDED else size


@triton.jit
def _setting(settings, PLACE: tl.constexpr, like):
    return tl.load(settings + PLACE).to(like.dtype)


@triton.jit
def _moving(gradient, column, ONES: tl.constexpr):
    """The gradient, with zero in the column of ones; `column` has as many axes."""
    return gradient if ONES < 0 else tl.where(column == ONES, 0.0, gradient)


@triton.jit
def pairs(
    state, settings, batch_size, loss,
    click_user, click_start, click_weight, pair_item, item_weight,
    users, items, exposure_users, gate, user_owner, item_owner, exposure, n_items,
    PHASE: tl.constexpr, OPENS: tl.constexpr, LOSS: tl.constexpr, EXPOSURE: tl.constexpr,
    BY_ITEM: tl.constexpr, DIVIDED: tl.constexpr,
    DESCENDS: tl.constexpr, PARTS: tl.constexpr, WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr, CLICKS: tl.constexpr, EACH: tl.constexpr,
    USER_ONES: tl.constexpr, ITEM_ONES: tl.constexpr, DECAYING: tl.constexpr,
):  # fmt: skip
    """Add the gradients of a batch's pairs, in one phase of the step.

    AHEAD: ∂L_train/∂ω. ALONG: ∂L_train/∂ω at ω′, with m at ω. EXPOSURE_GRADIENT: ∂/∂α of the loss
    that the exposure descends. GRADIENT: ∂/∂ω of the loss of the batch, and the loss itself.
    A program takes a few clicks, and of each click EACH items at a time; the user's row is read
    once, and its gradient added once. The phase that OPENS a batch also marks the rows it touches.
    """
    start, size = _batch(state, batch_size, OPENS)
    n_clicks = _all_clicks(state, size, DIVIDED)
    place = tl.program_id(0) * CLICKS + tl.arange(0, CLICKS)
    here = place < size
    click = start + place
    user = tl.load(click_user + click, mask=here, other=0).to(tl.int64)
    begin = tl.load(click_start + click, mask=here, other=0)
    end = tl.load(click_start + click + 1, mask=here, other=0)
    drawn_weight = tl.load(click_weight + click, mask=here, other=0.0)
    base = tl.load(state + BASE)
    if OPENS:
        tl.store(user_owner + user, base + click, mask=here)

    column = tl.arange(0, COLUMNS)
    of_users = here[:, None] & (column < WIDTH)[None, :]  # (CLICKS, COLUMNS)
    user_at = users + user[:, None] * (PARTS * WIDTH) + column[None, :]
    user_row = tl.load(user_at, mask=of_users, other=0.0)
    eta = _setting(settings, LOOKAHEAD, user_row)
    decay = _setting(settings, DECAY, user_row) / tl.maximum(n_clicks, 1).to(user_row.dtype)
    if DECAYING < WIDTH:
        decay = tl.where(column < DECAYING, decay, 0.0)  # of each column
    exposure_at = exposure_users + user[:, None] * (PLAIN_PARTS * WIDTH) + column[None, :]
    if EXPOSURE == GATED:
        exposure_row = tl.load(exposure_at, mask=of_users, other=0.0)[:, None, :]
        gate_row = tl.load(gate + column, mask=column < WIDTH, other=0.0)[None, None, :]
        gate_bias = tl.load(gate + PLAIN_PARTS * WIDTH)
        offset = _setting(settings, OFFSET, user_row)
    if PHASE == EXPOSURE_GRADIENT and DESCENDS != TRAIN_LOSS:
        user_along = tl.load(user_at + ALONG * WIDTH, mask=of_users, other=0.0)
    if PHASE == ALONG or DESCENDS == BATCH_AHEAD:
        user_ahead = user_row - eta * tl.load(user_at + AHEAD * WIDTH, mask=of_users, other=0.0)
    if PHASE == ALONG:
        user_row = user_ahead
    if LOSS >= PAIRWISE:
        liked = tl.load(pair_item + begin, mask=here, other=0).to(tl.int64)
        liked_at = items + liked[:, None] * (PARTS * WIDTH) + column[None, :]
        liked_row = tl.load(liked_at, mask=of_users, other=0.0)
        liked_x = tl.sum(user_row * liked_row, 1)
        if EXPOSURE == PER_ITEM:
            liked_m = tl.load(exposure + liked, mask=here, other=1.0)
        elif EXPOSURE == PER_PAIR:
            liked_m = tl.load(exposure + user * n_items + liked, mask=here, other=1.0)
        else:
            liked_m = tl.full([CLICKS], 1.0, user_row.dtype)
        liked_scale = pairwise_scale(LOSS, liked_m)[:, None]
        on_liked = tl.zeros_like(liked_x)

    on_user = tl.zeros_like(user_row)
    on_gate, on_bias, cost = on_user, tl.zeros_like(drawn_weight), tl.zeros_like(drawn_weight)
    for turn in range(0, tl.max(end - begin, 0), EACH):
        pair = begin[:, None] + turn + tl.arange(0, EACH)[None, :]  # (CLICKS, EACH)
        item = tl.load(pair_item + pair, mask=pair < end[:, None], other=-1).to(tl.int64)
        there = item >= 0  # −1: the user had nothing to draw
        clicked = pair == begin[:, None]
        weight = drawn_weight[:, None]
        if BY_ITEM:  # in float32, as the other engines multiply them
            by_item = tl.load(item_weight + item, mask=there, other=0.0)
            weight = (weight.to(tl.float32) * by_item).to(user_row.dtype)
        if LOSS >= PAIRWISE:
            weight *= liked_scale
        weight = tl.where(there, tl.where(clicked, 1.0, weight), 0.0)
        if OPENS and not DIVIDED:
            tl.store(item_owner + item, base + pair, mask=there)
        of_items = there[:, :, None] & (column < WIDTH)[None, None, :]
        item_at = items + item[:, :, None] * (PARTS * WIDTH) + column[None, None, :]
        item_row = tl.load(item_at, mask=of_items, other=0.0)  # (CLICKS, EACH, COLUMNS)

        if EXPOSURE == GATED:
            popularity = tl.load(exposure + item, mask=there, other=1.0)
            gate_logit = tl.sum(item_row * gate_row, 2) + gate_bias
            seen_logit = tl.sum(item_row * exposure_row, 2) + offset
            m, by_seen, by_gate = gated(gate_logit, seen_logit, popularity)
        elif EXPOSURE == PER_ITEM:
            m = tl.load(exposure + item, mask=there, other=1.0)
        elif EXPOSURE == PER_PAIR:
            m = tl.load(exposure + user[:, None] * n_items + item, mask=there, other=1.0)
        else:
            m = tl.full([CLICKS, EACH], 1.0, user_row.dtype)
        if PHASE == ALONG:
            item_row -= eta * tl.load(item_at + AHEAD * WIDTH, mask=of_items, other=0.0)
        x = tl.sum(user_row[:, None, :] * item_row, 2)

        if PHASE == EXPOSURE_GRADIENT:
            if DESCENDS == TRAIN_LOSS:
                on_m = exposure_slope(x, clicked, m)
            else:  # −η·∂²L/∂x∂m·(gᵤᵀωᵢ + gᵢᵀωᵤ)
                item_along = tl.load(item_at + ALONG * WIDTH, mask=of_items, other=0.0)
                along = user_along[:, None, :] * item_row + user_row[:, None, :] * item_along
                on_m = -eta * cross_slope(x, clicked, m) * tl.sum(along, 2)
                if DESCENDS == BATCH_AHEAD:
                    ahead = tl.load(item_at + AHEAD * WIDTH, mask=of_items, other=0.0)
                    x_ahead = tl.sum(user_ahead[:, None, :] * (item_row - eta * ahead), 2)
                    on_m += exposure_slope(x_ahead, clicked, m)
            on_m *= weight
            on_user += tl.sum((on_m * by_seen)[:, :, None] * item_row, 1)
            on_gate += tl.sum((on_m * by_gate)[:, :, None] * item_row, 1)
            on_bias += tl.sum(on_m * by_gate, 1)
        else:
            if LOSS >= PAIRWISE:
                weight = tl.where(clicked, 0.0, weight)
                log_p, _ = log_sigmoids(liked_x[:, None] - x)
                _, on_x = sigmoids(liked_x[:, None] - x)
                cost -= tl.sum(weight * log_p, 1)
            else:
                of_pair, on_x = loss_and_slope(LOSS, x, clicked, m)
                cost += tl.sum(tl.where(there, weight * of_pair, 0.0), 1)
            on_x *= weight
            if PHASE == GRADIENT:
                on_x /= n_clicks.to(x.dtype)
            if LOSS >= PAIRWISE:
                on_liked -= tl.sum(on_x, 1)
            on_user += tl.sum(on_x[:, :, None] * item_row, 1)
            on_item = on_x[:, :, None] * user_row[:, None, :]
            on_item = _moving(on_item, column[None, None, :], ITEM_ONES)
            if PHASE == GRADIENT:  # every pair has the weight decay of its rows
                on_user += decay * tl.sum(there.to(x.dtype), 1)[:, None] * user_row
                on_item += decay * item_row
            tl.atomic_add(item_at + PHASE * WIDTH, on_item, mask=of_items, sem="relaxed")

    if LOSS >= PAIRWISE:
        on_user += on_liked[:, None] * liked_row
        on_item = _moving(on_liked[:, None] * user_row, column[None, :], ITEM_ONES)
        tl.atomic_add(liked_at + GRADIENT * WIDTH, on_item, mask=of_users, sem="relaxed")
    if PHASE == EXPOSURE_GRADIENT:
        tl.atomic_add(exposure_at + GRADIENT * WIDTH, on_user, mask=of_users, sem="relaxed")
        gate_at = gate + GRADIENT * WIDTH
        on_weight = tl.sum(on_gate, 0)
        tl.atomic_add(gate_at + column, on_weight, mask=column < WIDTH, sem="relaxed")
        tl.atomic_add(gate_at + PLAIN_PARTS * WIDTH, tl.sum(on_bias, 0), sem="relaxed")
    else:
        on_user = _moving(on_user, column[None, :], USER_ONES)
        tl.atomic_add(user_at + PHASE * WIDTH, on_user, mask=of_users, sem="relaxed")
    if PHASE == GRADIENT:
        mean = tl.sum(cost.to(tl.float64), 0) / tl.maximum(n_clicks, 1)
        tl.atomic_add(loss, mean, sem="relaxed")


@triton.jit
def validate(
    state, settings, batch_size, click_start,
    guide_user, guide_item, guide_relevant, guide_start, guide_scale, n_guide_parts,
    users, items, user_owner, item_owner,
    PARTS: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
    DIVIDED: tl.constexpr, USER_ONES: tl.constexpr, ITEM_ONES: tl.constexpr,
):  # fmt: skip
    """g = ∂L_val/∂ω at ω′, m = 1, into ALONG of the rows that the batch touches."""
    start, size = _batch(state, batch_size, False)
    if _all_clicks(state, size, DIVIDED) <= 0:
        return
    base = tl.load(state + BASE)
    part = (tl.load(state + STEPS) + start // batch_size) % n_guide_parts
    begin, end = tl.load(guide_start + part), tl.load(guide_start + part + 1)
    at = begin + tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    here = at < end
    user = tl.load(guide_user + at, mask=here, other=0).to(tl.int64)
    item = tl.load(guide_item + at, mask=here, other=0).to(tl.int64)
    moves_user = tl.load(user_owner + user, mask=here, other=-1) >= base + start
    item_mark = tl.load(item_owner + item, mask=here, other=-1)
    if DIVIDED:
        moves_item = item_mark == tl.load(state + BATCH)
    else:
        moves_item = item_mark >= base + tl.load(click_start + start)

    column = tl.arange(0, COLUMNS)
    filled = (column < WIDTH)[None, :]
    moves_user, moves_item = moves_user[:, None] & filled, moves_item[:, None] & filled
    needed = moves_user | moves_item
    user_at = users + user[:, None] * (PARTS * WIDTH) + column[None, :]
    item_at = items + item[:, None] * (PARTS * WIDTH) + column[None, :]
    user_row = tl.load(user_at, mask=needed, other=0.0)
    item_row = tl.load(item_at, mask=needed, other=0.0)
    eta = _setting(settings, LOOKAHEAD, user_row)
    user_row -= eta * tl.load(user_at + AHEAD * WIDTH, mask=moves_user, other=0.0)
    item_row -= eta * tl.load(item_at + AHEAD * WIDTH, mask=moves_item, other=0.0)
    relevant = tl.load(guide_relevant + at, mask=here, other=0.0) > 0
    p, q = sigmoids(tl.sum(user_row * item_row, 1))
    stands_for = tl.load(guide_scale + part).to(user_row.dtype)  # the whole set
    on_x = (stands_for * tl.where(relevant, -q, p))[:, None]
    on_user = _moving(on_x * item_row, column[None, :], USER_ONES)
    on_item = _moving(on_x * user_row, column[None, :], ITEM_ONES)
    tl.atomic_add(user_at + ALONG * WIDTH, on_user, mask=moves_user, sem="relaxed")
    least = tl.min(tl.where(here, item, 0x7FFFFFFF), 0)
    if tl.max(tl.where(here, item, -1), 0) == least:
        # a part comes ordered by item: one addition for the tile
        on_one = tl.sum(tl.where(moves_item, on_item, 0.0), 0)
        one_at = items + least * (PARTS * WIDTH) + ALONG * WIDTH + column
        moves = tl.max(moves_item.to(tl.int32), 0) > 0
        tl.atomic_add(one_at, on_one, mask=moves, sem="relaxed")
    else:
        tl.atomic_add(item_at + ALONG * WIDTH, on_item, mask=moves_item, sem="relaxed")


@triton.jit
def _adam(
    table, row, mine, number, settings,
    RATE_AT: tl.constexpr, PARTS: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Adam (`engine/adam.py`) on the rows that are mine; their sums of gradients are zeroed."""
    column = tl.arange(0, COLUMNS)[None, :]
    inside = mine[:, None] & (column < WIDTH)
    at = table + row.to(tl.int64)[:, None] * (PARTS * WIDTH) + column
    value = tl.load(at, mask=inside, other=0.0)
    first = tl.load(at + FIRST * WIDTH, mask=inside, other=0.0)
    second = tl.load(at + SECOND * WIDTH, mask=inside, other=0.0)
    gradient = tl.load(at + GRADIENT * WIDTH, mask=inside, other=0.0)
    if RATE_AT != RATE:  # the gradient of relevance has its weight decay already
        gradient += _setting(settings, EXPOSURE_DECAY, value) * value
    beta1, beta2 = tl.load(settings + BETA1), tl.load(settings + BETA2)  # float64, like 1 − βⁿ
    kind = value.dtype
    first = beta1.to(kind) * first + (1 - beta1).to(kind) * gradient
    second = beta2.to(kind) * second + (1 - beta2).to(kind) * gradient * gradient
    unbiased1 = first / (1 - tl.exp(number * tl.load(settings + LOG_BETA1))).to(kind)
    unbiased2 = second / (1 - tl.exp(number * tl.load(settings + LOG_BETA2))).to(kind)
    scale = tl.sqrt(unbiased2) + _setting(settings, EPSILON, value)
    tl.store(at, value - _setting(settings, RATE_AT, value) * unbiased1 / scale, mask=inside)
    tl.store(at + FIRST * WIDTH, first, mask=inside)
    tl.store(at + SECOND * WIDTH, second, mask=inside)
    for part in tl.static_range(GRADIENT, PARTS):
        tl.store(at + part * WIDTH, tl.zeros_like(value), mask=inside)


@triton.jit
def adam(
    state, settings, batch_size,
    click_user, click_start, pair_item, touched,
    users, items, exposure_users, gate, user_owner, item_owner,
    PHASE: tl.constexpr, DIVIDED: tl.constexpr, PARTS: tl.constexpr, WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Adam on the rows of one phase: users and items, or exposure users and gate.

    The first programs go over the clicks, for their users; the next over the pairs, for their
    items, or where DIVIDED over the items touched. One program does both rows of the gate, w and b.
    """
    start, size = _batch(state, batch_size, False)
    base = tl.load(state + BASE)
    number = (tl.load(state + STEPS) + start // batch_size + 1).to(tl.float64)
    for_users = tl.cdiv(size if DIVIDED else batch_size, ROWS)
    if tl.program_id(0) < for_users:
        place = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        row = tl.load(click_user + start + place, mask=place < size, other=0)
        owner = tl.load(user_owner + row, mask=place < size, other=-1)
        mine = owner == base + start + place
        if PHASE == GRADIENT:
            _adam(users, row, mine, number, settings, RATE, PARTS, WIDTH, COLUMNS)
        else:
            rows = exposure_users
            _adam(rows, row, mine, number, settings, EXPOSURE_RATE, PLAIN_PARTS, WIDTH, COLUMNS)
    elif _all_clicks(state, size, DIVIDED) > 0:
        if PHASE == GRADIENT and DIVIDED:
            place = (tl.program_id(0) - for_users) * ROWS + tl.arange(0, ROWS)
            place += tl.load(state + FIRST_ROW)
            row = tl.load(touched + place, mask=place < tl.load(state + END_ROW), other=-1)
            _adam(items, row, row >= 0, number, settings, RATE, PARTS, WIDTH, COLUMNS)
        elif PHASE == GRADIENT:
            pair = (tl.program_id(0) - for_users).to(tl.int64) * ROWS + tl.arange(0, ROWS)
            pair += tl.load(click_start + start)
            end = tl.load(click_start + start + size)
            row = tl.load(pair_item + pair, mask=pair < end, other=-1)
            mine = tl.load(item_owner + row, mask=row >= 0, other=-1) == base + pair
            _adam(items, row, mine, number, settings, RATE, PARTS, WIDTH, COLUMNS)
        else:
            row = tl.arange(0, 2)
            _adam(gate, row, row >= 0, number, settings, GATE_RATE, PLAIN_PARTS, WIDTH, COLUMNS)
    if PHASE == GRADIENT:  # the last kernel of a step
        tl.store(state + NEXT, start + batch_size, mask=tl.program_id(0) == 0)
