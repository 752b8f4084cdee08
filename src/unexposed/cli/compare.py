"""`unexposed compare`: methods trained on the same splits, evaluated on the same pairs."""

from pathlib import Path
from typing import Annotated, Any

import typer

from unexposed.cli import options
from unexposed.cli.inputs import known_dataset, with_features
from unexposed.cli.talking import disagreement, print_json, progress, say
from unexposed.data.columns import Columns
from unexposed.errors import InputError, Interrupted


@options.with_columns
def compare(
    methods: options.MethodNames,
    columns: Columns,
    dataset: options.KnownDataset = None,
    train: options.OwnLog = None,
    judged: Annotated[
        Path | None, typer.Option(help="Your own judged pairs. (default: a fifth of the clicks)")
    ] = None,
    split: options.SplitRule = None,
    seeds: Annotated[int, typer.Option(help="How many seeds each method runs.", min=1)] = 5,
    protocol: options.Protocol = None,
    traffic: options.Traffic = None,
    user_features: options.UserFeatures = None,
    item_features: options.ItemFeatures = None,
    settings: options.Settings = None,
    engine: options.EngineName = None,
    criterion: options.CriterionName = None,
    data_dir: options.DataDir = None,
    as_json: options.AsJson = False,
) -> None:
    """Train methods on the same splits and compare them on judged pairs, or on held-out clicks.

    Without --judged, --split says which clicks judge; with it, which choose the epoch.
    """
    from unexposed.api.compare import compare as run
    from unexposed.cli import tables
    from unexposed.data.log import read_log
    from unexposed.ranking.held_out import DEFAULT

    if (dataset is None) == (train is None):
        raise InputError("give either --dataset NAME, or --train LOG and perhaps --judged FILE")
    if dataset is not None and (judged or user_features or item_features or columns != Columns()):
        raise InputError("--judged, columns and features belong to --train, not to --dataset")
    log: Any = None if dataset is None else known_dataset(dataset)
    side, stopped = None, None
    if train is not None:
        log = read_log(train, **columns.of_log(), say=say)
        log, side = with_features(log, columns, user_features, item_features)
    try:
        comparison = run(
            log,
            methods,
            judged,
            split=split,
            protocol=protocol,
            seeds=seeds,
            settings=options.assignments(settings, engine),
            criterion=criterion,
            side=side,
            traffic=traffic,
            data_dir=data_dir,
            progress=progress(),
            say=say,
            **columns.of_log(),
        )
    except Interrupted as error:
        comparison, stopped = error.result, error
    if as_json:
        print_json(comparison.document())
    else:
        tables.show(tables.document_table(comparison.document()))
    if preferred := comparison.dissent(criterion or DEFAULT):
        say(disagreement(preferred))
    if stopped is not None:
        raise stopped
