# mypy: ignore-errors
"""The kernels of the CUDA engine, in Triton: a step is a handful of them, one after the other.

What they compute is read in `losses.py`, `exposure.py` and `bilevel.py`; this is how.

A program takes a tile of pairs × columns. A row that several pairs of a batch touch has one
owner among them, the last (`claim`); the gradients of the row are added up in the owner's slot of
a buffer (atomically, so their order and the last bits vary), and the owner alone takes the row's
Adam step. A slot is zeroed by whoever reads it last: the buffers are zero between steps.

A table holds value, first and second moment of each row side by side, (rows, 3, WIDTH), with zeros
in the columns past the model's dim; those stay zero, so the kernels need not know dim.
"""

import triton
import triton.language as tl

# places in `state`: where this batch starts among the samples, where the next one does, how many
# samples there are, the claim number of the first of them, the step that this one would be
START, NEXT, COUNT, BASE, TURN = (tl.constexpr(i) for i in range(5))
# places in `settings`
(
    LEARNING_RATE,
    WEIGHT_DECAY,
    EXPOSURE_LEARNING_RATE,
    EXPOSURE_WEIGHT_DECAY,
    GATE_LEARNING_RATE,
    LOOKAHEAD,
    OFFSET,
    SCALE,
    BETA1,
    REST1,
    BETA2,
    REST2,
    EPSILON,
) = (tl.constexpr(i) for i in range(13))
# places in the `plan` of drawn samples; the keys of the permutation follow
FIRST, TAKE, SAMPLES, CLICKS, ITEMS, NEGATIVES, SIDE, SEED, KEYS = (
    tl.constexpr(i) for i in range(9)
)
ROUNDS = tl.constexpr(6)
# losses
INVERSE_PROPENSITY, LOW_VARIANCE, INVERSE_PROPENSITY_SQUARED, LOW_VARIANCE_SQUARED, PAIRWISE = (
    tl.constexpr(i) for i in range(5)
)
# where exposure comes from
SHOWN, PER_ITEM, PER_PAIR, GATED = (tl.constexpr(i) for i in range(4))
# what the exposure descends
TRAIN_LOSS, VALIDATION_AHEAD, BATCH_AHEAD = (tl.constexpr(i) for i in range(3))


# one pair -------------------------------------------------------------------------------------
# With z = e^−|x| ≤ 1 nothing overflows and nothing cancels.


@triton.jit
def _sigmoids(x):
    """σ(x) and σ(−x)."""
    z = tl.exp(-tl.abs(x))
    high, low = 1 / (1 + z), z / (1 + z)
    return tl.where(x >= 0, high, low), tl.where(x >= 0, low, high)


@triton.jit
def _log_sigmoids(x):
    """log σ(x) and log σ(−x)."""
    rest = tl.log(1 + tl.exp(-tl.abs(x)))
    return tl.minimum(x, 0.0) - rest, tl.minimum(-x, 0.0) - rest


@triton.jit
def _dislike_given_no_click(x, exposure):
    """(1 − p)/(1 − mp) = z/(1 − m + z) for x ≥ 0, 1/((1 − m)z + 1) below; 1 at m = 1."""
    z, unseen = tl.exp(-tl.abs(x)), 1 - exposure
    value = tl.where(x >= 0, z, 1.0) / tl.where(x >= 0, unseen + z, unseen * z + 1)
    return tl.where(unseen == 0, 1.0, value)


@triton.jit
def _relevance_over_no_click(x, exposure):
    """p/(1 − mp) = 1/(1 − m + e⁻ˣ)."""
    z, unseen = tl.exp(-tl.abs(x)), 1 - exposure
    return tl.where(x >= 0, 1.0, z) / tl.where(x >= 0, unseen + z, unseen * z + 1)


@triton.jit
def _low_variance_slope(x, click, exposure):
    p, q = _sigmoids(x)
    return tl.where(click > 0, -q, exposure * p * _dislike_given_no_click(x, exposure))


@triton.jit
def _low_variance_exposure_slope(x, click, exposure):
    return tl.where(click > 0, -1 / exposure, _relevance_over_no_click(x, exposure))


