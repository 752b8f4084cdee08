"""`unexposed compare`: methods trained on the same splits, evaluated on the same pairs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unexposed.cli import options
from unexposed.cli.talking import print_json, progress, say
from unexposed.errors import InputError

if TYPE_CHECKING:
    from unexposed.evaluation.compare import Splits
    from unexposed.evaluation.protocols import Protocol


@options.with_columns
def compare(
    methods: options.MethodNames,
    dataset: options.KnownDataset = None,
    train: options.OwnLog = None,
    judged: Annotated[Path | None, typer.Option(help="Your own judged pairs.")] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds each method runs.", min=1)] = 5,
    protocol: options.ProtocolName = "ubo-ijcai22",
    traffic: options.TrafficFile = None,
    columns: options.Columns = options.NO_COLUMNS,
    settings: options.Settings = None,
    engine: options.EngineName = None,
    criterion: options.CriterionName = None,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Train methods on the same splits and compare them on judged pairs."""
    from unexposed.cli import tables
    from unexposed.evaluation.compare import compare as run
    from unexposed.evaluation.compare import parse_methods
    from unexposed.evaluation.protocols import protocol as protocol_named
    from unexposed.ranking.held_out import DEFAULT

    by = protocol_named(protocol)
    made = parse_methods(methods, options.assignments(settings, engine), criterion=criterion)
    if dataset is not None:
        if train or judged or columns.are_given():
            raise InputError("give --dataset, or --train and --judged with their columns, not both")
        splits = _dataset_splits(dataset, by, data_dir)
    elif train is not None and judged is not None:
        splits = _file_splits(train, judged, by, columns)
    else:
        raise InputError("give --dataset NAME, or both --train LOG and --judged FILE")
    side = None if traffic is None else options.side_of(traffic, splits(0).train, columns)
    comparison = run(splits, made, by=by, seeds=seeds, progress=progress(), side=side, say=say)
    if as_json:
        print_json(comparison.document())
    else:
        tables.console().print(tables.comparison_table(comparison))
    if preferred := comparison.dissent(criterion or DEFAULT):
        say(options.disagreement(preferred, train))
    if comparison.interrupted:
        sys.exit(130)


def _dataset_splits(name: str, by: "Protocol", data_dir: Path | None) -> "Splits":
    from unexposed.data import datasets as known
    from unexposed.evaluation.protocols import split_ratings

    data = known.load(name, data_dir=data_dir)
    return lambda seed: split_ratings(data.logged, data.random, by, seed=seed)


def _file_splits(train: Path, judged: Path, by: "Protocol", columns: options.Columns) -> "Splits":
    from unexposed.data.read import read_judged, read_log
    from unexposed.evaluation.compare import split_clicks

    clicks = read_log(train, **columns.given(), say=say)
    return split_clicks(clicks, read_judged(judged, clicks, **columns.given(), say=say), by)
