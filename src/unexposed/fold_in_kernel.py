"""The compiled loop of `fold_in`: one user's vector at a time, the items held still."""

from typing import Any

import numpy as np

from unexposed.engine.adam import BETA1, BETA2, EPSILON
from unexposed.engine.cpu_kernels import PAIRWISE, odds_against, value_and_slope
from unexposed.loops import STEP, below, compiled, mix, random_bits

Array = Any


@compiled
def learn_users(
    vectors: Array,  # (users, dim): where each starts, and what it becomes
    item_vectors: Array,  # (items, dim)
    exposure: Array,  # (items,)
    items: Array,  # the clicked ones, by user
    user_start: Array,
    negative_weight: Array,  # (users,)
    loss: int,
    negatives: int,  # drawn for each click; 0: every pair once
    n_batches: int,
    batch_size: int,
    learning_rate: float,
    weight_decay: float,
    epochs: int,
    seed: Any,
    first_user: int,
    stop_user: int,
) -> None:
    """Adam on the samples of each of these users, drawn as `loops.samples` does."""
    n_items = len(item_vectors)
    clicked_by = np.full(n_items, -1, dtype=np.int32)
    moments = np.empty((2, vectors.shape[1]))
    gradient = np.empty(vectors.shape[1])
    for user in range(first_user, stop_user):
        clicked = items[user_start[user] : user_start[user + 1]]
        for item in clicked:
            clicked_by[item] = user
        n_samples = sample_count(len(clicked), n_items, negatives, loss)
        samples = np.empty((3, n_samples), dtype=np.int64)  # item, click or drawn item, batch
        moments[:] = 0
        powers = np.ones(2)
        bits = seed
        for _ in range(epochs):
            bits = draw(samples, clicked, clicked_by, user, negatives, loss, n_batches, bits)
            order = np.argsort(samples[2])
            at = 0
            while at < n_samples:
                batch = samples[2, order[at]]
                gradient[:] = 0
                while at < n_samples and samples[2, order[at]] == batch:
                    item, other = samples[0, order[at]], samples[1, order[at]]
                    weight = 1.0 if other > 0 or loss == PAIRWISE else negative_weight[user]
                    add_slope(
                        gradient, vectors[user], item_vectors, exposure, item, other, loss, weight
                    )
                    at += 1
                powers *= np.array((BETA1, BETA2))
                for d in range(len(gradient)):
                    slope = gradient[d] / batch_size + weight_decay * vectors[user, d]
                    moments[0, d] = BETA1 * moments[0, d] + (1 - BETA1) * slope
                    moments[1, d] = BETA2 * moments[1, d] + (1 - BETA2) * slope * slope
                    length = np.sqrt(moments[1, d] / (1 - powers[1])) + EPSILON
                    vectors[user, d] -= learning_rate * moments[0, d] / (1 - powers[0]) / length


@compiled
def sample_count(n_clicked: int, n_items: int, negatives: int, loss: int) -> int:
    """How many samples an epoch has of a user."""
    if negatives == 0:
        return n_items
    drawn = negatives if n_clicked < n_items else 0
    return n_clicked * (drawn + (0 if loss == PAIRWISE else 1))


@compiled
def draw(
    samples: Array,
    clicked: Array,
    clicked_by: Array,
    user: int,
    negatives: int,
    loss: int,
    n_batches: int,
    bits: Any,
) -> Any:
    """Fill in the samples of one epoch; the random bits to go on with."""
    n_items = len(clicked_by)
    for at in range(samples.shape[1]):
        if negatives == 0:
            samples[0, at], samples[1, at] = at, int(clicked_by[at] == user)
        else:
            of_a_click = samples.shape[1] // len(clicked)
            samples[0, at], samples[1, at] = clicked[at // of_a_click], 1
            if at % of_a_click > 0 or loss == PAIRWISE:
                bits = mix(bits + STEP)
                while clicked_by[below(n_items, bits)] == user:
                    bits = mix(bits + STEP)
                if loss == PAIRWISE:
                    samples[1, at] = below(n_items, bits)
                else:
                    samples[0, at], samples[1, at] = below(n_items, bits), 0
        samples[2, at] = below(n_batches, random_bits(bits, at))
    return mix(bits + STEP)


@compiled
def add_slope(
    gradient: Array,
    vector: Array,
    item_vectors: Array,
    exposure: Array,
    item: int,
    other: int,  # the drawn item of a pair of items, else 1 for a click and 0 for none
    loss: int,
    weight: float,
) -> None:
    """Add the gradient of one sample's loss."""
    logit = 0.0
    for d in range(len(vector)):
        logit += vector[d] * item_vectors[item, d]
        if loss == PAIRWISE:
            logit -= vector[d] * item_vectors[other, d]
    odds = odds_against(logit)
    if loss == PAIRWISE:
        slope = -odds / (1 + odds)  # −σ(−difference)
    else:
        slope = weight * value_and_slope(loss, logit, odds, other, exposure[item])[1]
    for d in range(len(vector)):
        gradient[d] += slope * item_vectors[item, d]
        if loss == PAIRWISE:
            gradient[d] -= slope * item_vectors[other, d]
