"""`unexposed tune`: settings chosen on held-out clicks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unexposed.cli import options
from unexposed.cli.talking import print_json, say
from unexposed.errors import InputError

if TYPE_CHECKING:
    from unexposed.data.clicks import Clicks


@options.with_columns
def tune(
    methods: options.MethodNames,
    out: Annotated[Path, typer.Option(help="Folder for a study file of each method.")],
    dataset: options.KnownDataset = None,
    train: options.OwnLog = None,
    trials: Annotated[int, typer.Option(help="Settings tried for each method.", min=1)] = 40,
    splits: Annotated[int, typer.Option(help="Held-out splits a trial is judged on.", min=1)] = 1,
    workers: Annotated[int, typer.Option(help="Processes that share the trials.", min=1)] = 1,
    start_from: Annotated[
        Path | None, typer.Option(help="A study whose best settings are tried early.")
    ] = None,
    columns: options.Columns = options.NO_COLUMNS,
    settings: options.Settings = None,
    engine: options.EngineName = None,
    criterion: options.CriterionName = None,
    data_dir: options.DataDir = None,
    seed: options.Seed = 0,
    as_json: options.AsJson = False,
) -> None:
    """Choose the settings of methods on held-out clicks; a stopped study resumes."""
    from unexposed.evaluation.compare import parse_methods
    from unexposed.ranking.held_out import DEFAULT
    from unexposed.tuning import search
    from unexposed.tuning.dissent import dissent

    clicks = clicks_alone(dataset, train, columns, data_dir)
    source = dataset or str(train and train.stem)
    assigned = options.assignments(settings, engine)
    documents = []
    for label, method in parse_methods(methods, assigned, criterion=criterion).items():
        fixed = tuple(text.split("=")[0] for text in [*assigned, *label.split(":")[1:]])
        document = search.tune(
            clicks,
            method,
            trials=trials,
            folder=out,
            name=f"{source}_{label.replace(':', '-').replace('=', '-')}",
            fixed=tuple(name.split(".")[-1] for name in fixed),
            splits=splits,
            workers=workers,
            seed=seed,
            start=None if start_from is None else search.best_settings(start_from),
            by=criterion or DEFAULT,
            say=say,
        )
        documents.append(document)
        best = document["best"]
        chosen = " ".join(f"--set {k}={v}" for k, v in best["settings"].items())
        say(f"{label}: held-out quality {best['value']:.4f} with {chosen}")
        if preferred := dissent(document):
            say(f"{label}: {options.disagreement(preferred, train)}")
    if as_json:
        print_json(documents)


def clicks_alone(
    dataset: str | None, train: Path | None, columns: options.Columns, data_dir: Path | None
) -> "Clicks":
    """The clicks alone: a data set's judged part goes no further than this function."""
    from unexposed.data import datasets as known
    from unexposed.data.read import read_log
    from unexposed.evaluation.protocols import PROTOCOLS

    if (dataset is None) == (train is None):
        raise InputError("give either --dataset NAME or --train LOG")
    if train is not None:
        return read_log(train, **columns.given(), say=say)
    assert dataset is not None
    if columns.are_given():
        raise InputError("give --dataset, or --train with its columns, not both")
    logged = known.load(dataset, data_dir=data_dir).logged
    return logged.clicks(threshold=PROTOCOLS["ubo-ijcai22"].threshold)
