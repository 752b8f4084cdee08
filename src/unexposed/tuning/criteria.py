"""Which criterion on held-out clicks to trust for a log, by worlds made from that log.

    log ─▶ worlds of known relevance ─▶ clicks ─▶ models ─▶ every criterion, and the truth

Only clicks are read: judgements are refused.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed import progress as show
from unexposed.data.clicks import Clicks
from unexposed.data.simulate import World
from unexposed.data.world_of_log import Dials, fit_clicks, sample, spread_dials, world_like
from unexposed.errors import InputError
from unexposed.evaluation.agreement import Agreement, Run, agreements, spearman
from unexposed.evaluation.truth import by_truth
from unexposed.methods import make
from unexposed.model.recommender import Recommender
from unexposed.ranking.held_out import CRITERIA, DEFAULT, qualities
from unexposed.settings import known

HELD_OUT = 0.1
STEPS = 100  # batches of an epoch, about

# A spread of models, from gentle to strong correction and decay; any beginning of it is one too.
SPREAD: tuple[tuple[str, dict[str, Any]], ...] = (
    ("popularity", {}),
    ("mf", {"weight_decay": 0.01}),
    ("umf", {"popularity_exponent": 0.25, "weight_decay": 0.01}),
    ("umf", {"popularity_exponent": 0.5, "weight_decay": 0.03}),
    ("bpr", {"weight_decay": 0.01}),
    ("relmf", {"popularity_exponent": 0.1, "weight_decay": 0.01}),
    ("umf", {"popularity_exponent": 0.1, "weight_decay": 0.003}),
    ("mf", {"weight_decay": 0.03}),
    ("umf", {"popularity_exponent": 0.5, "weight_decay": 0.01}),
    ("umf", {"popularity_exponent": 1.0, "weight_decay": 0.03}),
    ("relmf", {"popularity_exponent": 0.5, "weight_decay": 0.03}),
    ("bpr", {"weight_decay": 0.03}),
    ("umf", {"popularity_exponent": 0.25, "weight_decay": 0.03}),
    ("mf", {"weight_decay": 0.003}),
    ("umf", {"popularity_exponent": 0.1, "weight_decay": 0.03}),
    ("umf", {"popularity_exponent": 0.75, "weight_decay": 0.01}),
    ("relmf", {"popularity_exponent": 0.25, "weight_decay": 0.01}),
    ("umf", {"popularity_exponent": 0.25, "weight_decay": 0.003}),
    ("mf", {"weight_decay": 0.1}),
    ("umf", {"popularity_exponent": 0.5, "weight_decay": 0.003}),
    ("bpr", {"weight_decay": 0.003}),
    ("umf", {"popularity_exponent": 0.1, "weight_decay": 0.1}),
    ("relmf", {"popularity_exponent": 0.1, "weight_decay": 0.03}),
    ("umf", {"popularity_exponent": 0.5, "weight_decay": 0.1}),
)


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
    worlds: int = 6,
    splits: int = 1,
    models: int = 16,
    epochs: int = 30,
    seed: int = 0,
    progress: show.Progress | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Study:
    """Train a spread of models in worlds like the log, and see which criterion ranks them best.

    The models are trained on the log as well. A world in which held-out clicks rank them
    otherwise says little about the log: worlds count in proportion to this likeness, from 0 up.
    Ctrl-C keeps the worlds that are done.
    """
    if not isinstance(clicks, Clicks):
        raise InputError(f"a criterion is chosen on Clicks, got {type(clicks).__name__}")
    if not 3 <= models <= len(SPREAD):
        raise InputError(f"models must be between 3 and {len(SPREAD)}, got {models}")
    for what, number in (("worlds", worlds), ("splits", splits), ("epochs", epochs)):
        if number < 1:
            raise InputError(f"{what} must be at least 1, got {number}")
    if len(clicks) * HELD_OUT < 10:
        raise InputError(f"a criterion needs at least 100 clicks, got {len(clicks)}")
    part = sample(clicks, seed=seed)
    if part is not clicks:
        say(f"the log is large: {part.n_users:,} users and {part.n_items:,} items stand for it")
    density = len(part) / (part.n_users * part.n_items)
    methods = spread(len(part), models=models, epochs=epochs)
    runs: list[WorldRun] = []
    interrupted = False
    with progress or show.Silent() as told:
        count = _Count(told, total=models * (1 + worlds * splits))
        told.note("fitting a factor model of the clicks")
        fitted = fit_clicks(part, seed=seed)
        real = _said(methods, *part.hold_out(fraction=HELD_OUT, seed=seed), count, seed=seed)[0]
        try:
            for dials in spread_dials(worlds, seed=seed, click_rate=density):
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
    """The first models of `SPREAD`, small and quickly trained, for a log of this size."""
    batch_size = 2 ** int(np.clip(np.round(np.log2(n_clicks / STEPS)), 5, 10))
    small = {
        "dim": 32,
        "epochs": epochs,
        "learning_rate": 0.003,
        "batch_size": batch_size,
        "negatives": 5,
    }
    found = {}
    for name, own in SPREAD[:models]:
        method = make(name)
        kept = {key: value for key, value in small.items() if key in known(type(method))}
        label = ":".join([name, *(f"{key}={value}" for key, value in own.items())])
        found[label] = make(name, **kept, **own)
    return found


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
    said, truth = _said(methods, train, held_out, count, seed=seed + split, world=world)
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
) -> tuple[dict[str, NDArray[np.float64]], NDArray[np.float64]]:
    """What each criterion says of each model trained on these clicks; in a world also the truth."""
    nothing = held_out.pick(np.zeros(len(held_out), dtype=bool))
    said: dict[str, list[float]] = {name: [] for name in CRITERIA}
    truth = []
    for method in methods.values():
        model = method.fit(train, nothing, seed=seed, progress=show.Silent())
        if model.facts.get("ended") == "interrupted":
            raise KeyboardInterrupt
        for name, (value, _) in qualities(model.scores, train, held_out).items():
            said[name].append(value)
        if world is not None:
            truth.append(by_truth(model.scores, world, train, seed=seed).means()["dcg@3"])
        count()
    return {name: np.array(values) for name, values in said.items()}, np.array(truth)


class _Count:
    """Tell how many models are trained."""

    def __init__(self, told: show.Progress, *, total: int) -> None:
        self._told, self._total, self._done = told, total, 0

    def __call__(self) -> None:
        self._done += 1
        self._told.count("models", self._done, self._total)
