"""Lay out batches and validation pairs: by users, whose pairs lie together, and by items."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.engine.cpu.compile import Array, jit, jit_entry, jit_inline, prefetch
from unexposed.engine.cpu.layout import (
    BLOCK,
    CHUNK,
    FAR,
    ROW_COST,
    Batch,
    Guide,
    Span,
    Step,
    aligned_zeros,
)
from unexposed.engine.cpu.rows import add_scaled, fetch, hold, put_scaled, put_zero
from unexposed.sampling.validation import ValidationSet


@jit
def group(
    keys: Array,
    n: int,
    n_rows: int,
    place: Array,
    rows: Array,
    start: Array,
    number: Array,
    order: Array,
) -> int:
    """Group the positions 0 … n − 1 by their key, in the order in which keys first come.

    The first `n_rows` groups have the keys that `rows` holds already.

    Group g has the key rows[g] and the positions order[start[g] : start[g + 1]]; position k is in
    group number[k]. `start` needs room for two more than there are groups. `place` is −1 for
    every key, before and after. Return the number of groups.
    """
    start[0] = start[1] = 0
    for g in range(n_rows):
        place[rows[g]] = g
        start[g + 2] = 0
    for k in range(n):
        prefetch(place, keys[min(k + FAR, n - 1)])
        key = keys[k]
        g = place[key]
        if g < 0:
            g = n_rows
            place[key] = g
            rows[g] = key
            start[g + 2] = 0
            n_rows += 1
        number[k] = g
        start[g + 2] += 1
    for g in range(n_rows):
        start[g + 2] += start[g + 1]
        place[rows[g]] = -1
    for k in range(n):  # start[g + 1] is where the next position of group g goes
        g = number[k] + 1
        order[start[g]] = k
        start[g] += 1
    return n_rows


@jit
def share_out(start: Array, n_rows: int, row_cost: int, unit: int, share: Array) -> None:
    """Cut rows into one run for each thread, about equal in cost: `row_cost` plus the row's terms.

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


@jit
def lay_out_pairs(
    plan: Any, b: int, work: Any, given: Batch, span: Span, n: int, marks: Any, exposure: Array
) -> None:
    """Put the pairs of batch n of the span in the order of their users, as batch b of the plan.

    Thread b runs this, with scratch space of its own.
    """
    first, stop = span.bounds[n], span.bounds[n + 1]
    users, start = given.users[first:stop], given.start[first : stop + 1]
    weight, items, item_weight = given.weight[first:stop], given.items, given.item_weight
    number, order, click_start = work.number[b], work.order[b], work.click_start[b]
    user_row, user_start = plan.user_row[b], plan.user_start[b]
    n_users = group(users, len(users), 0, work.place_users[b], user_row, click_start, number, order)
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
    plan.n_clicks[b], plan.n_pairs[b], plan.n_users[b] = span.n_clicks[n], at, n_users
    share_out(user_start, n_users, ROW_COST, CHUNK, plan.user_share[b])


@jit
def lay_out_items(plan: Any, b: int, work: Any, span: Span, n: int) -> None:
    """Find the items of batch b, and the pairs of each; workers list theirs in one order."""
    item_row, item_start, item_at = plan.item_row[b], plan.item_start[b], plan.pair_item_at[b]
    listed, first = 0, 0
    if len(span.item_start) > 0:
        first = span.item_start[n]
        listed = span.item_start[n + 1] - first
        for h in range(listed):
            item_row[h] = span.item_row[first + h]
    places = work.place_items[b], item_row, item_start, item_at, plan.item_pairs[b]
    n_items = group(plan.pair_item[b], plan.n_pairs[b], listed, *places)
    for h in range(listed):
        plan.item_times[b, h] = span.item_times[first + h]
    plan.n_items[b] = plan.n_sums[b] = n_items
    share_out(item_start, n_items, ROW_COST, CHUNK, plan.item_share[b])


@jit
def find_guides(plan: Any, b: int, work: Any, guide: Guide, part: int) -> None:
    """Which users and items of batch b have validation pairs in this part, and where.

    An item has them if it has them on any worker.
    """
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
    n_sums = 0
    for h in range(plan.n_items[b]):
        place[plan.item_row[b, h]] = plan.item_sum[b, h] = -1
        if item_guide[h] >= 0:
            plan.item_sum[b, h] = n_sums
            n_sums += 1
    plan.n_sums[b] = n_sums


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


@jit_inline
def sum_over_users(target: Array, at: int, users: Array, s: Step, b: int, h: int) -> None:
    """target = Σ slope·(the user's row of the batch) over the pairs of an item."""
    plan, work, dim = s.plan, s.work, s.tables.dim
    item_pairs, user_at, slope = plan.item_pairs[b], plan.pair_user_at[b], work.slope
    begin, end, last = plan.item_start[b, h], plan.item_start[b, h + 1], plan.n_pairs[b] - 1
    if begin == end:  # an item of other workers
        put_zero(target, at, dim)
        return
    k = item_pairs[begin]
    put_scaled(target, at, users, dim * user_at[k], slope[k], dim)
    for j in range(begin + 1, end):
        k = item_pairs[j]
        fetch(users, dim * user_at[item_pairs[min(j + FAR, last)]], dim)
        add_scaled(target, at, users, dim * user_at[k], slope[k], dim)
    hold(target, at, s.tables.fixed_of_items, 0)


# validation pairs -------------------------------------------------------------------------------


def new_guide(
    validation: ValidationSet | None,
    *,
    n_parts: int,
    n_users: int,
    n_items: int,
    width: int,
    dtype: np.dtype[Any],
    everywhere: Callable[[NDArray[np.int64]], NDArray[np.int64]] = np.unique,
) -> Guide:
    """Lay out these pairs; without any, the guide is empty.

    `everywhere` gives the distinct numbers, ascending, that any worker has among its own: all
    know which items have validation pairs on some worker, and in which part.
    """
    none = np.zeros(0, dtype=np.int32)
    users = none if validation is None else validation.users
    items = none if validation is None else validation.items
    relevant = none if validation is None else validation.relevant.astype(np.int32)
    bounds, scale = np.zeros(n_parts + 1, dtype=np.int64), np.zeros(n_parts)
    if validation is not None:
        bounds, scale = validation.bounds(n_parts)
    part = np.repeat(np.arange(n_parts), np.diff(bounds))
    user_row, user = np.unique(users, return_inverse=True)
    by_user = np.lexsort((items, user, part))
    user_part, user_group, user_start = _groups(part[by_user], user[by_user], n_parts)
    key = part * n_items + items  # of the group that the pair belongs to
    item_groups = everywhere(key)
    item_row, item_group = np.unique(item_groups % n_items, return_inverse=True)
    item = np.searchsorted(item_row, items)
    by_item = np.lexsort((user, key))
    item_start = np.searchsorted(key[by_item], np.append(item_groups, n_parts * n_items))
    item_part = np.searchsorted(item_groups, np.arange(n_parts + 1) * n_items)
    n_blocks = -(-np.diff(item_start) // BLOCK)  # of each group
    item_blocks = np.concatenate([[0], np.cumsum(n_blocks)])
    block_group = np.repeat(np.arange(len(item_group)), n_blocks)
    number = np.arange(len(block_group)) - item_blocks[block_group]  # of a block of its group
    block_start = np.append(item_start[block_group] + BLOCK * number, len(users))

    def integers(values: NDArray[Any]) -> NDArray[np.int32]:
        return np.ascontiguousarray(values, dtype=np.int32)

    return Guide(
        n_parts=n_parts,
        scale=scale,
        user_row=integers(user_row),
        item_row=integers(item_row),
        user_number=_numbers(user_row, n_users),
        item_number=_numbers(item_row, n_items),
        user_part=integers(user_part),
        user_group=integers(user_group),
        user_start=integers(user_start),
        user_items=integers(item[by_user]),
        user_relevant=integers(relevant[by_user]),
        item_part=integers(item_part),
        item_group=integers(item_group),
        item_blocks=integers(item_blocks),
        block_group=integers(block_group),
        block_start=integers(block_start),
        item_users=integers(user[by_item]),
        item_relevant=integers(relevant[by_item]),
        ahead_users=aligned_zeros((len(user_row) * width,), dtype),
        ahead_items=aligned_zeros((len(item_row) * width,), dtype),
    )


def _groups(
    part: NDArray[Any], number: NDArray[Any], n_parts: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Groups of equal neighbours: the first group of each part, each group's number and start."""
    differs = np.ones(len(part), dtype=bool)
    differs[1:] = (np.diff(part) != 0) | (np.diff(number) != 0)
    first = np.flatnonzero(differs)
    by_part = np.searchsorted(part[first], np.arange(n_parts + 1))
    return by_part, number[first], np.append(first, len(part))


def _numbers(rows: NDArray[Any], n: int) -> NDArray[np.int32]:
    """The number of each of n rows among the given rows, −1 for the rest."""
    number = np.full(n, -1, dtype=np.int32)
    number[rows] = np.arange(len(rows), dtype=np.int32)
    return number
