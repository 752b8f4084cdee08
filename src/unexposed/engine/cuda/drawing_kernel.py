# mypy: ignore-errors
"""The Triton kernel that draws samples on the GPU: see `drawing.DeviceSampler`."""

import triton
import triton.language as tl

# places in the `plan` of an epoch; the keys of the permutation follow
FIRST, TAKE, CLICKS, ITEMS, NEGATIVES, SIDE, SEED, KEYS = (tl.constexpr(i) for i in range(8))
ROUNDS = tl.constexpr(6)


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
    plan, users, items, user_start, user_weight, keep, alias,
    click_user, click_weight, pair_item,
    EVEN: tl.constexpr, PROBES: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Clicks FIRST … FIRST + TAKE of a shuffled epoch, each with items drawn by rejection.

    The order is a permutation computed place by place, so nothing of the epoch's length is stored:
    a Feistel network on ⌈√n⌉² places, walked until it lands on one that exists.
    """
    negatives, n_items = tl.load(plan + NEGATIVES), tl.load(plan + ITEMS)
    side, n_clicks = tl.load(plan + SIDE), tl.load(plan + CLICKS)
    pair = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    place, number = pair // (1 + negatives), pair % (1 + negatives)
    here = place < tl.load(plan + TAKE)
    click = _permuted(tl.load(plan + FIRST) + place, side, plan)
    outside = here & (click >= n_clicks)
    while tl.max(outside.to(tl.int32), 0) > 0:
        click = tl.where(outside, _permuted(click, side, plan), click)
        outside = here & (click >= n_clicks)
    user = tl.load(users + click, mask=here, other=0)
    item = tl.load(items + click, mask=here, other=0)
    begin = tl.load(user_start + user, mask=here, other=0)
    end = tl.load(user_start + user + 1, mask=here, other=0)
    is_click = here & (number == 0)
    tl.store(click_user + place, user, mask=is_click)
    tl.store(click_weight + place, tl.load(user_weight + user, mask=is_click), mask=is_click)

    if PROBES == 0:
        end = begin  # from the whole catalogue: nothing is rejected
    pending = here & (number > 0) & (end - begin < n_items)
    found = tl.where(number == 0, item, -1)
    draw_number = click * negatives + number
    low_word, high_word = draw_number.to(tl.uint32), (draw_number >> 32).to(tl.uint32)
    attempt = low_word * 0
    while tl.max(pending.to(tl.int32), 0) > 0:
        seed = tl.load(plan + SEED)
        word, choice, _, _ = tl.philox(seed, low_word, high_word, attempt, low_word * 0)
        fresh = ((word.to(tl.uint64) * n_items.to(tl.uint64)) >> 32).to(tl.int32)
        if not EVEN:  # the place of an alias table: its own item, or the other
            kept = choice.to(tl.int64) < tl.load(keep + fresh, mask=pending, other=0)
            fresh = tl.where(kept, fresh, tl.load(alias + fresh, mask=pending, other=0))
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
    tl.store(pair_item + pair, found, mask=here)
