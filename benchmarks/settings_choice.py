"""Two choices of settings: what other splits of a log, and worlds made from it, say of them.

    python benchmarks/settings_choice.py coat experiments/choice/results/tuning/choice_mf.json \\
        experiments/real/results/tuning/coat_mf.json --json experiments/choice/splits.json

Both are trained on splits of the clicks that no study has used, and judged there by every criterion
on held-out clicks. Both are also trained in worlds made from the clicks alone, where the truth
(DCG@3 of true relevance) and the criteria judge them. Judgements are not read.
"""

import argparse
import json
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from unexposed import progress as show
from unexposed.data.clicks import Clicks
from unexposed.evaluation.protocols import PROTOCOLS, by_truth
from unexposed.experiments.data import open_data
from unexposed.methods import make
from unexposed.model.model import Model
from unexposed.tuning.study import best_settings

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "lib"))
from world_of_log import Dials, fit_clicks, spread_dials, world_like

HELD_OUT = 0.1

FIRST = 1000  # split: no study gets so far
EPOCHS = {"epochs": 300, "patience": 25, "refit": False}
RESAMPLES = 2000
TRUTH = "truth"


def log_of(dataset: str) -> Clicks:
    return open_data({"dataset": dataset}, PROTOCOLS["ubo-ijcai22"]).clicks


def fitted(study: Path, train: Clicks, held_out: Clicks, seed: int) -> Model:
    method = make(json.loads(study.read_text())["method"], **(best_settings(study) | EPOCHS))
    return method.fit(train, held_out, seed=seed, progress=show.Silent())


def by_criteria(model: Model) -> dict[str, float]:
    return {name: value for name, (value, _) in model.facts["criteria"].items()}


def on_split(number: int, dataset: str, studies: list[Path]) -> list[dict[str, float]]:
    """What each criterion says of either choice on one split of the log."""
    train, held_out = log_of(dataset).hold_out(fraction=HELD_OUT, seed=number)
    return [by_criteria(fitted(study, train, held_out, number)) for study in studies]


def in_world(dials: Dials, dataset: str, studies: list[Path]) -> list[dict[str, float]]:
    """What each criterion and the truth say of either choice in one world."""
    clicks = log_of(dataset)
    world = world_like(clicks, fit_clicks(clicks, seed=0), dials)
    train, held_out = world.clicks(0).hold_out(fraction=HELD_OUT, seed=0)
    found = []
    for study in studies:
        model = fitted(study, train, held_out, 0)
        truth = by_truth(model.scores, world, train, seed=0).means()["dcg@3"]
        found.append({TRUTH: truth} | by_criteria(model))
    return found


def summary(pairs: list[list[dict[str, float]]]) -> dict[str, dict[str, Any]]:
    """The mean of either choice by each judge, and their difference with its interval."""
    found = {}
    drawn = np.random.default_rng(0).integers(len(pairs), size=(RESAMPLES, len(pairs)))
    for name in pairs[0][0]:
        first, second = (np.array([pair[at][name] for pair in pairs]) for at in (0, 1))
        found[name] = {
            "first": float(first.mean()),
            "second": float(second.mean()),
            "difference": float((second - first).mean()),
            "interval": np.quantile((second - first)[drawn].mean(1), [0.025, 0.975]).tolist(),
            "higher": int((second > first).sum()),
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dataset")
    parser.add_argument("studies", type=Path, nargs=2)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--worlds", type=int, default=16)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    clicks = log_of(asked.dataset)
    density = len(clicks) / (clicks.n_users * clicks.n_items)
    dials = spread_dials(asked.worlds, seed=0, click_rate=density)
    given = {"dataset": asked.dataset, "studies": asked.studies}
    document: dict[str, Any] = {"dataset": asked.dataset}
    with ProcessPoolExecutor(asked.workers) as pool:
        works: dict[str, tuple[Callable[..., Any], list[Any]]] = {
            "splits": (partial(on_split, **given), list(range(FIRST, FIRST + asked.splits))),
            "worlds": (partial(in_world, **given), dials),
        }
        for where, (work, each) in works.items():
            pairs = list(pool.map(work, each))
            document[where] = {"n": len(pairs), "judges": summary(pairs), "pairs": pairs}
            for name, of in document[where]["judges"].items():
                low, high = of["interval"]
                print(
                    f"{len(pairs)} {where}, {name:13} {of['first']:.4f} and {of['second']:.4f}: "
                    f"{of['difference']:+.4f} [{low:+.4f}, {high:+.4f}], "
                    f"higher in {of['higher']}",
                    flush=True,
                )
    document["dials"] = [asdict(each) for each in dials]
    if asked.json:
        asked.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
