"""Measure the gradient noise of both losses by redrawing the clicks of a known world.

    python experiments/lib/variance.py          # seven minutes

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

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.worlds.simulate import World
from unexposed.evaluation.protocols import PAPER, protocol
from unexposed.experiments.data import checked, open_data
from unexposed.experiments.results import Results
from unexposed.experiments.run import commit, machine, versions
from unexposed.maths import losses
from unexposed.methods.umf import UMF
from unexposed.progress import Silent
from unexposed.ranking.blocks import parts
from unexposed.training.side import Side

Array = NDArray[np.float64]

VARIANCES: dict[str, Callable[..., torch.Tensor]] = {  # variance of ∂L/∂p from γ, m and p
    "inverse_propensity": losses.inverse_propensity_variance,
    "low_variance": losses.low_variance_variance,
}
WORLD = {"semi_synthetic": "ml_100k", "generator": "converged", "power": 0.5}
SEEDS = 5
DRAWS = 400
EPOCHS = 20  # of UMF, whose model is then held fixed
EDGES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
ROUNDS = 20  # independent measurements, whose spread gives the standard error
_ENTRIES_AT_ONCE = 1 << 19


class Factors(NamedTuple):
    """A fixed factor model: p = σ(ω_uᵀω_i)."""

    users: Array  # (n_users, dim)
    items: Array  # (n_items, dim)


def main() -> None:
    """Measure both losses on the clicks that each seed draws, and store the results."""
    data = open_data(table := checked(WORLD, "the world"), protocol(PAPER))
    world = data.known_world("the variance")
    lines = []
    for loss in VARIANCES:
        for seed in range(SEEDS):
            started = time.monotonic()
            model = fixed_model(data.clicks, seed=seed, epochs=EPOCHS)
            found = measure(world, model, loss=loss, draws=DRAWS, seed=seed)
            origin = {"versions": versions(), "machine": machine(None), "commit": commit()}
            seconds = time.monotonic() - started
            line = {"arm": loss, "seed": seed, "data": table, **found, "seconds": seconds}
            lines.append(line | origin)
    Results(Path(__file__).parents[1] / "variance" / "results", "variance").write(lines, {})


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
    rounds = min(ROUNDS, draws // 2)
    found = [
        _round(world, model, loss, draws // rounds, np.random.default_rng([seed, r]), edges)
        for r in range(rounds)
    ]
    ranges = len(edges) - 1
    n_pairs, exposure, on_p, total = (np.zeros(ranges) for _ in range(4))
    on_users, on_items = (np.zeros_like(table) for table in model)
    for block in _blocks(world, model, loss, edges, 0):
        n_pairs += block.by_range(np.ones_like(block.exposure), ranges)
        exposure += block.by_range(block.exposure, ranges)
        on_p += block.by_range(block.formula, ranges)
        total += block.by_range(block.formula * block.slope**2 * block.weight, ranges)
        gradient = block.without + block.chance * block.jump
        on_users[block.users] = gradient @ model.items
        on_items += gradient.T @ model.users[block.users]
    rows = [
        {
            "low": float(edges[b]),
            "high": float(edges[b + 1]),
            "pairs": int(n_pairs[b]),
            "exposure": float(exposure[b] / n_pairs[b]),
            "clicks": int(sum(clicks[b] for clicks, _, _ in found)),
            "on_p": _beside([own[b] / n_pairs[b] for _, own, _ in found], on_p[b] / n_pairs[b]),
        }
        for b in range(ranges)
        if n_pairs[b]
    ]
    return {
        "rows": rows,
        "on_omega": _beside([total for _, _, total in found], float(total.sum())),
        "signal": float((on_users**2).sum() + (on_items**2).sum()),  # |E ∂L/∂ω|²
        "draws": rounds * (draws // rounds),
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


def _round(
    world: World,
    model: Factors,
    loss: str,
    draws: int,
    rng: np.random.Generator,
    edges: Sequence[float],
) -> tuple[Array, Array, float]:
    """Clicks, and sample variances over some draws of all clicks: on p by range of m, and on ω."""
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
    return clicks, on_p, total + float(on_items.var(axis=0, ddof=1).sum())


def _beside(found: list[float], formula: float) -> dict[str, float]:
    """Mean over rounds with its standard error, and the value of the formula."""
    error = np.std(found, ddof=1) / len(found) ** 0.5
    return {
        "empirical": float(np.mean(found)),
        "standard_error": float(error),
        "formula": float(formula),
    }


if __name__ == "__main__":
    main()
