"""Work on many trainings: tune, run."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unexposed.cli.options import (
    NO_COLUMNS,
    AsJson,
    Columns,
    DataDir,
    EngineName,
    KnownDataset,
    MethodNames,
    OwnLog,
    Seed,
    Settings,
    assignments,
    with_columns,
)
from unexposed.cli.talking import print_json, progress, say
from unexposed.errors import InputError

if TYPE_CHECKING:
    from unexposed.data.clicks import Clicks
    from unexposed.experiments.results import Line
    from unexposed.experiments.task import Experiment


@with_columns
def tune(
    methods: MethodNames,
    out: Annotated[Path, typer.Option(help="Folder for a study file of each method.")],
    dataset: KnownDataset = None,
    train: OwnLog = None,
    trials: Annotated[int, typer.Option(help="Settings tried for each method.", min=1)] = 40,
    splits: Annotated[int, typer.Option(help="Held-out splits a trial is judged on.", min=1)] = 1,
    workers: Annotated[int, typer.Option(help="Processes that share the trials.", min=1)] = 1,
    start_from: Annotated[
        Path | None, typer.Option(help="A study whose best settings are tried early.")
    ] = None,
    columns: Columns = NO_COLUMNS,
    settings: Settings = None,
    engine: EngineName = None,
    data_dir: DataDir = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Choose the settings of methods on held-out clicks; a study that was stopped goes on."""
    from unexposed.evaluation.compare import parse_methods
    from unexposed.tuning.search import best_settings
    from unexposed.tuning.search import tune as run

    clicks = _clicks_to_tune_on(dataset, train, columns, data_dir)
    source = dataset or str(train and train.stem)
    assigned = assignments(settings, engine)
    documents = []
    for label, method in parse_methods(methods, assigned).items():
        fixed = tuple(text.split("=")[0] for text in [*assigned, *label.split(":")[1:]])
        document = run(
            clicks,
            method,
            trials=trials,
            folder=out,
            name=f"{source}_{label.replace(':', '-').replace('=', '-')}",
            fixed=tuple(name.split(".")[-1] for name in fixed),
            splits=splits,
            workers=workers,
            seed=seed,
            start=None if start_from is None else best_settings(start_from),
            say=say,
        )
        documents.append(document)
        best = document["best"]
        chosen = " ".join(f"--set {k}={v}" for k, v in best["settings"].items())
        say(f"{label}: held-out quality {best['value']:.4f} with {chosen}")
    if as_json:
        print_json(documents)


def run(
    files: Annotated[list[Path], typer.Argument(help="Experiment files: TOML.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the results. (default: results/ beside a file)")
    ] = None,
    only: Annotated[str | None, typer.Option(help="Arms, separated by commas.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds to run.", min=1)] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Run again what is finished.")] = False,
    miniature: Annotated[
        bool, typer.Option("--miniature", help="In seconds, on a simulated world, into miniature/.")
    ] = False,
    workers: Annotated[int, typer.Option(help="Processes side by side.", min=1)] = 1,
    engine: EngineName = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Run experiments; what is finished already is not run again."""
    from unexposed.experiments import run as running

    asked = _experiments(files, miniature=miniature, seeds=seeds, engine=engine)
    labels = None if only is None else [arm.strip() for arm in only.split(",")]
    documents, failed = {}, False
    for file, experiment in asked.items():
        folder = out or (Path("miniature") if miniature else file.parent / "results")
        try:
            lines = running.run(
                experiment,
                folder / f"{experiment.name}.jsonl",
                progress=progress(),
                say=say,
                fresh=fresh,
                only=labels,
                workers=workers,
                data_dir=data_dir,
            )
            documents[experiment.name] = _show_run(experiment, lines, as_json=as_json)
        except InputError as error:
            if len(asked) == 1:
                raise
            say(f"error: {file}: {error}")
            failed = True
    if as_json:
        print_json(documents if len(asked) > 1 else documents.popitem()[1])
    if failed:
        sys.exit(2)


def _clicks_to_tune_on(
    dataset: str | None, train: Path | None, columns: Columns, data_dir: Path | None
) -> "Clicks":
    """The clicks alone: a data set's judged part goes no further than this function."""
    from unexposed.data import datasets as known
    from unexposed.evaluation.protocols import PROTOCOLS

    if (dataset is None) == (train is None):
        raise InputError("give either --dataset NAME or --train LOG")
    if train is not None:
        from unexposed.data.read import read_log

        return read_log(train, **columns.given(), say=say)
    assert dataset is not None
    if columns.are_given():
        raise InputError("give --dataset, or --train with its columns, not both")
    logged = known.load(dataset, data_dir=data_dir).logged
    return logged.clicks(threshold=PROTOCOLS["ubo-ijcai22"].threshold)


def _experiments(
    files: list[Path], *, miniature: bool, seeds: int | None, engine: str | None
) -> "dict[Path, Experiment]":
    """What the files ask for, all of them read before the first is run."""
    from unexposed.experiments import spec as experiments

    made = {}
    for file in files:
        if len(files) > 1 and not experiments.is_experiment(file):
            say(f"left out {file}, which has no kind and so is no experiment")
            continue
        asked = experiments.read(file)
        if miniature:
            asked = experiments.miniature(asked)
        if seeds is not None:
            asked = replace(asked, seeds=seeds)
        if engine is not None:
            asked = experiments.with_settings(asked, {"engine": engine})
        made[file] = asked
    return made


def _show_run(experiment: "Experiment", lines: "list[Line]", *, as_json: bool) -> Any:
    """Print the table of an experiment, or give its document."""
    from unexposed.cli import tables
    from unexposed.experiments.kinds.compare import from_lines

    title = experiment.title.replace("[", r"\[")
    if experiment.kind != "compare":
        if not as_json:
            tables.console().print(title, tables.run_table(lines))
        return {"experiment": experiment.name, "kind": experiment.kind, "lines": lines}
    comparison = from_lines(experiment, lines)
    if as_json:
        return comparison.document()
    tables.console().print(title, tables.comparison_table(comparison))
    return None
