"""The compiled step of CJMF: the losses of `engine/cjmf` in closed form.

A sub-model belongs to one thread. Its users lie in one flat array of records, a value and Adam's
two moments, as in `cpu/rows.py`: ω_u, and with a residual ρ_u after it. A step has two halves,
predicting and learning, with a barrier between them: the first reads a sub-model's own tables, the
second also the predictions of others. So any number of threads gives the same bits. Scalars of a
pair are computed in float64, rows in the learner's own type.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from unexposed.engine.cjmf.step import LARGEST_LOGIT, LEAST, MOST
from unexposed.engine.cpu.compile import Array, jit, jit_entry, jit_inline, wait_for_all
from unexposed.engine.cpu.formulas import (
    all_odds_against,
    gated,
    low_variance_slope,
    odds_against,
    through_gate,
)
from unexposed.engine.cpu.grouping import group
from unexposed.engine.cpu.lanes import fill, load, store, total, width
from unexposed.engine.cpu.rows import adam, add_scaled, correct_rates, dot, fetch, put_zero


class Submodels(NamedTuple):
    """The tables with their moments, one row for each sub-model, the rates and the popularity."""

    dim: int
    kinds: int  # records of a user or item: ω, and ρ with a residual
    users: Array  # (C, n_users·kinds·3·dim)
    items: Array
    exposure: Array  # (C, …): a, c, e, b, d, f as one record
    rates: Array  # learning rate and weight decay of ω, of the exposure, of ρ (3, 2)
    popularity: Array  # (n_items)


class Batch(NamedTuple):
    """The columns of `PartedSamples`; `start` need not begin at 0."""

    users: Array
    start: Array
    items: Array
    part: Array


class Groups(NamedTuple):
    """Output of `group`: the clicks of each user, or the pairs of each item."""

    place: Array  # (n_users) or (n_items): −1 everywhere between uses
    rows: Array
    start: Array
    number: Array
    members: Array


class Plan(NamedTuple):
    """The clicks of a batch by user and its pairs by item; each thread has its own."""

    users: Groups
    items: Groups
    pair_user: Array  # the row of a pair's user


class Guess(NamedTuple):
    """Predictions of each sub-model for a batch, (C, pairs) or (C, items of the batch)."""

    logit: Array  # x = ω_uᵀω_i, in its bounds
    odds: Array  # e⁻ˣ
    residual_logit: Array
    residual_odds: Array
    gate: Array
    own: Array
    power: Array
    mixed: Array  # m = mixed^power
    shown: Array  # m in its bounds


class Work(NamedTuple):
    """Scratch space of one thread."""

    slope: Array  # ∂L/∂x of each pair, in the type of the rows
    residual_slope: Array
    n_learned: Array  # the pairs of each item of the batch that the sub-model learns from
    weight: Array  # and their Σ c/p
    mean_shown: Array  # m̄ of each item of the batch
    on_users: Array  # gradients of each user of the batch: of ω, then of ρ
    on_item: Array
    on_exposure: Array
    rates: Array  # of this step, as `correct_rates` gives them


SUBMODEL, EXPOSURE, RESIDUAL = range(3)  # rows of the rates
LARGEST_PRODUCT = 1e200  # take the logarithm before the product overflows
AHEAD = 4  # rows between the current one and the one prefetched


@jit_inline
def pairs_of(batch: Batch, click: int) -> tuple[int, int]:
    """Where the pairs of a click begin, the clicked one first, and where they end."""
    return batch.start[click] - batch.start[0], batch.start[click + 1] - batch.start[0]


@jit
def grouped(keys: Array, to: Groups) -> int:
    """How many groups there are."""
    return group(keys, len(keys), to.place, to.rows, to.start, to.number, to.members)


# Predictions ------------------------------------------------------------------------------------


@jit_inline
def both_dots(left: Array, at: int, right: Array, other: int, dim: int) -> Any:
    """ω_uᵀω_i and (ω_u + ρ_u)ᵀ(ω_i + ρ_i), where ρ is the record after ω."""
    at_, other_, next_ = np.uint64(at), np.uint64(other), np.uint64(3 * dim)
    first = second = fill(left, left.dtype.type(0))
    for k in range(np.uint64(0), np.uint64(dim), width(left)):
        user, item = load(left, at_ + k), load(right, other_ + k)
        first = first + user * item
        user = user + load(left, at_ + next_ + k)
        second = second + user * (item + load(right, other_ + next_ + k))
    return total(first), total(second)


@jit_inline
def bounded(logit: Any) -> float:
    return max(-LARGEST_LOGIT, min(LARGEST_LOGIT, float(logit)))


@jit
def predict_relevance(model: Submodels, batch: Batch, guess: Guess, c: int) -> None:
    dim, kinds, size = model.dim, model.kinds, model.kinds * 3 * model.dim
    users, items, n = model.users[c], model.items[c], len(batch.users)
    for click in range(n):
        fetch(users, size * batch.users[min(click + AHEAD, n - 1)], size)
        begin, end = pairs_of(batch, min(click + 1, n - 1))
        for k in range(begin, end):
            for kind in range(kinds):
                fetch(items, size * batch.items[k] + 3 * dim * kind, dim)
        row = size * batch.users[click]
        begin, end = pairs_of(batch, click)
        for k in range(begin, end):
            other = size * batch.items[k]
            if kinds == 2:
                x, with_residual = both_dots(users, row, items, other, dim)
                guess.logit[c, k], guess.residual_logit[c, k] = bounded(x), bounded(with_residual)
            else:
                guess.logit[c, k] = bounded(dot(users, row, items, other, dim))
    all_odds_against(guess.logit[c], guess.odds[c], 0, len(batch.items))
    if kinds == 2:
        all_odds_against(guess.residual_logit[c], guess.residual_odds[c], 0, len(batch.items))


@jit
def predict_exposure(model: Submodels, plan: Plan, n_items: int, guess: Guess, c: int) -> None:
    """`item_exposure`: m = ( g·σ(cᵀq + d) + (1 − g)·popularity )^σ(eᵀq + f), g = σ(aᵀq + b)."""
    dim, size = model.dim, model.kinds * 3 * model.dim
    items, exposure = model.items[c], model.exposure[c]
    for h in range(n_items):
        item = plan.items.rows[h]
        row, bias = size * item, 3 * dim
        gate = 1 / (1 + odds_against(dot(exposure, 0, items, row, dim) + exposure[bias]))
        own_odds = odds_against(dot(exposure, dim, items, row, dim) + exposure[bias + 1])
        power = dot(exposure, 2 * dim, items, row, dim) + exposure[bias + 2]
        power = 1 / (1 + odds_against(power))
        mixed, _ = gated(gate, 1 - gate, own_odds, model.popularity[item])
        guess.gate[c, h], guess.own[c, h] = gate, 1 / (1 + own_odds)
        guess.power[c, h], guess.mixed[c, h] = power, mixed
        guess.shown[c, h] = max(LEAST, min(MOST, mixed**power))


# Learning ---------------------------------------------------------------------------------------


@jit_inline
def learns(c: int, part: int, n_models: int) -> bool:
    """Whether sub-model c learns from the clicks of a part: all but its own, or the only one."""
    return part != c or n_models == 1


@jit
def relevance_slopes(
    plan: Plan, batch: Batch, n_items: int, guess: Guess, work: Work, c: int
) -> float:
    """∂L/∂x = p − c/m of each pair, and of each item its pairs and their Σ c/p; the sum of L."""
    total, product, mean = 0.0, 1.0, 1 / len(batch.users)
    for h in range(n_items):
        work.n_learned[h], work.weight[h] = 0, 0.0
    for click in range(len(batch.users)):
        begin, end = pairs_of(batch, click)
        other = batch.part[click]
        if not learns(c, other, len(guess.logit)):
            work.slope[begin:end] = 0
            continue
        clicked = plan.items.number[begin]
        weight = 1 / guess.shown[other, clicked]
        work.weight[clicked] += 1 + guess.odds[other, begin]  # 1/p = 1 + t
        for k in range(begin, end):
            x, t = guess.logit[c, k], guess.odds[c, k]
            work.n_learned[plan.items.number[k]] += 1
            work.slope[k] = mean * (1 / (1 + t) - weight) if abs(x) < LARGEST_LOGIT else 0
            total += (1 - weight) * x  # L = (1 − c/m)·x + log(1 + t)
            product *= 1 + t
            if product > LARGEST_PRODUCT:  # one logarithm for many pairs
                total += math.log(product)
                product = 1.0
            weight = 0.0  # of a drawn item
    return total + math.log(product)


@jit
def residual_slopes(plan: Plan, batch: Batch, guess: Guess, work: Work, c: int) -> float:
    """∂L′/∂x′ of each pair, x′ with the residual; the sum of L′."""
    total, product, mean = 0.0, 1.0, 1 / len(batch.users)
    for click in range(len(batch.users)):
        begin, end = pairs_of(batch, click)
        for k in range(begin, end):
            m, t = work.mean_shown[plan.items.number[k]], guess.residual_odds[c, k]
            clicked = k == begin
            within = abs(guess.residual_logit[c, k]) < LARGEST_LOGIT
            slope = low_variance_slope(t, clicked, m, 1 - m) if within else 0.0
            work.residual_slope[k] = mean * slope
            product *= (1 + t) / (m if clicked else 1 - m + t)  # 1/mp, or 1/(1 − mp)
            if product > LARGEST_PRODUCT:
                total += math.log(product)
                product = 1.0
    return total + math.log(product)


@jit
def step_exposure(
    model: Submodels, plan: Plan, n_clicks: int, n_items: int, guess: Guess, work: Work, c: int
) -> float:
    """Adam on a, c, e and b, d, f, where any pair was learned from; the sum of their part of L.

    A pair has (1 − c/p)·log m/(1 − m) − log m, of slope (m − c/p)/(m(1 − m)) in m, and an item
    the sum over its pairs. m = x^y: ∂m/∂x = y·m/x, ∂m/∂y = m·log x; σ′ = σ(1 − σ).
    """
    dim, items, gradient = model.dim, model.items[c], work.on_exposure
    put_zero(gradient, 0, len(gradient))
    total, reached = 0.0, False
    for h in range(n_items):
        n_learned, weight = work.n_learned[h], work.weight[h]
        if n_learned == 0:
            continue
        reached = True
        gate, own, power = guess.gate[c, h], guess.own[c, h], guess.power[c, h]
        mixed, m, item = guess.mixed[c, h], guess.shown[c, h], plan.items.rows[h]
        popularity = model.popularity[item]
        total += (n_learned - weight) * math.log(m / (1 - m)) - n_learned * math.log(m)
        if not LEAST < m < MOST:  # no slope where m was out of bounds
            continue
        by_m = (n_learned * m - weight) / (m * (1 - m)) / n_clicks
        by_mixed = by_m * power * m / mixed
        by_own, by_gate = through_gate(by_mixed, gate, 1 - gate, own, 1 - own, popularity)
        by_power = by_m * m * math.log(mixed) * power * (1 - power)
        row = model.kinds * 3 * dim * item
        add_scaled(gradient, 0, items, row, by_gate, dim)
        add_scaled(gradient, dim, items, row, by_own, dim)
        add_scaled(gradient, 2 * dim, items, row, by_power, dim)
        gradient[3 * dim] += by_gate
        gradient[3 * dim + 1] += by_own
        gradient[3 * dim + 2] += by_power
    if reached:
        adam(model.exposure[c], 0, gradient, 0, work.rates[EXPOSURE], len(gradient))
    return total


@jit_inline
def add_pair(
    target: Array, at: int, table: Array, row: int, work: Work, k: int, kinds: int, dim: int
) -> None:
    """Add slope·ω of pair k, and after it slope·(ω + ρ), where ρ is the record after ω."""
    if kinds == 1:
        add_scaled(target, at, table, row, work.slope[k], dim)
        return
    at_, row_, next_ = np.uint64(at), np.uint64(row), np.uint64(3 * dim)
    after = at_ + np.uint64(dim)
    slope, residual_slope = fill(target, work.slope[k]), fill(target, work.residual_slope[k])
    for j in range(np.uint64(0), np.uint64(dim), width(target)):
        value = load(table, row_ + j)
        store(target, at_ + j, load(target, at_ + j) + slope * value)
        value = value + load(table, row_ + next_ + j)
        store(target, after + j, load(target, after + j) + residual_slope * value)


@jit_inline
def move(
    table: Array, row: int, gradient: Array, at: int, moves: bool, model: Submodels, work: Work
) -> None:
    """Adam on ω, where the sub-model learned from one of the row's pairs, and on ρ."""
    dim, kinds = model.dim, model.kinds
    if moves:
        adam(table, kinds * row, gradient, at, work.rates[SUBMODEL], dim)
    if kinds == 2:
        adam(table, kinds * row + 1, gradient, at + dim, work.rates[RESIDUAL], dim)


