"""Settings chosen by Optuna on held-out clicks; judgements cannot even be given to it."""

import json
import multiprocessing
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from unexposed import progress as show
from unexposed import settings as checks
from unexposed.data.clicks import Clicks
from unexposed.errors import InputError
from unexposed.extras import optional
from unexposed.files.whole import write_whole
from unexposed.methods.trained import TrainedMethod
from unexposed.model.model import Model
from unexposed.model.recommender import Recommender
from unexposed.training.checkpoint import log_fingerprint
from unexposed.tuning.journal import Lock, cut_back
from unexposed.tuning.workers import deaf_to_ctrl_c, follow_parent

STARTUP = 10  # trials drawn at random before Optuna's estimator takes over
REPORTS = 5  # epochs between two reports to the pruner


def space(method: Recommender) -> dict[str, Any]:
    """Where to look for each setting: (low, high), evenly by logarithm, or a list of choices."""
    found = checks.known(type(method)).items()
    return {name: f.metadata["search"] for name, f in found if f.metadata.get("search")}


def _with(value: Any, where: Any) -> Any:
    """Where to look, so that this value is among it."""
    if isinstance(where, list):
        return where if value in where else [value, *where]
    return min(where[0], value), max(where[1], value)


def tune(
    clicks: Clicks,
    method: Recommender,
    *,
    trials: int,
    folder: Path,
    name: str,
    fixed: tuple[str, ...] = (),
    splits: int = 1,
    held_out: float = 0.1,
    workers: int = 1,
    seed: int = 0,
    start: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """The best settings of a method by the SNIPS quality of held-out clicks, mean over splits.

    What is not in the method's search space, or is named in `fixed`, stays as `method` has it.
    `start` is tried second, after the settings of `method`: what another study found, say.
    Every trial is kept in `folder/name.journal` as it ends, and a study that was stopped goes on
    from there; the document of all trials is written to `folder/name.json`.
    """
    if not isinstance(clicks, Clicks):
        raise InputError(f"tuning learns from Clicks alone, got {type(clicks).__name__}")
    start = dict(start or {})
    searched = {
        k: _with(start.get(k, getattr(method, k)), _with(getattr(method, k), v))
        for k, v in space(method).items()
        if k not in fixed
    }
    if not searched:
        raise InputError(f"{method.name} has no setting to tune")
    for what, number in (("trials", trials), ("splits", splits), ("workers", workers)):
        if number < 1:
            raise InputError(f"{what} must be at least 1, got {number}")
    journal = folder.absolute() / f"{name}.journal"
    task = {
        "journal": journal,
        "method": method,
        "searched": searched,
        "splits": splits,
        "held_out": held_out,
        "seed": seed,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if lost := cut_back(journal):
            say(f"{journal} was torn, as by a full disk: its last {lost:,} bytes are left out")
        _begin(_study(task, worker=0), task, clicks, start)
        if workers == 1:
            _work(task, clicks, trials, 0, say)
        else:
            _work_together(task, clicks, trials, workers)
        document = _document(_study(task, worker=0), task, name)
    except (OSError, AssertionError) as error:
        # where the journal cannot be written at the end of a trial, Optuna fails over that failure
        fault = error if isinstance(error, OSError) else error.__context__
        if not isinstance(fault, OSError):
            raise
        raise InputError(_unwritable(journal, fault)) from error
    text = json.dumps(document, indent=1) + "\n"
    write_whole(folder / f"{name}.json", lambda path: path.write_text(text, encoding="utf-8"))
    return document


def best_settings(path: Path, *, method: str | None = None) -> dict[str, Any]:
    """What the study in this file found, which must be of this method if one is named."""
    if not path.exists():
        raise InputError(f"the study {path} is not here")
    try:
        study = json.loads(path.read_text(encoding="utf-8"))
        found, settings = study["method"], dict(study["best"]["settings"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path} is no study that `unexposed tune` wrote ({error!r})") from error
    if method not in (None, found):
        raise InputError(f"the study {path} is of {found}, not of {method}")
    return settings


def _study(task: dict[str, Any], *, worker: int) -> Any:
    optuna = _optuna()
    journal = task["journal"]
    backend = optuna.storages.journal.JournalFileBackend(str(journal), Lock(journal))
    warm_up = task["method"].epochs // 2  # settings that learn slowly may end higher
    return optuna.create_study(
        study_name="study",
        storage=optuna.storages.JournalStorage(backend),
        sampler=optuna.samplers.TPESampler(
            seed=(1000 * task["seed"] + worker) % 2**32, n_startup_trials=STARTUP
        ),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=warm_up),
        direction="maximize",
        load_if_exists=True,
    )


def _begin(study: Any, task: dict[str, Any], clicks: Clicks, given: Mapping[str, Any]) -> None:
    """Refuse a study of other clicks or settings; give up what was under way when it stopped."""
    optuna = _optuna()
    method = task["method"]
    about = {
        "method": method.name,
        "held": {k: v for k, v in checks.values(method).items() if k not in task["searched"]},
        "searched": {k: list(v) for k, v in task["searched"].items()},
        "splits": task["splits"],
        "clicks": log_fingerprint(clicks),
    }
    about = json.loads(json.dumps(about))
    known = study.user_attrs.get("about")
    if known is None:
        study.set_user_attr("about", about)
        start = {k: getattr(method, k) for k in task["searched"]}
        study.enqueue_trial(start)  # the settings as given come first
        if given:
            study.enqueue_trial(start | {k: v for k, v in given.items() if k in start})
    elif known != about:
        differs = next(k for k in about if known[k] != about[k])
        raise InputError(
            f"{task['journal']} holds a study whose {differs} differ: "
            "remove it, or give another --out"
        )
    for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)


def _work(
    task: dict[str, Any], clicks: Clicks, trials: int, worker: int, say: Callable[[str], None]
) -> None:
    optuna = _optuna()
    study = _study(task, worker=worker)
    ended = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)

    def done() -> int:
        return len(study.get_trials(deepcopy=False, states=ended))

    def tell(_: Any, trial: Any) -> None:
        best = f", best {study.best_value:.4f}" if _complete(study) else ""
        say(f"{task['method'].name}: trial {done()} of {trials}, {_spoken(trial)}{best}")

    while done() < trials:
        study.optimize(lambda trial: _value(trial, task, clicks), n_trials=1, callbacks=[tell])


