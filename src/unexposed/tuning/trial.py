"""One trial of a study: train its settings, and judge them by held-out clicks."""

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unexposed import progress as show
from unexposed import settings as checks
from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Impressions
from unexposed.data.split import split as named_split
from unexposed.errors import InputError
from unexposed.late import optional
from unexposed.model.model import Model
from unexposed.model.recommender import Recommender
from unexposed.ranking.held_out import (
    DEFAULT,
    ByTraffic,
    criterion,
    passed_over,
    qualities,
    quality_of_users,
)
from unexposed.training.side import Side

TRAFFIC = "traffic"  # in place of a criterion on held-out clicks
REPORTS = 5  # epochs between two reports to the pruner


@dataclass(frozen=True, eq=False)
class Task:
    """What the trials of a study have in common."""

    journal: Path
    method: Recommender
    searched: dict[str, Any]  # setting → (low, high), or a list of choices
    splits: int
    held_out: float  # share of the clicks
    split: str | None  # a rule in place of that share
    seed: int
    side: Side
    reported: tuple[str, ...]  # settings that are told beside those searched
    by: str  # a criterion for methods without epochs, or traffic


def parts(task: Task, clicks: Clicks, number: int) -> tuple[Clicks, Clicks]:
    """The clicks to train on and the clicks held out in this split."""
    if task.split is None:
        return clicks.hold_out(fraction=task.held_out, seed=number)
    return named_split(clicks, task.split, seed=number)


def worth(trial: Any, task: Task, clicks: Clicks) -> float:
    """Train one trial's settings and average their held-out quality over splits."""
    drawn = {name: _suggest(trial, name, where) for name, where in task.searched.items()}
    if "refit" in checks.known(type(task.method)):
        drawn["refit"] = False  # the second training would not be judged
    method = replace(task.method, **drawn)
    values, epochs, rated = [], [], list[dict[str, list[float]]]()
    for number in range(task.splits):
        train, held_out = parts(task, clicks, number)
        watch = _Pruning(trial) if number == 0 else show.Silent()
        given: dict[str, Any] = {"seed": number, "progress": watch, "side": task.side}
        try:
            model, value = judged(method, train, held_out, by=task.by, **given)
        except InputError as error:  # training fails with these settings
            trial.set_user_attr("refused", str(error))
            raise load_optuna().TrialPruned from error
        values.append(value)
        epochs.append(model.facts.get("best_epoch"))
        rated.append(
            model.facts.get("criteria")
            or qualities(model.scores, train, held_out, others(task.side, train, held_out))
        )
    means = {name: np.mean([one[name] for one in rated], axis=0).tolist() for name in rated[0]}
    trial.set_user_attr("criteria", means)
    if has_epochs(method):
        trial.set_user_attr("best_epochs", epochs)
    return sum(values) / len(values)


def judged(
    method: Recommender,
    train: Clicks,
    held_out: Clicks,
    *,
    seed: int,
    progress: show.Progress,
    side: Side | None = None,
    by: str = DEFAULT,
) -> tuple[Model, float]:
    """Train a model and judge it by its held-out clicks.

    A method with epochs has the quality by which it chose its epoch: the mean over the window of
    epochs that ends with the best. Any other method trains once without the held-out clicks, which
    then judge its ranking by the criterion `by`.
    """
    side = side or Side()
    usual = usable(side, method)
    if has_epochs(method):
        model = method.fit(train, held_out, seed=seed, side=usual, progress=progress)
        return model, float(model.facts["best_value"])
    nothing = held_out.pick(np.zeros(len(held_out), dtype=bool))
    model = method.fit(train, nothing, seed=seed, side=usual, progress=progress)
    if by == TRAFFIC:
        assert side.traffic is not None
        k = criterion(DEFAULT).k
        return model, ByTraffic.of(side.traffic, train.union(held_out), k=k)(model.scores)
    among = others(side, train, held_out)
    values = quality_of_users(model.scores, train, held_out, criterion(by), among)
    return model, float(values.mean())


class _Pruning(show.Silent):
    """Report epochs to the pruner, and end a trial that is behind the others."""

    def __init__(self, trial: Any) -> None:
        self._trial = trial

    def __call__(self, tick: show.Tick) -> None:
        if tick.value is None or tick.epoch % REPORTS:
            return
        self._trial.report(tick.value, tick.epoch)
        if self._trial.should_prune():
            raise load_optuna().TrialPruned


def _suggest(trial: Any, name: str, where: Any) -> Any:
    if isinstance(where, list):
        return trial.suggest_categorical(name, where)
    return trial.suggest_float(name, *where, log=True)


def has_epochs(method: Recommender) -> bool:
    return "epochs" in checks.known(type(method))


def usable(side: Side, method: Recommender) -> Side:
    """The inputs without those that judge and that the method cannot use."""
    return side.only(method.accepts | (side.given() - {"traffic", "passed_over"}))


def others(side: Side, train: Clicks, held_out: Clicks) -> Impressions | None:
    """What held-out clicks are ranked among by the criterion `shown`, where that is known."""
    return passed_over(side.passed_over or side.impressions or train.shown, train, held_out)


def load_optuna() -> Any:
    with warnings.catch_warnings():
        # in a notebook its import asks for widgets, which we do not use
        warnings.filterwarnings("ignore", message="IProgress not found")
        optuna = optional("optuna", extra="tune")
    # a trial that fails raises; a warning would print the traceback as well, also of Ctrl-C
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna
