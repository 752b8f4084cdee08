"""The data of an experiment, and what its arms may be given beside the clicks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.data import datasets
from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Impressions, Judgements, Traffic
from unexposed.data.pairs import Indices, pair_keys
from unexposed.data.split import Split
from unexposed.data.worlds import simulate
from unexposed.data.worlds.semi_synthetic import GENERATORS, trim
from unexposed.errors import InputError, did_you_mean
from unexposed.evaluation.protocols import Protocol, clicks_and_judgements
from unexposed.model.recommender import Recommender
from unexposed.settings import check_keys

SOURCES: dict[str, dict[str, type]] = {  # key that names the source → keys allowed with it
    "dataset": {"dataset": str, "traffic": float},
    "semi_synthetic": {
        "semi_synthetic": str,
        "generator": str,
        "power": float,
        "trim": bool,
        "world_seed": int,
        "fresh": bool,
    },
    "simulate": {"simulate": dict, "fresh": bool},
}
WORLD = {
    "users": int,
    "items": int,
    "seed": int,
    "popularity_bias": float,
    "relevance_bias": float,
    "attention": float,
}
SEMI_SYNTHETIC_DEFAULTS = {"generator": "converged", "power": 0.5, "world_seed": 0}
TRIMMED = {"amazon_cds"}  # the paper cuts it to 3,000 × 3,000
WORLD_DEFAULTS = {"users": 500, "items": 200, "seed": 0}
JUDGED = 20  # items of each user of a world


@dataclass(frozen=True, eq=False)
class Data:
    """One log with its judgements, and the world that made it where it is known.

    Only the held-out clicks change by seed, so that every seed evaluates the same users.
    """

    clicks: Clicks
    judged: Judgements
    held_out: float
    world: simulate.World | None = None
    world_seed: int = 0  # of the world's log
    disliked: tuple[Indices, Indices] | None = None  # rated pairs that are no clicks
    features: dict[str, Any] = field(default_factory=dict)  # part of `Side` → rows
    set_aside: Traffic | None = None  # judged pairs that judge no method: see `traffic` in [data]

    def known_world(self, what: str) -> simulate.World:
        """Return the world, for what needs its true exposure."""
        if self.world is None:
            raise InputError(
                f"{what} needs a world whose exposure is known: name semi_synthetic or "
                "simulate in [data]"
            )
        return self.world

    @cached_property
    def impressions(self) -> Impressions | None:
        """What the world showed to whom, how often, in the log of its clicks."""
        return self.known_world("impressions = true").log(self.world_seed).shown

    @cached_property
    def passed_over(self) -> Impressions:
        """What users saw and did not like: in a data set of ratings, rated below the threshold."""
        if self.world is not None:
            return self.world.disliked(self.world_seed)
        assert self.disliked is not None
        return Impressions.from_pairs(
            *self.disliked, user_ids=self.clicks.user_ids, item_ids=self.clicks.item_ids
        )

    def split(self, seed: int) -> Split:
        train, held_out = self.clicks.hold_out(fraction=self.held_out, seed=seed)
        return Split(train, held_out, self.judged)


def checked(table: dict[str, Any], where: str) -> dict[str, Any]:
    """Check the data table of an experiment and fill in its defaults."""
    named = [source for source in SOURCES if source in table]
    if len(named) != 1:
        raise InputError(f"{where} must name one of {', '.join(SOURCES)}, got {len(named)} of them")
    (source,) = named
    check_keys(table, SOURCES[source], where)
    if not 0 < table.get("traffic", 0.5) < 1:
        raise InputError(f"{where}: traffic must lie between 0 and 1, got {table['traffic']}")
    if source == "simulate":
        check_keys(table["simulate"], WORLD, f"{where} simulate")
        return {**table, "simulate": {**WORLD_DEFAULTS, **table["simulate"]}}
    if table[source] not in datasets.DATASETS:
        near = did_you_mean(table[source], datasets.DATASETS)
        raise InputError(f"{where}: no data set {table[source]!r}; {near}")
    if source == "dataset":
        return dict(table)
    if table.get("power", 1) <= 0:
        raise InputError(f"{where}: power must be above 0, got {table['power']}")
    if (name := table.get("generator", "saito")) not in GENERATORS:
        raise InputError(f"{where}: no generator {name!r}; {did_you_mean(name, GENERATORS)}")
    return {**SEMI_SYNTHETIC_DEFAULTS, "trim": table[source] in TRIMMED, **table}


def open_data(table: dict[str, Any], by: Protocol, data_dir: datasets.Folder | None = None) -> Data:
    """Load the data that a checked table names, with clicks and judgements by this protocol."""
    if "dataset" in table:
        return _of_ratings(table, by, data_dir)
    if "simulate" in table:
        made = dict(table["simulate"])
        users, items, seed = made.pop("users"), made.pop("items"), made.pop("seed")
        world = simulate.world(users, items, seed=seed, **made)
    else:
        seed, place = table["world_seed"], None if data_dir is None else str(data_dir)
        named = table["semi_synthetic"], table["generator"], table["trim"]
        world = replace(_semi_synthetic(*named, seed, place), exposure_power=table["power"])
    # one log per world, not per seed: another log would evaluate other users, and methods could
    # not be paired by user over seeds
    drawn = world.split(
        seed=seed,
        held_out=0.0,
        judged_per_user=min(JUDGED, world.n_items),
        fresh=table.get("fresh", False),
    )
    return Data(drawn.train, drawn.judged, by.held_out, world, seed)


def _of_ratings(table: dict[str, Any], by: Protocol, data_dir: datasets.Folder | None) -> Data:
    data = datasets.load(table["dataset"], data_dir=data_dir)
    below = ~data.logged.liked(threshold=by.threshold)
    clicks, judged = clicks_and_judgements(data.logged, data.random, by)
    set_aside = None
    if "traffic" in table:
        lots = np.random.default_rng(0).random(len(judged)) < table["traffic"]
        judged, part = judged.pick(~lots), judged.pick(lots)
        set_aside = Traffic(part.users, part.items, part.relevant, part.user_ids, part.item_ids)
    features = {name: getattr(data, name, None) for name in ("user_features", "item_features")}
    return Data(
        clicks,
        judged,
        by.held_out,
        disliked=(data.logged.users[below], data.logged.items[below]),
        features={name: rows for name, rows in features.items() if rows is not None},
        set_aside=set_aside,
    )


@lru_cache(maxsize=1)  # takes many seconds, and experiments at other powers share it
def _semi_synthetic(
    name: str, generator: str, trimmed: bool, seed: int, data_dir: str | None
) -> simulate.World:
    ratings = datasets.load(name, data_dir=data_dir).logged
    return GENERATORS[generator](trim(ratings) if trimmed else ratings, seed=seed)


@dataclass(frozen=True)
class Input:
    """What an arm may be given beside the clicks, by a key of its table."""

    type: type  # of its value in the file
    title: Callable[[Any], str]  # for tables
    make: Callable[[Data, Any, int], Mapping[str, Any]]  # data, value, seed → parts of `Side`
    # refuses a value, or one that the method or the [data] table cannot have
    check: Callable[[Any, Recommender, dict[str, Any]], None] = lambda *_: None


def drawn(
    world: simulate.World, share: float, *, seed: int, shown: bool = False
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """A share of all pairs of a world, or of those that its log showed: users, items, liked.

    These are the draws that made the log; a judged label is drawn anew (`fresh`), so that none is
    told.
    """
    lots, found, first = np.random.default_rng([seed, 1]), [], 0
    for was_shown, liked in world.draws(seed):
        taken = lots.random(was_shown.shape, dtype=np.float32) < share
        if shown:
            taken &= was_shown
        users, items = np.nonzero(taken)
        found.append((users + first, items, liked[taken]))
        first += len(was_shown)
    users, items, relevant = (np.concatenate(column) for column in zip(*found, strict=True))
    return users.astype(np.int32), items.astype(np.int32), relevant.astype(bool)


def _traffic(data: Data, share: float, _: int) -> dict[str, Any]:
    """Random traffic: a share of a world's pairs, or of the judged pairs that were set aside.

    A larger share holds every pair of a smaller one.
    """
    if data.world is not None:
        users, items, liked = drawn(data.world, share, seed=data.world_seed)
        ids, n_items = (data.judged.user_ids, data.judged.item_ids), data.world.n_items
        judged = pair_keys(data.judged.users, data.judged.items, n_items)
        free = ~np.isin(pair_keys(users, items, n_items), judged)
        return {"traffic": Traffic(users, items, liked, *ids).pick(free)}
    if data.set_aside is None:
        raise InputError(
            "an arm with traffic needs a world in [data], or a data set with traffic = SHARE "
            "of its judged pairs"
        )
    lots = np.random.default_rng([data.world_seed, 1]).random(len(data.set_aside))
    return {"traffic": data.set_aside.pick(lots < share)}


def _check_traffic(share: float, method: Recommender, table: dict[str, Any]) -> None:
    if not 0 < share <= 1:
        raise InputError(f"traffic must lie in (0, 1], got {share}")
    if "traffic" not in method.accepts:
        raise InputError(f"{method.name} cannot use traffic{method.cure('traffic')}")
    if "dataset" in table and "traffic" not in table:
        raise InputError(
            "traffic needs a world in [data], or a data set with traffic = SHARE of its judged part"
        )


def _check_impressions(_: bool, method: Recommender, table: dict[str, Any]) -> None:
    if "dataset" in table or "impressions" not in method.accepts:
        raise InputError(
            f"impressions = true needs a world in [data], and {method.name} to use them"
        )


def _features(name: str, data: Data, _: bool, __: int) -> dict[str, Any]:
    if name not in data.features:
        raise InputError(f"{name} = true needs a data set that has them, such as coat")
    return {name: data.features[name]}


def check_taken(part: str, method: Recommender, what: str) -> None:
    """Refuse an input that the method does not take, and name those that do."""
    from unexposed.methods import METHODS

    if part not in method.takes:
        able = ", ".join(name for name, other in METHODS.items() if part in other.takes)
        raise InputError(f"{method.name} cannot {what}; these can: {able}")


INPUTS: dict[str, Input] = {
    "impressions": Input(
        bool,
        lambda _: "impressions",
        lambda data, _, __: {"impressions": data.impressions},
        _check_impressions,
    ),
    "traffic": Input(float, lambda _: "random traffic", _traffic, _check_traffic),
    **{
        name: Input(
            bool,
            lambda _, name=name: name.replace("_", " "),  # type: ignore[misc]
            partial(_features, name),
            lambda _, method, __, name=name: check_taken(name, method, f"use {name}"),  # type: ignore[misc]
        )
        for name in ("user_features", "item_features")
    },
}
