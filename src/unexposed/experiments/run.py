"""Run an experiment: skip finished runs, and lose at most one run to a kill."""

import multiprocessing
import os
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from datetime import UTC, datetime

from unexposed import settings as checks
from unexposed.data.datasets import Folder
from unexposed.errors import InputError, did_you_mean
from unexposed.evaluation.compare import Labelled
from unexposed.experiments import provenance, results
from unexposed.experiments.data import Data, completed, open_data
from unexposed.experiments.kinds import KINDS
from unexposed.experiments.kinds.compare import comparisons
from unexposed.experiments.results import Line, Results
from unexposed.experiments.task import Experiment, Task
from unexposed.progress import Progress
from unexposed.tuning.search import deaf_to_ctrl_c, follow_parent

Pair = tuple[str, int]  # arm, seed


def run(
    experiment: Experiment,
    place: Results,
    *,
    progress: Progress,
    say: Callable[[str], None] = lambda _: None,
    fresh: bool = False,
    only: list[str] | None = None,
    workers: int = 1,
    data_dir: Folder | None = None,
) -> list[Line]:
    """Do the runs that are not finished, store each, and return all.

    A failed run is reported while the others continue, and raises at the end. Fresh runs stay in
    a journal of their own until all are done, so that earlier results stay untouched.
    """
    arms = list(experiment.arms) if only is None else _known(only, experiment)
    journal = place.fresh if fresh else place.journal
    if results.mend(journal):
        say(f"{journal} ended within a line, as after a kill: that run is repeated")
    stored = place.read()  # refuse a damaged file before the work begins
    if place.fresh.exists():
        then = "it continues" if fresh else "--fresh would continue it"
        say(
            f"{place.fresh} holds a fresh run that was interrupted: {then}; remove it to start over"
        )
    wanted = [(arm, seed) for arm in arms for seed in range(experiment.seeds)]
    done = results.read_journal(journal) if fresh else stored
    finished = {pair_of(line): line for line in done if is_current(experiment, line)}
    todo = [pair for pair in wanted if pair not in finished]
    if KINDS[experiment.kind].by_seed:
        todo.sort(key=lambda pair: pair[1])
    if n_done := len(wanted) - len(todo):
        say(f"{experiment.name}: {n_done} of {len(wanted)} runs are finished already")
    failures: list[str] = []
    if todo:
        # refuse an unwritable path or missing data before anything is run
        place.check_place()
        if "semi_synthetic" in experiment.data:
            say(f"{experiment.name}: making a world from {experiment.data['semi_synthetic']}")
        data = open_data(experiment.data, experiment.protocol, data_dir)
        go = _in_turn if workers == 1 else _side_by_side
        try:
            with closing(go(experiment, data, todo, progress, workers)) as outcomes:
                for pair, outcome in outcomes:
                    if isinstance(outcome, InputError):
                        failures.append(f"{pair[0]}, seed {pair[1]}: {outcome}")
                        say(f"error: {failures[-1]}")
                    else:
                        results.append(journal, outcome)
                        finished[pair] = outcome
        except KeyboardInterrupt:
            n_left = sum(pair not in finished for pair in wanted)
            say(f"{experiment.name}: {n_left} of {len(wanted)} runs are left for next time")
            raise
    if not (fresh and failures):
        _settle(experiment, place, arms, stored, list(finished.values()))
        if fresh:
            place.fresh.unlink(missing_ok=True)
    if failures:
        raise InputError(f"{len(failures)} of {len(todo)} runs failed; {failures[0]}")
    return [finished[pair] for pair in wanted]


def pair_of(line: Line) -> Pair:
    return line["arm"], line["seed"]


def is_current(experiment: Experiment, line: Line) -> bool:
    """Say whether a stored result matches the experiment as it is now.

    The engine does not matter: engines agree, and the line names the one it used. A setting that
    the line lacks was added later; its value then was `settings.before`, and a key of the data had
    its default.
    """
    arm = experiment.arms.get(line["arm"])
    if arm is None:
        return False
    asked = experiment.identity(arm)
    extras = {key: line[key] for key in arm.extras() if key in line}
    found = {key: line.get(key) for key in asked} | extras
    found["data"] = completed(found["data"] or {})
    if arm.method is not None and isinstance(found["settings"], dict):
        later = {name: checks.before(type(arm.method), name) for name in asked["settings"]}
        found["settings"] = {**later, **found["settings"]}
        if "engine" in found["settings"]:
            found["settings"]["engine"] = asked["settings"].get("engine")
    return asked == found