@triton.jit
def _low_variance_cross_slope(x, click, exposure):
    cross = _relevance_over_no_click(x, exposure) * _dislike_given_no_click(x, exposure)
    return tl.where(click > 0, 0.0, cross)


@triton.jit
def _slope(LOSS: tl.constexpr, x, click, exposure):
    """∂loss/∂x."""
    p, q = _sigmoids(x)
    if LOSS == LOW_VARIANCE:
        slope = _low_variance_slope(x, click, exposure)
    elif LOSS == LOW_VARIANCE_SQUARED:
        residual = tl.where(click > 0, (1 - exposure) * p + q, -exposure * p)
        slope = -2 * exposure * p * q * residual
    else:
        weight = click / exposure
        slope = (1 - weight) * p - weight * q
        if LOSS == INVERSE_PROPENSITY_SQUARED:
            slope = 2 * p * q * slope
    return slope


@triton.jit
def _value(LOSS: tl.constexpr, x, click, exposure):
    """The loss itself."""
    p, q = _sigmoids(x)
    log_p, log_q = _log_sigmoids(x)
    if LOSS == LOW_VARIANCE:
        unclicked = -tl.log((1 - exposure) * p + q)
        value = tl.where(click > 0, -tl.log(exposure) - log_p, unclicked)
    elif LOSS == LOW_VARIANCE_SQUARED:
        residual = tl.where(click > 0, (1 - exposure) * p + q, -exposure * p)
        value = residual * residual
    else:
        weight = click / exposure
        value = -weight * log_p - (1 - weight) * log_q
        if LOSS == INVERSE_PROPENSITY_SQUARED:
            value = weight * q * q + (1 - weight) * p * p
    return value


# a tile of pairs ------------------------------------------------------------------------------


@triton.jit
def _places(state, batch_size, PAIRS: tl.constexpr):
    """This program's places in the batch and among the samples, and which of them exist."""
    start = tl.load(state + START)
    size = tl.minimum(tl.load(state + COUNT) - start, batch_size)
    slot = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    return slot, start + slot, slot < size, size


@triton.jit
def _clock(state, SLOTS: tl.constexpr):
    """The claim number of the first slot of this batch."""
    return tl.load(state + BASE) + tl.load(state + START) * SLOTS


@triton.jit
def _rows(table, row, inside, column, STRIDE: tl.constexpr):
    """These rows of a table or buffer, zero where not inside."""
    return tl.load(table + row.to(tl.int64)[:, None] * STRIDE + column, mask=inside, other=0.0)


@triton.jit
def _add(buffer, slot, values, inside, column, WIDTH: tl.constexpr):
    where = buffer + slot.to(tl.int64)[:, None] * WIDTH + column
    tl.atomic_add(where, values, mask=inside, sem="relaxed")


@triton.jit
def _zero(buffer, slot, values, inside, column, WIDTH: tl.constexpr):
    where = buffer + slot.to(tl.int64)[:, None] * WIDTH + column
    tl.store(where, tl.zeros_like(values), mask=inside)