@jit
def step_factors(
    model: Submodels, plan: Plan, batch: Batch, n_users: int, n_items: int, work: Work, c: int
) -> None:
    """The gradient of every user, then of every item with Adam on it; last Adam on the users."""
    dim, kinds = model.dim, model.kinds
    size, users, items = kinds * 3 * dim, model.users[c], model.items[c]
    for g in range(n_users):
        put_zero(work.on_users, kinds * dim * g, kinds * dim)
        for j in range(plan.users.start[g], plan.users.start[g + 1]):
            begin, end = pairs_of(batch, plan.users.members[j])
            for k in range(begin, end):
                row = size * batch.items[k]
                add_pair(work.on_users, kinds * dim * g, items, row, work, k, kinds, dim)
    for h in range(n_items):
        fetch(items, size * plan.items.rows[min(h + AHEAD, n_items - 1)], size)
        put_zero(work.on_item, 0, kinds * dim)
        for j in range(plan.items.start[h], plan.items.start[h + 1]):
            k = plan.items.members[j]
            add_pair(work.on_item, 0, users, size * plan.pair_user[k], work, k, kinds, dim)
        move(items, plan.items.rows[h], work.on_item, 0, work.n_learned[h] > 0, model, work)
    for g in range(n_users):
        fetch(users, size * plan.users.rows[min(g + AHEAD, n_users - 1)], size)
        moves = False
        for j in range(plan.users.start[g], plan.users.start[g + 1]):
            moves |= learns(c, batch.part[plan.users.members[j]], len(model.users))
        move(users, plan.users.rows[g], work.on_users, kinds * dim * g, moves, model, work)


