"""Adam on the rows a batch touches beside Adam on whole tables: what it costs in quality.

    python benchmarks/row_adam.py --dataset coat [--seeds 5] [--epochs 200] [--json FILE]

The same method, data, seeds and samples on the reference engine; only the optimiser differs. In
the dense one every row moves at every step, by its momentum and by weight decay, as with
torch.optim.Adam. The epoch is chosen on held-out clicks for both.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unexposed import datasets, statistics
from unexposed.comparison import parse_methods
from unexposed.engine import reference
from unexposed.engine.adam import RowAdam
from unexposed.evaluation import PROTOCOLS, evaluate, split_ratings
from unexposed.progress import Lines


class DenseAdam(RowAdam):
    """A row that the batch does not touch has the gradient 0, and moves all the same."""

    def step(self, rows: Tensor, gradient: Tensor) -> None:
        whole = torch.zeros_like(self._table)
        whole[rows] = gradient
        super().step(torch.arange(len(whole)), whole)


def values(method: str, args: argparse.Namespace, data: Any) -> np.ndarray:
    """DCG@3 of each seed and user."""
    by = PROTOCOLS["ubo-ijcai22"]
    rows = []
    for seed in range(args.seeds):
        split = split_ratings(data.logged, data.random, by, seed=seed)
        chosen = parse_methods(method, [f"epochs={args.epochs}"])[method]
        chosen = replace(chosen, engine="reference")
        model = chosen.fit(split.train, split.held_out, seed=seed, progress=Lines(seconds=30))
        rows.append(evaluate(model, split.judged, by).values["dcg@3"])
    return np.stack(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset", default="coat")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--methods", default="mf,ubo", help="as `compare` takes them")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    data = datasets.load(args.dataset, data_dir=args.data_dir, download=False)
    results = []
    for method in args.methods.split(","):
        found = {}
        for name, optimiser in (("rows", RowAdam), ("dense", DenseAdam)):
            reference.RowAdam = optimiser  # type: ignore[misc]
            found[name] = values(method, args, data)
        test = statistics.paired_test(found["rows"], found["dense"], seed=0)
        row = {
            "dataset": args.dataset,
            "method": method,
            "seeds": args.seeds,
            "epochs": args.epochs,
            "rows": statistics.mean_sd(found["rows"]),
            "dense": statistics.mean_sd(found["dense"]),
            "difference": test.difference,
            "p": test.p_value,
        }
        results.append(row)
        print(
            f"{args.dataset} {method}: DCG@3 on touched rows {row['rows'][0]:.3f} ± "
            f"{row['rows'][1]:.3f}, dense {row['dense'][0]:.3f} ± {row['dense'][1]:.3f}, "
            f"difference {test.difference:+.3f} (p = {test.p_value:.3f})"
        )
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
