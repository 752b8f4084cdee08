"""How noisy the two estimators are: the clicks of a known world, drawn again and again.

At a fixed model a gradient is random through the clicks alone. Of each loss, with the true
exposure (m̄ = m), we measure

- ∂L/∂p of a pair: its variance over the draws, averaged over the pairs of a range of m;
- ∂L/∂ω of a full batch, L = Σ over all pairs: the gradient on the vector of a user is
  Σ_i g_ui·ω_i and on that of an item Σ_u g_ui·ω_u, with g = ∂L/∂x and x = ω_uᵀω_i. Its total
  variance is the trace of its covariance: the variances of all entries of all vectors, added.
  Clicks of different pairs are independent, so it is Σ_ui Var(g_ui)·(|ω_u|² + |ω_i|²), and a
  pair's term of that sum is its share.

Every variance stands beside its closed formula and its standard error over independent rounds of
draws. A rare click carries nearly all of the variance at small m, where few draws see one: there
both the variance and its error are then found too small, which the number of clicks shows.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.simulate import World
from unexposed.errors import InputError, did_you_mean
from unexposed.maths import losses
from unexposed.methods.umf import UMF
from unexposed.progress import Silent
from unexposed.settings import check_keys
from unexposed.training.given import Side

if TYPE_CHECKING:
    from unexposed.experiments.task import Task

Array = NDArray[np.float64]
Formula = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]

VARIANCES: dict[str, Formula] = {  # of ∂L/∂p, from γ, m and p
    "inverse_propensity": losses.inverse_propensity_variance,
    "low_variance": losses.low_variance_variance,
}
OPTIONS = {"draws": int, "epochs": int, "edges": list}
EDGES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
ROUNDS = 20  # independent measurements, from whose spread the standard error comes
_ENTRIES_AT_ONCE = 1 << 19


class Factors(NamedTuple):
    """A fixed factor model: p = σ(ω_uᵀω_i)."""

    users: Array  # (n_users, dim)
    items: Array  # (n_items, dim)


def body(task: "Task") -> dict[str, Any]:
    """The kind `gradient_variance` of an experiment: the arm is a loss, the seed draws anew."""
    check_keys(task.options, OPTIONS, f"{task.experiment.name}, [options]")
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
    """The variance of one loss's gradient on p by range of m, and of that on ω in all."""
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
            "share": _beside([r.share[b] / pairs[b] for r in found], expected.share[b] / pairs[b]),
        }
        for b in range(len(edges) - 1)
        if expected.pairs[b]
    ]
    drawn = [sum(r.mean[side] for r in found) / rounds for side in (0, 1)]
    strays = sum(_square(a - b) for a, b in zip(drawn, expected.mean, strict=True))
    return {
        "rows": rows,
        "on_omega": _beside([r.total for r in found], float(expected.share.sum())),
        "signal": sum(_square(part) for part in expected.mean),  # |E ∂L/∂ω|²
        "stray": strays,  # |mean of the draws − E ∂L/∂ω|², in expectation the variance / draws
        "draws": rounds * each,
    }


def fixed_model(clicks: Clicks, *, seed: int, epochs: int, dim: int = 50) -> Factors:
    """The relevance that UMF has learned from a log after some epochs.

    On the cpu engine, whose bits repeat: both losses must meet the same model.
    """
    method = UMF(dim=dim, weighting="unbiased", engine="cpu")
    trainee = method.trainee(clicks, seed=seed, side=Side(), progress=Silent())
    for _ in range(epochs):
        trainee.epoch()
    learned = trainee.parameters()
    return Factors(*(learned[n].astype(np.float64) for n in ("user_factors", "item_factors")))