@jit_entry
def run(
    samples: Batch,
    batch_size: int,
    steps: int,  # taken so far
    model: Submodels,
    plan: Plan,
    guess: Guess,
    work: Work,
    thread: int,
    n_threads: int,
    barrier: Array,
    losses: Array,  # (C, batches)
) -> None:
    """One thread's part of a step on each batch of the samples."""
    n_models = len(model.users)
    for b in range(losses.shape[1]):
        first = b * batch_size
        stop = min(first + batch_size, len(samples.users))
        start = samples.start[first : stop + 1]
        batch = Batch(
            samples.users[first:stop],
            start,
            samples.items[start[0] : start[stop - first]],
            samples.part[first:stop],
        )
        for click in range(stop - first):
            begin, end = pairs_of(batch, click)
            plan.pair_user[begin:end] = batch.users[click]
        n_users, n_items = grouped(batch.users, plan.users), grouped(batch.items, plan.items)
        correct_rates(work.rates, model.rates, steps + b + 1)
        for c in range(thread, n_models, n_threads):
            predict_relevance(model, batch, guess, c)
            predict_exposure(model, plan, n_items, guess, c)
        wait_for_all(barrier, n_threads)
        for h in range(n_items):
            work.mean_shown[h] = guess.shown[:, h].sum() / n_models
        for c in range(thread, n_models, n_threads):
            loss = relevance_slopes(plan, batch, n_items, guess, work, c)
            if model.kinds == 2:
                loss += residual_slopes(plan, batch, guess, work, c)
            loss += step_exposure(model, plan, stop - first, n_items, guess, work, c)
            step_factors(model, plan, batch, n_users, n_items, work, c)
            losses[c, b] = loss / (stop - first)
        wait_for_all(barrier, n_threads)
