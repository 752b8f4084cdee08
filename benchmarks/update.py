"""Compare a model updated with newer clicks with one trained on all clicks: MovieLens 100K.

    python benchmarks/update.py [--data-dir DIR] [--methods mf,bpr,…] [--json FILE]

The log has no times, so it is split at random: a fifth of the clicks are kept for judging (protocol
catalogue), and a fifth of the others are newer, including all clicks of a tenth of the users. Users
and items without an older click are new. Seconds are wall-clock seconds and need idle cores.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
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
from unexposed.evaluation import protocols as evaluation
from unexposed.model.model import Model

PROTOCOL = evaluation.PROTOCOLS["catalogue"]
METHOD_NAMES = "mf,bpr,wmf,relmf,umf,expomf,ubo"
METRIC = "ndcg@10"
NEW_USERS = 0.1
NEWER = 0.2  # of the clicks, those of new users included


def parts(clicks: Clicks, seed: int) -> tuple[Clicks, Clicks, Clicks, Judgements]:
    """Split into older clicks, newer clicks, both, and judgements; ids are those that occur."""
    seen, test = clicks.hold_out(fraction=0.2, seed=seed)
    rng = np.random.default_rng(seed)
    new_user = rng.random(clicks.n_users) < NEW_USERS
    chance = (NEWER - NEW_USERS) / (1 - NEW_USERS)
    newer = new_user[seen.users] | (rng.random(len(seen)) < chance)
    judged = Judgements.from_pairs(
        test.users,
        test.items,
        np.ones(len(test)),
        user_ids=clicks.user_ids,
        item_ids=clicks.item_ids,
    )
    return occurring(seen.pick(~newer)), occurring(seen.pick(newer)), occurring(seen), judged


def occurring(clicks: Clicks) -> Clicks:
    """Drop the users and items without clicks."""
    users, user_at = np.unique(clicks.users, return_inverse=True)
    items, item_at = np.unique(clicks.items, return_inverse=True)
    return Clicks.from_pairs(
        user_at,
        item_at,
        user_ids=Ids(clicks.user_ids.values[users]),
        item_ids=Ids(clicks.item_ids.values[items]),
    )


def quality(model: Model, judged: Judgements) -> dict[str, float]:
    """The metric of each user, by raw id."""
    users = model.user_ids.index(judged.user_ids.values)[judged.users]
    items = model.item_ids.index(judged.item_ids.values)[judged.items]
    here = (users >= 0) & (items >= 0)
    own = Judgements.from_pairs(
        users[here],
        items[here],
        judged.relevant[here],
        user_ids=model.user_ids,
        item_ids=model.item_ids,
    )
    found = evaluation.evaluate(model, own, PROTOCOL)
    return dict(zip(model.user_ids.values[found.users].tolist(), found.values[METRIC], strict=True))


def timed(work: Callable[[], Model]) -> tuple[Model, float]:
    begin = time.monotonic()
    return work(), time.monotonic() - begin


def measure(name: str, clicks: Clicks, seed: int) -> dict[str, Any]:
    older, newer, both, judged = parts(clicks, seed)
    base = make(name).fit(older, seed=seed)
    updated, updating = timed(lambda: base.update(newer, seed=seed))
    retrained, training = timed(lambda: make(name).fit(both, seed=seed))
    folded, folding = timed(lambda: base.fold_in(newer))
    values = {
        "retrained": quality(retrained, judged),
        "updated": quality(updated, judged),
        "folded_in": quality(folded, judged),
    }
    everybody = sorted(values["retrained"])
    new = set(everybody) - set(older.user_ids.values.tolist())

    def mean(of: dict[Any, float], users: Any) -> float:
        return float(np.mean([of.get(user, 0.0) for user in users]))

    difference = np.array([values["updated"][u] - values["retrained"][u] for u in everybody])
    level = mean(values["retrained"], everybody)
    return {
        "method": name,
        "seed": seed,
        "clicks": {"older": len(older), "newer": len(newer)},
        "new": {
            "users": both.n_users - older.n_users,
            "items": both.n_items - older.n_items,
        },
        "users": len(everybody),
        "metric": METRIC,
        "everybody": {kind: mean(found, everybody) for kind, found in values.items()},
        "new_users": {kind: mean(found, sorted(new)) for kind, found in values.items()},
        "relative": float(difference.mean() / level),
        "standard_error": float(difference.std() / np.sqrt(len(difference)) / level),
        "seconds": {"retrained": training, "updated": updating, "folded_in": folding},
        "epochs": {
            "retrained": retrained.facts["epochs_run"],
            "updated": updated.facts["epochs_run"],
        },
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def show(rows: list[dict[str, Any]]) -> None:
    heads = ["", "retrained", "updated", "folded in", "difference", "± 1 se", "s", "times faster"]
    table = Table(*heads, title=f"{METRIC}, everybody (new users)")
    for row in rows:
        seconds = row["seconds"]
        table.add_row(
            row["method"],
            *(
                f"{row['everybody'][kind]:.4f} ({row['new_users'][kind]:.4f})"
                for kind in ("retrained", "updated", "folded_in")
            ),
            f"{row['relative']:+.1%}",
            f"{row['standard_error']:.1%}",
            f"{seconds['updated']:.1f}",
            f"{seconds['retrained'] / seconds['updated']:.1f}",
        )
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-dir")
    parser.add_argument("--methods", default=METHOD_NAMES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    logged = datasets.load("ml_100k", data_dir=arguments.data_dir).logged
    clicks = logged.clicks(threshold=PROTOCOL.threshold)
    rows = []
    for name in arguments.methods.split(","):
        rows.append(measure(name, clicks, arguments.seed))
        show(rows[-1:])
        if arguments.json:
            arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    show(rows)


if __name__ == "__main__":
    main()