def _known(only: list[str], experiment: Experiment) -> list[str]:
    for arm in only:
        if arm not in experiment.arms:
            near = did_you_mean(arm, experiment.arms)
            raise InputError(f"{experiment.name} has no arm {arm!r}; {near}")
    return [arm for arm in experiment.arms if arm in only]


def _settle(
    experiment: Experiment, place: Results, arms: list[str], stored: list[Line], newer: list[Line]
) -> None:
    """Store the latest run of each pair, in the order of the experiment, with the comparisons.

    Runs of these arms that no longer match go, and so do runs of arms that no longer exist.
    """
    latest = {pair_of(line): line for line in [*stored, *newer]}
    whole = len(arms) == len(experiment.arms)

    def stays(line: Line) -> bool:
        mine = line["arm"] in arms or (whole and line["arm"] not in experiment.arms)
        return not mine or is_current(experiment, line)

    order = {arm: place for place, arm in enumerate(experiment.arms)}
    kept = sorted(
        (line for line in latest.values() if stays(line)),
        key=lambda line: (order.get(line["arm"], len(order)), line["arm"], line["seed"]),
    )
    before = place.document()
    # the same objects, for two runs may differ in the values of users alone
    if list(map(id, kept)) != list(map(id, stored)) or place.journal.exists():
        place.write(kept, comparisons(experiment, kept, before.get("comparisons", {})))


Outcome = Line | InputError
Outcomes = Generator[tuple[Pair, Outcome]]


def _in_turn(
    experiment: Experiment, data: Data, todo: list[Pair], progress: Progress, workers: int
) -> Outcomes:
    del workers
    with progress as told:
        for number, pair in enumerate(todo, 1):
            label = f"{experiment.name}: {pair[0]}, seed {pair[1]} ({number} of {len(todo)})"
            told.note(label)
            yield pair, _outcome(experiment, data, pair, Labelled(told, label))


def _outcome(experiment: Experiment, data: Data, pair: Pair, progress: Progress | None) -> Outcome:
    arm = experiment.arms[pair[0]]
    shown = {} if progress is None else {"progress": progress}
    task = Task(experiment, pair[0], arm.method, pair[1], data, **shown)
    try:
        return _line(task)
    except InputError as error:
        return error


def _line(task: Task) -> Line:
    """Make the line of one run: its experiment, its results, and where it ran."""
    started = time.monotonic()
    body = KINDS[task.experiment.kind].body(task)
    seconds = body.pop("seconds", time.monotonic() - started)
    engine = body.pop("engine", None)
    arm = task.experiment.arms[task.arm]
    return {
        "experiment": task.experiment.name,
        **task.experiment.identity(arm),
        "study": arm.study,
        "seed": task.seed,
        **body,
        "seconds": seconds,
        "engine": engine,
        "versions": provenance.versions(),
        "machine": provenance.machine(engine),
        "commit": provenance.commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


_shared: tuple[Experiment, Data] | None = None  # of a worker process


def _side_by_side(
    experiment: Experiment, data: Data, todo: list[Pair], progress: Progress, workers: int
) -> Outcomes:
    """Do the runs in several processes, each of which takes whole tasks."""
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(
        min(workers, len(todo)),
        mp_context=multiprocessing.get_context("spawn"),  # a forked process cannot use CUDA
        initializer=_start,
        initargs=(experiment, data),
    )
    try:
        with progress as told, _few_threads(workers):
            with deaf_to_ctrl_c():
                futures: dict[Future[Outcome], Pair] = {pool.submit(_work, p): p for p in todo}
            told.note(f"{experiment.name}: {len(todo)} runs in {workers} processes")
            for number, future in enumerate(as_completed(futures), 1):
                arm, seed = futures[future]
                yield (arm, seed), future.result()
                told.note(f"{experiment.name}: {arm}, seed {seed} done ({number} of {len(todo)})")
    except BrokenProcessPool as error:
        raise InputError(
            "a worker process was killed, perhaps for lack of memory; use fewer --workers"
        ) from error
    except (KeyboardInterrupt, GeneratorExit):
        for child in set(multiprocessing.active_children()) - before:
            child.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _start(experiment: Experiment, data: Data) -> None:
    """Keep in a worker process what all its tasks share."""
    global _shared
    _shared = experiment, data
    follow_parent()


def _work(pair: Pair) -> Outcome:
    assert _shared is not None
    return _outcome(*_shared, pair, None)


@contextmanager
def _few_threads(workers: int) -> Iterator[None]:
    """Limit the threads of processes that start in this context, so that they share the cores."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    added = [name for name in names if name not in os.environ]
    for name in added:
        os.environ[name] = str(max(1, (os.cpu_count() or 1) // workers))
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]
