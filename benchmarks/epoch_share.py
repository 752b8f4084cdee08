"""Measure where the seconds of an epoch go: under 15 % of them should be outside the kernel.

    python benchmarks/epoch_share.py [--data-dir DIR] [--json FILE]

Runs epochs of MF and UBO in turn, as `fit` runs them, on the cpu engine with default settings: on
Yahoo!R3 if DIR has it, otherwise on clicks drawn at its size. The first epoch of each method loads
or compiles its loops and is reported separately. Seconds are CPU seconds, which other programs
disturb least; waiting threads would count as work, so everything runs on one thread.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from unexposed.data import datasets
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.errors import InputError
from unexposed.methods import make
from unexposed.methods.composed import ComposedMethod
from unexposed.training.side import Side

N_USERS, N_ITEMS, N_CLICKS = 15_400, 1_000, 125_077  # Yahoo!R3; a tenth of the clicks is held out
METHODS = ("mf", "ubo")
BAR = 0.15
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("NUMBA", "OPENBLAS", "OMP", "MKL")}
Epoch = dict[str, float]  # the seconds of each part


def yahoo(data_dir: str | None) -> tuple[str, Clicks]:
    """Load the clicks of Yahoo!R3, or draw as many if the data set is missing."""
    try:
        logged = datasets.load("yahoo_r3", data_dir=data_dir, download=False).logged
    except InputError:
        return "simulated", drawn_clicks(np.random.default_rng(0))
    return "Yahoo!R3", logged.clicks(threshold=4)


def drawn_clicks(rng: np.random.Generator) -> Clicks:
    """Draw users and items by power laws: the r-th of n with probability ∝ (r + n/20)^−0.8."""

    def some(size: int) -> Any:
        chance = (np.arange(size) + size / 20) ** -0.8
        drawn = rng.choice(size, size=int(1.1 * N_CLICKS), p=chance / chance.sum())
        return rng.permutation(size)[drawn]

    keys = rng.permutation(np.unique(some(N_USERS) * N_ITEMS + some(N_ITEMS)))[:N_CLICKS]
    users, items = np.divmod(keys, N_ITEMS)
    return Clicks.from_pairs(users, items, user_ids=Ids.range(N_USERS), item_ids=Ids.range(N_ITEMS))


def epochs_of(name: str, clicks: Clicks, held_out: Clicks) -> Callable[[], Epoch]:
    """A call that trains for one more epoch, as `ComposedMethod` does, and times its parts."""
    method = make(name, engine="cpu")
    assert isinstance(method, ComposedMethod)
    rng, side = np.random.default_rng(0), Side()
    engine = method.build(clicks, side, rng)
    composition = method.composition()
    quality = method.loop(clicks, held_out, side).quality
    assert quality is not None

    def run() -> Epoch:
        clock = [time.process_time()]
        samples = composition.drawing.samples(clicks, rng)
        clock.append(time.process_time())
        engine.epoch(samples, batch_size=method.batch_size)
        clock.append(time.process_time())
        parameters = composition.exposure.kept(engine.parameters(), clicks, side)
        clock.append(time.process_time())
        quality(parameters)
        clock.append(time.process_time())
        parts = ("sampling", "kernel", "parameters", "held-out quality")
        return dict(zip(parts, np.diff(clock).tolist(), strict=True))

    return run


def share_outside(epoch: Epoch) -> float:
    return 1 - epoch["kernel"] / sum(epoch.values())


def spread(values: list[float]) -> dict[str, float]:
    return {
        "median": statistics.median(values),
        "least": min(values),
        "greatest": max(values),
    }


def measure(data_dir: str | None, epochs: int) -> dict[str, Any]:
    source, logged = yahoo(data_dir)
    clicks, held_out = logged.hold_out(fraction=0.1, seed=0)
    runs = {name: epochs_of(name, clicks, held_out) for name in METHODS}
    first = {name: run() for name, run in runs.items()}
    rounds = [{name: run() for name, run in runs.items()} for _ in range(epochs)]
    table = {}
    for name in METHODS:
        found = [one[name] for one in rounds]
        table[name] = {
            "seconds": {part: spread([epoch[part] for epoch in found]) for part in found[0]},
            "share_outside": spread([share_outside(epoch) for epoch in found]),
        }
    return {
        "data": source,
        "clicks": len(clicks),
        "held_out": len(held_out),
        "epochs": epochs,
        "bar": BAR,
        "load_average": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "first_epoch_seconds": first,
        "methods": table,
    }


def show(result: dict[str, Any]) -> None:
    title = f"{result['data']}, {result['clicks']:,} clicks, {result['held_out']:,} held out"
    table = Table("method", "", "bar", "first", "median", "least", "greatest", title=title)
    for name, found in result["methods"].items():
        first = result["first_epoch_seconds"][name]
        for part, seconds in found["seconds"].items():
            numbers = (first[part], *seconds.values())
            table.add_row(name, f"{part}, ms", "", *(f"{1000 * s:.1f}" for s in numbers))
        share = (share_outside(first), *found["share_outside"].values())
        label, bar = "share outside the kernel", f"< {result['bar']:.0%}"
        table.add_row(name, label, bar, *(f"{s:.1%}" for s in share), end_section=True)
    Console().print(table)


def main() -> None:
    if not os.environ.items() >= ONE_THREAD.items():  # they are read when libraries are loaded
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ONE_THREAD})
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--epochs", type=int, default=15)
    arguments = parser.parse_args()
    result = measure(arguments.data_dir, arguments.epochs)
    show(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
