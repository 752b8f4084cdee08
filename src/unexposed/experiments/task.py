"""The parts of an experiment: its arms, and the task of running one of them with a seed."""

from dataclasses import dataclass, field
from typing import Any

from unexposed import settings as checks
from unexposed.evaluation.protocols import Protocol
from unexposed.experiments import guides
from unexposed.experiments.data import Data
from unexposed.model.recommender import Recommender
from unexposed.progress import Progress, Silent
from unexposed.ranking.held_out import DEFAULT
from unexposed.training.side import Side


@dataclass(frozen=True)
class Arm:
    """One row of a table or line of a figure: a method, or options that the kind interprets."""

    label: str
    method: Recommender | None = None
    study: str | None = None  # tuning study of its settings
    exposure: str | None = None  # the part of a world's true exposure that it is given
    guide: str | None = None  # the validation set that it is given, of `guides.py`
    traffic: float | None = None  # the share of random traffic that it is given, of `data.py`
    impressions: bool = False  # whether it is given what the world showed
    features: tuple[str, ...] = ()  # of the data set, given to it: parts of `Side`
    stated: tuple[str, ...] = ()  # settings that the file gives it, which no study here chooses
    options: dict[str, Any] = field(default_factory=dict)

    def extras(self) -> dict[str, Any]:
        """Its inputs beside clicks and exposure, as a result line states them where it has any."""
        return {
            "guide": self.guide,
            "features": list(self.features),
            "traffic": self.traffic,
            "impressions": self.impressions,
        }

    @property
    def given(self) -> str:
        """What it is given that clicks do not tell; such an arm competes with no other."""
        if self.exposure is not None:
            return "oracle"
        told = [] if self.guide is None else [guides.SAID[guides.parse(self.guide)[0]]]
        told += ["impressions"] if self.impressions else []
        told += [] if self.traffic is None else ["random traffic"]
        told += [name.replace("_", " ") for name in self.features]
        return f"given {' and '.join(told)}" if told else ""


@dataclass(frozen=True)
class Experiment:
    """A checked TOML file, with every default and tuned value filled in."""

    name: str
    kind: str
    title: str
    protocol: Protocol
    also: tuple[Protocol, ...]  # evaluated on the same models
    seeds: int
    data: dict[str, Any]
    options: dict[str, Any]
    arms: dict[str, Arm]
    miniature: dict[str, Any]  # options that replace others in the miniature
    criterion: str = DEFAULT  # on held-out clicks, for studies of methods without epochs
    tune: dict[str, Any] = field(default_factory=dict)  # how its studies are made

    def identity(self, arm: Arm) -> dict[str, Any]:
        """Everything but the seed that a stored result must match to count as this arm's."""
        step = getattr(arm.method, "step", 1)
        return {
            **({"step": step} if step > 1 else {}),
            "kind": self.kind,
            "arm": arm.label,
            "method": arm.method.name if arm.method else None,
            "settings": checks.values(arm.method) if arm.method else {},
            "exposure": arm.exposure,
            **{name: value for name, value in arm.extras().items() if value},
            "options": {**self.options, **arm.options},
            "data": self.data,
            "protocol": self.protocol.name,
            "also": [by.name for by in self.also],
        }


@dataclass(frozen=True, eq=False)
class Task:
    """One run: an arm with a seed, from which a kind makes the body of one result line."""

    experiment: Experiment
    arm: str
    method: Recommender | None
    seed: int
    data: Data
    progress: Progress = field(default_factory=Silent)

    @property
    def side(self) -> Side:
        """Inputs of the method beside the clicks: an oracle's true exposure, a guide, traffic."""
        arm = self.experiment.arms[self.arm]
        return self.data.side(
            arm.exposure,
            arm.guide,
            arm.traffic,
            arm.features,
            impressions=arm.impressions,
            by_shown=arm.method is not None and "passed_over" in arm.method.accepts,
            seed=self.seed,
        )

    @property
    def options(self) -> dict[str, Any]:
        """The options of the experiment; the arm's own win."""
        return {**self.experiment.options, **self.experiment.arms[self.arm].options}