@triton.jit
def _exposure(
    user,
    item,
    here,
    item_rows,
    inside,
    column,
    settings,
    seers,
    gate,
    exposure,
    n_items,
    EXPOSURE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """m of each pair, and for the gated one r and s = σ(eᵤᵀωᵢ + offset), their rests, and θ."""
    if EXPOSURE == GATED:
        popularity = tl.load(exposure + item, mask=here, other=1.0)
        weight = tl.load(gate + column, mask=column < WIDTH, other=0.0)
        bias = tl.load(gate + 3 * WIDTH)
        seer_rows = _rows(seers, user, inside, column, 3 * WIDTH)
        r, not_r = _sigmoids(tl.sum(item_rows * weight, 1) + bias)
        s, not_s = _sigmoids(tl.sum(seer_rows * item_rows, 1) + tl.load(settings + OFFSET))
        m = r * s + (1 - r) * popularity
    else:
        if EXPOSURE == PER_ITEM:
            m = tl.load(exposure + item, mask=here, other=1.0)
        elif EXPOSURE == PER_PAIR:
            m = tl.load(exposure + user.to(tl.int64) * n_items + item, mask=here, other=1.0)
        else:
            m = tl.sum(item_rows * 0, 1) + 1
        r, not_r, s, not_s, popularity = m, m, m, m, m
    return m, r, not_r, s, not_s, popularity


# the step -------------------------------------------------------------------------------------


@triton.jit
def claim(
    state,
    users,
    items,
    negatives,
    user_owner,
    item_owner,
    batch_size,
    SLOTS: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """Open the next batch, and give each row it touches to the last of its pairs."""
    start = tl.load(state + NEXT)
    if tl.program_id(0) == 0:
        tl.store(state + START, start)
    slot = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    at = start + slot
    here = (slot < batch_size) & (at < tl.load(state + COUNT))
    number = tl.load(state + BASE) + start * SLOTS + slot
    user = tl.load(users + at, mask=here, other=0)
    item = tl.load(items + at, mask=here, other=0)
    tl.atomic_max(user_owner + user, number, mask=here, sem="relaxed")
    tl.atomic_max(item_owner + item, number, mask=here, sem="relaxed")
    if SLOTS == 2:
        negative = tl.load(negatives + at, mask=here, other=0)
        tl.atomic_max(item_owner + negative, number + batch_size, mask=here, sem="relaxed")


@triton.jit
def look_ahead(
    state,
    settings,
    users,
    items,
    click,
    weight,
    user_table,
    item_table,
    seers,
    gate,
    exposure,
    user_owner,
    item_owner,
    on_users,
    on_items,
    batch_size,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """∂L_train/∂ω, a sum over pairs, into the buffers: ω′ is η of it away from ω."""
    _, at, here, _ = _places(state, batch_size, PAIRS)
    column = tl.arange(0, COLUMNS)[None, :]
    inside = here[:, None] & (column < WIDTH)
    user = tl.load(users + at, mask=here, other=0)
    item = tl.load(items + at, mask=here, other=0)
    user_rows = _rows(user_table, user, inside, column, 3 * WIDTH)
    item_rows = _rows(item_table, item, inside, column, 3 * WIDTH)
    m, _, _, _, _, _ = _exposure(
        user,
        item,
        here,
        item_rows,
        inside,
        column,
        settings,
        seers,
        gate,
        exposure,
        0,
        GATED,
        WIDTH,
    )
    x = tl.sum(user_rows * item_rows, 1)
    clicked = tl.load(click + at, mask=here, other=0.0)
    slope = tl.load(weight + at, mask=here, other=0.0) * _low_variance_slope(x, clicked, m)
    clock = _clock(state, 1)
    user_slot = tl.load(user_owner + user, mask=here, other=0) - clock
    item_slot = tl.load(item_owner + item, mask=here, other=0) - clock
    _add(on_users, user_slot, slope[:, None] * item_rows, inside, column, WIDTH)
    _add(on_items, item_slot, slope[:, None] * user_rows, inside, column, WIDTH)


@triton.jit
def validate(
    state,
    settings,
    guide_users,
    guide_items,
    relevant,
    n_guide,
    size,
    user_table,
    item_table,
    user_owner,
    item_owner,
    on_users,
    on_items,
    along_users,
    along_items,
    batch_size,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """g = ∂L_val/∂ω at ω′, m = 1, on the rows that the batch touches."""
    start = tl.load(state + START)
    if start >= tl.load(state + COUNT):
        return
    clock = _clock(state, 1)
    eta = tl.load(settings + LOOKAHEAD)
    turn = tl.load(state + TURN) + start // batch_size
    place = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    here = place < size
    at = (turn * size + place) % n_guide
    column = tl.arange(0, COLUMNS)[None, :]
    user = tl.load(guide_users + at, mask=here, other=0)
    item = tl.load(guide_items + at, mask=here, other=0)
    user_slot = tl.load(user_owner + user, mask=here, other=-1) - clock  # < 0: not touched
    item_slot = tl.load(item_owner + item, mask=here, other=-1) - clock
    moves_user = (here & (user_slot >= 0))[:, None] & (column < WIDTH)
    moves_item = (here & (item_slot >= 0))[:, None] & (column < WIDTH)
    needed = moves_user | moves_item
    user_rows = _rows(user_table, user, needed, column, 3 * WIDTH)
    item_rows = _rows(item_table, item, needed, column, 3 * WIDTH)
    user_rows -= eta * _rows(on_users, user_slot, moves_user, column, WIDTH)
    item_rows -= eta * _rows(on_items, item_slot, moves_item, column, WIDTH)
    p, q = _sigmoids(tl.sum(user_rows * item_rows, 1))
    likes = tl.load(relevant + at, mask=here, other=0.0)
    slope = (tl.load(settings + SCALE) * tl.where(likes > 0, -q, p))[:, None]
    _add(along_users, user_slot, slope * item_rows, moves_user, column, WIDTH)
    first = tl.min(tl.where(here, item, 2147483647), 0)
    last = tl.max(tl.where(here, item, -1), 0)
    if first == last:  # the whole set comes ordered by item: one addition for the tile
        total = tl.sum(tl.where(moves_item, slope * user_rows, 0.0), 0)
        slot = tl.load(item_owner + first) - clock
        one = tl.arange(0, COLUMNS)
        where = along_items + slot * WIDTH + one
        tl.atomic_add(where, total, mask=(one < WIDTH) & (slot >= 0), sem="relaxed")
    else:
        _add(along_items, item_slot, slope * user_rows, moves_item, column, WIDTH)


@triton.jit
def look_again(
    state,
    settings,
    users,
    items,
    click,
    weight,
    user_table,
    item_table,
    seers,
    gate,
    exposure,
    user_owner,
    item_owner,
    on_users,
    on_items,
    along_users,
    along_items,
    direct,
    batch_size,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """g = ∂L_train/∂ω at ω′, and ∂L_train/∂m there; m stays that of ω."""
    slot, at, here, _ = _places(state, batch_size, PAIRS)
    column = tl.arange(0, COLUMNS)[None, :]
    inside = here[:, None] & (column < WIDTH)
    user = tl.load(users + at, mask=here, other=0)
    item = tl.load(items + at, mask=here, other=0)
    clock = _clock(state, 1)
    user_slot = tl.load(user_owner + user, mask=here, other=0) - clock
    item_slot = tl.load(item_owner + item, mask=here, other=0) - clock
    user_rows = _rows(user_table, user, inside, column, 3 * WIDTH)
    item_rows = _rows(item_table, item, inside, column, 3 * WIDTH)
    m, _, _, _, _, _ = _exposure(
        user,
        item,
        here,
        item_rows,
        inside,
        column,
        settings,
        seers,
        gate,
        exposure,
        0,
        GATED,
        WIDTH,
    )
    eta = tl.load(settings + LOOKAHEAD)
    user_rows -= eta * _rows(on_users, user_slot, inside, column, WIDTH)
    item_rows -= eta * _rows(on_items, item_slot, inside, column, WIDTH)
    x = tl.sum(user_rows * item_rows, 1)
    clicked = tl.load(click + at, mask=here, other=0.0)
    weighs = tl.load(weight + at, mask=here, other=0.0)
    slope = (weighs * _low_variance_slope(x, clicked, m))[:, None]
    _add(along_users, user_slot, slope * item_rows, inside, column, WIDTH)
    _add(along_items, item_slot, slope * user_rows, inside, column, WIDTH)
    tl.store(direct + slot, weighs * _low_variance_exposure_slope(x, clicked, m), mask=here)


@triton.jit
def exposure_gradient(
    state,
    settings,
    users,
    items,
    click,
    weight,
    user_table,
    item_table,
    seers,
    gate,
    exposure,
    user_owner,
    item_owner,
    on_users,
    on_items,
    along_users,
    along_items,
    direct,
    on_seers,
    on_gate,
    batch_size,
    DESCENDS: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """∂/∂m of what the exposure descends, carried into e, w and b."""
    slot, at, here, _ = _places(state, batch_size, PAIRS)
    column = tl.arange(0, COLUMNS)[None, :]
    inside = here[:, None] & (column < WIDTH)
    user = tl.load(users + at, mask=here, other=0)
    item = tl.load(items + at, mask=here, other=0)
    clock = _clock(state, 1)
    user_slot = tl.load(user_owner + user, mask=here, other=0) - clock
    item_slot = tl.load(item_owner + item, mask=here, other=0) - clock
    user_rows = _rows(user_table, user, inside, column, 3 * WIDTH)
    item_rows = _rows(item_table, item, inside, column, 3 * WIDTH)
    m, r, not_r, s, not_s, popularity = _exposure(
        user,
        item,
        here,
        item_rows,
        inside,
        column,
        settings,
        seers,
        gate,
        exposure,
        0,
        GATED,
        WIDTH,
    )
    x = tl.sum(user_rows * item_rows, 1)
    clicked = tl.load(click + at, mask=here, other=0.0)
    weighs = tl.load(weight + at, mask=here, other=0.0)
    if DESCENDS == TRAIN_LOSS:
        slope = weighs * _low_variance_exposure_slope(x, clicked, m)
    else:
        on_user = _rows(along_users, user_slot, inside, column, WIDTH)
        on_item = _rows(along_items, item_slot, inside, column, WIDTH)
        along = tl.sum(on_user * item_rows + user_rows * on_item, 1)
        cross = _low_variance_cross_slope(x, clicked, m)
        slope = -tl.load(settings + LOOKAHEAD) * weighs * cross * along
        if DESCENDS == BATCH_AHEAD:
            slope += tl.load(direct + slot, mask=here, other=0.0)
        # nobody needs the look-ahead any more: its buffers serve the relevance gradient next
        _zero(on_users, slot, user_rows, inside & (user_slot == slot)[:, None], column, WIDTH)
        _zero(on_items, slot, item_rows, inside & (item_slot == slot)[:, None], column, WIDTH)
    by_seen = slope * r * s * not_s
    by_gate = tl.where(here, slope * (s - popularity) * r * not_r, 0.0)
    _add(on_seers, user_slot, by_seen[:, None] * item_rows, inside, column, WIDTH)
    one = tl.arange(0, COLUMNS)
    total = tl.sum(by_gate[:, None] * item_rows, 0)
    tl.atomic_add(on_gate + one, total, mask=one < WIDTH, sem="relaxed")
    tl.atomic_add(on_gate + WIDTH, tl.sum(by_gate, 0), sem="relaxed")


@triton.jit
def relevance_gradient(
    state,
    settings,
    users,
    items,
    click,
    weight,
    user_table,
    item_table,
    seers,
    gate,
    exposure,
    user_owner,
    item_owner,
    on_users,
    on_items,
    along_users,
    along_items,
    loss,
    batch_size,
    n_items,
    LOSS: tl.constexpr,
    EXPOSURE: tl.constexpr,
    LOOKED_AHEAD: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """∂/∂ω of the mean weighted loss of the batch, into the buffers; the loss to its sum."""
    slot, at, here, size = _places(state, batch_size, PAIRS)
    column = tl.arange(0, COLUMNS)[None, :]
    inside = here[:, None] & (column < WIDTH)
    user = tl.load(users + at, mask=here, other=0)
    item = tl.load(items + at, mask=here, other=0)
    user_rows = _rows(user_table, user, inside, column, 3 * WIDTH)
    item_rows = _rows(item_table, item, inside, column, 3 * WIDTH)
    m, _, _, _, _, _ = _exposure(
        user,
        item,
        here,
        item_rows,
        inside,
        column,
        settings,
        seers,
        gate,
        exposure,
        n_items,
        EXPOSURE,
        WIDTH,
    )
    x = tl.sum(user_rows * item_rows, 1)
    clicked = tl.load(click + at, mask=here, other=0.0)
    weighs = tl.load(weight + at, mask=here, other=0.0)
    clock = _clock(state, 1)
    user_slot = tl.load(user_owner + user, mask=here, other=0) - clock
    item_slot = tl.load(item_owner + item, mask=here, other=0) - clock
    slope = (weighs * _slope(LOSS, x, clicked, m) / size.to(x.dtype))[:, None]
    _add(on_users, user_slot, slope * item_rows, inside, column, WIDTH)
    _add(on_items, item_slot, slope * user_rows, inside, column, WIDTH)
    if LOOKED_AHEAD:
        _zero(along_users, slot, user_rows, inside & (user_slot == slot)[:, None], column, WIDTH)
        _zero(along_items, slot, item_rows, inside & (item_slot == slot)[:, None], column, WIDTH)
    value = tl.where(here, weighs * _value(LOSS, x, clicked, m), 0.0)
    if size > 0:
        tl.atomic_add(loss, tl.sum(value.to(tl.float64), 0) / size, sem="relaxed")


@triton.jit
def pairwise_gradient(
    state,
    users,
    items,
    negatives,
    user_table,
    item_table,
    user_owner,
    item_owner,
    on_users,
    on_items,
    loss,
    batch_size,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """∂/∂ω of the mean of −log σ(ωᵤᵀ(ωᵢ − ωⱼ)), into the buffers; the loss to its sum."""
    _, at, here, size = _places(state, batch_size, PAIRS)
    column = tl.arange(0, COLUMNS)[None, :]
    inside = here[:, None] & (column < WIDTH)
    user = tl.load(users + at, mask=here, other=0)
    item = tl.load(items + at, mask=here, other=0)
    negative = tl.load(negatives + at, mask=here, other=0)
    user_rows = _rows(user_table, user, inside, column, 3 * WIDTH)
    difference = _rows(item_table, item, inside, column, 3 * WIDTH)
    difference -= _rows(item_table, negative, inside, column, 3 * WIDTH)
    x = tl.sum(user_rows * difference, 1)
    _, q = _sigmoids(x)
    slope = (-q / size.to(x.dtype))[:, None]
    clock = _clock(state, 2)
    user_slot = tl.load(user_owner + user, mask=here, other=0) - clock
    item_slot = tl.load(item_owner + item, mask=here, other=0) - clock
    negative_slot = tl.load(item_owner + negative, mask=here, other=0) - clock
    _add(on_users, user_slot, slope * difference, inside, column, WIDTH)
    _add(on_items, item_slot, slope * user_rows, inside, column, WIDTH)
    _add(on_items, negative_slot, -slope * user_rows, inside, column, WIDTH)
    log_p, _ = _log_sigmoids(x)
    value = tl.where(here, -log_p, 0.0)
    if size > 0:
        tl.atomic_add(loss, tl.sum(value.to(tl.float64), 0) / size, sem="relaxed")


@triton.jit
def _adam(
    table,
    counts,
    gradient,
    row,
    slot,
    mine,
    settings,
    corrections,
    n_corrections,
    learning_rate,
    weight_decay,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Adam (`engine/adam.py`) on the rows that are mine, from their slots, which are zeroed.

    Bias correction comes from a table made in float64, by the row's count of steps.
    """
    column = tl.arange(0, COLUMNS)[None, :]
    inside = mine[:, None] & (column < WIDTH)
    where = table + row.to(tl.int64)[:, None] * (3 * WIDTH) + column
    value = tl.load(where, mask=inside, other=0.0)
    first = tl.load(where + WIDTH, mask=inside, other=0.0)
    second = tl.load(where + 2 * WIDTH, mask=inside, other=0.0)
    slope = _rows(gradient, slot, inside, column, WIDTH) + weight_decay * value
    count = tl.load(counts + row, mask=mine, other=0) + 1
    place = tl.minimum(count, n_corrections - 1) * 2
    correction1 = tl.load(corrections + place, mask=mine, other=1.0)[:, None]
    correction2 = tl.load(corrections + place + 1, mask=mine, other=1.0)[:, None]
    first = tl.load(settings + BETA1) * first + tl.load(settings + REST1) * slope
    second = tl.load(settings + BETA2) * second + tl.load(settings + REST2) * slope * slope
    scale = tl.sqrt(second * correction2) + tl.load(settings + EPSILON)
    tl.store(where, value - learning_rate * (first * correction1) / scale, mask=inside)
    tl.store(where + WIDTH, first, mask=inside)
    tl.store(where + 2 * WIDTH, second, mask=inside)
    tl.store(counts + row, count, mask=mine)
    _zero(gradient, slot, value, inside, column, WIDTH)


@triton.jit
def exposure_adam(
    state,
    settings,
    corrections,
    n_corrections,
    users,
    user_owner,
    seers,
    seer_counts,
    on_seers,
    gate,
    gate_counts,
    on_gate,
    batch_size,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """Adam on the e of the batch's users; the last program does the gate: rows w and b."""
    slot, at, here, size = _places(state, batch_size, PAIRS)
    learning_rate = tl.load(settings + EXPOSURE_LEARNING_RATE)
    weight_decay = tl.load(settings + EXPOSURE_WEIGHT_DECAY)
    if tl.program_id(0) == tl.num_programs(0) - 1:
        row = tl.arange(0, 2)
        _adam(
            gate,
            gate_counts,
            on_gate,
            row,
            row,
            row < tl.minimum(size, 1) * 2,  # an empty batch moves nothing
            settings,
            corrections,
            n_corrections,
            tl.load(settings + GATE_LEARNING_RATE),
            weight_decay,
            WIDTH,
            COLUMNS,
        )
    else:
        user = tl.load(users + at, mask=here, other=0)
        owner = tl.load(user_owner + user, mask=here, other=-1)
        _adam(
            seers,
            seer_counts,
            on_seers,
            user,
            slot,
            here & (owner - _clock(state, 1) == slot),
            settings,
            corrections,
            n_corrections,
            learning_rate,
            weight_decay,
            WIDTH,
            COLUMNS,
        )


@triton.jit
def relevance_adam(
    state,
    settings,
    corrections,
    n_corrections,
    users,
    items,
    negatives,
    user_owner,
    item_owner,
    user_table,
    item_table,
    user_counts,
    item_counts,
    on_users,
    on_items,
    batch_size,
    SLOTS: tl.constexpr,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    PAIRS: tl.constexpr,
):
    """Adam on the rows of users, of items and (second axis of the grid) of negatives."""
    slot, at, here, _ = _places(state, batch_size, PAIRS)
    side = tl.program_id(1)
    if (tl.program_id(0) == 0) & (side == 0):
        tl.store(state + NEXT, tl.load(state + START) + batch_size)
    clock = _clock(state, SLOTS)
    learning_rate = tl.load(settings + LEARNING_RATE)
    weight_decay = tl.load(settings + WEIGHT_DECAY)
    if side == 0:
        row = tl.load(users + at, mask=here, other=0)
        owner = tl.load(user_owner + row, mask=here, other=-1)
        _adam(
            user_table,
            user_counts,
            on_users,
            row,
            slot,
            here & (owner - clock == slot),
            settings,
            corrections,
            n_corrections,
            learning_rate,
            weight_decay,
            WIDTH,
            COLUMNS,
        )
    else:
        if SLOTS == 2:
            if side == 2:
                row = tl.load(negatives + at, mask=here, other=0)
                slot += batch_size
            else:
                row = tl.load(items + at, mask=here, other=0)
        else:
            row = tl.load(items + at, mask=here, other=0)
        owner = tl.load(item_owner + row, mask=here, other=-1)
        _adam(
            item_table,
            item_counts,
            on_items,
            row,
            slot,
            here & (owner - clock == slot),
            settings,
            corrections,
            n_corrections,
            learning_rate,
            weight_decay,
            WIDTH,
            COLUMNS,
        )


# samples drawn on the card --------------------------------------------------------------------


@triton.jit
def _mix(word, key):
    """32 bits in, 32 bits out (the finaliser of MurmurHash3)."""
    word = (word ^ key).to(tl.uint32)
    word = (word ^ (word >> 16)) * 0x85EBCA6B
    word = (word ^ (word >> 13)) * 0xC2B2AE35
    return word ^ (word >> 16)


@triton.jit
def _permuted(place, side, plan):
    """A Feistel network on side × side places: halves trade places, one shifted by a hash."""
    left, right = place // side, place % side
    for i in tl.static_range(ROUNDS):
        hashed = _mix(right.to(tl.uint32), tl.load(plan + KEYS + i).to(tl.uint32))
        shift = ((hashed.to(tl.uint64) * side.to(tl.uint64)) >> 32).to(tl.int64)
        total = left + shift
        left, right = right, tl.where(total >= side, total - side, total)
    return left * side + right


@triton.jit
def draw(
    plan,
    users,
    items,
    user_start,
    sources,
    out_users,
    out_items,
    out_click,
    out_weight,
    out_negatives,
    PAIRS_OF_CLICKS: tl.constexpr,
    UNBIASED: tl.constexpr,
    ALL_DRAW: tl.constexpr,
    PROBES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Samples FIRST … FIRST + TAKE of a shuffled epoch, negatives drawn by rejection.

    The order is a permutation computed place by place, so nothing of the epoch's length is stored:
    a Feistel network on ⌈√n⌉² places, walked until it lands on one that exists.
    """
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    here = place < tl.load(plan + TAKE)
    side, n_samples, n_items = (
        tl.load(plan + SIDE),
        tl.load(plan + SAMPLES),
        tl.load(plan + ITEMS),
    )
    number = _permuted(tl.load(plan + FIRST) + place, side, plan)
    outside = here & (number >= n_samples)
    while tl.max(outside.to(tl.int32), 0) > 0:
        number = tl.where(outside, _permuted(number, side, plan), number)
        outside = here & (number >= n_samples)
    if PAIRS_OF_CLICKS:  # a click, and beside it a negative: every sample draws
        drawn = here
        draw_number = number
    else:
        n_clicks = tl.load(plan + CLICKS)
        drawn = here & (number >= n_clicks)
        draw_number = number - n_clicks
    source = tl.where(drawn, draw_number // tl.load(plan + NEGATIVES), 0)
    if not ALL_DRAW:
        source = tl.load(sources + source, mask=drawn, other=0)
    source = tl.where(drawn, source, number)
    user = tl.load(users + source, mask=here, other=0)
    item = tl.load(items + source, mask=here, other=0)
    begin = tl.load(user_start + user, mask=drawn, other=0)
    end = tl.load(user_start + user + 1, mask=drawn, other=0)
    low_word = draw_number.to(tl.uint32)
    high_word = (draw_number >> 32).to(tl.uint32)
    found = tl.zeros_like(item)
    pending = drawn
    attempt = low_word * 0
    while tl.max(pending.to(tl.int32), 0) > 0:
        word, _, _, _ = tl.philox(tl.load(plan + SEED), low_word, high_word, attempt, low_word * 0)
        fresh = ((word.to(tl.uint64) * n_items.to(tl.uint64)) >> 32).to(tl.int32)
        found = tl.where(pending, fresh, found)
        low, high = begin, end
        for _ in range(PROBES):  # the first click of the user that is not below the item
            searching = pending & (low < high)
            middle = (low + high) // 2
            below = tl.load(items + middle, mask=searching, other=0) < found
            low = tl.where(searching & below, middle + 1, low)
            high = tl.where(searching & (below == 0), middle, high)
        inside = pending & (low < end)
        pending = inside & (tl.load(items + low, mask=inside, other=-1) == found)
        attempt += 1
    tl.store(out_users + place, user, mask=here)
    if PAIRS_OF_CLICKS:
        tl.store(out_items + place, item, mask=here)
        tl.store(out_negatives + place, found, mask=here)
    else:
        tl.store(out_items + place, tl.where(drawn, found, item), mask=here)
        tl.store(out_click + place, tl.where(drawn, 0.0, 1.0), mask=here)
        weight = tl.where(drawn, 1.0, 1.0)
        if UNBIASED:
            n = tl.where(drawn, end - begin, 1).to(tl.float64)
            each = (n_items - n) / (n * tl.load(plan + NEGATIVES))
            weight = tl.where(drawn, each, 1.0)
        tl.store(out_weight + place, weight, mask=here)
