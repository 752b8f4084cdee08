"""Measure bias and variance of an epoch's gradient for each way of drawing negatives.

    python benchmarks/estimator.py [--data-dir DIR] [--epochs 100] [--json FILE]

At a fixed UMF model on the clicks of MovieLens 100K (a simulated world where DIR has no such data)
only the drawn items make an epoch's gradient g random. The full gradient G sums over every pair of
the users with a click. For each way of drawing:

- distance: |mean of g − G| / |G|, and what chance alone gives an unbiased g at this number of
  epochs, √(variance / epochs); and the cosine of both, for Adam takes no notice of the length;
- variance: the trace of the covariance of g, over |G|², from independent pairs of epochs;
- CPU milliseconds of drawing an epoch and of training on it, on one thread.

The gradient is of the loss alone, without weight decay.
"""

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from unexposed.data import datasets
from unexposed.data.clicks import Clicks
from unexposed.data.worlds import simulate
from unexposed.engine.cpu.engine import CpuEngine
from unexposed.errors import InputError
from unexposed.maths.losses import low_variance_gradient
from unexposed.methods.umf import UMF
from unexposed.progress import Silent
from unexposed.sampling.samples import Drawing, SampledPairs
from unexposed.training.side import Side

Array = NDArray[np.float64]
WAYS: dict[str, Drawing] = {
    "10 uniform, unweighted": Drawing(10),
    "5 uniform": Drawing(5, "unbiased"),
    "10 uniform": Drawing(10, "unbiased"),
    "20 uniform": Drawing(20, "unbiased"),
    **{
        f"10 by popularity^{exponent:g}": Drawing(10, "unbiased", exponent=exponent)
        for exponent in (0.25, 0.5, 0.75, 1.0)
    },
    "every pair": Drawing(10, every_pair=True),
}
TRAINED = 20  # epochs of the fixed model
TIMED = 7
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("NUMBA", "OPENBLAS", "OMP", "MKL")}


class Fixed(NamedTuple):
    """A model that stays as it is: ω, and the exposure of each item."""

    users: Array
    items: Array
    exposure: Array
    logits: Array  # users × items
    learning: UMF


def log(data_dir: Path | None) -> tuple[str, Clicks]:
    try:
        rated = datasets.load("ml_100k", data_dir=data_dir, download=False).logged
    except InputError:
        return "a simulated world", simulate.world(900, 1500, seed=0).clicks(seed=0)
    return "MovieLens 100K", rated.clicks(threshold=4)


def fixed_model(clicks: Clicks) -> Fixed:
    """UMF as it stands early in a weighted training, where the gradient is not yet near zero."""
    method = UMF(epochs=TRAINED, patience=0, weighting="unbiased", refit=False, engine="cpu")
    nothing = clicks.pick(np.zeros(len(clicks), dtype=bool))
    parameters = method.fit(clicks, nothing, seed=0, progress=Silent()).parameters
    exposure = method.composition().exposure.table(clicks, Side())
    tables = (parameters["user_factors"], parameters["item_factors"], exposure)
    users, items, shown = (np.asarray(table, dtype=np.float64) for table in tables)
    return Fixed(users, items, shown, users @ items.T, method)


def gradient(pairs: SampledPairs, model: Fixed) -> Array:
    """Σ over the pairs of ∂(weight·L2)/∂ω, users first, as one vector."""
    logit = model.logits[pairs.users, pairs.items]
    columns = (logit, pairs.click.astype(np.float64), model.exposure[pairs.items])
    slope = low_variance_gradient(*map(torch.from_numpy, columns)).numpy() * pairs.weight
    shape = len(model.users), len(model.items)
    slopes = sp.csr_array((slope, (pairs.users, pairs.items)), shape=shape)  # repeats are added
    parts = slopes @ model.items, slopes.T @ model.users
    return np.concatenate([part.reshape(-1) for part in parts])


def accuracy(clicks: Clicks, model: Fixed, drawing: Drawing, full: Array, n: int) -> dict[str, Any]:
    """Distance of the mean gradient from the full one and total variance, both relative."""
    if drawing.every_pair:  # the same pairs in every epoch
        n = 4
    sampler, rng, size = drawing.sampler(clicks), np.random.default_rng(1), full @ full
    total, squares = np.zeros_like(full), []
    for _ in range(n // 2):
        one, other = (gradient(sampler.draw(rng).pairs(), model) - full for _ in range(2))
        total += one + other
        apart = one - other
        squares.append(apart @ apart / 2 / size)  # its mean is the variance
    n, variance = 2 * len(squares), statistics.mean(squares)
    mean = full + total / n
    return {
        "epochs": n,
        "cosine": float(mean @ full / np.sqrt(mean @ mean * size)),
        "distance": float((total @ total / size) ** 0.5 / n),
        "by_chance": (variance / n) ** 0.5,
        "variance": variance,
        "variance_error": statistics.stdev(squares) / len(squares) ** 0.5,
    }


def speed(clicks: Clicks, model: Fixed, drawing: Drawing) -> dict[str, float]:
    """Median CPU milliseconds of drawing an epoch, and of a training's epoch with its draws."""
    method, rng = model.learning, np.random.default_rng(2)
    tables = {"user_factors": model.users, "item_factors": model.items}
    engine = CpuEngine(
        method.composition().objective(),
        method.optimiser(),
        {name: table.astype(np.float32) for name, table in tables.items()},
        exposure=model.exposure,
        threads=1,
    )
    sampler, drawn, both = drawing.sampler(clicks), [], []
    for _ in range(TIMED + 1):
        begin = time.process_time()
        samples = sampler.draw(rng)
        drawn.append(time.process_time() - begin)
        engine.epoch(samples, batch_size=method.batch_size)
        both.append(time.process_time() - begin)
    drawing_ms, epoch_ms = (1000 * statistics.median(found[1:]) for found in (drawn, both))
    return {"drawing_ms": drawing_ms, "epoch_ms": epoch_ms}


def measure(data_dir: Path | None, epochs: int) -> dict[str, Any]:
    source, clicks = log(data_dir)
    model = fixed_model(clicks)
    every = Drawing(1, every_pair=True).samples(clicks, np.random.default_rng(0))
    full, ways = gradient(every.pairs(), model), {}
    for name, drawing in WAYS.items():
        found = accuracy(clicks, model, drawing, full, epochs) | speed(clicks, model, drawing)
        ways[name] = found
        print(
            f"{name}: distance {found['distance']:.4f} (by chance {found['by_chance']:.4f}), "
            f"cosine {found['cosine']:.4f}, "
            f"variance {found['variance']:.4f} ± {found['variance_error']:.4f}, "
            f"drawing {found['drawing_ms']:.1f} ms, epoch {found['epoch_ms']:.1f} ms",
            flush=True,
        )
    return {
        "data": source,
        "clicks": len(clicks),
        "users": clicks.n_users,
        "items": clicks.n_items,
        "trained": TRAINED,
        "ways": ways,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not os.environ.items() >= ONE_THREAD.items():  # read when the packages are imported
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | ONE_THREAD)
    document = measure(args.data_dir, args.epochs)
    if args.json:
        args.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
