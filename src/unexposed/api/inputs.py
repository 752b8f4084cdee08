"""What a caller gives, made into what the rooms below take; a wrong thing ends in one sentence."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from os import PathLike
from typing import Any

import numpy as np

from unexposed.data import datasets
from unexposed.data.clicks import Clicks, Ratings
from unexposed.data.columns import Columns
from unexposed.data.datasets import Dataset, RatingData
from unexposed.data.ids import match
from unexposed.data.judged import read_judged, read_pairs, read_traffic
from unexposed.data.labelled import Impressions, Judgements, Traffic
from unexposed.data.log import Say, read_log
from unexposed.data.pairs import HasIds, same_ids
from unexposed.data.split import Split
from unexposed.errors import InputError, did_you_mean
from unexposed.evaluation.protocols import PAPER, PROTOCOLS, Protocol
from unexposed.evaluation.protocols import protocol as protocol_named
from unexposed.methods import load, load_partitions
from unexposed.model.load import is_parted
from unexposed.model.model import Model
from unexposed.ranking import metrics as readings

NO_COLUMNS = Columns()


def as_columns(given: Mapping[str, Any]) -> Columns:
    """The columns of a table, from keywords of `read_log`."""
    names = [f.name for f in fields(Columns)]
    for name in given:
        if name not in names:
            raise InputError(f"there is no argument {name!r}; {did_you_mean(name, names)}")
    return Columns(**given)


def as_model(given: Any, judged: Any = None, columns: Columns = NO_COLUMNS) -> Model:
    """A model, or the one saved in this folder: if by partitions, with judged users alone."""
    if isinstance(given, Model):
        return given
    if not isinstance(given, str | PathLike):
        raise InputError(f"give a Model or the folder of a saved one, got {_kind(given)}")
    if judged is None or not is_parted(given):
        return load(given)
    judged = judged.judged if isinstance(judged, Split) else judged
    if not hasattr(judged, "user_ids"):  # a file or a frame
        judged = read_pairs(judged, **columns.of_pairs())
    return load_partitions(given).of_users(judged.user_ids)


def as_protocol(given: str | Protocol, metrics: str | Iterable[str] | None = None) -> Protocol:
    """A protocol by name or itself, with these metrics in place of its own."""
    by = protocol_named(given)
    if metrics is None:
        return by
    asked = metrics.split(",") if isinstance(metrics, str) else metrics
    names = [str(name).strip() for name in asked]
    if not names:
        raise InputError(f"no metric given; {by.name} has {', '.join(by.metrics)}")
    for name in names:
        readings.parse(by.metrics.get(name, name))
    return replace(by, metrics={name: by.metrics.get(name, name) for name in names})


def as_dataset(given: Any) -> Any:
    """A data set of DATASETS by its name, unless a file has that name; else what is given."""
    if isinstance(given, str) and not os.path.exists(given):
        return datasets.DATASETS.get(given, given)
    return given


def loaded(dataset: Dataset, data_dir: str | PathLike[str] | None = None) -> RatingData:
    """The ratings of a data set."""
    name = next(name for name, one in datasets.DATASETS.items() if one is dataset)
    return datasets.load(name, data_dir=data_dir)


def disliked(dataset: Dataset, data_dir: str | PathLike[str] | None = None) -> Impressions:
    """What users of a data set rated below the threshold, in its logged part."""
    return loaded(dataset, data_dir).logged.disliked(threshold=PROTOCOLS[PAPER].threshold)


def as_clicks(
    given: Any,
    columns: Columns = NO_COLUMNS,
    *,
    data_dir: str | PathLike[str] | None = None,
    any_size: bool = False,
    say: Say | None = None,
) -> Clicks:
    """Clicks as they are, of a data set, or read from a file, a frame, a mapping or a matrix."""
    given = as_dataset(given)
    if isinstance(given, Dataset):
        return loaded(given, data_dir).logged.clicks(threshold=PROTOCOLS[PAPER].threshold)
    if isinstance(given, Clicks):
        return given
    return read_log(given, **columns.of_log(), any_size=any_size, say=say)


def as_impressions(
    given: Any, columns: Columns = NO_COLUMNS, *, say: Say | None = None
) -> Impressions:
    """Impressions as they are, those of clicks, or of a log that holds them."""
    if isinstance(given, Impressions):
        return given
    shown = as_clicks(given, columns, any_size=True, say=say).shown
    if shown is None or shown.propensity is None:
        raise InputError(
            "this log holds no impressions with propensities: give one of what was shown, clicked "
            "or not, and name the column with propensity= (--propensity)"
        )
    return shown


def as_judged(
    given: Any, like: HasIds, columns: Columns, by: Protocol, *, say: Say | None = None
) -> Judgements:
    """Judgements in the indices of `like`; clicks judge as pairs that are all relevant."""
    if isinstance(given, Split):
        given = given.judged
    if isinstance(given, Ratings):
        threshold = by.threshold if columns.threshold is None else columns.threshold
        given = given.judgements(threshold=threshold)
    if isinstance(given, Clicks):
        return _translated(given, np.ones(len(given), dtype=bool), like)
    if isinstance(given, Judgements | Traffic):
        return _translated(given, given.relevant, like)
    return read_judged(given, like, **columns.of_judged(), later_clicks=by.takes_clicks, say=say)


def as_traffic(given: Any, like: HasIds, columns: Columns, *, say: Say | None = None) -> Traffic:
    """Random traffic as it is, or read from a file or a frame."""
    if isinstance(given, Traffic):
        return given
    return read_traffic(given, like, **columns.of_judged(), say=say)


def _translated(pairs: Any, relevant: Any, like: HasIds) -> Judgements:
    """The pairs whose user and item `like` knows, as judgements in its indices."""
    users, items = pairs.users, pairs.items
    if not same_ids(pairs, like):
        users = match(pairs.user_ids, like.user_ids)[users]
        items = match(pairs.item_ids, like.item_ids)[items]
    known = (users >= 0) & (items >= 0)
    if not known.any():
        raise InputError(
            f"none of the {len(known):,} judged pairs has a known user and item; "
            "judge users and items of the training log"
        )
    ids = {"user_ids": like.user_ids, "item_ids": like.item_ids}
    return Judgements.from_pairs(users[known], items[known], relevant[known], **ids)


def _kind(given: object) -> str:
    return type(given).__name__
