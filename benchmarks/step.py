"""Measure how the form of a step changes quality: Adam's clock, batch, decay, negatives.

    python benchmarks/step.py --dataset yahoo_r3 [--data-dir DIR] [--seeds 3] [--json FILE]

Trains MF and UMF in plain PyTorch, on a GPU if there is one, with one change at a time to the step
of the engines. The measure is the SNIPS quality of held-out clicks at the best epoch, as in
training; judgements are never read. Results are added to FILE.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unexposed.data import datasets
from unexposed.data.clicks import Clicks
from unexposed.engine.adam import BETA1, BETA2, EPSILON
from unexposed.evaluation.protocols import PROTOCOLS, split_ratings
from unexposed.maths import exposure
from unexposed.ranking.held_out import Criterion, held_out_quality
from unexposed.sampling.samples import Drawing

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
RATE, DIM, NEGATIVES, EPOCHS, PATIENCE, WINDOW = 1e-3, 64, 10, 200, 60, 10
BY = Criterion("", exponent=1.5, k=3, candidates=10)
BATCH = {"yahoo_r3": 1024, "coat": 128}  # clicks
POWER = {"yahoo_r3": 0.25, "coat": 0.1}  # of θ in UMF


@dataclass(frozen=True)
class Step:
    """How a step is made; the defaults are those of the engines."""

    clock: str = "common"  # touched rows by the steps of the training; or "row": by a row's own
    dense: bool = False  # the moments of all rows move at every step
    batch: str = "clicks"  # with their drawn items; or "pairs", shuffled, as many to a batch
    decay: str = "pair"  # once for each pair of a row; or "row": once a step
    source: str = "catalogue"


STEPS = {
    "as in the engines": Step(),
    "moments of all rows move (dense Adam)": Step(dense=True),
    "a clock for each row": Step(clock="row"),
    "batches of shuffled pairs": Step(batch="pairs"),
    "decay once a row": Step(decay="row"),
    "negatives from what was not clicked": Step(source="unclicked"),
}
DECAY = {"pair": 5e-3, "row": 4e-5}  # of a row, the best of 1e-5 to 8e-5 on held-out clicks


class Adam:
    def __init__(self, table: Tensor, step: Step) -> None:
        self.table, self.make, self.steps = table, step, 0
        self.first, self.second = torch.zeros_like(table), torch.zeros_like(table)
        self.count = torch.zeros(len(table), 1, device=DEVICE)

    def step(self, rows: Tensor, gradient: Tensor) -> None:
        """Move these rows, each given once; all of them where the moments of all move."""
        self.steps += 1
        if self.make.dense:
            whole = torch.zeros_like(self.table)
            whole[rows] = gradient
            rows, gradient = torch.arange(len(whole), device=DEVICE), whole
        self.count[rows] += 1
        first = BETA1 * self.first[rows] + (1 - BETA1) * gradient
        second = BETA2 * self.second[rows] + (1 - BETA2) * gradient**2
        self.first[rows], self.second[rows] = first, second
        t = self.count[rows] if self.make.clock == "row" else self.steps
        move = first / (1 - BETA1**t) / ((second / (1 - BETA2**t)).sqrt() + EPSILON)
        self.table[rows] -= RATE * move


def batches(
    clicks: Clicks, size: int, step: Step, rng: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor, Tensor, int]]:
    """Users, items, clicked, and by what the sum over the pairs is divided."""
    samples = Drawing(NEGATIVES, source=step.source).samples(clicks, rng)  # type: ignore[arg-type]
    pairs = samples.pairs()
    columns = [torch.from_numpy(a).to(DEVICE) for a in (pairs.users, pairs.items, pairs.click)]
    size *= 1 + NEGATIVES
    if step.batch == "pairs":
        order = torch.from_numpy(rng.permutation(len(pairs))).to(DEVICE)
        columns = [c[order] for c in columns]
    for users, items, click in zip(*(c.split(size) for c in columns), strict=True):
        n = len(users) if step.batch == "pairs" else int(click.sum())
        yield users.long(), items.long(), click, n


def trained(clicks: Clicks, held_out: Clicks, theta: Tensor, size: int, step: Step, seed: int):
    """The best held-out quality, averaged as in training, and its epoch."""
    rng = np.random.default_rng(seed)
    tables = [
        torch.from_numpy(rng.normal(0, 0.01, (n, DIM))).float().to(DEVICE)
        for n in (clicks.n_users, clicks.n_items)
    ]
    adam = [Adam(table, step) for table in tables]
    values: list[float] = []
    best, at = -1.0, 0
    for epoch in range(1, EPOCHS + 1):
        for users, items, click, n in batches(clicks, size, step, rng):
            rows, m = (tables[0][users], tables[1][items]), theta[items]
            p = torch.sigmoid((rows[0] * rows[1]).sum(1))
            unclicked = m * p * (1 - p) / (1 - m * p).clamp(min=1e-6)
            slope = torch.where(click > 0, p - 1, unclicked)[:, None] / n
            for side, where in ((0, users), (1, items)):
                touched, place, seen = torch.unique(where, return_inverse=True, return_counts=True)
                table = tables[side][touched]
                terms = seen[:, None] / n if step.decay == "pair" else 1.0
                gradient = DECAY[step.decay] * terms * table
                adam[side].step(touched, gradient.index_add(0, place, slope * rows[1 - side]))
        users_, items_ = (t.cpu().numpy() for t in tables)
        values.append(
            held_out_quality(
                lambda u, a=users_, b=items_: a[u] @ b.T,
                clicks,
                held_out,
                BY,
            )
        )
        value = float(np.mean(values[-WINDOW:]))
        if value > best:
            best, at = value, epoch
        if epoch - at >= PATIENCE:
            break
    return best, at


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", choices=list(BATCH), default="coat")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--methods", default="mf,umf")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", help="a part of the name of the steps to try")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    data = datasets.load(args.dataset, data_dir=args.data_dir, download=False)
    for method in args.methods.split(","):
        for name, step in STEPS.items():
            if args.only and args.only not in name:
                continue
            rows = []
            for seed in range(args.seeds):
                split = split_ratings(data.logged, data.random, PROTOCOLS["ubo-ijcai22"], seed=seed)
                power = POWER[args.dataset] if method == "umf" else 0.0
                theta = exposure.popularity(split.train.item_counts, exponent=power, floor=0.01)
                rows.append(
                    trained(
                        split.train,
                        split.held_out,
                        torch.from_numpy(theta).to(DEVICE),
                        BATCH[args.dataset],
                        step,
                        seed,
                    )
                )
            values, epochs = zip(*rows, strict=True)
            row: dict[str, Any] = {"dataset": args.dataset, "method": method, "step": name}
            row |= {"held_out": values, "epochs": epochs}
            print(f"{args.dataset} {method}, {name}: {np.mean(values):.4f} at {epochs}", flush=True)
            if args.json:
                before = json.loads(args.json.read_text()) if args.json.exists() else []
                text = json.dumps([*before, row], indent=1) + "\n"
                args.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
