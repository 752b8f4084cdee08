"""Which criterion on held-out clicks to trust for a log, by worlds made from that log.

    python experiments/lib/criterion.py clicks.csv --worlds 8 --json study.json
    python experiments/lib/criterion.py --dataset yahoo_r3 --worlds 10

    log ─▶ worlds of known relevance ─▶ clicks ─▶ models ─▶ every criterion, and the truth

Only clicks are read, and what was shown where the log says it; judgements are not.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau, rankdata

from unexposed.cards import number, signed
from unexposed.data import datasets
from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Impressions
from unexposed.data.log import read_log
from unexposed.data.worlds.simulate import World
from unexposed.evaluation.protocols import by_truth
from unexposed.methods import make
from unexposed.model.recommender import Recommender
from unexposed.progress import Silent
from unexposed.ranking.held_out import CRITERIA, DEFAULT, passed_over, qualities
from unexposed.tuning.search import space
from world_of_log import Dials, disliked_like, fit_clicks, spread_dials, world_like

Values = NDArray[np.float64]

HELD_OUT = 0.1
STEPS = 100  # batches of an epoch, about
METHODS = ("mf", "umf", "bpr", "relmf")  # in turn, after the popular list
RESAMPLES = 2000
THRESHOLD = 4.0  # of ratings


@dataclass(frozen=True, eq=False)
class Run:
    """Models trained in one world: their true quality, and what each criterion says of them."""

    dials: Dials
    split: int
    clicks: int
    truth: Values  # (models,)
    said: Mapping[str, Values]  # criterion → (models,)
    likeness: float  # rank correlation of the models' held-out quality, here and on the log


@dataclass(frozen=True)
class Agreement:
    """How well one criterion ranks the models as the truth does: means over runs by likeness."""

    spearman: float
    spearman_sd: float
    kendall: float
    regret: float  # truth of the best model − truth of the chosen one
    wins: float  # share of resamples in which its Spearman correlation is the highest
    difference: float  # of the Spearman correlation to the default's
    interval: tuple[float, float]  # 95 % of that difference

    @property
    def differs(self) -> bool:
        """Whether the difference to the default is more than chance."""
        return self.interval[0] > 0 or self.interval[1] < 0


def study(
    clicks: Clicks,
    *,
    shown: Impressions | None = None,
    worlds: int = 8,
    splits: int = 1,
    models: int = 24,
    epochs: int = 30,
    seed: int = 0,
    workers: int = 1,
) -> dict[str, Any]:
    """Train a spread of models in worlds like the log, and see which criterion ranks them best.

    The models are trained on the log as well. A world in which held-out clicks rank them
    otherwise says little about the log: worlds count in proportion to this likeness, from 0 up.
    Where it is known what was shown (by the log itself, or `shown`), criteria that ask for it
    compete; models learn nothing from `shown`.
    """
    log = replace(clicks, shown=shown or clicks.shown)
    part = replace(log, shown=None)
    density = len(part) / (part.n_users * part.n_items)
    methods = spread(len(part), models=models, epochs=epochs)
    factors = fit_clicks(part, seed=seed)
    halves = part.hold_out(fraction=HELD_OUT, seed=seed)
    real, _ = judged(methods, *halves, workers=workers, seed=seed, shown=log.shown)
    runs = []
    for dials in spread_dials(worlds, seed=seed, click_rate=density):
        if "shown" in real:
            dials = disliked_like(log, factors, dials)
        world = world_like(part, factors, dials)
        for split in range(splits):
            drawn, lot = world.clicks(seed + split), seed + split
            halves = drawn.hold_out(fraction=HELD_OUT, seed=lot)
            seen = world.disliked(lot) if "shown" in real else None
            said, truth = judged(
                methods, *halves, workers=workers, seed=lot, shown=seen, world=world
            )
            likeness = float(np.mean([spearman(said[name], real[name]) for name in said]))
            runs.append(Run(dials, split, len(drawn), truth, said, likeness))
            print(f"world {len(runs)} of {worlds * splits}", file=sys.stderr, flush=True)
    return document(list(methods), runs, agreements(runs, seed=seed))


def spread(n_clicks: int, *, models: int, epochs: int) -> dict[str, Recommender]:
    """The popular list, and models drawn from the spaces that `tune` searches; the same each time.

    A criterion that was tried on few kinds of settings may be led astray by others: by negatives
    drawn as its candidates are, for one. Size and pace suit a log of this size and are the same
    for all.
    """
    batch_size = 2 ** int(np.clip(np.round(np.log2(n_clicks / STEPS)), 5, 10))
    small = {
        "dim": 32,
        "epochs": epochs,
        "learning_rate": 0.003,
        "batch_size": batch_size,
        "negatives": 5,
    }
    rng, made = np.random.default_rng(0), {"popularity": make("popularity")}
    for name in islice(cycle(METHODS), models - 1):
        own = {k: draw(where, rng) for k, where in space(make(name)).items() if k not in small}
        label = ":".join([name, *(f"{key}={value}" for key, value in own.items())])
        made[label] = make(name, **small, **own)
    return made


def draw(where: Any, rng: np.random.Generator) -> Any:
    """A value of a search space: one of a list, or log-uniform between two numbers."""
    if isinstance(where, list):
        return where[rng.integers(len(where))]
    low, high = np.log(where)
    return float(f"{np.exp(rng.uniform(low, high)):.3g}")


def judged(
    methods: Mapping[str, Recommender],
    train: Clicks,
    held_out: Clicks,
    *,
    workers: int,
    seed: int,
    shown: Impressions | None = None,
    world: World | None = None,
) -> tuple[dict[str, Values], Values]:
    """What each criterion says of each model trained on these clicks; in a world also the truth."""
    nothing = held_out.pick(np.zeros(len(held_out), dtype=bool))
    others = passed_over(shown, train, held_out)

    def one(method: Recommender) -> tuple[dict[str, list[float]], float]:
        model = method.fit(train, nothing, seed=seed, progress=Silent())
        truth = np.nan
        if world is not None:
            truth = by_truth(model.scores, world, train, seed=seed).means()["dcg@3"]
        return qualities(model.scores, train, held_out, others), truth

    with ThreadPoolExecutor(workers) as pool:  # the compiled loops run side by side
        every = list((pool.map if workers > 1 else map)(one, methods.values()))
    said = {name: np.array([by[name][0] for by, _ in every]) for name in every[0][0]}
    return said, np.array([truth for _, truth in every])


def spearman(one: Values, other: Values) -> Values:
    """Spearman's rank correlation along the last axis; 0 where either side is constant."""
    a, b = (rankdata(values, axis=-1) for values in (one, other))
    a, b = (ranks - ranks.mean(axis=-1, keepdims=True) for ranks in (a, b))
    spread = np.sqrt((a**2).sum(axis=-1) * (b**2).sum(axis=-1))
    return np.divide((a * b).sum(axis=-1), spread, out=np.zeros(spread.shape), where=spread > 0)


