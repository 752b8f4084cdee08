"""`ux.compare`: methods trained on the same splits, evaluated on the same pairs."""

from collections.abc import Iterable
from dataclasses import replace
from os import PathLike
from typing import Any

import numpy as np

from unexposed import progress as show
from unexposed.api.inputs import (
    as_clicks,
    as_columns,
    as_dataset,
    as_judged,
    as_protocol,
    as_traffic,
    loaded,
)
from unexposed.api.methods import Methods, as_methods
from unexposed.data.datasets import Dataset
from unexposed.data.log import Say
from unexposed.data.split import Split
from unexposed.errors import InputError
from unexposed.evaluation import compare as room
from unexposed.evaluation.compare import Comparison
from unexposed.evaluation.protocols import (
    DEFAULT,
    PAPER,
    Protocol,
    choice,
    clicks_and_judgements,
)
from unexposed.training.side import Side

JUDGING = "random:0.2"  # the clicks that judge where nothing else does


def compare(
    train: Any,
    methods: Methods,
    judged: Any = None,
    *,
    split: str | None = None,
    protocol: str | Protocol | None = None,
    metrics: str | Iterable[str] | None = None,
    seeds: int = 5,
    settings: Iterable[str] = (),
    criterion: str | None = None,
    side: Side | None = None,
    traffic: Any = None,
    data_dir: str | PathLike[str] | None = None,
    progress: show.Progress | None = None,
    say: Say | None = None,
    **columns: Any,
) -> Comparison:
    """Train methods on the same splits of a log, one for each seed, and compare them.

    `train` is a log (Clicks, a file, a frame), a Split, or a data set of DATASETS or its name.
    `methods` are names ("mf,ubo:dim=20"), methods, a list of both, or a mapping of labels to them;
    `settings` ("dim=64", "ubo.dim=64") are for all that have them.
    `judged` are judged pairs or later clicks. Without them `split` (see `ux.split`) says which
    clicks judge, by default a random fifth; with them it says which choose the epoch.
    The protocol is that of the paper for data sets with pairs judged at random, else `catalogue`.
    `columns` are the keywords of `read_log`. Ctrl-C raises `Interrupted`, whose `result` compares
    the methods that were finished.
    """
    words, train = as_columns(columns), as_dataset(train)
    is_paper = isinstance(train, Dataset) and "random" in train.holds
    usual = PAPER if is_paper else DEFAULT
    by = as_protocol(usual if protocol is None else protocol, metrics)
    made, side = as_methods(methods, settings, criterion), side or Side()
    tell = say or (lambda _: None)
    if isinstance(train, Split | Dataset) and judged is not None:
        raise InputError(f"a {type(train).__name__} has judged pairs of its own: leave judged out")
    if isinstance(train, Dataset):
        data = loaded(train, data_dir)
        clicks, pairs = clicks_and_judgements(data.logged, data.random, by)
        if criterion == "shown":
            side = replace(side, passed_over=data.logged.disliked(threshold=by.threshold))
    elif isinstance(train, Split):
        clicks, pairs = train.train.union(train.held_out), train.judged
    else:
        clicks = as_clicks(train, words, say=say)
        if judged is None:
            how, split = split or JUDGING, None
            clicks, pairs = room.judged_by_later(clicks, how, by)
            users = np.unique(pairs.users)
            new = int((clicks.user_counts[users] == 0).sum())
            tell(
                f"{how}: {len(clicks):,} clicks to learn from; {len(pairs):,} judge, by "
                f"{len(users):,} users" + (f", {new:,} of them without another click" * (new > 0))
            )
        else:
            pairs = as_judged(judged, clicks, words, by, say=say)
        if protocol is None and (taken := choice(pairs, by)):
            tell(taken)
    if traffic is not None:
        side = replace(side, traffic=as_traffic(traffic, clicks, words, say=say))
    splits = room.split_clicks(clicks, pairs, by, how=split)
    bar = progress or show.on_terminal(otherwise=show.Silent)
    return room.compare(splits, made, by=by, seeds=seeds, side=side, progress=bar, say=tell)
