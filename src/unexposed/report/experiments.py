"""A folder of experiments and its results, as one document of plain data."""

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from unexposed.data.datasets import DATASETS
from unexposed.errors import InputError
from unexposed.experiments import run as running
from unexposed.experiments import spec as experiment
from unexposed.experiments.kinds import gradient_variance
from unexposed.experiments.kinds.compare import document as compared
from unexposed.experiments.kinds.compare import from_lines, headline
from unexposed.experiments.results import Line, Results
from unexposed.experiments.task import Experiment
from unexposed.report import summary


def document(
    folder: Path, say: Callable[[str], object] = lambda _: None, *, without: Collection[str] = ()
) -> dict[str, Any]:
    """Everything in the report: the experiments, their results, what is still missing.

    Folders of experiments can be left out by name.
    """
    paths = [
        path
        for path in files(folder)
        if path.parent.name not in without and experiment.is_experiment(path)
    ]
    if not paths:
        raise InputError(f"{folder} holds no experiment: a TOML file with a kind, as in kind = …")
    found = []
    for path in paths:
        say(f"reading the results of {path.name}")
        found += [_experiment(cell, folder) for cell in experiment.cells(path)]
    paper = folder / "paper.toml"
    return {
        "folder": folder.resolve().name,
        "paper": experiment.document(paper) if paper.is_file() else {},
        "experiments": found,
    }


def files(folder: Path) -> list[Path]:
    """The TOML files of a folder and of the folders in it."""
    return sorted([*folder.glob("*.toml"), *folder.glob("*/*.toml")])


class Stored(NamedTuple):
    """An experiment, its stored results that are current, and how many are not."""

    asked: Experiment | None  # without the arms whose tuning study is not made yet
    lines: list[Line]
    stale: int
    comparisons: dict[str, Any]  # as stored
    problem: str | None  # why arms are left out


def stored(cell: experiment.Cell) -> Stored:
    """Read an experiment and its results; it is None if even its arms without a study are wrong."""
    problem = None
    try:
        asked = cell.read()
    except InputError as error:
        problem, ready = str(error), cell.ready()
        try:
            asked = cell.read(tuned=ready)
        except InputError:
            return Stored(None, [], 0, {}, problem)
        asked = replace(asked, arms={name: asked.arms[name] for name in ready})
    place = Results(cell.results, cell.name)
    every = place.read()
    latest = {running.pair_of(line): line for line in every if running.is_current(asked, line)}
    wanted = ((arm, seed) for arm in asked.arms for seed in range(asked.seeds))
    stale = sum(not running.is_current(asked, line) for line in every)
    current = [latest[pair] for pair in wanted if pair in latest]
    return Stored(asked, current, stale, place.document().get("comparisons", {}), problem)


def _experiment(cell: experiment.Cell, folder: Path) -> dict[str, Any]:
    """One experiment: what it asks for, its results so far, and the command for the rest."""
    about: dict[str, Any] = {
        "name": cell.name,
        "title": cell.document.get("title", cell.name),
        "kind": cell.document["kind"],
        "command": f"unexposed run {folder.resolve().name}/{cell.path.relative_to(folder)}",
        "problem": None,
        "missing": [],
    }
    asked, lines, stale, known, problem = stored(cell)
    about["problem"] = problem and problem.replace(f"{folder.parent}/", "")
    if asked is None:
        return about
    done = {running.pair_of(line) for line in lines}
    missing: dict[str, list[int]] = {}
    for arm in asked.arms:
        for seed in range(asked.seeds):
            if (arm, seed) not in done:
                missing.setdefault(arm, []).append(seed)
    about |= {
        "title": asked.title,
        "data": asked.data,
        "where": data_title(asked.data),
        "protocol": asked.protocol.name,
        "seeds": asked.seeds,
        "arms": len(asked.arms),
        "stale": stale,
        "missing": [{"arm": arm, "seeds": seeds} for arm, seeds in missing.items()],
        "origins": summary.origins(lines),
        "found": {},
    }
    return about | {"found": _FOUND[asked.kind](asked, lines, known) if lines else {}}


def data_title(data: dict[str, Any]) -> str:
    """The name of an experiment's data for people."""
    if "dataset" in data:
        return DATASETS[data["dataset"]].title
    if "semi_synthetic" in data:
        return f"{world_title(data)}, power {data['power']:g}"
    world = data["simulate"]
    return f"simulated world, {world['users']:,} × {world['items']:,}"


def world_title(data: dict[str, Any]) -> str:
    """The name of a semi-synthetic world, without its power."""
    by = ", as Saito et al." if data["generator"] == "saito" else ""
    return f"{DATASETS[data['semi_synthetic']].title}{by}"


def _compared(asked: Experiment, lines: list[Line], known: dict[str, Any]) -> dict[str, Any]:
    first = compared(asked, lines, known=known)
    if not first["results"]:
        return {}
    complete = {result["method"] for result in first["results"]}
    others = [compared(asked, lines, by=by, known=known) for by in asked.also]
    main = headline(asked.protocol)
    return {
        "metric": main,
        "comparison": summary.comparison(first, asked, tested=True),
        "also": [summary.comparison(other, asked, tested=False) for other in others],
        "exposures": summary.exposures(lines),
        "ablation": summary.ablation(from_lines(asked, lines), main),
        "strata": summary.strata([line for line in lines if line["arm"] in complete]),
    }


_FOUND: dict[str, Callable[[Experiment, list[Line], dict[str, Any]], dict[str, Any]]] = {
    "compare": _compared,
    "exposure_trend": lambda _, lines, __: {
        "trend": summary.trend(lines),
        "ceiling": summary.ceiling(lines),
    },
    "gradient_variance": lambda _, lines, __: {
        "variance": summary.variance(lines),
        "ratios": gradient_variance.ratios(lines),
    },
    "timing": lambda _, lines, __: {"timing": summary.timing(lines)},
}