def agreements(runs: list[Run], *, seed: int) -> dict[str, Agreement]:
    """Compare the criteria over runs, which hold the same models.

    Chance is seen by resampling both runs and models: a new log would come from another world,
    and a user would try other settings. With one run, models alone are resampled.
    """
    weight = np.maximum([run.likeness for run in runs], 0)
    weight = weight / weight.sum() if weight.any() else np.full(len(runs), 1 / len(runs))
    truth = np.stack([run.truth for run in runs])  # (runs, models)
    said = {name: np.stack([run.said[name] for run in runs]) for name in runs[0].said}
    resampled = resamples(truth, np.stack(list(said.values())), weight, seed=seed)
    best = resampled == resampled.max(axis=0)
    wins = (best / best.sum(axis=0)).mean(axis=1)  # equals share a win
    at = list(said).index(DEFAULT)
    usual = float(weight @ spearman(said[DEFAULT], truth))
    found = {}
    for place, (name, values) in enumerate(said.items()):
        by_run = spearman(values, truth)
        chosen = np.take_along_axis(truth, values.argmax(axis=1)[:, None], axis=1)[:, 0]
        mean = float(weight @ by_run)
        kendall = np.nan_to_num([kendalltau(*p).statistic for p in zip(values, truth, strict=True)])
        low, high = np.quantile(resampled[place] - resampled[at], [0.025, 0.975])
        found[name] = Agreement(
            spearman=mean,
            spearman_sd=float(np.sqrt(weight @ (by_run - mean) ** 2)),
            kendall=float(weight @ kendall),
            regret=float(weight @ (truth.max(axis=1) - chosen)),
            wins=float(wins[place]),
            difference=mean - usual,
            interval=(float(low), float(high)),
        )
    return found


def resamples(truth: Values, said: Values, weight: Values, *, seed: int) -> Values:
    """The mean correlation of each criterion in each resample: (criteria, resamples)."""
    rng = np.random.default_rng(seed)
    n_runs, n_models = truth.shape
    found = np.empty((len(said), RESAMPLES))
    for sample in range(RESAMPLES):
        runs = rng.choice(np.arange(n_runs), size=n_runs, p=weight)
        here = np.ix_(runs, rng.integers(n_models, size=n_models))
        found[:, sample] = spearman(said[:, *here], truth[here]).mean(axis=1)
    return found


def document(models: list[str], runs: list[Run], by: Mapping[str, Agreement]) -> dict[str, Any]:
    """The study as plain data; it advises the best of those above the default by more than chance,
    or the default where there is none."""
    above = {name: one.spearman for name, one in by.items() if one.interval[0] > 0}
    return {
        "best": max(by, key=lambda name: by[name].spearman),
        "default": DEFAULT,
        "advised": max(above, key=lambda name: above[name]) if above else DEFAULT,
        "criteria": {
            name: {"about": CRITERIA[name].about, **asdict(one), "differs": one.differs}
            for name, one in by.items()
        },
        "models": models,
        "worlds": [
            asdict(run)
            | {"truth": run.truth.tolist(), "said": {n: v.tolist() for n, v in run.said.items()}}
            for run in runs
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("log", nargs="?", help="a log of clicks")
    parser.add_argument("--dataset", help="the clicks of a data set, in place of a log")
    parser.add_argument("--worlds", type=int, default=8)
    parser.add_argument("--splits", type=int, default=1, help="logs drawn from each world")
    parser.add_argument("--models", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--workers", type=int, default=1, help="models trained at a time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="where to write the study")
    asked = vars(parser.parse_args())
    log, name, out = (asked.pop(key) for key in ("log", "dataset", "json"))
    if (log is None) == (name is None):
        parser.error("give either a log or --dataset")
    if name is None:
        found = study(read_log(log), **asked)
    else:
        logged = datasets.load(name).logged
        disliked = logged.disliked(threshold=THRESHOLD)
        found = study(logged.clicks(threshold=THRESHOLD), shown=disliked, **asked)
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for criterion, one in found["criteria"].items():
        low, high = one["interval"]
        print(
            f"{criterion:13} Spearman {number(one['spearman'])}, comes first {one['wins']:.0%}, "
            f"to the default {signed(one['difference'])} [{number(low)}, {number(high)}]"
            + ("  advised" if criterion == found["advised"] else "")
        )


if __name__ == "__main__":
    main()
