"""Choose settings by Optuna on held-out clicks; judgements are refused."""

import json
import multiprocessing
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unexposed import progress as show
from unexposed import settings as checks
from unexposed.data.clicks import Clicks
from unexposed.data.split import split as parted
from unexposed.errors import InputError
from unexposed.extras import optional
from unexposed.files.whole import write_whole
from unexposed.model.model import Model
from unexposed.model.recommender import Recommender
from unexposed.ranking.by_traffic import ByTraffic
from unexposed.ranking.held_out import DEFAULT, criterion, qualities, quality_of_users
from unexposed.training.checkpoint import log_fingerprint, side_fingerprint
from unexposed.training.given import Side
from unexposed.tuning.journal import Lock, cut_back
from unexposed.tuning.workers import deaf_to_ctrl_c, follow_parent

TRAFFIC = "traffic"  # in place of a criterion on held-out clicks
STARTUP = 10  # trials drawn at random before Optuna's estimator takes over
REPORTS = 5  # epochs between two reports to the pruner


def space(method: Recommender) -> dict[str, Any]:
    """Search space of each setting: (low, high), log-uniform, or a list of choices."""
    found = checks.known(type(method)).items()
    return {name: f.metadata["search"] for name, f in found if f.metadata.get("search")}


def _with(value: Any, where: Any) -> Any:
    """Widen a search space to contain this value."""
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
    split: str | None = None,
    workers: int = 1,
    seed: int = 0,
    start: Mapping[str, Any] | None = None,
    side: Side | None = None,
    by: str = DEFAULT,
    reported: tuple[str, ...] = (),
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Find the best settings of a method by SNIPS on held-out clicks, averaged over splits.

    A split holds out a random share, or what `split` names (see `ux.split`).
    Settings outside the method's search space, or named in `fixed`, keep the values of `method`.
    `by` is the criterion of a method without epochs; one with epochs has it among its settings.
    By "traffic" the random traffic of `side` judges every trial in place of held-out clicks, and
    is not trained on, unless `fixed` names `traffic_use`: then training gets a share of its own.
    The first trial takes the settings of `method`, the second those in `start`. Every trial is
    trained with `side`. The best settings are those searched, with the fixed ones in `reported`.
    Every trial is appended to `folder/name.journal` as it ends, and a stopped study resumes from
    there; the document of all trials is written to `folder/name.json`.
    """
    if not isinstance(clicks, Clicks):
        raise InputError(f"tuning takes Clicks, got {type(clicks).__name__}")
    start = dict(start or {})
    side = side or Side()
    if by == TRAFFIC:
        method = _judged_by_traffic(method, side, fixed)
    searched = {
        k: _with(start.get(k, getattr(method, k)), _with(getattr(method, k), v))
        for k, v in space(method).items()
        if k not in fixed
    }
    if not searched:
        raise InputError(f"{method.name} has no setting to tune")
    for what, number in (("trials", trials), ("splits", splits), ("workers", workers)):
        if not isinstance(number, int) or number < 1:
            raise InputError(f"{what} must be at least 1, got {number}")
    journal = folder.absolute() / f"{name}.journal"
    task = {
        "journal": journal,
        "method": method,
        "searched": searched,
        "splits": splits,
        "held_out": held_out,
        "split": split,
        "seed": seed,
        "side": side,
        "reported": reported,
        "by": by,
    }
    written = folder / f"{name}.json"
    done = _finished(written, _about(task, clicks), type(method))
    if done is not None and len(done["trials"]) >= trials and not journal.exists():
        say(f"{written} is finished: remove it to make it again")
        return done
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if lost := cut_back(journal):
            say(f"{journal} ended within a line, as on a full disk: dropped {lost:,} bytes")
        _begin(_study(task, worker=0), task, clicks, start, done)
        if workers == 1:
            _work(task, clicks, trials, 0, say)
        else:
            _work_together(task, clicks, trials, workers)
        document = _document(_study(task, worker=0), task, name)
    except OSError as error:
        raise InputError(_unwritable(journal, error)) from error
    text = json.dumps(document, indent=1) + "\n"
    write_whole(written, lambda path: path.write_text(text, encoding="utf-8"))
    return document


def _judged_by_traffic(method: Recommender, side: Side, fixed: tuple[str, ...]) -> Recommender:
    """The method whose epoch is chosen by traffic, which it does not learn from unless told to."""
    if side.traffic is None:
        raise InputError("tuning by traffic needs random traffic: give --traffic FILE")
    known = checks.known(type(method))
    changes: dict[str, Any] = {"epoch_by": "traffic"} if "epoch_by" in known else {}
    if "traffic_use" in known and "traffic_use" not in fixed:
        changes["traffic_use"] = "none"
    return replace(method, **changes)


def _usable(side: Side, method: Recommender) -> Side:
    """The inputs without random traffic that the method does not learn from."""
    return side.only(method.accepts | (side.given() - {"traffic"}))


def _finished(path: Path, about: dict[str, Any], cls: type) -> dict[str, Any] | None:
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


def _study(task: dict[str, Any], *, worker: int) -> Any:
    optuna = _optuna()
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


def _has_epochs(method: Recommender) -> bool:
    return "epochs" in checks.known(type(method))


def _pruner(method: Recommender) -> Any:
    pruners = _optuna().pruners
    if not _has_epochs(method):
        return pruners.NopPruner()
    warm_up = checks.values(method)["epochs"] // 2  # settings that learn slowly may end higher
    return pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=warm_up)


def _about(task: dict[str, Any], clicks: Clicks) -> dict[str, Any]:
    """What a study is of: it resumes only from a journal that says the same."""
    method = task["method"]
    about = {
        "method": method.name,
        "held": {k: v for k, v in checks.values(method).items() if k not in task["searched"]},
        "searched": {k: list(v) for k, v in task["searched"].items()},
        "splits": task["splits"],
        "clicks": log_fingerprint(clicks),
    } | ({} if _has_epochs(task["method"]) else {"by": task["by"]})
    if task["split"] is not None:
        parts = _parts(task, clicks, 0)
        about["split"] = [task["split"], log_fingerprint(parts[1])["the log"]]
    given = task["side"]
    if task["by"] != TRAFFIC:
        given = _usable(given, method)
    if given.impressions is None and clicks.shown is not None and "impressions" in method.takes:
        given = replace(given, impressions=clicks.shown)
    if given.given():
        about["given"] = side_fingerprint(given)
    found: dict[str, Any] = json.loads(json.dumps(about))
    return found


def _begin(
    study: Any,
    task: dict[str, Any],
    clicks: Clicks,
    given: Mapping[str, Any],
    done: dict[str, Any] | None,
) -> None:
    """Refuse a study of other clicks or settings; mark trials left running as failed.

    A study without a journal, as it is handed on, goes on from the trials of its document.
    """
    optuna = _optuna()
    method, about = task["method"], _about(task, clicks)
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
    optuna = _optuna()
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
    kinds = _optuna().distributions
    if isinstance(where, list):
        return kinds.CategoricalDistribution(where)
    return kinds.FloatDistribution(*where, log=True)


def _completed(known: dict[str, Any], about: dict[str, Any], cls: type) -> dict[str, Any]:
    """What an older study says of itself, with what was not yet a choice then."""
    later = {k: checks.before(cls, k) for k in about["held"]}
    held = {"held": {**later, **known["held"]}}
    return {**({"by": DEFAULT} if "by" in about else {}), **known, **held}


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
        try:
            study.optimize(lambda trial: _value(trial, task, clicks), n_trials=1, callbacks=[tell])
        except AssertionError as error:
            # where the journal cannot be written at the end of a trial, Optuna fails over that
            raise (error.__context__ if isinstance(error.__context__, OSError) else error) from None


def _work_together(task: dict[str, Any], clicks: Clicks, trials: int, workers: int) -> None:
    spawn = multiprocessing.get_context("spawn")  # a fork would share the CUDA context
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
            if process.pid is not None:  # it was started
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
        f"cannot write {journal}: {error.strerror or error}; make room there and tune again "
        "to resume the study, or give another --out"
    )


def _parts(task: dict[str, Any], clicks: Clicks, number: int) -> tuple[Clicks, Clicks]:
    """The clicks to train on and the clicks held out in this split."""
    if task["split"] is None:
        return clicks.hold_out(fraction=task["held_out"], seed=number)
    return parted(clicks, task["split"], seed=number)


def _value(trial: Any, task: dict[str, Any], clicks: Clicks) -> float:
    """Train one trial's settings and average their held-out quality over splits."""
    method = replace(
        task["method"], **{k: _suggest(trial, k, where) for k, where in task["searched"].items()}
    )
    if "refit" in checks.known(type(method)):
        method = replace(method, refit=False)  # the second training would not be judged
    total, epochs = 0.0, []
    said: dict[str, list[list[float]]] = {}
    for number in range(task["splits"]):
        train, held_out = _parts(task, clicks, number)
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
            raise _optuna().TrialPruned from error
        if model.facts.get("ended") == "interrupted":
            raise KeyboardInterrupt
        total += found
        epochs.append(model.facts.get("best_epoch"))
        by_all = model.facts.get("criteria") or qualities(model.scores, train, held_out)
        for name, value in by_all.items():
            said.setdefault(name, []).append(value)
    trial.set_user_attr("criteria", {k: np.mean(v, axis=0).tolist() for k, v in said.items()})
    if _has_epochs(method):
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
    if _has_epochs(method):
        given = None if side is None else _usable(side, method)
        model = method.fit(train, held_out, seed=seed, side=given, progress=progress)
        return model, chosen_quality(model)
    nothing = held_out.pick(np.zeros(len(held_out), dtype=bool))
    given = None if side is None else _usable(side, method)
    model = method.fit(train, nothing, seed=seed, side=given, progress=progress)
    if by == TRAFFIC:
        assert side is not None
        assert side.traffic is not None
        k = criterion(DEFAULT).k
        return model, ByTraffic.of(side.traffic, train.union(held_out), k=k)(model.scores)
    return model, float(quality_of_users(model.scores, train, held_out, criterion(by)).mean())


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
            raise _optuna().TrialPruned