def _work_together(task: dict[str, Any], clicks: Clicks, trials: int, workers: int) -> None:
    spawn = multiprocessing.get_context("spawn")  # a fork would share the card's context
    team = [
        spawn.Process(target=_worker, args=(task, clicks, trials, worker))
        for worker in range(workers)
    ]
    try:
        with deaf_to_ctrl_c():
            for process in team:
                process.start()
        for process in team:
            process.join()
    except BaseException:
        for process in team:
            if process.pid is not None:  # else it was never started
                process.terminate()
                process.join()
        raise
    if any(process.exitcode for process in team):
        raise InputError("a worker of the study ended early: see its message above")


def _worker(task: dict[str, Any], clicks: Clicks, trials: int, worker: int) -> None:
    follow_parent()
    try:
        _work(task, clicks, trials, worker, _print)
    except (OSError, AssertionError) as error:  # AssertionError: as in `tune`
        fault = error if isinstance(error, OSError) else error.__context__
        if not isinstance(fault, OSError):
            raise
        _print(_unwritable(task["journal"], fault))
        sys.exit(1)


def _unwritable(journal: Path, error: OSError) -> str:
    return (
        f"cannot write {journal}: {error.strerror or error}; make room there and tune again, "
        "and the study goes on, or give another --out"
    )


def _value(trial: Any, task: dict[str, Any], clicks: Clicks) -> float:
    """The quality of one trial's settings on held-out clicks, mean over splits."""
    chosen = {k: _suggest(trial, k, where) for k, where in task["searched"].items()}
    method = replace(task["method"], **chosen, refit=False)  # the first training is the judged one
    total, epochs = 0.0, []
    for split in range(task["splits"]):
        train, held_out = clicks.hold_out(fraction=task["held_out"], seed=split)
        watch = _Pruning(trial) if split == 0 else show.Silent()
        try:
            model = method.fit(train, held_out, seed=split, progress=watch)
        except InputError as error:  # settings under which training goes nowhere
            trial.set_user_attr("refused", str(error))
            raise _optuna().TrialPruned from error
        if model.facts.get("ended") == "interrupted":
            raise KeyboardInterrupt
        total += quality(model)
        epochs.append(model.facts["best_epoch"])
    trial.set_user_attr("best_epochs", epochs)
    return total / task["splits"]


def quality(model: Model) -> float:
    """The held-out quality by which the model's epoch was kept."""
    assert isinstance(model.method, TrainedMethod)
    end = model.facts["best_epoch"]
    recent = model.facts["held_out"][max(0, end - model.method.snips_window) : end]
    return float(sum(recent) / len(recent))


class _Pruning(show.Silent):
    """Gives a training up where other trials were better at the same epoch."""

    def __init__(self, trial: Any) -> None:
        self._trial = trial

    def __call__(self, tick: show.Tick) -> None:
        if tick.value is None or tick.epoch % REPORTS:
            return
        self._trial.report(tick.value, tick.epoch)
        if self._trial.should_prune():
            raise _optuna().TrialPruned


def _suggest(trial: Any, name: str, where: Any) -> Any:
    if isinstance(where, list):
        return trial.suggest_categorical(name, where)
    return trial.suggest_float(name, *where, log=True)


def _document(study: Any, task: dict[str, Any], name: str) -> dict[str, Any]:
    if not _complete(study):
        raise InputError(f"{name}: no trial came to its end; allow more trials")
    method = replace(task["method"], **study.best_trial.params)
    return {
        "study": name,
        **study.user_attrs["about"],
        "criterion": {
            k: v for k, v in checks.values(task["method"]).items() if k.startswith("snips_")
        },
        "best": {
            "trial": study.best_trial.number,
            "value": study.best_value,
            "settings": {k: getattr(method, k) for k in task["searched"]},
            "epochs": study.best_trial.user_attrs.get("best_epochs"),
        },
        "trials": [
            {
                "number": trial.number,
                "state": trial.state.name.lower(),
                "value": trial.value,
                "settings": trial.params,
                "seconds": _seconds(trial),
            }
            for trial in study.get_trials(deepcopy=False)
            if trial.state.is_finished()
        ],
    }


def _complete(study: Any) -> bool:
    state = _optuna().trial.TrialState.COMPLETE
    return bool(study.get_trials(deepcopy=False, states=(state,)))


def _seconds(trial: Any) -> float | None:
    return round(trial.duration.total_seconds(), 2) if trial.duration else None


def _spoken(trial: Any) -> str:
    """The value of a trial; one that was given up has only that of its last epoch."""
    state = trial.state.name.lower()
    return f"{trial.value:.4f}" if state == "complete" else state


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _optuna() -> Any:
    optuna = optional("optuna", extra="tune")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
