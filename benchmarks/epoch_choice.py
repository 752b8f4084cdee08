"""Which criterion on held-out clicks picks the epoch best, in worlds like a data set's log.

    python benchmarks/epoch_choice.py yahoo_r3 experiments/real/results/tuning/yahoo_r3_mf.json \\
        --json experiments/criterion/epoch_choice.json

`experiments/lib/criterion.py` asks which criterion ranks models. This follows one method, with the
settings of a study, through its epochs in worlds made from the clicks alone. Every fifth epoch each
criterion and the truth (DCG@3 of true relevance) read the model; a criterion picks by its mean over
the last two readings, as training does over ten epochs. Regret: the truth at its best less the
truth at the pick.
"""

import argparse
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from unexposed import progress as show
from unexposed.evaluation.protocols import PROTOCOLS, by_truth
from unexposed.experiments.data import open_data
from unexposed.methods import make
from unexposed.ranking.held_out import CRITERIA, DEFAULT, qualities
from unexposed.training.side import Side
from unexposed.tuning.study import best_settings

sys.path.insert(0, str(Path(__file__).parents[1] / "experiments" / "lib"))
from world_of_log import Dials, fit_clicks, spread_dials, world_like

HELD_OUT = 0.1

EVERY, READINGS = 5, 2
RESAMPLES = 2000


def followed(dataset: str, study: Path, epochs: int, dials: Dials) -> dict[str, Any]:
    """What each criterion and the truth say of a method every few epochs, in one world."""
    clicks = open_data({"dataset": dataset}, PROTOCOLS["ubo-ijcai22"], None).clicks
    world = world_like(clicks, fit_clicks(clicks, seed=0), dials)
    train, held_out = world.clicks(0).hold_out(fraction=HELD_OUT, seed=0)
    method = make(json.loads(study.read_text())["method"], **best_settings(study))
    trainee = method.trainee(train, seed=0, side=Side(), progress=show.Silent())
    said: dict[str, list[float]] = {name: [] for name in CRITERIA}
    truth = []
    for epoch in range(1, epochs + 1):
        trainee.epoch()
        if epoch % EVERY:
            continue
        learned = trainee.parameters()

        def scores(users: Any, learned: Any = learned) -> Any:
            return method.scores(learned, users, train)

        for name, (value, _) in qualities(scores, train, held_out).items():
            said[name].append(value)
        truth.append(by_truth(scores, world, train, seed=0).means()["dcg@3"])
    return {"dials": asdict(dials), "truth": truth, "said": said}


def picked(said: list[float]) -> int:
    """The reading at which the mean of the last ones is highest."""
    means = [np.mean(said[max(0, at + 1 - READINGS) : at + 1]) for at in range(len(said))]
    return int(np.argmax(means))


def summary(worlds: list[dict[str, Any]]) -> dict[str, Any]:
    """The mean regret of each criterion, and its interval less the default's, over worlds."""
    regret = {
        name: np.array([max(w["truth"]) - w["truth"][picked(w["said"][name])] for w in worlds])
        for name in CRITERIA
    }
    drawn = np.random.default_rng(0).integers(len(worlds), size=(RESAMPLES, len(worlds)))
    found = {}
    for name, values in regret.items():
        less = (values - regret[DEFAULT])[drawn].mean(axis=1)
        found[name] = {
            "epoch": float(np.mean([EVERY * (1 + picked(w["said"][name])) for w in worlds])),
            "regret": float(values.mean()),
            "less_default": float((values - regret[DEFAULT]).mean()),
            "interval": np.quantile(less, [0.025, 0.975]).tolist(),
        }
    best = [EVERY * (1 + int(np.argmax(w["truth"]))) for w in worlds]
    return {"criteria": found, "best_epoch": float(np.mean(best))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("dataset")
    parser.add_argument("study", type=Path)
    parser.add_argument("--worlds", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    clicks = open_data({"dataset": asked.dataset}, PROTOCOLS["ubo-ijcai22"], None).clicks
    density = len(clicks) / (clicks.n_users * clicks.n_items)
    dials = spread_dials(asked.worlds, seed=0, click_rate=density)
    with ProcessPoolExecutor(asked.workers) as pool:
        waiting = [
            pool.submit(followed, asked.dataset, asked.study, asked.epochs, each) for each in dials
        ]
        worlds = [each.result() for each in waiting]
    found = summary(worlds)
    print(f"{asked.study.stem}: the truth is best at epoch {found['best_epoch']:.0f}")
    for name, of in found["criteria"].items():
        low, high = of["interval"]
        print(
            f"{name:13} epoch {of['epoch']:4.0f}  regret {of['regret']:.4f}  "
            f"less the default's {of['less_default']:+.4f} [{low:+.4f}, {high:+.4f}]"
        )
    if asked.json:
        document = {"dataset": asked.dataset, "study": asked.study.stem, **found, "worlds": worlds}
        asked.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
