"""Run an experiment: skip finished runs, and lose at most one run to a kill."""

import multiprocessing
import os
import platform
import subprocess
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from unexposed import settings as checks
from unexposed.data.datasets import Folder
from unexposed.errors import InputError, did_you_mean
from unexposed.evaluation.compare import Labelled
from unexposed.experiments import results
from unexposed.experiments.compare import KINDS, comparisons
from unexposed.experiments.data import INPUTS, SEMI_SYNTHETIC_DEFAULTS, Data, open_data
from unexposed.experiments.results import Line, Results
from unexposed.experiments.task import Experiment, Task
from unexposed.progress import Progress
from unexposed.tuning.search import deaf_to_ctrl_c, follow_parent
from unexposed.version import __version__

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
    found: dict[str, Any] = {key: line.get(key) for key in asked}
    found |= {key: line[key] for key in INPUTS if line.get(key)}
    data = found["data"] or {}
    found["data"] = {**SEMI_SYNTHETIC_DEFAULTS, **data} if "semi_synthetic" in data else data
    later = {name: checks.before(type(arm.method), name) for name in asked["settings"]}
    found["settings"] = {**later, **(found["settings"] or {})}
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
    experiment: Experiment, data: Data, todo: list[Pair], progress: Progress, _: int
) -> Outcomes:
    with progress as bar:
        for number, pair in enumerate(todo, 1):
            label = f"{experiment.name}: {pair[0]}, seed {pair[1]} ({number} of {len(todo)})"
            bar.note(label)
            yield pair, _outcome(experiment, data, pair, progress=Labelled(bar, label))


def _outcome(experiment: Experiment, data: Data, pair: Pair, **shown: Progress) -> Outcome:
    task = Task(experiment, experiment.arms[pair[0]], pair[1], data, **shown)
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
    return {
        "experiment": task.experiment.name,
        **task.experiment.identity(task.arm),
        "study": task.arm.study,
        "seed": task.seed,
        **body,
        "seconds": seconds,
        "engine": engine,
        "versions": versions(),
        "machine": machine(engine),
        "commit": commit(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


_shared: tuple[Experiment, Data] | None = None  # of a process of `_side_by_side`


def _side_by_side(
    experiment: Experiment, data: Data, todo: list[Pair], progress: Progress, workers: int
) -> Outcomes:
    """Do the runs in several processes, each of which takes whole tasks."""
    before = set(multiprocessing.active_children())
    added = {kind.body.__module__ for kind in KINDS.values()}
    added |= {one.title.__module__ for one in INPUTS.values()}
    pool = ProcessPoolExecutor(
        min(workers, len(todo)),
        mp_context=multiprocessing.get_context("spawn"),  # a forked process cannot use CUDA
        initializer=_start,
        initargs=(sorted(added), experiment, data),
    )
    try:
        with progress as bar, _few_threads(workers):
            with deaf_to_ctrl_c():
                futures: dict[Future[Outcome], Pair] = {pool.submit(_work, p): p for p in todo}
            bar.note(f"{experiment.name}: {len(todo)} runs in {workers} processes")
            for number, future in enumerate(as_completed(futures), 1):
                arm, seed = futures[future]
                yield (arm, seed), future.result()
                bar.note(f"{experiment.name}: {arm}, seed {seed} done ({number} of {len(todo)})")
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


def _start(modules: Iterable[str], experiment: Experiment, data: Data) -> None:
    """Load what added kinds and inputs, and keep in the process what all its tasks share."""
    global _shared
    for module in modules:
        import_module(module)
    _shared = experiment, data
    follow_parent()


def _work(pair: Pair) -> Outcome:
    assert _shared is not None
    return _outcome(*_shared, pair)


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


# Where a result came from


@cache
def versions() -> dict[str, str | None]:
    """Versions of this package, Python, and the packages that move numbers."""
    found: dict[str, str | None] = {"unexposed": __version__, "python": platform.python_version()}
    for package in ("numpy", "torch", "numba"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    return found


@cache
def commit() -> str | None:
    """Commit of the checkout that holds this code, with "+changes" where its sources differ."""
    package = Path(__file__).parents[1]

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(package), *words], capture_output=True, text=True, check=True
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel"), "src", "unexposed") != package.resolve():
            return None  # installed into another project's checkout
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


@cache
def machine(engine: str | None) -> str:
    """Name of the GPU for the cuda engine, otherwise of the CPU."""
    if engine == "cuda":
        import torch

        return torch.cuda.get_device_name()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
