"""The data of an experiment: a data set, a world made from one, or a simulated world."""

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from unexposed.data import datasets
from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Impressions, Judgements, Traffic
from unexposed.data.pairs import Indices
from unexposed.data.split import Split
from unexposed.data.worlds import simulate
from unexposed.data.worlds.semi_synthetic import GENERATORS, trim
from unexposed.errors import InputError, did_you_mean
from unexposed.evaluation.protocols import Protocol, clicks_and_judgements
from unexposed.experiments import guides
from unexposed.experiments.oracles import ORACLES
from unexposed.sampling.validation import ValidationSet
from unexposed.settings import check_keys
from unexposed.training.side import Side

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
FEATURES = ("user_features", "item_features")  # that an arm may be given, where the data has them
WORLD_DEFAULTS = {"users": 500, "items": 200, "seed": 0}


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

    def known_world(self, kind: str) -> simulate.World:
        """Return the world, for a kind of experiment that needs its true exposure."""
        if self.world is None:
            raise InputError(
                f"kind {kind!r} needs a world whose exposure is known: name semi_synthetic or "
                "simulate in [data]"
            )
        return self.world

    def side(
        self,
        oracle: str | None,
        guide: str | None = None,
        traffic: float | None = None,
        features: tuple[str, ...] = (),
        *,
        impressions: bool = False,
        by_shown: bool = False,
        seed: int = 0,
    ) -> Side:
        """What an arm is given beside the clicks, such as a true exposure, a guide or traffic."""
        given = None if oracle is None else ORACLES[oracle](self.known_world("compare"))
        for name in features:
            if name not in self.features:
                raise InputError(f"{name} = true needs a data set that has them, such as coat")
        return Side(
            exposure=given,
            validation=None if guide is None else self._guide(guide, seed),
            impressions=self._impressions if impressions else None,
            passed_over=self._disliked if by_shown else None,
            traffic=None if traffic is None else self._traffic(traffic),
            **{name: self.features[name] for name in features},
        )

    @cached_property
    def _impressions(self) -> Impressions | None:
        """What the world showed to whom, how often, in the log of its clicks."""
        return self.known_world("compare").log(self.world_seed).shown

    @cached_property
    def _disliked(self) -> Impressions:
        """What users saw and did not like: in a data set of ratings, rated below the threshold."""
        if self.world is not None:
            return self.world.disliked(self.world_seed)
        assert self.disliked is not None
        return Impressions.from_pairs(
            *self.disliked, user_ids=self.clicks.user_ids, item_ids=self.clicks.item_ids
        )

    def _traffic(self, share: float) -> Traffic:
        """Random traffic: a share of a world's pairs, or of the judged pairs that were set aside.

        A larger share holds every pair of a smaller one.
        """
        if self.world is not None:
            return guides.traffic_of_world(self.world, share, self.judged, seed=self.world_seed)
        if self.set_aside is None:
            raise InputError(
                "an arm with traffic needs a world in [data], or a data set with traffic = SHARE "
                "of its judged pairs"
            )
        lots = np.random.default_rng([self.world_seed, 1]).random(len(self.set_aside))
        return self.set_aside.pick(lots < share)

    def _guide(self, guide: str, seed: int) -> ValidationSet:
        if self.world is not None:
            return guides.of_world(self.world, guide, seed=self.world_seed)
        assert self.disliked is not None
        return guides.of_ratings(self.split(seed).train, self.disliked, guide, seed=seed)

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


def completed(table: dict[str, Any]) -> dict[str, Any]:
    """The data table of a stored result, with the defaults of keys that did not exist then."""
    return {**SEMI_SYNTHETIC_DEFAULTS, **table} if "semi_synthetic" in table else table


def open_data(table: dict[str, Any], by: Protocol, data_dir: datasets.Folder | None = None) -> Data:
    """Load the data that a checked table names, with clicks and judgements by this protocol."""
    if "dataset" in table:
        data = datasets.load(table["dataset"], data_dir=data_dir)
        below = ~data.logged.liked(threshold=by.threshold)
        clicks, judged = clicks_and_judgements(data.logged, data.random, by)
        set_aside = None
        if "traffic" in table:
            lots = np.random.default_rng(0).random(len(judged)) < table["traffic"]
            judged, part = judged.pick(~lots), judged.pick(lots)
            ids = part.user_ids, part.item_ids
            set_aside = Traffic(part.users, part.items, part.relevant, *ids)
        return Data(
            clicks,
            judged,
            by.held_out,
            disliked=(data.logged.users[below], data.logged.items[below]),
            features={
                name: rows for name in FEATURES if (rows := getattr(data, name, None)) is not None
            },
            set_aside=set_aside,
        )
    if "simulate" in table:
        given = dict(table["simulate"])
        users, items, seed = given.pop("users"), given.pop("items"), given.pop("seed")
        world = simulate.world(users, items, seed=seed, **given)
        return _of_world(world, seed, by, fresh=table.get("fresh", False))
    seed = table["world_seed"]
    place = None if data_dir is None else str(data_dir)
    named = table["semi_synthetic"], table["generator"], table["trim"]
    world = _semi_synthetic(*named, seed, place)
    world = replace(world, exposure_power=table["power"])
    return _of_world(world, seed, by, fresh=table.get("fresh", False))


def _of_world(world: simulate.World, seed: int, by: Protocol, *, fresh: bool) -> Data:
    # one log per world, not per seed: another log would evaluate other users, and methods could
    # not be paired by user over seeds
    judged = min(20, world.n_items)
    drawn = world.split(seed=seed, held_out=0.0, judged_per_user=judged, fresh=fresh)
    return Data(drawn.train, drawn.judged, by.held_out, world, seed)


@lru_cache(maxsize=1)  # takes many seconds, and experiments at other powers share it
def _semi_synthetic(
    name: str, generator: str, trimmed: bool, seed: int, data_dir: str | None
) -> simulate.World:
    ratings = datasets.load(name, data_dir=data_dir).logged
    return GENERATORS[generator](trim(ratings) if trimmed else ratings, seed=seed)
