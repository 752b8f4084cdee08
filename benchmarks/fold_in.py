"""Compare folded-in users with the same users trained with all others: judged DCG, Yahoo!R3.

    python benchmarks/fold_in.py [--data-dir DIR] [--methods mf,bpr,…] [--seeds 0,1] [--json FILE]

A tenth of all users, drawn from the users that protocol ubo-ijcai22 evaluates, are left out of
training and folded in from their training clicks. New results are added to those in FILE.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from unexposed import make
from unexposed.data import datasets
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.labelled import Judgements
from unexposed.data.split import Split
from unexposed.evaluation import protocols as evaluation
from unexposed.methods import METHODS
from unexposed.model.model import Model
from unexposed.model.recommend import Average

PROTOCOL = evaluation.PROTOCOLS["ubo-ijcai22"]
METHOD_NAMES = "wmf,mf,bpr,expomf,umf,relmf,ubo"
METRIC = "dcg@3"


def some_users(clicks: Clicks, chosen: Any) -> Clicks:
    """Keep the clicks and ids of the chosen users (a mask)."""
    here = chosen[clicks.users]
    return Clicks.from_pairs(
        (np.cumsum(chosen) - 1)[clicks.users[here]],
        clicks.items[here],
        user_ids=Ids(clicks.user_ids.values[chosen]),
        item_ids=clicks.item_ids,
    )


def left_out(split: Split, seed: int) -> Any:
    """Mask a tenth of all users, drawn from the users that the protocol evaluates."""
    evaluated = np.unique(evaluation.eligible(split.judged, split.train, PROTOCOL).users)
    drawn = np.random.default_rng(seed).permutation(evaluated)[: split.train.n_users // 10]
    chosen = np.zeros(split.train.n_users, dtype=bool)
    chosen[drawn] = True
    return chosen


def values(model: Model, judged: Judgements) -> Any:
    """The metric of each user, in the order of raw ids."""
    users = model.user_ids.index(judged.user_ids.values)[judged.users]
    own = Judgements.from_pairs(
        users, judged.items, judged.relevant, user_ids=model.user_ids, item_ids=model.item_ids
    )
    found = evaluation.evaluate(model, own, PROTOCOL)
    order = np.argsort(model.user_ids.values[found.users])
    return found.values[METRIC][order]


def popular_values(model: Model, judged: Judgements, clicks: Clicks) -> Any:
    """The metric of each user under the list that unknown users get."""
    score = Average.of(model).score
    ranking = evaluation.rank_judged(lambda users: np.tile(score, (len(users), 1)), judged, clicks)
    return evaluation.metrics.METRICS["dcg"](ranking, 3)


def measure(name: str, split: Split, seed: int) -> dict[str, Any]:
    chosen = left_out(split, seed)
    judged = evaluation.eligible(split.judged, split.train, PROTOCOL)
    judged = judged.pick(chosen[judged.users])
    begin = time.monotonic()
    whole = make(name).fit(split.train, split.held_out, seed=seed)
    training = time.monotonic() - begin
    part = make(name).fit(
        some_users(split.train, ~chosen), some_users(split.held_out, ~chosen), seed=seed
    )
    begin = time.monotonic()
    folded = part.fold_in(some_users(split.train, chosen))
    folding = time.monotonic() - begin
    retrained, found = values(whole, judged), values(folded, judged)
    popular = popular_values(part, judged, split.train)
    difference = found - retrained
    return {
        "method": name,
        "seed": seed,
        "users": len(found),
        "retrained": float(retrained.mean()),
        "folded_in": float(found.mean()),
        "popular": float(popular.mean()),
        "relative": float(difference.mean() / retrained.mean()),
        "standard_error": float(difference.std() / np.sqrt(len(found)) / retrained.mean()),
        "training_seconds": training,
        "fold_in_seconds": folding,
        "epochs": whole.facts["best_epoch"],
    }


def show(rows: list[dict[str, Any]]) -> None:
    table = Table("", "seed", "retrained", "folded in", "popular", "difference", "± 1 se", "bar")
    for row in rows:
        table.add_row(
            row["method"],
            str(row["seed"]),
            *(f"{row[key]:.4f}" for key in ("retrained", "folded_in", "popular")),
            *(f"{row[key]:+.1%}" for key in ("relative", "standard_error")),
            "≥ −2 %",
        )
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir")
    parser.add_argument("--methods", default=METHOD_NAMES)
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if arguments.json and arguments.json.exists():
        rows = json.loads(arguments.json.read_text(encoding="utf-8"))
    data = datasets.load("yahoo_r3", data_dir=arguments.data_dir)
    for seed in map(int, arguments.seeds.split(",")):
        split = evaluation.split_ratings(data.logged, data.random, PROTOCOL, seed=seed)
        for name in arguments.methods.split(","):
            row = measure(name, split, seed)
            show([row])
            rows = [r for r in rows if (r["method"], r["seed"]) != (name, seed)] + [row]
            rows.sort(key=lambda r: (list(METHODS).index(r["method"]), r["seed"]))
            if arguments.json:
                arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    show(rows)


if __name__ == "__main__":
    main()
