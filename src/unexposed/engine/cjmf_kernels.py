"""The compiled step of CJMF: the losses of `engine/cjmf.py` in closed form.

A sub-model is one thread's own. Its users lie in one flat array of records, a value and Adam's two
moments, as in `cpu_kernels`: that of ω_u, and with a residual that of ρ_u after it. Between the two
halves of a step, what it says and what it learns, all sub-models wait for each other: the first
reads only its own tables, the second also what others said. So any number of threads gives the
same bits. Numbers of a pair are worked out in float64, rows in the learner's own type.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from unexposed.engine.cjmf import LARGEST_LOGIT, LEAST, MOST
from unexposed.engine.cpu_kernels import (
    AHEAD,
    FAR_AHEAD,
    Array,
    adam,
    add_scaled,
    all_odds_against,
    dot,
    fetch,
    forget,
    group,
    jit,
    jit_entry,
    low_variance_slope,
    odds_against,
    put_zero,
    wait_for_all,
)


class Model(NamedTuple):
    """The tables with their moments, one row a sub-model, and what is given."""

    dim: int
    kinds: int  # records of a user or item: ω, and ρ with a residual
    users: Array  # (C, n_users·kinds·3·dim)
    items: Array
    exposure: Array  # (C, …): a, c, e, b, d, f as one record
    user_count: Array  # (C, kinds·n_users): the steps that a record has taken
    item_count: Array
    exposure_count: Array  # (C, 1)
    rates: Array  # as `cpu.adam_rates` gives them: of ω, of the exposure, of ρ (3, …)
    popularity: Array  # (n_items)


class Plan(NamedTuple):
    """The pairs of a batch by user and by item, as one thread has found them."""

    user_rows: Array
    user_start: Array
    user_pairs: Array
    item_rows: Array
    item_start: Array
    item_pairs: Array
    pair_user: Array  # the place of a pair's user among those of the batch
    pair_item: Array
    place_users: Array  # (n_users): −1 everywhere between uses
    place_items: Array


class Said(NamedTuple):
    """What each sub-model says of a batch, (C, pairs) or (C, items of the batch)."""

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


SUBMODEL, EXPOSURE, RESIDUAL = range(3)  # rows of the rates
LARGEST_PRODUCT = 1e200  # its logarithm is taken before it overflows


@jit
def lay_out(plan: Plan, users: Array, items: Array) -> tuple[int, int]:
    """Find the pairs of each user and item; how many users and items there are."""
    n = len(users)
    n_users = group(
        users,
        n,
        plan.place_users,
        plan.user_rows,
        plan.user_start,
        plan.pair_user,
        plan.user_pairs,
    )
    n_items = group(
        items,
        n,
        plan.place_items,
        plan.item_rows,
        plan.item_start,
        plan.pair_item,
        plan.item_pairs,
    )
    forget(plan.place_users, plan.user_rows, n_users)
    forget(plan.place_items, plan.item_rows, n_items)
    return n_users, n_items


# What a sub-model says --------------------------------------------------------------------------


@jit
def both_dots(left: Array, at: int, right: Array, other: int, dim: int) -> Any:
    """ω_uᵀω_i and (ω_u + ρ_u)ᵀ(ω_i + ρ_i), where ρ is the record after ω."""
    at_, other_ = np.uint64(at), np.uint64(other)
    next_ = np.uint64(3 * dim)
    first, second = left.dtype.type(0), left.dtype.type(0)
    for k in range(np.uint64(dim)):
        user, item = left[at_ + k], right[other_ + k]
        first += user * item
        second += (user + left[at_ + next_ + k]) * (item + right[other_ + next_ + k])
    return first, second


@jit
def say_relevance(model: Model, plan: Plan, n_users: int, items: Array, said: Said, c: int) -> None:
    dim, size = model.dim, model.kinds * 3 * model.dim
    user_table, item_table = model.users[c], model.items[c]
    for g in range(n_users):
        fetch(user_table, size * plan.user_rows[min(g + AHEAD, n_users - 1)], size)
        row = size * plan.user_rows[g]
        for j in range(plan.user_start[g], plan.user_start[g + 1]):
            k = plan.user_pairs[j]
            other = size * items[k]
            if model.kinds == 2:
                said.logit[c, k], said.residual_logit[c, k] = both_dots(
                    user_table, row, item_table, other, dim
                )
            else:
                said.logit[c, k] = dot(user_table, row, item_table, other, dim)
    n = len(items)
    bound(said.logit[c], said.odds[c], n)
    if model.kinds == 2:
        bound(said.residual_logit[c], said.residual_odds[c], n)


@jit
def bound(logit: Array, odds: Array, n: int) -> None:
    """Keep x in its bounds, and find e⁻ˣ."""
    for k in range(np.uint64(n)):
        logit[k] = max(-LARGEST_LOGIT, min(LARGEST_LOGIT, logit[k]))
    all_odds_against(logit, odds, 0, n)


@jit
def say_exposure(model: Model, plan: Plan, n_items: int, said: Said, c: int) -> None:
    """`item_exposure`: m = ( g·σ(cᵀq + d) + (1 − g)·popularity )^σ(eᵀq + f), g = σ(aᵀq + b)."""
    dim, size = model.dim, model.kinds * 3 * model.dim
    items, exposure = model.items[c], model.exposure[c]
    for h in range(n_items):
        item = plan.item_rows[h]
        row = size * item
        gate = 1 / (1 + odds_against(dot(exposure, 0, items, row, dim) + exposure[3 * dim]))
        own = 1 / (1 + odds_against(dot(exposure, dim, items, row, dim) + exposure[3 * dim + 1]))
        power = 1 / (
            1 + odds_against(dot(exposure, 2 * dim, items, row, dim) + exposure[3 * dim + 2])
        )
        mixed = gate * own + (1 - gate) * model.popularity[item]
        said.gate[c, h], said.own[c, h], said.power[c, h] = gate, own, power
        said.mixed[c, h] = mixed
        said.shown[c, h] = max(LEAST, min(MOST, mixed**power))


# What it learns ---------------------------------------------------------------------------------


@jit
def relevance_slopes(
    plan: Plan, click: Array, part: Array, said: Said, work: Work, c: int, n_items: int
) -> float:
    """∂L/∂x = p − c/m of each pair, and of each item its pairs and their Σ c/p; the sum of L."""
    n, n_models = len(click), len(said.logit)
    mean, total, product = 1 / n, 0.0, 1.0
    for h in range(n_items):
        work.n_learned[h], work.weight[h] = 0, 0.0
    for k in range(n):
        other, h = part[k], plan.pair_item[k]
        work.slope[k] = 0
        if other == c and n_models > 1:
            continue
        x, t, weight = said.logit[c, k], said.odds[c, k], 0.0
        work.n_learned[h] += 1
        if click[k] > 0:
            weight = 1 / said.shown[other, h]
            work.weight[h] += 1 + said.odds[other, k]  # 1/p = 1 + t
        if abs(x) < LARGEST_LOGIT:
            work.slope[k] = mean * (1 / (1 + t) - weight)
        total += (1 - weight) * x  # L = (1 − c/m)·x + log(1 + t)
        product *= 1 + t
        if product > LARGEST_PRODUCT:  # one logarithm for many pairs
            total += math.log(product)
            product = 1.0
    return mean * (total + math.log(product))


@jit
def residual_slopes(plan: Plan, click: Array, said: Said, work: Work, c: int) -> float:
    """∂L′/∂x′ of each pair, x′ with the residual; the sum of L′."""
    n = len(click)
    mean, total, product = 1 / n, 0.0, 1.0
    for k in range(n):
        m, t = work.mean_shown[plan.pair_item[k]], said.residual_odds[c, k]
        within = abs(said.residual_logit[c, k]) < LARGEST_LOGIT
        work.residual_slope[k] = mean * low_variance_slope(t, click[k], m, 1 - m) if within else 0
        product *= (1 + t) / (m if click[k] > 0 else 1 - m + t)  # 1/mp, or 1/(1 − mp)
        if product > LARGEST_PRODUCT:
            total += math.log(product)
            product = 1.0
    return mean * (total + math.log(product))


@jit
def reached(pairs: Array, begin: int, end: int, part: Array, c: int, n_models: int) -> bool:
    """Whether sub-model c learns from any of these pairs."""
    if n_models == 1:
        return True
    for j in range(begin, end):  # noqa: SIM110, a generator cannot be compiled
        if part[pairs[j]] != c:
            return True
    return False


@jit
def add_both(
    target: Array, at: int, table: Array, row: int, by: Any, by_sum: Any, dim: int
) -> None:
    """Add by·ω, and after it by_sum·(ω + ρ), where ρ is the record after ω."""
    at_, row_ = np.uint64(at), np.uint64(row)
    after, next_ = np.uint64(dim), np.uint64(3 * dim)
    for k in range(np.uint64(dim)):
        value = table[row_ + k]
        target[at_ + k] += by * value
        target[at_ + after + k] += by_sum * (value + table[row_ + next_ + k])


@jit
def sum_up(
    target: Array,
    at: int,
    pairs: Array,
    begin: int,
    end: int,
    table: Array,
    rows: Array,
    work: Work,
    kinds: int,
    dim: int,
) -> None:
    """∂L/∂ω = Σ slope·(the other side's ω), and after it ∂L′/∂ρ = Σ slope·(its ω + ρ)."""
    size = kinds * 3 * dim
    put_zero(target, at, kinds * dim)
    for j in range(begin, end):
        soon = size * rows[pairs[min(j + FAR_AHEAD, len(rows) - 1)]]
        for kind in range(kinds):
            fetch(table, soon + kind * 3 * dim, dim)
        k = pairs[j]
        row = size * rows[k]
        if kinds == 2:
            add_both(target, at, table, row, work.slope[k], work.residual_slope[k], dim)
        else:
            add_scaled(target, at, table, row, work.slope[k], dim)


@jit
def step_exposure(
    model: Model, plan: Plan, n: int, n_items: int, said: Said, work: Work, c: int
) -> float:
    """Adam on a, c, e and b, d, f; the sum of their part of L.

    A pair has (1 − c/p)·log m/(1 − m) − log m, of slope (m − c/p)/(m(1 − m)) in m, and an item
    the sum over its pairs. m = x^y: ∂m/∂x = y·m/x, ∂m/∂y = m·log x; σ′ = σ(1 − σ).
    """
    dim, size, items = model.dim, model.kinds * 3 * model.dim, model.items[c]
    real = items.dtype.type
    gradient = work.on_exposure
    put_zero(gradient, 0, len(gradient))
    mean, total = 1 / n, 0.0
    for h in range(n_items):
        gate, own, power = said.gate[c, h], said.own[c, h], said.power[c, h]
        mixed, m, item = said.mixed[c, h], said.shown[c, h], plan.item_rows[h]
        n_learned, weight = work.n_learned[h], work.weight[h]
        if n_learned == 0:
            continue
        total += (n_learned - weight) * math.log(m / (1 - m)) - n_learned * math.log(m)
        if not LEAST < m < MOST:  # no slope where m was out of bounds
            continue
        by_m = mean * (n_learned * m - weight) / (m * (1 - m))
        by_mixed = by_m * power * m / mixed
        by_gate = by_mixed * (own - model.popularity[item]) * gate * (1 - gate)
        by_own = by_mixed * gate * own * (1 - own)
        by_power = by_m * m * math.log(mixed) * power * (1 - power)
        row = size * item
        add_scaled(gradient, 0, items, row, real(by_gate), dim)
        add_scaled(gradient, dim, items, row, real(by_own), dim)
        add_scaled(gradient, 2 * dim, items, row, real(by_power), dim)
        gradient[3 * dim] += by_gate
        gradient[3 * dim + 1] += by_own
        gradient[3 * dim + 2] += by_power
    count, rates = model.exposure_count[c], model.rates[EXPOSURE]
    adam(model.exposure[c], count, 0, gradient, 0, 1, rates, len(gradient))
    return mean * total


@jit
def move(
    table: Array, count: Array, row: int, gradient: Array, at: int, moves: bool, model: Model
) -> None:
    """Adam on ω, where the sub-model learned from one of the row's pairs, and on ρ."""
    dim, kinds = model.dim, model.kinds
    if moves:
        adam(table, count, kinds * row, gradient, at, 1, model.rates[SUBMODEL], dim)
    if kinds == 2:
        adam(table, count, kinds * row + 1, gradient, at + dim, 1, model.rates[RESIDUAL], dim)


@jit
def step_factors(
    model: Model,
    plan: Plan,
    n_users: int,
    n_items: int,
    users: Array,
    items: Array,
    part: Array,
    work: Work,
    c: int,
) -> None:
    """The gradient of every user, then of every item with Adam on it; last Adam on the users."""
    dim, kinds, n_models = model.dim, model.kinds, len(model.users)
    size = kinds * 3 * dim
    user_table, item_table, user_count = model.users[c], model.items[c], model.user_count[c]
    for g in range(n_users):
        begin, end = plan.user_start[g], plan.user_start[g + 1]
        sum_up(
            work.on_users,
            kinds * dim * g,
            plan.user_pairs,
            begin,
            end,
            item_table,
            items,
            work,
            kinds,
            dim,
        )
    for h in range(n_items):
        begin, end = plan.item_start[h], plan.item_start[h + 1]
        sum_up(work.on_item, 0, plan.item_pairs, begin, end, user_table, users, work, kinds, dim)
        moves = reached(plan.item_pairs, begin, end, part, c, n_models)
        move(item_table, model.item_count[c], plan.item_rows[h], work.on_item, 0, moves, model)
    for g in range(n_users):
        begin, end = plan.user_start[g], plan.user_start[g + 1]
        moves = reached(plan.user_pairs, begin, end, part, c, n_models)
        soon = plan.user_rows[min(g + AHEAD, n_users - 1)]
        fetch(user_table, size * soon, size)
        fetch(user_count, kinds * soon, kinds)
        at, row = kinds * dim * g, plan.user_rows[g]
        move(user_table, user_count, row, work.on_users, at, moves, model)


@jit
def learn(
    model: Model,
    plan: Plan,
    n_users: int,
    n_items: int,
    users: Array,
    items: Array,
    click: Array,
    part: Array,
    said: Said,
    work: Work,
    c: int,
) -> float:
    """One sub-model's step; its share of the loss before."""
    loss = relevance_slopes(plan, click, part, said, work, c, n_items)
    if model.kinds == 2:
        loss += residual_slopes(plan, click, said, work, c)
    if reached(plan.user_pairs, 0, len(users), part, c, len(model.users)):
        loss += step_exposure(model, plan, len(users), n_items, said, work, c)
    step_factors(model, plan, n_users, n_items, users, items, part, work, c)
    return loss


@jit_entry
def run(
    users: Array,
    items: Array,
    click: Array,
    part: Array,
    batch_size: int,
    model: Model,
    plan: Plan,
    said: Said,
    work: Work,
    thread: int,
    n_threads: int,
    barrier: Array,
    losses: Array,  # (C, batches)
) -> None:
    """One thread's part of a step on each batch of the samples."""
    n_models = len(model.users)
    for b in range(losses.shape[1]):
        begin = b * batch_size
        end = min(begin + batch_size, len(users))
        own_users, own_items = users[begin:end], items[begin:end]
        own_click, own_part = click[begin:end], part[begin:end]
        n_users, n_items = lay_out(plan, own_users, own_items)
        for c in range(thread, n_models, n_threads):
            say_relevance(model, plan, n_users, own_items, said, c)
            say_exposure(model, plan, n_items, said, c)
        wait_for_all(barrier, n_threads)
        for h in range(n_items):
            work.mean_shown[h] = said.shown[:, h].sum() / n_models
        for c in range(thread, n_models, n_threads):
            losses[c, b] = learn(
                model,
                plan,
                n_users,
                n_items,
                own_users,
                own_items,
                own_click,
                own_part,
                said,
                work,
                c,
            )
        wait_for_all(barrier, n_threads)