def ratios(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """L1 beside L2 on each seed: the variance on ω, and that per unit of squared signal.

    L2 pulls less where exposure is low, so its gradient is shorter as well as steadier; Adam
    takes the length out, and the second ratio does too.
    """
    seeds = sorted({line["seed"] for line in lines})
    found = []
    for seed in seeds:
        one, two = (_of(lines, seed, arm) for arm in VARIANCES)
        if one and two:
            empirical = [b["on_omega"]["empirical"] for b in (one, two)]
            formula = [b["on_omega"]["formula"] for b in (one, two)]
            found.append(
                {
                    "seed": seed,
                    "empirical": empirical[0] / empirical[1],
                    "formula": formula[0] / formula[1],
                    "formula_over_signal": formula[0] / one["signal"] * two["signal"] / formula[1],
                }
            )
    return found


class _Expected(NamedTuple):
    """Sums over the pairs of each range of m, and the mean gradient on users and items."""

    pairs: NDArray[np.int64]
    exposure: Array
    on_p: Array
    share: Array
    mean: list[Array]


class _Round(NamedTuple):
    """What the draws of one round gave: sums by range of m, and the gradient on ω."""

    clicks: Array
    on_p: Array
    share: Array
    mean: list[Array]
    total: float


class _Block(NamedTuple):
    """Everything about the pairs of some users that the draws do not change, (users, items)."""

    users: slice
    range: NDArray[np.int64]  # the number of the range that m falls in
    exposure: Array
    chance: Array  # P(click) = mγ
    slope: Array  # ∂p/∂x = p(1 − p)
    weight: Array  # |ω_u|² + |ω_i|²
    without: Array  # ∂L/∂x without a click
    jump: Array  # what a click adds to it
    formula: Array  # Var ∂L/∂p

    def by_range(self, values: Array, ranges: int) -> Array:
        sums = np.bincount(self.range.ravel(), weights=values.ravel(), minlength=ranges)
        return sums.astype(np.float64, copy=False)


def _blocks(
    world: World, model: Factors, loss: str, edges: Sequence[float], draws: int
) -> Iterator[_Block]:
    """The world and the model by blocks of users: nothing is users × items."""
    entries = world.n_items + draws * model.users.shape[1]  # that a user takes
    size = max(1, _ENTRIES_AT_ONCE // entries)
    lengths = [(table**2).sum(axis=1) for table in model]
    for start in range(0, world.n_users, size):
        users = slice(start, min(start + size, world.n_users))
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
    """By the formulas."""
    ranges = len(edges) - 1
    pairs = np.zeros(ranges, dtype=np.int64)
    exposure, on_p, share = (np.zeros(ranges) for _ in range(3))
    mean = [np.zeros_like(table) for table in model]
    for block in _blocks(world, model, loss, edges, 0):
        pairs += np.bincount(block.range.ravel(), minlength=ranges)
        exposure += block.by_range(block.exposure, ranges)
        on_p += block.by_range(block.formula, ranges)
        share += block.by_range(block.formula * block.slope**2 * block.weight, ranges)
        gradient = block.without + block.chance * block.jump
        mean[0][block.users] = gradient @ model.items
        mean[1] += gradient.T @ model.users[block.users]
    return _Expected(pairs, exposure, on_p, share, mean)


def _round(
    world: World,
    model: Factors,
    loss: str,
    *,
    draws: int,
    rng: np.random.Generator,
    edges: Sequence[float],
) -> _Round:
    """By drawing: the sample variances of some draws of all clicks."""
    ranges = len(edges) - 1
    clicks, on_p, share = (np.zeros(ranges) for _ in range(3))
    mean = [np.zeros_like(table) for table in model]
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
        # a gradient of two values, `count` times the one: its sample variance
        spread = block.jump**2 * count * (draws - count) / (draws * (draws - 1))
        clicks += block.by_range(count, ranges)
        on_p += block.by_range(spread / block.slope**2, ranges)
        share += block.by_range(spread * block.weight, ranges)
        mean[0][block.users] = on_users.mean(axis=0)
        total += float(on_users.var(axis=0, ddof=1).sum())
    mean[1] = on_items.mean(axis=0)
    total += float(on_items.var(axis=0, ddof=1).sum())
    return _Round(clicks, on_p, share, mean, total)


def _beside(found: list[float], formula: float) -> dict[str, float]:
    """What the rounds found, its standard error, and what the formula says."""
    error = np.std(found, ddof=1) / len(found) ** 0.5
    return {
        "empirical": float(np.mean(found)),
        "standard_error": float(error),
        "formula": float(formula),
    }


def _square(values: Array) -> float:
    return float((values**2).sum())


def _of(lines: Sequence[dict[str, Any]], seed: int, arm: str) -> Any:
    found = [line for line in lines if line["seed"] == seed and line["arm"] == arm]
    return found[-1] if found else None
