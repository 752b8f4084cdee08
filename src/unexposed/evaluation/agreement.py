"""How well an estimate of quality ranks models as the truth does, and how sure that is."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import kendalltau, rankdata

Values = NDArray[np.float64]
Rated = dict[str, list[float]]  # criterion → value, standard error
RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class Run:
    """Models of one world and split: their true quality, and what each estimate says of them."""

    truth: Values  # (models,)
    said: Mapping[str, Values]  # estimate → (models,)
    weight: float = 1.0  # how much the run counts


@dataclass(frozen=True)
class Agreement:
    """One estimate over all runs."""

    spearman: float  # mean over runs, by their weights; so are the figures below
    spearman_sd: float
    kendall: float
    regret: float  # truth of the best model − truth of the chosen one, mean over runs
    wins: float  # share of resamples in which its Spearman correlation is the highest
    difference: float  # of the Spearman correlation to the default's
    interval: tuple[float, float]  # 95 % of that difference

    @property
    def differs(self) -> bool:
        """Whether the difference to the default is more than chance."""
        return self.interval[0] > 0 or self.interval[1] < 0


def spearman(one: Values, other: Values) -> Values:
    """Spearman's rank correlation along the last axis; 0 where either side is constant."""
    a, b = (rankdata(values, axis=-1) for values in (one, other))
    a, b = (ranks - ranks.mean(axis=-1, keepdims=True) for ranks in (a, b))
    spread = np.sqrt((a**2).sum(axis=-1) * (b**2).sum(axis=-1))
    return np.divide((a * b).sum(axis=-1), spread, out=np.zeros(spread.shape), where=spread > 0)


def agreements(runs: list[Run], *, default: str, seed: int) -> dict[str, Agreement]:
    """Compare the estimates over runs, which must hold the same models.

    Chance is seen by resampling both runs and models: a new log would come from another world,
    and a user would try other settings. With one run, models alone are resampled.
    """
    weight = np.maximum([run.weight for run in runs], 0)
    weight = weight / weight.sum() if weight.any() else np.full(len(runs), 1 / len(runs))
    truth = np.stack([run.truth for run in runs])  # (runs, models)
    said = {name: np.stack([run.said[name] for run in runs]) for name in runs[0].said}
    resampled = _resampled(truth, said, weight, seed=seed)  # (estimates, resamples)
    best = resampled == resampled.max(axis=0)
    wins = (best / best.sum(axis=0)).mean(axis=1)  # equals share a win
    at = list(said).index(default)
    found = {}
    for place, (name, values) in enumerate(said.items()):
        by_run = spearman(values, truth)
        chosen = np.take_along_axis(truth, values.argmax(axis=1)[:, None], axis=1)[:, 0]
        mean = float(weight @ by_run)
        kendall = [_kendall(*pair) for pair in zip(values, truth, strict=True)]
        low, high = np.quantile(resampled[place] - resampled[at], [0.025, 0.975])
        found[name] = Agreement(
            spearman=mean,
            spearman_sd=float(np.sqrt(weight @ (by_run - mean) ** 2)),
            kendall=float(weight @ kendall),
            regret=float(weight @ (truth.max(axis=1) - chosen)),
            wins=float(wins[place]),
            difference=mean - float(weight @ spearman(said[default], truth)),
            interval=(float(low), float(high)),
        )
    return found


def dissent(rated: Mapping[str, Rated], chosen: str) -> dict[str, str]:
    """What each criterion prefers to the chosen one, where that is more than chance may do.

    A criterion dissents if its favourite is better by more than the standard error of the chosen.
    """
    found = {}
    for criterion, (value, error) in rated[chosen].items():
        favourite = max(rated, key=lambda name: rated[name][criterion][0])
        if rated[favourite][criterion][0] > value + error:
            found[criterion] = favourite
    return found


def _resampled(truth: Values, said: Mapping[str, Values], weight: Values, *, seed: int) -> Values:
    """The mean correlation of each estimate in each resample."""
    rng = np.random.default_rng(seed)
    n_runs, n_models = truth.shape
    found = np.empty((len(said), RESAMPLES))
    for sample in range(RESAMPLES):
        runs = rng.choice(np.arange(n_runs), size=n_runs, p=weight)
        models = rng.integers(n_models, size=n_models)
        here = np.ix_(runs, models)
        values = np.stack([every[here] for every in said.values()])
        found[:, sample] = spearman(values, truth[here]).mean(axis=1)
    return found


def _kendall(one: Values, other: Values) -> float:
    found = float(kendalltau(one, other).statistic)
    return 0.0 if np.isnan(found) else found
