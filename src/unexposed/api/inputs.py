"""What a caller gives, made into what the rooms below take; a wrong thing ends in one sentence."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import Any

import numpy as np

from unexposed import settings as checks
from unexposed.data import datasets
from unexposed.data.clicks import Clicks
from unexposed.data.datasets import Dataset
from unexposed.data.ids import match
from unexposed.data.judged import read_judged, read_pairs
from unexposed.data.labelled import Impressions, Judgements, Traffic
from unexposed.data.log import read_log
from unexposed.data.pairs import HasIds, same_ids
from unexposed.data.ratings import Ratings
from unexposed.data.split import Split
from unexposed.errors import InputError
from unexposed.evaluation.compare import Splits, parse_methods, split_clicks
from unexposed.evaluation.protocols import Protocol, split_ratings
from unexposed.evaluation.protocols import protocol as protocol_named
from unexposed.methods import load, load_partitions
from unexposed.model.load import is_parted
from unexposed.model.model import Model
from unexposed.model.recommender import Recommender
from unexposed.ranking import metrics as readings
from unexposed.ranking.held_out import criterion as criterion_named

JUDGING = 0.2  # share of the clicks that judge where nothing else does

Methods = str | Recommender | Iterable[str | Recommender] | Mapping[str, str | Recommender]


@dataclass(frozen=True)
class Columns:
    """Names of a table's columns, and the rating that counts as a click or as relevant."""

    user: str | None = None
    item: str | None = None
    rating: str | None = None
    threshold: float | None = None
    delimiter: str | None = None

    def given(self) -> dict[str, Any]:
        """Keywords for `read_log` and `read_judged`."""
        return asdict(self)


NO_COLUMNS = Columns()


def as_model(given: Any) -> Model:
    """A model, or the model saved in this folder."""
    if isinstance(given, Model):
        return given
    if isinstance(given, str | PathLike):
        return load(given)
    raise InputError(f"give a Model or the folder of a saved one, got {_kind(given)}")


def as_model_of(given: Any, judged: Any, columns: Columns) -> Model:
    """A model; of one saved by partitions, with the users of the judged pairs alone."""
    if not isinstance(given, str | PathLike) or not is_parted(given):
        return as_model(given)
    judged = judged.judged if isinstance(judged, Split) else judged
    if not hasattr(judged, "user_ids"):  # a file or a frame
        names = {name: getattr(columns, name) for name in ("user", "item", "delimiter")}
        judged = read_pairs(judged, **names)
    return load_partitions(given).of_users(judged.user_ids)


def as_methods(given: Methods, criterion: str | None = None) -> dict[str, Recommender]:
    """Methods by label, from names as on a command line (`ubo:dim=20`), methods, or both.

    The criterion is of every method that has one and is still at its default.
    """
    named: list[tuple[str | None, Any]]
    if isinstance(given, Mapping):
        named = list(given.items())
    elif isinstance(given, str) or not isinstance(given, Iterable):
        named = [(None, given)]
    else:
        named = [(None, one) for one in given]
    found: dict[str, Recommender] = {}
    for label, one in named:
        for own, method in _methods(one).items():
            shown = own if label is None else str(label)
            if shown in found:
                raise InputError(f"the method {shown!r} is given twice: leave one out")
            found[shown] = method if criterion is None else _choosing(method, criterion)
    if not found:
        raise InputError("no method given; name some, for example 'popularity,mf,bpr'")
    return found


def _methods(given: Any) -> dict[str, Recommender]:
    if isinstance(given, Recommender):
        own = "".join(f":{name}={value}" for name, value in checks.changed(given).items())
        return {given.name + own: given}
    if isinstance(given, str):
        return parse_methods(given, [])
    raise InputError(f"a method is a name or comes from ux.make, got {_kind(given)}")


def _choosing(method: Recommender, criterion: str) -> Recommender:
    criterion_named(criterion)
    has_one = "criterion" in checks.known(type(method))
    own = "criterion" in checks.changed(method)
    return replace(method, criterion=criterion) if has_one and not own else method  # type: ignore[call-arg]


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


def as_clicks(given: Any, columns: Columns = NO_COLUMNS) -> Clicks:
    """Clicks as they are, or read from a file, a frame, a mapping or a matrix."""
    return given if isinstance(given, Clicks) else read_log(given, **columns.given())


def as_impressions(given: Any, columns: Columns = NO_COLUMNS) -> Impressions:
    """Impressions as they are, those of clicks, or of a log that holds them."""
    if isinstance(given, Impressions):
        return given
    shown = as_clicks(given, columns).shown
    if shown is None:
        raise InputError(
            "this log holds no impressions: give one of what was shown, clicked or not"
        )
    return shown


def as_judged(given: Any, like: HasIds, columns: Columns, by: Protocol) -> Judgements:
    """Judgements in the indices of `like`; clicks judge as pairs that are all relevant."""
    if isinstance(given, Ratings):
        threshold = by.threshold if columns.threshold is None else columns.threshold
        given = given.judgements(threshold=threshold)
    if isinstance(given, Clicks):
        return _translated(given, np.ones(len(given), dtype=bool), like)
    if isinstance(given, Judgements | Traffic):
        return _translated(given, given.relevant, like)
    if isinstance(given, Split):
        return as_judged(given.judged, like, columns, by)
    return read_judged(given, like, **columns.given(), later_clicks=by.takes_clicks)


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


def as_splits(train: Any, judged: Any, by: Protocol, columns: Columns = NO_COLUMNS) -> Splits:
    """A split for each seed, whose held-out clicks alone change by seed.

    `train` is a log, a split, or a data set of DATASETS or its name, unless a file has that name. A
    log without judged pairs is judged by a fifth of its own clicks.
    """
    if isinstance(train, str) and not os.path.exists(train):
        train = datasets.DATASETS.get(train, train)
    if isinstance(train, Split | Dataset) and judged is not None:
        raise InputError(f"a {type(train).__name__} has judged pairs of its own: leave judged out")
    if isinstance(train, Dataset):
        name = next(name for name, one in datasets.DATASETS.items() if one is train)
        data = datasets.load(name)
        return lambda seed: split_ratings(data.logged, data.random, by, seed=seed)
    if isinstance(train, Split):
        return split_clicks(train.train.union(train.held_out), train.judged, by)
    clicks = as_clicks(train, columns)
    if judged is None:
        if by.candidates != "catalogue":
            raise InputError(
                f"protocol {by.name!r} needs judged pairs: give judged=, or protocol='catalogue'"
            )
        clicks, judged = clicks.hold_out(fraction=JUDGING, seed=0)
    return split_clicks(clicks, as_judged(judged, clicks, columns, by), by)


def _kind(given: object) -> str:
    return type(given).__name__
