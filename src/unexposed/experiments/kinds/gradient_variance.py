"""Measure the gradient noise of both losses by redrawing the clicks of a known world.

At a fixed model only the clicks make a gradient random. For each loss, with the true exposure
(m̄ = m), we measure

- ∂L/∂p of a pair: its variance over the draws, averaged over the pairs of a range of m;
- ∂L/∂ω of a full batch, L = Σ over all pairs: with g = ∂L/∂x and x = ω_uᵀω_i, the gradient on a
  user's vector is Σ_i g_ui·ω_i and on an item's vector Σ_u g_ui·ω_u. Its total variance is the
  trace of its covariance: the variances of all entries of all vectors, added. Clicks of different
  pairs are independent, so it is Σ_ui Var(g_ui)·(|ω_u|² + |ω_i|²).

Each variance comes with its closed formula and its standard error over independent rounds of
draws. At small m rare clicks carry nearly all of the variance, and few draws see one: the variance
and its error are then underestimated, as the number of clicks shows.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.worlds.simulate import World
from unexposed.errors import InputError, did_you_mean
from unexposed.experiments.task import Task
from unexposed.late import Tensor, torch
from unexposed.maths import losses
from unexposed.methods.umf import UMF
from unexposed.progress import Silent
from unexposed.ranking.blocks import parts
from unexposed.training.side import Side

Array = NDArray[np.float64]
Formula = Callable[[Tensor, Tensor, Tensor], Tensor]

VARIANCES: dict[str, Formula] = {  # variance of ∂L/∂p from γ, m and p
    "inverse_propensity": losses.inverse_propensity_variance,
    "low_variance": losses.low_variance_variance,
}
OPTIONS = {"draws": int, "epochs": int, "edges": list}
EDGES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
ROUNDS = 20  # independent measurements, whose spread gives the standard error
_ENTRIES_AT_ONCE = 1 << 19


class Factors(NamedTuple):
    """A fixed factor model: p = σ(ω_uᵀω_i)."""

    users: Array  # (n_users, dim)
    items: Array  # (n_items, dim)


def body(task: Task) -> dict[str, Any]:
    """Measure the loss that the arm names on the clicks that the seed draws."""
    world = task.data.known_world(task.experiment.kind)
    given = task.options
    model = fixed_model(task.data.clicks, seed=task.seed, epochs=given.get("epochs", 20))
    return measure(
        world,
        model,
        loss=task.arm,
        draws=given.get("draws", 400),
        seed=task.seed,
        edges=given.get("edges", EDGES),
    )


def measure(
    world: World,
    model: Factors,
    *,
    loss: str,
    draws: int,
    seed: int,
    edges: Sequence[float] = EDGES,
) -> dict[str, Any]:
    """Variance of one loss's gradient on p by range of m, and in total on ω."""
    if loss not in VARIANCES:
        raise InputError(f"no closed variance of a loss {loss!r}; {did_you_mean(loss, VARIANCES)}")
    if draws < 4:
        raise InputError(f"draws must be at least 4, two rounds of two, got {draws}")
    if list(edges) != sorted(set(edges)) or edges[0] > 0 or edges[-1] < 1:
        raise InputError(f"edges must rise from 0 to 1, got {list(edges)}")
    rounds = min(ROUNDS, draws // 2)
    each = draws // rounds
    found = [
        _round(world, model, loss, draws=each, rng=np.random.default_rng([seed, r]), edges=edges)
        for r in range(rounds)
    ]
    expected = _expected(world, model, loss, edges=edges)
    pairs = np.maximum(expected.pairs, 1)
    rows = [
        {
            "low": float(edges[b]),
            "high": float(edges[b + 1]),
            "pairs": int(expected.pairs[b]),
            "exposure": float(expected.exposure[b] / pairs[b]),
            "clicks": int(sum(r.clicks[b] for r in found)),
            "on_p": _beside([r.on_p[b] / pairs[b] for r in found], expected.on_p[b] / pairs[b]),
        }
        for b in range(len(edges) - 1)
        if expected.pairs[b]
    ]
    return {
        "rows": rows,
        "on_omega": _beside([r.total for r in found], expected.total),
        "signal": sum(float((part**2).sum()) for part in expected.mean),  # |E ∂L/∂ω|²
        "draws": rounds * each,
    }


def fixed_model(clicks: Clicks, *, seed: int, epochs: int, dim: int = 50) -> Factors:
    """Train UMF on a log for some epochs and return its relevance factors.

    Both losses must see the same model, so it is trained on the cpu engine, whose bits repeat.
    """
    method = UMF(dim=dim, weighting="unbiased", biases=False, engine="cpu")  # plain factors
    trainee = method.trainee(clicks, seed=seed, side=Side(), progress=Silent())
    for _ in range(epochs):
        trainee.epoch()
    learned = trainee.parameters()
    return Factors(*(learned[n].astype(np.float64) for n in ("user_factors", "item_factors")))


def ratios(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Divide L1 by L2 on each seed: the variance on ω, and the variance per squared signal.

    L2 pulls less where exposure is low, so its gradient is shorter as well as less noisy; Adam
    normalises the length, and so does the second ratio.
    """
    by_run = {(line["seed"], line["arm"]): line for line in lines}
    found = []
    for seed in sorted({line["seed"] for line in lines}):
        one, two = (by_run.get((seed, arm)) for arm in VARIANCES)
        if one is None or two is None:
            continue
        ratio = {
            name: one["on_omega"][name] / two["on_omega"][name] for name in ("empirical", "formula")
        }
        over_signal = (
            one["on_omega"]["formula"] / one["signal"] * two["signal"] / two["on_omega"]["formula"]
        )
        found.append({"seed": seed, **ratio, "formula_over_signal": over_signal})
    return found


class _Expected(NamedTuple):
    """Sums over the pairs of each range of m; mean and variance of the gradient on ω."""

    pairs: NDArray[np.int64]
    exposure: Array
    on_p: Array
    mean: list[Array]  # on users and on items
    total: float


class _Round(NamedTuple):
    """Results of one round of draws: sums by range of m, and the gradient on ω."""

    clicks: Array
    on_p: Array
    total: float


class _Block(NamedTuple):
    """Arrays (users, items) of a block of users that do not depend on the draws."""

    users: slice
    range: NDArray[np.int64]  # index of the range that contains m
    exposure: Array
    chance: Array  # P(click) = mγ
    slope: Array  # ∂p/∂x = p(1 − p)
    weight: Array  # |ω_u|² + |ω_i|²
    without: Array  # ∂L/∂x without a click
    jump: Array  # change of that slope with a click
    formula: Array  # Var ∂L/∂p

    def by_range(self, values: Array, ranges: int) -> Array:
        sums = np.bincount(self.range.ravel(), weights=values.ravel(), minlength=ranges)
        return sums.astype(np.float64, copy=False)


def _blocks(
    world: World, model: Factors, loss: str, edges: Sequence[float], draws: int
) -> Iterator[_Block]:
    """Go through the world by blocks of users, so that users × items is never held."""
    entries_per_user = world.n_items + draws * model.users.shape[1]
    lengths = [(table**2).sum(axis=1) for table in model]
    for users in parts(world.n_users, entries_per_user, entries=_ENTRIES_AT_ONCE):
        truth = world.truth(np.arange(users.start, users.stop))
        m, relevance = (torch.from_numpy(part.astype(np.float64)) for part in truth)
        logit = torch.from_numpy(model.users[users] @ model.items.T)
        without, clicked = (
            losses.LOSSES[loss].gradient(logit, torch.full_like(m, c), m).numpy()
            for c in (0.0, 1.0)
        )
        p = torch.sigmoid(logit)
        yield _Block(
            users,
            np.searchsorted(edges[1:-1], m.numpy(), side="right"),
            m.numpy(),
            (m * relevance).numpy(),
            (p * torch.sigmoid(-logit)).numpy(),
            lengths[0][users][:, None] + lengths[1],
            without,
            clicked - without,
            VARIANCES[loss](relevance, m, p).numpy(),
        )


def _expected(world: World, model: Factors, loss: str, *, edges: Sequence[float]) -> _Expected:
    """Compute the closed formulas."""
    ranges = len(edges) - 1
    pairs = np.zeros(ranges, dtype=np.int64)
    exposure, on_p, total = (np.zeros(ranges) for _ in range(3))
    mean = [np.zeros_like(table) for table in model]
    for block in _blocks(world, model, loss, edges, 0):
        pairs += np.bincount(block.range.ravel(), minlength=ranges)
        exposure += block.by_range(block.exposure, ranges)
        on_p += block.by_range(block.formula, ranges)
        total += block.by_range(block.formula * block.slope**2 * block.weight, ranges)
        gradient = block.without + block.chance * block.jump
        mean[0][block.users] = gradient @ model.items
        mean[1] += gradient.T @ model.users[block.users]
    return _Expected(pairs, exposure, on_p, mean, float(total.sum()))


def _round(
    world: World,
    model: Factors,
    loss: str,
    *,
    draws: int,
    rng: np.random.Generator,
    edges: Sequence[float],
) -> _Round:
    """Compute the sample variances over some draws of all clicks."""
    ranges = len(edges) - 1
    clicks, on_p = np.zeros(ranges), np.zeros(ranges)
    on_items = np.zeros((draws, *model.items.shape))
    total = 0.0
    for block in _blocks(world, model, loss, edges, draws):
        mine = model.users[block.users]
        on_users = np.empty((draws, *mine.shape))
        count = np.zeros(block.chance.shape)
        still = block.without @ model.items, block.without.T @ mine
        for d in range(draws):
            clicked = rng.random(block.chance.shape, dtype=np.float32) < block.chance
            count += clicked
            added = sp.csr_array(np.where(clicked, block.jump, 0))
            on_users[d] = still[0] + added @ model.items
            on_items[d] += still[1] + added.T @ mine
        # sample variance of a gradient with two values, one of them `count` times
        spread = block.jump**2 * count * (draws - count) / (draws * (draws - 1))
        clicks += block.by_range(count, ranges)
        on_p += block.by_range(spread / block.slope**2, ranges)
        total += float(on_users.var(axis=0, ddof=1).sum())
    total += float(on_items.var(axis=0, ddof=1).sum())
    return _Round(clicks, on_p, total)


def _beside(found: list[float], formula: float) -> dict[str, float]:
    """Mean over rounds with its standard error, and the value of the formula."""
    error = np.std(found, ddof=1) / len(found) ** 0.5
    return {
        "empirical": float(np.mean(found)),
        "standard_error": float(error),
        "formula": float(formula),
    }
