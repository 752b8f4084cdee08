"""Choose settings by Optuna on held-out clicks; judgements are refused.

tune ─▶ processes ─▶ trials of a study in `name.journal` ─▶ `name.json`
"""

import json
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from unexposed import settings as checks
from unexposed.data.clicks import Clicks
from unexposed.errors import InputError
from unexposed.files import write_whole
from unexposed.model.recommender import Recommender
from unexposed.ranking.held_out import DEFAULT
from unexposed.streams import Messages
from unexposed.training.side import Side
from unexposed.tuning.study import begin, complete, document, finished, identity, opened
from unexposed.tuning.trial import TRAFFIC, Task, load_optuna, worth

FEW = 2000  # held-out clicks that judge a trial; with half of them see experiments/choice/
SPLITS = 20  # of a tenth each: every click is held out twice, so more of them say little more


def space(method: Recommender) -> dict[str, Any]:
    """Search space of each setting: (low, high), log-uniform, or a list of choices."""
    fields = checks.known(type(method)).items()
    return {name: f.metadata["search"] for name, f in fields if f.metadata.get("search")}


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
    say: Callable[[str], object] = lambda _: None,
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
    Every trial is appended to `folder/name.journal` as it ends: a stopped study resumes from
    there, and several calls may share one. All trials are written to `folder/name.json`.
    """
    if not isinstance(clicks, Clicks):
        raise InputError(f"tuning takes Clicks, got {type(clicks).__name__}")
    start, side = dict(start or {}), side or Side()
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
    journal, written = folder.absolute() / f"{name}.journal", folder / f"{name}.json"
    task = Task(journal, method, searched, splits, held_out, split, seed, side, reported, by)
    about = identity(task, clicks)
    if not journal.exists() and (done := finished(written, about, type(method))):
        if len(done["trials"]) < trials:
            raise InputError(
                f"{written} holds {len(done['trials'])} trials, and its journal is gone, so more "
                "cannot be added: remove it, or give another --out"
            )
        say(f"{written} is finished: remove it to make it again")
        return done
    if split is None and by != TRAFFIC:
        _warn_of_few(round(held_out * len(clicks)), splits, say)
    with _writing(journal):
        folder.mkdir(parents=True, exist_ok=True)
        begin(task, about, start)
        if workers == 1:
            _work(task, clicks, trials, 0, say)
        else:
            _work_together(task, clicks, trials, workers)
        found = document(task, name)
    text = json.dumps(found, indent=1) + "\n"
    write_whole(written, lambda path: path.write_text(text, encoding="utf-8"))
    return found


def _warn_of_few(each: int, splits: int, say: Callable[[str], object]) -> None:
    """Say when so few held-out clicks judge a trial that luck chooses the settings."""
    more = min(SPLITS, -(-FEW // max(1, each)))
    if splits < more:
        say(
            f"{each * splits:,} held-out clicks judge a trial: so few that luck has a part in the "
            f"choice; {more} splits would make them {each * more:,}"
        )


def _judged_by_traffic(method: Recommender, side: Side, fixed: tuple[str, ...]) -> Recommender:
    """The method whose epoch is chosen by traffic, which it does not learn from unless asked to."""
    if side.traffic is None:
        raise InputError("tuning by traffic needs random traffic: give --traffic FILE")
    known = checks.known(type(method))
    changes: dict[str, Any] = {"epoch_by": "traffic"} if "epoch_by" in known else {}
    if "traffic_use" in known and "traffic_use" not in fixed:
        changes["traffic_use"] = "none"
    return replace(method, **changes)


@contextmanager
def _writing(journal: Path) -> Iterator[None]:
    """Turn a failure to write the journal into one sentence."""
    try:
        yield
    except (OSError, AssertionError) as error:
        # where the journal cannot be written at the end of a trial, Optuna fails over that
        fault = error if isinstance(error, OSError) else error.__context__
        if not isinstance(fault, OSError):
            raise
        raise InputError(
            f"cannot write {journal}: {fault.strerror or fault}; make room there and tune again "
            "to resume the study, or give another --out"
        ) from error


def _work(
    task: Task, clicks: Clicks, trials: int, worker: int, say: Callable[[str], object]
) -> None:
    states = load_optuna().trial.TrialState
    study = opened(task, worker=worker)

    def done() -> int:
        return len(study.get_trials(deepcopy=False, states=(states.COMPLETE, states.PRUNED)))

    begun, start = done(), time.monotonic()

    def tell(_: Any, trial: Any) -> None:
        best = f", best {study.best_value:.4f}" if complete(study) else ""
        each = (time.monotonic() - start) / max(done() - begun, 1)
        rest = timedelta(seconds=round(each * (trials - done())))
        left = f", {rest} left" if done() < trials else ""
        value = f"{trial.value:.4f}" if trial.state == states.COMPLETE else trial.state.name.lower()
        say(f"{task.method.name}: trial {done()} of {trials}, {value}{best}{left}")

    while done() < trials:
        study.optimize(lambda trial: worth(trial, task, clicks), n_trials=1, callbacks=[tell])


def _work_together(task: Task, clicks: Clicks, trials: int, workers: int) -> None:
    spawn = multiprocessing.get_context("spawn")  # a fork would share the CUDA context
    team = [spawn.Process(target=_worker, args=(task, clicks, trials, n)) for n in range(workers)]
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


def _worker(task: Task, clicks: Clicks, trials: int, worker: int) -> None:
    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    follow_parent()
    try:
        with _writing(task.journal):
            _work(task, clicks, trials, worker, say)
    except InputError as error:
        say(str(error))
        sys.exit(1)


# Processes that Ctrl-C does not reach and that end with their parent


@contextmanager
def deaf_to_ctrl_c() -> Iterator[None]:
    """Block Ctrl-C for processes started in this context, even while they import.

    The parent alone receives it, at the end of the context or while it waits for the processes.
    """
    signal.siginterrupt(signal.SIGINT, True)  # polars makes a wait restart after Ctrl-C
    resource_tracker.ensure_running()  # starting it later would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def follow_parent() -> None:
    """End this process when its parent ends, even if killed."""
    sys.stderr = Messages(sys.stderr)

    def end_with_parent() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
