"""`unexposed compare`: methods trained on the same splits, evaluated on the same pairs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unexposed.cli import options
from unexposed.cli.features import with_features
from unexposed.cli.talking import print_json, progress, say
from unexposed.cli.tune import disliked_alone
from unexposed.errors import InputError

if TYPE_CHECKING:
    from unexposed.evaluation.compare import Splits
    from unexposed.evaluation.protocols import Protocol
    from unexposed.training.side import Side


@options.with_columns
def compare(
    methods: options.MethodNames,
    dataset: options.KnownDataset = None,
    train: options.OwnLog = None,
    judged: Annotated[
        Path | None, typer.Option(help="Your own judged pairs; without them --split makes some.")
    ] = None,
    split: options.SplitRule = None,
    seeds: Annotated[int, typer.Option(help="How many seeds each method runs.", min=1)] = 5,
    protocol: Annotated[
        str | None,
        typer.Option(
            help="See `unexposed protocols`. (default: catalogue; coat and the like: ubo-ijcai22)"
        ),
    ] = None,
    traffic: options.TrafficFile = None,
    columns: options.Columns = options.NO_COLUMNS,
    user_features: options.UserFeatures = None,
    item_features: options.ItemFeatures = None,
    settings: options.Settings = None,
    engine: options.EngineName = None,
    criterion: options.CriterionName = None,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Train methods on the same splits and compare them on judged pairs, or on later clicks."""
    from unexposed.cli import tables
    from unexposed.evaluation.compare import compare as run
    from unexposed.evaluation.compare import parse_methods
    from unexposed.evaluation.protocols import choice
    from unexposed.evaluation.protocols import protocol as protocol_named
    from unexposed.ranking.held_out import DEFAULT
    from unexposed.training.side import Side

    later = train is not None and judged is None and split is not None
    by = protocol_named(protocol or _usual(dataset))
    made = parse_methods(methods, options.assignments(settings, engine), criterion=criterion)
    side, files = None, (user_features, item_features)
    if dataset is not None:
        if any(files):
            raise InputError("features belong to --train: an experiment file gives a data set's")
        if train or judged or columns.are_given():
            raise InputError("give --dataset, or --train and --judged with their columns, not both")
        splits = _dataset_splits(dataset, by, data_dir, split)
        if criterion == "shown":
            side = Side(passed_over=disliked_alone(dataset, data_dir))
    elif train is not None and (judged is not None or later):
        splits, side = _file_splits(train, judged, by, columns, split, files)
    else:
        raise InputError(
            "give --dataset NAME, or --train LOG with --judged FILE, or with --split time:0.8 to "
            "judge by its later clicks"
        )
    if protocol is None and dataset is None and (taken := choice(splits(0).judged, by)):
        say(taken)
    side = options.with_traffic(side, traffic, splits(0).train, columns)
    comparison = run(splits, made, by=by, seeds=seeds, side=side, progress=progress(), say=say)
    if as_json:
        print_json(comparison.document())
    else:
        tables.show(tables.comparison_table(comparison))
    if preferred := comparison.dissent(criterion or DEFAULT):
        say(options.disagreement(preferred))
    if comparison.interrupted:
        sys.exit(130)


def _usual(dataset: str | None) -> str:
    """The protocol where none is named: the paper's for data sets with pairs judged at random."""
    from unexposed.data.datasets import DATASETS
    from unexposed.evaluation.protocols import DEFAULT, PAPER

    known = DATASETS.get(dataset or "")
    return PAPER if known is not None and "random" in known.holds else DEFAULT


def _dataset_splits(
    name: str, by: "Protocol", data_dir: Path | None, split: str | None
) -> "Splits":
    from unexposed.data import datasets as known
    from unexposed.evaluation.compare import split_clicks
    from unexposed.evaluation.protocols import clicks_and_judgements

    data = known.load(name, data_dir=data_dir)
    return split_clicks(*clicks_and_judgements(data.logged, data.random, by), by, how=split)


def _file_splits(
    train: str,
    judged: Path | None,
    by: "Protocol",
    columns: options.Columns,
    split: str | None,
    features: tuple[Path | None, Path | None],
) -> "tuple[Splits, Side]":
    from unexposed.cli.splitting import judged_by_later
    from unexposed.data.judged import read_judged
    from unexposed.data.log import read_log
    from unexposed.evaluation.compare import split_clicks

    clicks = read_log(train, **columns.given(), say=say)
    clicks, side = with_features(clicks, columns, *features)
    if judged is None:
        assert split is not None
        return split_clicks(*judged_by_later(clicks, split, by), by), side
    pairs = read_judged(judged, clicks, **columns.judged(), later_clicks=by.takes_clicks, say=say)
    return split_clicks(clicks, pairs, by, how=split), side
