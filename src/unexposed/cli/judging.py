"""How good it is: evaluate, compare."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unexposed.cli.options import (
    NO_COLUMNS,
    AsJson,
    Columns,
    DataDir,
    EngineName,
    KnownDataset,
    MethodNames,
    ModelFolder,
    OwnLog,
    ProtocolName,
    Settings,
    assignments,
    with_columns,
)
from unexposed.cli.talking import print_json, progress, say
from unexposed.errors import InputError

if TYPE_CHECKING:
    from unexposed.evaluation.compare import Comparison, Splits
    from unexposed.evaluation.protocols import Protocol


@with_columns
def evaluate(
    folder: ModelFolder,
    judged: Annotated[Path, typer.Option(help="File with user, item, and relevance or rating.")],
    protocol: ProtocolName = "ubo-ijcai22",
    columns: Columns = NO_COLUMNS,
    as_json: AsJson = False,
) -> None:
    """Evaluate a saved model on judged pairs, whole and by how popular the items are."""
    from unexposed.cli import tables
    from unexposed.data.read import read_judged
    from unexposed.evaluation.protocols import describe
    from unexposed.evaluation.protocols import protocol as protocol_named
    from unexposed.methods import load

    by = protocol_named(protocol)
    model = load(folder)
    judgements = read_judged(judged, model, **columns.given(), say=say)
    document = describe(model, judgements, by)
    if as_json:
        return print_json(document)
    tables.console().print(tables.evaluation_table(document))
    return None


@with_columns
def compare(
    methods: MethodNames,
    dataset: KnownDataset = None,
    train: OwnLog = None,
    judged: Annotated[Path | None, typer.Option(help="Your own judged pairs.")] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds each method runs.", min=1)] = 5,
    protocol: ProtocolName = "ubo-ijcai22",
    columns: Columns = NO_COLUMNS,
    settings: Settings = None,
    engine: EngineName = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Train methods on the same splits and compare them on judged pairs."""
    from unexposed.evaluation.compare import compare as run
    from unexposed.evaluation.compare import parse_methods
    from unexposed.evaluation.protocols import protocol as protocol_named

    by = protocol_named(protocol)
    made = parse_methods(methods, assignments(settings, engine))
    if dataset is not None:
        if train or judged or columns.are_given():
            raise InputError("give --dataset, or --train and --judged with their columns, not both")
        splits = _dataset_splits(dataset, by, data_dir)
    elif train is not None and judged is not None:
        splits = _file_splits(train, judged, by, columns)
    else:
        raise InputError("give --dataset NAME, or both --train LOG and --judged FILE")
    _print_comparison(
        run(splits, made, by=by, seeds=seeds, progress=progress(), say=say), as_json=as_json
    )


def _dataset_splits(name: str, by: "Protocol", data_dir: Path | None) -> "Splits":
    from unexposed.data import datasets as known
    from unexposed.evaluation.protocols import split_ratings

    data = known.load(name, data_dir=data_dir)
    return lambda seed: split_ratings(data.logged, data.random, by, seed=seed)


def _file_splits(train: Path, judged: Path, by: "Protocol", columns: Columns) -> "Splits":
    from unexposed.data.read import read_judged, read_log
    from unexposed.evaluation.compare import split_clicks

    clicks = read_log(train, **columns.given(), say=say)
    return split_clicks(clicks, read_judged(judged, clicks, **columns.given(), say=say), by)


def _print_comparison(comparison: "Comparison", *, as_json: bool) -> None:
    from unexposed.cli import tables

    if as_json:
        print_json(comparison.document())
    else:
        tables.console().print(tables.comparison_table(comparison))
    if comparison.interrupted:
        sys.exit(130)
