"""A study of Optuna: what it is of, how it goes on after a stop, and the document it leaves."""

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from unexposed import settings as checks
from unexposed.data.clicks import Clicks
from unexposed.errors import InputError
from unexposed.ranking import held_out
from unexposed.training.fingerprint import log_fingerprint, side_fingerprint
from unexposed.tuning.trial import TRAFFIC, Task, has_epochs, load_optuna, parts, usable

STARTUP = 10  # trials drawn at random before Optuna's estimator takes over


def opened(task: Task, *, worker: int) -> Any:
    """The study in the task's journal, which Optuna locks while a process writes to it."""
    optuna = load_optuna()
    backend = optuna.storages.journal.JournalFileBackend(str(task.journal))
    pruner = optuna.pruners.NopPruner()
    if has_epochs(task.method):
        warm_up = checks.values(task.method)["epochs"] // 2  # slow settings may end higher
        pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=warm_up)
    return optuna.create_study(
        study_name="study",
        storage=optuna.storages.JournalStorage(backend),
        sampler=optuna.samplers.TPESampler(
            seed=(1000 * task.seed + worker) % 2**32, n_startup_trials=STARTUP
        ),
        pruner=pruner,
        direction="maximize",
        load_if_exists=True,
    )


def identity(task: Task, clicks: Clicks) -> dict[str, Any]:
    """What a study is of: it resumes only from a journal that says the same."""
    method = task.method
    about = {
        "method": method.name,
        "held": {k: v for k, v in checks.values(method).items() if k not in task.searched},
        "searched": {k: list(v) for k, v in task.searched.items()},
        "splits": task.splits,
        "clicks": log_fingerprint(clicks),
    }
    if not has_epochs(method):
        about["by"] = task.by
    if task.split is not None:
        about["split"] = [task.split, log_fingerprint(parts(task, clicks, 0)[1])["the log"]]
    by_shown = (
        not has_epochs(method)
        and task.by != TRAFFIC
        and held_out.criterion(task.by).among == "shown"
    )
    side = task.side if by_shown or task.by == TRAFFIC else usable(task.side, method)
    uses_shown = by_shown or method.accepts & {"impressions", "passed_over"}
    if uses_shown and side.impressions is None and clicks.shown is not None:
        side = replace(side, impressions=clicks.shown)
    if side.given():
        about["given"] = side_fingerprint(side)
    as_read: dict[str, Any] = json.loads(json.dumps(about))
    return as_read


def begin(task: Task, about: dict[str, Any], start: Mapping[str, Any]) -> None:
    """Begin or resume a study, and refuse one of other clicks or settings."""
    if task.journal.exists() and not (text := task.journal.read_bytes()).endswith(b"\n"):
        os.truncate(task.journal, text.rfind(b"\n") + 1)  # a full disk left a torn line
    study = opened(task, worker=0)
    known = study.user_attrs.get("about")
    if known is None:
        study.set_user_attr("about", about)
        usual = {k: getattr(task.method, k) for k in task.searched}
        study.enqueue_trial(usual)
        if start:
            study.enqueue_trial(usual | {k: v for k, v in start.items() if k in usual})
    elif known != about:
        differs = next(k for k in {**known, **about} if known.get(k) != about.get(k))
        raise InputError(
            f"{task.journal} holds a study whose {differs} differ: remove it, or give another --out"
        )


def finished(path: Path, about: dict[str, Any], cls: type) -> dict[str, Any] | None:
    """The study in this file, if it is of the same clicks and settings.

    A setting that the file lacks was added later, and had the value of `settings.before`.
    """
    try:
        study: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        later = {k: checks.before(cls, k) for k in about["held"]}
        known = {"by": held_out.DEFAULT, **study, "held": later | study["held"]}
        same = all(known.get(key) == value for key, value in about.items())
        return study if same and study["trials"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def best_settings(path: Path, *, method: str | None = None) -> dict[str, Any]:
    """Read the best settings from a study file, which must be of `method` if given."""
    if not path.exists():
        raise InputError(f"the study {path} is not here")
    try:
        study = json.loads(path.read_text(encoding="utf-8"))
        name, settings = study["method"], dict(study["best"]["settings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a study of `unexposed tune` ({error!r})") from error
    if method not in (None, name):
        raise InputError(f"the study {path} is of {name}, not of {method}")
    return settings


def document(task: Task, name: str) -> dict[str, Any]:
    """All trials of a study, and the best of them, as plain data."""
    study = opened(task, worker=0)
    if not complete(study):
        raise InputError(f"{name}: no trial was completed; allow more trials")
    method, best = replace(task.method, **study.best_trial.params), study.best_trial
    own = task.by if task.by == TRAFFIC or not has_epochs(method) else vars(method)["criterion"]
    return {
        "study": name,
        **study.user_attrs["about"],
        "criterion": own,
        "best": {
            "trial": best.number,
            "value": best.value,
            "settings": {k: getattr(method, k) for k in (*task.searched, *task.reported)},
            "epochs": best.user_attrs.get("best_epochs"),
        },
        "trials": [
            {
                "number": trial.number,
                "state": trial.state.name.lower(),
                "value": trial.value,
                "settings": trial.params,
                "seconds": round(trial.duration.total_seconds(), 2) if trial.duration else None,
                **{k: v for k, v in trial.user_attrs.items() if k == "criteria"},
            }
            for trial in study.get_trials(deepcopy=False)
            if trial.state.is_finished()
        ],
    }


def complete(study: Any) -> bool:
    state = load_optuna().trial.TrialState.COMPLETE
    return bool(study.get_trials(deepcopy=False, states=(state,)))


def dissent(document: dict[str, Any]) -> dict[str, str]:
    """The trial that each criterion prefers to the best one of a study, in words."""
    trials = {str(t["number"]): t for t in document["trials"] if "criteria" in t}
    chosen = str(document["best"]["trial"])
    if chosen not in trials:
        return {}  # a study of before trials were judged by all criteria
    rated = {number: trial["criteria"] for number, trial in trials.items()}
    preferred = held_out.dissent(rated, chosen)
    return {name: _spoken(trials[number]) for name, number in preferred.items()}


def _spoken(trial: dict[str, Any]) -> str:
    short = {k: f"{v:.2g}" if isinstance(v, float) else v for k, v in trial["settings"].items()}
    return f"trial {trial['number']} ({' '.join(f'{k}={v}' for k, v in short.items())})"
