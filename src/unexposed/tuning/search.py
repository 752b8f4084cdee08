"""Choose settings by Optuna on held-out clicks; judgements are refused."""

import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from unexposed import settings as checks
from unexposed.data.clicks import Clicks
from unexposed.errors import InputError
from unexposed.files import write_whole
from unexposed.model.recommender import Recommender
from unexposed.ranking.held_out import DEFAULT
from unexposed.training.side import Side
from unexposed.tuning.journal import cut_back
from unexposed.tuning.study import about_task, begin, complete, document, finished, opened
from unexposed.tuning.trial import TRAFFIC, load_optuna, worth
from unexposed.tuning.workers import deaf_to_ctrl_c, follow_parent

FEW = 2000  # held-out clicks that judge a trial; with half of them see experiments/choice/
SPLITS = 20  # of a tenth each: every click is held out twice, so more of them say little more


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
    choices: Mapping[str, list[Any]] | None = None,
    side: Side | None = None,
    by: str = DEFAULT,
    reported: tuple[str, ...] = (),
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Find the best settings of a method by SNIPS on held-out clicks, averaged over splits.

    A split holds out a random share, or what `split` names (see `ux.split`).
    Settings outside the method's search space, or named in `fixed`, keep the values of `method`;
    `choices` replaces the space of some settings, or adds them to it.
    `by` is the criterion of a method without epochs; one with epochs has it among its settings.
    By "traffic" the random traffic of `side` judges every trial in place of held-out clicks, and
    is not trained on, unless `fixed` names `traffic_use`: then training gets a share of its own.
    The first trial takes the settings of `method`, the second those in `start`. Every trial is
    trained with `side`. The best settings are those searched, with the fixed ones in `reported`.
    Every trial is appended to `folder/name.journal` as it ends, and a stopped study resumes from
    there; the document of all trials is written to `folder/name.json`, and a study that has no
    journal any more goes on from it.
    """
    if not isinstance(clicks, Clicks):
        raise InputError(f"tuning takes Clicks, got {type(clicks).__name__}")
    start = dict(start or {})
    side = side or Side()
    if by == TRAFFIC:
        method = _judged_by_traffic(method, side, fixed)
    searched = {
        k: _with(start.get(k, getattr(method, k)), _with(getattr(method, k), v))
        for k, v in {**space(method), **(choices or {})}.items()
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
    done = finished(written, about_task(task, clicks), type(method))
    if done is not None and not journal.exists():
        if len(done["trials"]) >= trials:
            say(f"{written} is finished: remove it to make it again")
            return done
        say(f"going on from the {len(done['trials'])} trials in {written}")
    if split is None and by != TRAFFIC:
        _warn_of_few(round(held_out * len(clicks)), splits, say)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if lost := cut_back(journal):
            say(f"{journal} ended within a line, as on a full disk: dropped {lost:,} bytes")
        begin(opened(task, worker=0), task, clicks, start, done)
        if workers == 1:
            _work(task, clicks, trials, 0, say)
        else:
            _work_together(task, clicks, trials, workers)
        found = document(opened(task, worker=0), task, name)
    except OSError as error:
        raise InputError(_unwritable(journal, error)) from error
    text = json.dumps(found, indent=1) + "\n"
    write_whole(written, lambda path: path.write_text(text, encoding="utf-8"))
    return found


def _warn_of_few(each: int, splits: int, say: Callable[[str], None]) -> None:
    """Say when so few held-out clicks judge a trial that luck chooses the settings."""
    more = min(SPLITS, -(-FEW // max(1, each)))
    if splits < more:
        say(
            f"{each * splits:,} held-out clicks judge a trial: so few that luck has a part in the "
            f"choice; {more} splits would make them {each * more:,}"
        )


def _judged_by_traffic(method: Recommender, side: Side, fixed: tuple[str, ...]) -> Recommender:
    """The method whose epoch is chosen by traffic, which it does not learn from unless told to."""
    if side.traffic is None:
        raise InputError("tuning by traffic needs random traffic: give --traffic FILE")
    known = checks.known(type(method))
    changes: dict[str, Any] = {"epoch_by": "traffic"} if "epoch_by" in known else {}
    if "traffic_use" in known and "traffic_use" not in fixed:
        changes["traffic_use"] = "none"
    return replace(method, **changes)


def _work(
    task: dict[str, Any], clicks: Clicks, trials: int, worker: int, say: Callable[[str], None]
) -> None:
    optuna = load_optuna()
    study = opened(task, worker=worker)
    ended = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)

    def done() -> int:
        return len(study.get_trials(deepcopy=False, states=ended))

    begun, start = done(), time.monotonic()

    def tell(_: Any, trial: Any) -> None:
        best = f", best {study.best_value:.4f}" if complete(study) else ""
        now = done()
        each = (time.monotonic() - start) / max(now - begun, 1)
        rest = timedelta(seconds=round(each * (trials - now)))
        left = f", {rest} left" if now < trials else ""
        say(f"{task['method'].name}: trial {now} of {trials}, {_spoken(trial)}{best}{left}")

    while done() < trials:
        try:
            study.optimize(lambda trial: worth(trial, task, clicks), n_trials=1, callbacks=[tell])
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


def _spoken(trial: Any) -> str:
    """The value of a complete trial, or the state of any other."""
    state = trial.state.name.lower()
    return f"{trial.value:.4f}" if state == "complete" else state


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
