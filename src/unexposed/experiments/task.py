"""The parts of an experiment: its arms, and the task of running one of them with a seed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from unexposed import settings as checks
from unexposed.evaluation.protocols import Protocol
from unexposed.experiments.data import INPUTS, Data
from unexposed.model.recommender import Recommender
from unexposed.progress import Progress, Silent
from unexposed.ranking.held_out import DEFAULT
from unexposed.training.side import Side


@dataclass(frozen=True)
class Arm:
    """One row of a table or line of a figure: a method, and what it is given."""

    label: str
    method: Recommender
    study: str | None = None  # tuning study of its settings
    inputs: dict[str, Any] = field(default_factory=dict)  # beside the clicks, by names of INPUTS
    stated: tuple[str, ...] = ()  # settings that the file gives it, which no study here chooses

    @property
    def given(self) -> str:
        """What it is given that clicks do not tell; such an arm competes with no other."""
        titles = [INPUTS[name].title(value) for name, value in self.inputs.items()]
        if "oracle" in titles:
            return "oracle"
        return f"given {' and '.join(titles)}" if titles else ""


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
    arms: dict[str, Arm]
    criterion: str = DEFAULT  # on held-out clicks, for studies of methods without epochs
    tune: dict[str, Any] = field(default_factory=dict)  # how its studies are made

    def identity(self, arm: Arm) -> dict[str, Any]:
        """Everything but the seed that a stored result must match to count as this arm's."""
        step = getattr(arm.method, "step", 1)
        return {
            **({"step": step} if step > 1 else {}),
            "kind": self.kind,
            "arm": arm.label,
            "method": arm.method.name,
            "settings": checks.values(arm.method),
            **arm.inputs,
            "data": self.data,
            "protocol": self.protocol.name,
            "also": [by.name for by in self.also],
        }


@dataclass(frozen=True, eq=False)
class Task:
    """One run: an arm with a seed, from which a kind makes the body of a result."""

    experiment: Experiment
    arm: Arm
    seed: int
    data: Data
    progress: Progress = field(default_factory=Silent)

    @property
    def side(self) -> Side:
        """Inputs of the method beside the clicks."""
        return inputs_of(self.arm, self.data, self.seed)


def inputs_of(arm: Arm, data: Data, seed: int, *, by_shown: bool = False) -> Side:
    """What an arm is given: its inputs, and what was passed over for a criterion that asks."""
    parts: dict[str, Any] = {}
    for name, value in arm.inputs.items():
        parts |= INPUTS[name].make(data, value, seed)
    if by_shown or "passed_over" in arm.method.accepts:
        parts["passed_over"] = data.passed_over
    return Side(**parts)


@dataclass(frozen=True)
class Kind:
    """How to make the body of a result from a task."""

    body: Callable[[Task], dict[str, Any]]
    by_seed: bool = False  # run all arms of a seed before the next seed
