"""A study of Optuna: what it is of, how it goes on after a stop, and the document it leaves."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from unexposed import settings as checks
from unexposed.data.clicks import Clicks
from unexposed.errors import InputError
from unexposed.model.recommender import Recommender
from unexposed.ranking import held_out
from unexposed.ranking.held_out import DEFAULT, criterion
from unexposed.training.fingerprint import log_fingerprint, side_fingerprint
from unexposed.tuning.journal import Lock
from unexposed.tuning.trial import TRAFFIC, has_epochs, load_optuna, parts, usable

STARTUP = 10  # trials drawn at random before Optuna's estimator takes over


def opened(task: dict[str, Any], *, worker: int) -> Any:
    optuna = load_optuna()
    journal = task["journal"]
    backend = optuna.storages.journal.JournalFileBackend(str(journal), Lock(journal))
    return optuna.create_study(
        study_name="study",
        storage=optuna.storages.JournalStorage(backend),
        sampler=optuna.samplers.TPESampler(
            seed=(1000 * task["seed"] + worker) % 2**32, n_startup_trials=STARTUP
        ),
        pruner=_pruner(task["method"]),
        direction="maximize",
        load_if_exists=True,
    )


def _pruner(method: Recommender) -> Any:
    pruners = load_optuna().pruners
    if not has_epochs(method):
        return pruners.NopPruner()
    warm_up = checks.values(method)["epochs"] // 2  # settings that learn slowly may end higher
    return pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=warm_up)


def about_task(task: dict[str, Any], clicks: Clicks) -> dict[str, Any]:
    """What a study is of: it resumes only from a journal that says the same."""
    method = task["method"]
    about = {
        "method": method.name,
        "held": {k: v for k, v in checks.values(method).items() if k not in task["searched"]},
        "searched": {k: list(v) for k, v in task["searched"].items()},
        "splits": task["splits"],
        "clicks": log_fingerprint(clicks),
    } | ({} if has_epochs(task["method"]) else {"by": task["by"]})
    if task["split"] is not None:
        _, held_out = parts(task, clicks, 0)
        about["split"] = [task["split"], log_fingerprint(held_out)["the log"]]
    given = task["side"]
    judges = not has_epochs(method) and task["by"] != TRAFFIC and _asks_what_was_shown(task["by"])
    if task["by"] != TRAFFIC and not judges:
        given = usable(given, method)
    uses = judges or method.accepts & {"impressions", "passed_over"}
    if given.impressions is None and clicks.shown is not None and uses:
        given = replace(given, impressions=clicks.shown)
    if given.given():
        about["given"] = side_fingerprint(given)
    found: dict[str, Any] = json.loads(json.dumps(about))
    return found


def _asks_what_was_shown(by: str) -> bool:
    return criterion(by).among == "shown"


def begin(
    study: Any,
    task: dict[str, Any],
    clicks: Clicks,
    given: Mapping[str, Any],
    done: dict[str, Any] | None,
) -> None:
    """Refuse a study of other clicks or settings; mark trials left running as failed.

    A study without a journal, as it is handed on, goes on from the trials of its document.
    """
    optuna = load_optuna()
    method, about = task["method"], about_task(task, clicks)
    known = study.user_attrs.get("about")
    if known is None and done is not None:
        _take_over(study, task, done)
        study.set_user_attr("about", about)
    elif known is None:
        study.set_user_attr("about", about)
        start = {k: getattr(method, k) for k in task["searched"]}
        study.enqueue_trial(start)
        if given:
            study.enqueue_trial(start | {k: v for k, v in given.items() if k in start})
    elif (known := _completed(known, about, type(method))) != about:
        differs = next(k for k in {**known, **about} if known.get(k) != about.get(k))
        raise InputError(
            f"{task['journal']} holds a study whose {differs} differ: "
            "remove it, or give another --out"
        )
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)


def _take_over(study: Any, task: dict[str, Any], done: dict[str, Any]) -> None:
    optuna = load_optuna()
    ended = [trial for trial in done["trials"] if trial["state"] in ("complete", "pruned")]
    for trial in ended[len(study.get_trials(deepcopy=False)) :]:  # a stopped take-over goes on
        attributes = {key: trial[key] for key in ("seconds", "criteria") if key in trial}
        if trial["number"] == done["best"]["trial"]:
            attributes["best_epochs"] = done["best"]["epochs"]
        study.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState[trial["state"].upper()],
                value=trial["value"],
                params=trial["settings"],
                distributions={k: _distribution(v) for k, v in task["searched"].items()},
                user_attrs=attributes,
            )
        )


def _distribution(where: Any) -> Any:
    kinds = load_optuna().distributions
    if isinstance(where, list):
        return kinds.CategoricalDistribution(where)
    return kinds.FloatDistribution(*where, log=True)


def _completed(known: dict[str, Any], about: dict[str, Any], cls: type) -> dict[str, Any]:
    """What an older study says of itself, with what was not yet a choice then."""
    later = {k: checks.before(cls, k) for k in about["held"]}
    held = {"held": {**later, **known["held"]}}
    return {**({"by": DEFAULT} if "by" in about else {}), **known, **held}


def finished(path: Path, about: dict[str, Any], cls: type) -> dict[str, Any] | None:
    """The study in this file, if it is of the same clicks and settings."""
    try:
        study: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        known = _completed(study, about, cls)
        same = all(known.get(key) == value for key, value in about.items())
        return study if same and study["trials"] else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def best_settings(path: Path, *, method: str | None = None) -> dict[str, Any]:
    """Read the best settings from a study file, which must be of `method` if given."""
    if not path.exists():
        raise InputError(f"the study {path} is not here")
    try:
        study = json.loads(path.read_text(encoding="utf-8"))
        found, settings = study["method"], dict(study["best"]["settings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is not a study of `unexposed tune` ({error!r})") from error
    if method not in (None, found):
        raise InputError(f"the study {path} is of {found}, not of {method}")
    return settings


def dissent(document: dict[str, Any]) -> dict[str, str]:
    """The trial that each criterion prefers to the best one of a study, in words."""
    trials = {str(t["number"]): t for t in document["trials"] if "criteria" in t}
    chosen = str(document["best"]["trial"])
    if chosen not in trials:
        return {}  # a study of before trials were judged by all criteria
    rated = {number: trial["criteria"] for number, trial in trials.items()}
    found = held_out.dissent(rated, chosen)
    return {name: _spoken(trials[number]) for name, number in found.items()}


def _spoken(trial: dict[str, Any]) -> str:
    settings = (
        (k, f"{v:.2g}" if isinstance(v, float) else v) for k, v in trial["settings"].items()
    )
    return f"trial {trial['number']} ({' '.join(f'{k}={v}' for k, v in settings)})"


def document(study: Any, task: dict[str, Any], name: str) -> dict[str, Any]:
    if not complete(study):
        raise InputError(f"{name}: no trial was completed; allow more trials")
    method = replace(task["method"], **study.best_trial.params)
    return {
        "study": name,
        **study.user_attrs["about"],
        "criterion": _criterion(task["method"], task["by"]),
        "best": {
            "trial": study.best_trial.number,
            "value": study.best_value,
            "settings": {k: getattr(method, k) for k in (*task["searched"], *task["reported"])},
            "epochs": study.best_trial.user_attrs.get("best_epochs"),
        },
        "trials": [
            {
                "number": trial.number,
                "state": trial.state.name.lower(),
                "value": trial.value,
                "settings": trial.params,
                "seconds": _seconds(trial),
                **{k: v for k, v in trial.user_attrs.items() if k == "criteria"},
            }
            for trial in study.get_trials(deepcopy=False)
            if trial.state.is_finished()
        ],
    }


def _criterion(method: Recommender, by: str) -> str:
    """The name of the criterion on held-out clicks, or traffic, by which the study chooses."""
    own = by if by == TRAFFIC or not has_epochs(method) else checks.values(method)["criterion"]
    return str(own)


def complete(study: Any) -> bool:
    state = load_optuna().trial.TrialState.COMPLETE
    return bool(study.get_trials(deepcopy=False, states=(state,)))


def _seconds(trial: Any) -> float | None:
    if "seconds" in trial.user_attrs:  # of a trial that was taken over
        return float(trial.user_attrs["seconds"])
    return round(trial.duration.total_seconds(), 2) if trial.duration else None
