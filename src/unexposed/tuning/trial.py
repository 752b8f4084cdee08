"""One trial of a study: train its settings, and judge them by held-out clicks."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from unexposed import progress as show
from unexposed import settings as checks
from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Impressions
from unexposed.data.split import split as parted
from unexposed.errors import InputError
from unexposed.extras import optional
from unexposed.model.model import Model
from unexposed.model.recommender import Recommender
from unexposed.ranking.by_traffic import ByTraffic
from unexposed.ranking.held_out import (
    DEFAULT,
    criterion,
    passed_over,
    qualities,
    quality_of_users,
)
from unexposed.training.side import Side

TRAFFIC = "traffic"  # in place of a criterion on held-out clicks
REPORTS = 5  # epochs between two reports to the pruner


def parts(task: dict[str, Any], clicks: Clicks, number: int) -> tuple[Clicks, Clicks]:
    """The clicks to train on and the clicks held out in this split."""
    if task["split"] is None:
        return clicks.hold_out(fraction=task["held_out"], seed=number)
    return parted(clicks, task["split"], seed=number)


def worth(trial: Any, task: dict[str, Any], clicks: Clicks) -> float:
    """Train one trial's settings and average their held-out quality over splits."""
    method = replace(
        task["method"], **{k: _suggest(trial, k, where) for k, where in task["searched"].items()}
    )
    if "refit" in checks.known(type(method)):
        method = replace(method, refit=False)  # the second training would not be judged
    total, epochs = 0.0, []
    said: dict[str, list[list[float]]] = {}
    for number in range(task["splits"]):
        train, held_out = parts(task, clicks, number)
        watch = _Pruning(trial) if number == 0 else show.Silent()
        try:
            model, found = judged(
                method,
                train,
                held_out,
                seed=number,
                progress=watch,
                side=task["side"],
                by=task["by"],
            )
        except InputError as error:  # training fails with these settings
            trial.set_user_attr("refused", str(error))
            raise load_optuna().TrialPruned from error
        total += found
        epochs.append(model.facts.get("best_epoch"))
        by_all = model.facts.get("criteria") or qualities(
            model.scores, train, held_out, others(task["side"], train, held_out)
        )
        for name, value in by_all.items():
            said.setdefault(name, []).append(value)
    trial.set_user_attr("criteria", {k: np.mean(v, axis=0).tolist() for k, v in said.items()})
    if has_epochs(method):
        trial.set_user_attr("best_epochs", epochs)
    return total / task["splits"]


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

    A method with epochs reports the quality by which it chose its epoch. Any other method trains
    once without the held-out clicks, which then judge its ranking by the criterion `by`.
    """
    if has_epochs(method):
        given = None if side is None else usable(side, method)
        model = method.fit(train, held_out, seed=seed, side=given, progress=progress)
        return model, chosen_quality(model)
    nothing = held_out.pick(np.zeros(len(held_out), dtype=bool))
    given = None if side is None else usable(side, method)
    model = method.fit(train, nothing, seed=seed, side=given, progress=progress)
    if by == TRAFFIC:
        assert side is not None
        assert side.traffic is not None
        k = criterion(DEFAULT).k
        return model, ByTraffic.of(side.traffic, train.union(held_out), k=k)(model.scores)
    among = others(side or Side(), train, held_out)
    values = quality_of_users(model.scores, train, held_out, criterion(by), among)
    return model, float(values.mean())


def chosen_quality(model: Model) -> float:
    """Mean quality over the window of epochs that ends with the best one, which it chose."""
    return float(model.facts["best_value"])


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
