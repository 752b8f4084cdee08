"""The compiled loop of `fold_in`: learns one user's vector at a time, with the items fixed."""

from typing import Any

import numpy as np

from unexposed.compiled import STEP, below, compiled, mix
from unexposed.engine.cpu.formulas import PAIRWISE, odds_against, pairwise_scale, value_and_slope
from unexposed.engine.cpu.lanes import whole
from unexposed.engine.cpu.rows import adam_of_terms, correct_rates, hold
from unexposed.sampling.chances import (
    Chances,
    add_up,
    draw_by_table,
    draw_evenly,
    draw_from_list,
    list_unclicked,
)

Array = Any


@compiled
def learn_users(
    vectors: Array,  # (users, dim): start values, updated in place
    item_vectors: Array,  # (items, dim)
    exposure: Array,  # (1, items), or (users, items)
    clicked: Array,  # items, by user
    user_start: Array,
    weight: Array,  # (users,): of a drawn item
    item_weight: Array,  # (items,): times this; empty: times 1
    law: Chances,  # of the drawn items
    loss: int,
    negatives: int,
    every_pair: bool,
    everything: bool,  # draw clicked items too
    n_batches: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    fixed: int,  # the column that never moves, −1 without
    decaying: int,  # columns with weight decay, the first ones
    epochs: int,
    seed: Any,
    first_user: int,
    stop_user: int,
) -> None:
    """Adam on the clicks of each of these users, with items drawn as `sampling` does."""
    n_items, dim = item_vectors.shape
    clicked_by = np.full(n_items, -1, dtype=np.int32)
    room, room_for_sums = np.empty(n_items, dtype=np.int32), np.empty(len(law.of_item))
    width = whole(dim, 8)  # of float64
    record, gradient = np.zeros(3 * width), np.zeros(width)  # see `rows.py`
    vector, decays = record[:dim], np.zeros(width)
    decays[:decaying] = 1
    rates, corrected = np.array([[learning_rate, weight_decay]]), np.empty((1, 3))
    for user in range(first_user, stop_user):
        own = clicked[user_start[user] : user_start[user + 1]]
        avoided = own[:0] if everything else own
        shown = exposure[user if len(exposure) > 1 else 0]
        clicked_by[avoided] = user
        listed = room[: list_unclicked(room, clicked_by, user, avoided, every_pair, law)]
        sums = add_up(room_for_sums, listed, law)
        start = starts(len(own), n_items - len(avoided), negatives, every_pair)
        items, batch = np.empty(start[-1], dtype=np.int32), np.empty(len(own), dtype=np.int64)
        record[:] = 0
        vector[:] = vectors[user]
        bits = seed
        for epoch in range(epochs):
            bits = draw(items, start, own, listed, sums, clicked_by, user, every_pair, law, bits)
            bits = spread(batch, n_batches, bits)
            order = np.argsort(batch)
            for n in range(len(order)):
                if n == 0 or batch[order[n]] != batch[order[n - 1]]:
                    gradient[:], n_pairs = 0, 0
                of_click = items[start[order[n]] : start[order[n] + 1]]
                weights = weight[user], item_weight
                add_slopes(gradient, vector, item_vectors, shown, of_click, loss, *weights)
                n_pairs += len(of_click)
                if n + 1 < len(order) and batch[order[n]] == batch[order[n + 1]]:
                    continue
                number = epoch * n_batches + batch[order[n]] + 1  # of the step in training
                correct_rates(corrected, rates, number)
                gradient /= batch_size
                hold(gradient, 0, fixed, 0)
                terms = n_pairs / batch_size
                adam_of_terms(record, 0, gradient, 0, corrected[0], terms, decays, width)
        vectors[user] = vector


@compiled
def starts(n_clicks: int, n_left: int, negatives: int, every_pair: bool) -> Array:
    """Start of each click's items, as in `sampling.Samples`; `n_left` items may be drawn."""
    click = np.arange(n_clicks + 1)
    if every_pair:
        return click + click * n_left // max(n_clicks, 1)
    return click * (1 + negatives) if n_left > 0 else click


@compiled
def draw(
    items: Array,
    start: Array,
    clicked: Array,
    listed: Array,  # items to draw from; empty if rejection sampling is fast
    sums: Array,  # of their chances
    clicked_by: Array,
    user: int,
    every_pair: bool,
    law: Chances,
    bits: Any,
) -> Any:
    """Fill in the items of each click for one epoch; gives the next random bits."""
    n_dealt, even, keep, alias = 0, len(law.keep) == 0, law.keep, law.alias
    for click in range(len(clicked)):
        items[start[click]] = clicked[click]
        for at in range(start[click] + 1, start[click + 1]):
            bits = mix(bits + STEP)
            if every_pair:  # shuffle the list as it is dealt out
                other = n_dealt + below(len(listed) - n_dealt, bits)
                listed[n_dealt], listed[other] = listed[other], listed[n_dealt]
                items[at] = listed[n_dealt]
                n_dealt += 1
            elif even:
                items[at], bits = draw_evenly(listed, clicked_by, user, bits)
            elif len(sums):
                items[at] = draw_from_list(listed, sums, bits)
            else:
                items[at], bits = draw_by_table(clicked_by, user, keep, alias, bits)
    return bits


@compiled
def spread(batch: Array, n_batches: int, bits: Any) -> Any:
    """Choose a random batch for each click; gives the next random bits."""
    for click in range(len(batch)):
        bits = mix(bits + STEP)
        batch[click] = below(n_batches, bits)
    return bits


@compiled
def add_slopes(
    gradient: Array,
    vector: Array,
    item_vectors: Array,
    exposure: Array,
    items: Array,  # of one click, the clicked one first
    loss: int,
    weight: float,
    item_weight: Array,
) -> None:
    """Add the gradient of the loss of a click and its drawn items."""
    clicked = item_vectors[items[0]]
    of_clicked = dot(vector, clicked)
    scale = pairwise_scale(loss, exposure[items[0]])
    for n in range(1 if loss >= PAIRWISE else 0, len(items)):
        item = item_vectors[items[n]]
        logit = dot(vector, item)
        if loss >= PAIRWISE:
            odds = odds_against(of_clicked - logit)
            slope = odds / (1 + odds) * scale  # σ(−difference)
        else:
            click, odds = 1 if n == 0 else 0, odds_against(logit)
            slope = value_and_slope(loss, logit, odds, click, exposure[items[n]])[1]
        if n > 0:
            slope *= weight
            if len(item_weight):
                slope *= item_weight[items[n]]
        for d in range(len(vector)):
            gradient[d] += slope * item[d]
            if loss >= PAIRWISE:
                gradient[d] -= slope * clicked[d]


@compiled
def dot(left: Array, right: Array) -> float:
    total = 0.0
    for d in range(len(left)):
        total += left[d] * right[d]
    return total