def _suggest(trial: Any, name: str, where: Any) -> Any:
    if isinstance(where, list):
        return trial.suggest_categorical(name, where)
    return trial.suggest_float(name, *where, log=True)


def _document(study: Any, task: dict[str, Any], name: str) -> dict[str, Any]:
    if not _complete(study):
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


def _criterion(method: Recommender, by: str) -> dict[str, Any]:
    """How the study reads held-out clicks, or random traffic, as a quality."""
    if by == TRAFFIC:
        return {"by": TRAFFIC, "k": checks.values(method).get("snips_k", criterion(DEFAULT).k)}
    if not _has_epochs(method):
        return criterion(by).settings()
    return {k: v for k, v in checks.values(method).items() if k.startswith("snips_")}


def _complete(study: Any) -> bool:
    state = _optuna().trial.TrialState.COMPLETE
    return bool(study.get_trials(deepcopy=False, states=(state,)))


def _seconds(trial: Any) -> float | None:
    if "seconds" in trial.user_attrs:  # of a trial that was taken over
        return float(trial.user_attrs["seconds"])
    return round(trial.duration.total_seconds(), 2) if trial.duration else None


def _spoken(trial: Any) -> str:
    """The value of a complete trial, or the state of any other."""
    state = trial.state.name.lower()
    return f"{trial.value:.4f}" if state == "complete" else state


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _optuna() -> Any:
    with warnings.catch_warnings():
        # in a notebook its import asks for widgets, which we do not use
        warnings.filterwarnings("ignore", message="IProgress not found")
        optuna = optional("optuna", extra="tune")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
