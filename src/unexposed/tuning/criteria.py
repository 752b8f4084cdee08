"""Which criterion on held-out clicks to trust for a log, by worlds made from that log.

    log ─▶ worlds of known relevance ─▶ clicks ─▶ models ─▶ every criterion, and the truth

Only clicks are read: judgements are refused.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed import progress as show
from unexposed.data.clicks import Clicks
from unexposed.data.shown import Impressions
from unexposed.data.simulate import World
from unexposed.data.world_of_log import (
    Dials,
    disliked_like,
    fit_clicks,
    sample,
    spread_dials,
    world_like,
)
from unexposed.errors import InputError
from unexposed.evaluation.agreement import Agreement, Run, agreements, spearman
from unexposed.evaluation.truth import by_truth
from unexposed.methods import make
from unexposed.model.recommender import Recommender
from unexposed.ranking.held_out import CRITERIA, DEFAULT, passed_over, qualities
from unexposed.tuning.search import space

HELD_OUT = 0.1
STEPS = 100  # batches of an epoch, about

METHODS = ("mf", "umf", "bpr", "relmf")  # in turn, after the popular list
MOST = 60  # models
SHOWN = "shown"  # the criterion that needs impressions


@dataclass(frozen=True, eq=False)
class WorldRun:
    """One world and split of a study."""

    dials: Dials
    split: int
    n_clicks: int
    run: Run
    likeness: float  # rank correlation of the models' held-out quality, here and on the log


@dataclass(frozen=True, eq=False)
class Study:
    """Criteria beside the truth, over worlds like one log."""

    labels: list[str]  # of the models
    runs: list[WorldRun]
    agreements: dict[str, Agreement]
    interrupted: bool = False

    @property
    def best(self) -> str:
        """The criterion with the highest mean rank correlation."""
        return max(self.agreements, key=lambda name: self.agreements[name].spearman)

    @property
    def advised(self) -> str:
        """The best of those above the default by more than chance; the default if there is none."""
        above = {n: a.spearman for n, a in self.agreements.items() if a.interval[0] > 0}
        return max(above, key=lambda name: above[name]) if above else DEFAULT

    def document(self) -> dict[str, Any]:
        """Turn the study into plain data, for JSON."""
        return {
            "best": self.best,
            "default": DEFAULT,
            "advised": self.advised,
            "criteria": {
                name: {"about": CRITERIA[name].about, **asdict(found), "differs": found.differs}
                for name, found in self.agreements.items()
            },
            "models": self.labels,
            "worlds": [
                {
                    "dials": asdict(run.dials),
                    "split": run.split,
                    "clicks": run.n_clicks,
                    "likeness": run.likeness,
                    "truth": run.run.truth.tolist(),
                    "said": {name: values.tolist() for name, values in run.run.said.items()},
                }
                for run in self.runs
            ],
        }


def study(
    clicks: Clicks,
    *,
    shown: Impressions | None = None,
    worlds: int = 6,
    splits: int = 1,
    models: int = 24,
    epochs: int = 30,
    seed: int = 0,
    workers: int = 1,
    progress: show.Progress | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Study:
    """Train a spread of models in worlds like the log, and see which criterion ranks them best.

    The models are trained on the log as well. A world in which held-out clicks rank them
    otherwise says little about the log: worlds count in proportion to this likeness, from 0 up.
    Where it is known what was shown (by the log itself, or `shown`), criteria that ask for it
    compete; models learn nothing from `shown`. Ctrl-C keeps the worlds that are done.
    """
    if not isinstance(clicks, Clicks):
        raise InputError(f"a criterion is chosen on Clicks, got {type(clicks).__name__}")
    if not 3 <= models <= MOST:
        raise InputError(f"models must be between 3 and {MOST}, got {models}")
    for what, number in (
        ("worlds", worlds),
        ("splits", splits),
        ("epochs", epochs),
        ("workers", workers),
    ):
        if number < 1:
            raise InputError(f"{what} must be at least 1, got {number}")
    if len(clicks) * HELD_OUT < 10:
        raise InputError(f"a criterion needs at least 100 clicks, got {len(clicks)}")
    shown = shown or clicks.shown
    log = sample(replace(clicks, shown=shown), seed=seed)
    part = replace(log, shown=None)  # as in a world, models are told of clicks alone
    if part.n_users < clicks.n_users or part.n_items < clicks.n_items:
        say(f"the log is large: {part.n_users:,} users and {part.n_items:,} items stand for it")
    density = len(part) / (part.n_users * part.n_items)
    methods = spread(len(part), models=models, epochs=epochs)
    runs: list[WorldRun] = []
    interrupted = False
    with progress or show.Silent() as told:
        count = _Count(told, total=models * (1 + worlds * splits), workers=workers)
        told.note("fitting a factor model of the clicks")
        fitted = fit_clicks(part, seed=seed)
        parts = part.hold_out(fraction=HELD_OUT, seed=seed)
        real = _said(methods, *parts, count, seed=seed, shown=log.shown)[0]
        try:
            for dials in spread_dials(worlds, seed=seed, click_rate=density):
                if SHOWN in real:
                    dials = disliked_like(log, fitted, dials)
                world = world_like(part, fitted, dials)
                for split in range(splits):
                    runs.append(_run(world, dials, methods, real, count, split=split, seed=seed))
        except KeyboardInterrupt:
            if not runs:
                raise
            say(f"interrupted: the table holds the {len(runs)} worlds finished before")
            interrupted = True
    found = agreements([run.run for run in runs], default=DEFAULT, seed=seed)
    return Study(list(methods), runs, found, interrupted)


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
    rng, found = np.random.default_rng(0), {"popularity": make("popularity")}
    for name in islice(cycle(METHODS), models - 1):
        own = {k: _drawn(where, rng) for k, where in space(make(name)).items() if k not in small}
        label = ":".join([name, *(f"{key}={value}" for key, value in own.items())])
        found[label] = make(name, **small, **own)
    return found


def _drawn(where: Any, rng: np.random.Generator) -> Any:
    """A value of a search space: one of a list, or log-uniform between two numbers."""
    if isinstance(where, list):
        return where[rng.integers(len(where))]
    low, high = np.log(where)
    return float(f"{np.exp(rng.uniform(low, high)):.3g}")


def _run(
    world: World,
    dials: Dials,
    methods: dict[str, Recommender],
    real: dict[str, NDArray[np.float64]],
    count: "_Count",
    *,
    split: int,
    seed: int,
) -> WorldRun:
    log = world.clicks(seed + split)
    train, held_out = log.hold_out(fraction=HELD_OUT, seed=seed + split)
    shown = world.disliked(seed + split) if SHOWN in real else None
    given: dict[str, Any] = {"seed": seed + split, "world": world, "shown": shown}
    said, truth = _said(methods, train, held_out, count, **given)
    likeness = np.mean([spearman(said[name], real[name]) for name in said])
    run = Run(truth, said, weight=float(likeness))
    return WorldRun(dials, split, len(log), run, float(likeness))


def _said(
    methods: dict[str, Recommender],
    train: Clicks,
    held_out: Clicks,
    count: "_Count",
    *,
    seed: int,
    world: World | None = None,
    shown: Impressions | None = None,
) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.float64]]:
    """What each criterion says of each model trained on these clicks; in a world also the truth."""
    nothing = held_out.pick(np.zeros(len(held_out), dtype=bool))
    others = passed_over(shown, train, held_out)

    def rated(method: Recommender) -> tuple[dict[str, list[float]], float]:
        model = method.fit(train, nothing, seed=seed, progress=show.Silent())
        found, truth = qualities(model.scores, train, held_out, others), np.nan
        if world is not None:
            truth = by_truth(model.scores, world, train, seed=seed).means()["dcg@3"]
        count()
        return found, truth

    with ThreadPoolExecutor(count.workers) as pool:  # the compiled loops run side by side
        each = list((pool.map if count.workers > 1 else map)(rated, methods.values()))
    said = {name: np.array([found[name][0] for found, _ in each]) for name in each[0][0]}
    return said, np.array([truth for _, truth in each])


class _Count:
    """Tell how many models are trained, and how many at a time."""

    def __init__(self, told: show.Progress, *, total: int, workers: int) -> None:
        self._told, self._total, self._done, self.workers = told, total, 0, workers

    def __call__(self) -> None:
        self._done += 1
        self._told.count("models", self._done, self._total)
