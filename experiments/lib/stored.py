"""Stored results of an experiment's cells, and the differences of arms over the same users."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import timing  # noqa: F401
import trend  # noqa: F401
import world_inputs  # noqa: F401
from unexposed import settings
from unexposed.data.datasets import DATASETS
from unexposed.errors import InputError
from unexposed.evaluation.protocols import TRUE_RELEVANCE, Protocol
from unexposed.evaluation.significance import bootstrap_interval, paired_test
from unexposed.experiments import spec
from unexposed.experiments.compare import METRIC, document, from_lines
from unexposed.experiments.results import Line, Results
from unexposed.experiments.run import is_current, pair_of
from unexposed.experiments.task import Experiment

FOLDER = Path(__file__).parents[1]
Floats = NDArray[np.float64]
RESAMPLES = 2000


@dataclass(frozen=True, eq=False)
class Stored:
    """A cell, its experiment, and its stored results that are current."""

    cell: spec.Cell
    asked: Experiment | None  # without the arms whose study is not made yet
    lines: list[Line]
    known: dict[str, Any]  # its comparisons, as stored
    stale: int  # results of other settings
    problem: str | None  # why arms are left out

    @property
    def name(self) -> str:
        return self.cell.name

    @property
    def command(self) -> str:
        folder = self.cell.path.parents[1]
        return f"python experiments/lib run experiments/{self.cell.path.relative_to(folder)}"

    @property
    def missing(self) -> dict[str, list[int]]:
        """Arm → the seeds that are not run."""
        done = {pair_of(line) for line in self.lines}
        arms, seeds = (self.asked.arms, self.asked.seeds) if self.asked else ((), 0)
        found = {arm: [s for s in range(seeds) if (arm, s) not in done] for arm in arms}
        return {arm: seeds for arm, seeds in found.items() if seeds}

    @property
    def complete(self) -> bool:
        return not self.missing and self.problem is None

    @property
    def data(self) -> dict[str, Any]:
        return self.cell.document["data"] if self.asked is None else self.asked.data

    def by_arm(self) -> dict[str, list[Line]]:
        """The lines of each arm, by the name that it has in tables."""
        arms: dict[str, list[Line]] = {}
        for line in self.lines:
            arms.setdefault(self.called(line["arm"]), []).append(line)
        return arms

    def called(self, label: str) -> str:
        """The name of an arm in tables: one named by its strategy is a form of its method."""
        arm = self.asked and self.asked.arms[label]
        if arm is None or label != getattr(arm.method, "strategy", None):
            return label
        usual = settings.known(type(arm.method))["strategy"].default
        return arm.method.name if label == usual else f"{arm.method.name}-{label}"

    def compared(self, by: Protocol | None = None) -> dict[str, Any]:
        """The comparison of its arms as plain data."""
        assert self.asked is not None
        found = document(self.asked, self.lines, by=by, known=self.known)
        for row in found["results"]:
            row["method"] = self.called(row["method"])
        return found

    def by_truth(self) -> Protocol:
        """True relevance in a world, which is the least noisy, and else the protocol."""
        assert self.asked is not None
        return TRUE_RELEVANCE if TRUE_RELEVANCE in self.asked.also else self.asked.protocol

    def values(self, by: Protocol) -> dict[str, Floats]:
        """Arm → DCG@3 (seeds, users), where the values of users are stored."""
        assert self.asked is not None
        compared = from_lines(self.asked, self.lines, by=by)
        return {r.label: r.values[METRIC] for r in compared.results}


@cache
def stored(path: Path) -> list[Stored]:
    """The cells of an experiment file with their results."""
    return [_stored(cell) for cell in spec.cells(path)]


def question(name: str, part: str = "") -> list[Stored]:
    """The cells of the experiment of this name, or those whose name holds the part."""
    path = FOLDER / name / f"{name}.toml" if "/" not in name else FOLDER / name
    return [cell for cell in stored(path) if part in cell.name]


def _stored(cell: spec.Cell) -> Stored:
    problem = None
    try:
        asked = cell.read()
    except InputError as error:
        problem, ready = str(error), cell.ready()
        try:
            asked = cell.read(tuned=ready)
        except InputError:
            return Stored(cell, None, [], {}, 0, problem)
        asked = replace(asked, arms={name: asked.arms[name] for name in ready})
    place = Results(cell.results, cell.name)
    every = place.read()
    latest = {pair_of(line): line for line in every if is_current(asked, line)}
    wanted = ((arm, seed) for arm in asked.arms for seed in range(asked.seeds))
    current = [latest[pair] for pair in wanted if pair in latest]
    stale = sum(not is_current(asked, line) for line in every)
    return Stored(cell, asked, current, place.document().get("comparisons", {}), stale, problem)


def data_title(data: dict[str, Any]) -> str:
    """The name of an experiment's data for people."""
    if "dataset" in data:
        return DATASETS[data["dataset"]].title
    if "semi_synthetic" in data:
        return f"{world_title(data)}, power {data['power']:g}"
    world = data["simulate"]
    return f"simulated world, {world['users']:,} × {world['items']:,}"


def world_title(data: dict[str, Any]) -> str:
    """The name of a semi-synthetic world, without its power."""
    by = ", as Saito et al." if data["generator"] == "saito" else ""
    return f"{DATASETS[data['semi_synthetic']].title}{by}"


@dataclass(frozen=True)
class Place:
    """A data set or world: DCG@3 of each arm, and facts of it.

    By true relevance in a world, which is the least noisy, and else by the experiment's protocol.
    """

    name: str  # of the cell
    title: str
    short: str  # the title without the ratings that a world is made from
    users: int
    means: dict[str, float]  # arm → DCG@3 over seeds and users
    values: dict[str, Floats]  # arm → (seeds, users), where they are stored
    given: dict[str, str]  # arm → what it is given that clicks do not tell
    pcc: dict[str, float]  # arm → correlation of its exposure with the true one
    held_out: dict[str, float]  # arm → quality on held-out clicks at its best epoch
    epoch: dict[str, float]  # arm → its best epoch
    keeps_values: bool = True  # a world's are not committed: its differences are remembered


@dataclass(frozen=True)
class Difference:
    """Arm minus base over the same users: its 95 % interval, and the sign-flip test over users."""

    mean: float
    low: float
    high: float
    p: float
    agree: bool  # every seed has the sign of the mean: users cannot show a lucky training

    @classmethod
    def of(cls, less: Floats) -> "Difference":
        by_seed = less.mean(axis=1)
        return cls(
            float(less.mean()),
            *bootstrap_interval(less, seed=0),
            paired_test(less, 0 * less, seed=0).p_value,
            bool((by_seed > 0).all() or (by_seed < 0).all()),
        )


class Memory:
    """Differences of arms whose values of users are not committed, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._before: dict[str, list[Any]] = json.loads(path.read_text()) if path.exists() else {}
        self._asked: dict[str, list[Any]] = {}

    def recall(self, name: str) -> list[Any] | None:
        if name in self._before:
            self._asked[name] = self._before[name]
        return self._before.get(name)

    def keep(self, name: str, numbers: Sequence[Any]) -> None:
        self._asked[name] = self._before[name] = list(numbers)

    def write(self) -> None:
        """Leave what was asked for."""
        lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(self._asked.items()))
        self._path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


MEMORY = Memory(FOLDER / "paired.json")
Terms = Sequence[tuple[Place, str]]  # an arm in one place, or in several whose users are pooled


def less(place: Place, arm: str, base: str) -> Difference | None:
    """Arm minus base in one place."""
    return difference([(place, arm)], [(place, base)])


def difference(arms: Terms, bases: Terms) -> Difference | None:
    """Arms minus bases over the users of all places; None where one of them has not been run."""
    if not all(arm in place.means for place, arm in (*arms, *bases)):
        return None
    name = f"{_named(arms)} − {_named(bases)}"
    if (values := _minus(arms, bases)) is not None:
        found = Difference.of(values)
        if not arms[0][0].keeps_values:
            MEMORY.keep(name, vars(found).values())
        return found
    if (known := MEMORY.recall(name)) is None:
        return None
    found = Difference(*known)
    users = sum(place.users for place, _ in arms)
    mean = _sum(arms) / users - _sum(bases) / users
    return found if abs(found.mean - mean) < 1e-9 else None  # else it is of earlier results


def share(part: tuple[Terms, Terms], whole: tuple[Terms, Terms]) -> list[float] | None:
    """The ratio of two differences, with its 95 % interval."""
    name = " / ".join(f"({_named(arms)} − {_named(bases)})" for arms, bases in (part, whole))
    above, below = _minus(*part), _minus(*whole)
    if above is None or below is None:
        return MEMORY.recall(name)
    found = [float(above.mean() / below.mean()), *ratio_interval(above, below)]
    if not part[0][0][0].keeps_values:
        MEMORY.keep(name, found)
    return found


def ratio_interval(above: Floats, below: Floats) -> tuple[float, float]:
    """95 % interval of the ratio of two means, each (seeds, users), by resampling users."""
    drawn = np.random.default_rng(0).integers(above.shape[1], size=(RESAMPLES, above.shape[1]))
    above, below = (values.mean(axis=0) for values in (above, below))
    ratios = above[drawn].mean(axis=1) / below[drawn].mean(axis=1)
    low, high = np.quantile(ratios, [0.025, 0.975])
    return float(low), float(high)


def _named(terms: Terms) -> str:
    places = ",".join(place.name for place, _ in terms)
    return f"{places}: {'+'.join(dict.fromkeys(arm for _, arm in terms))}"


def _sum(terms: Terms) -> float:
    return sum(place.users * place.means[arm] for place, arm in terms)


def _minus(arms: Terms, bases: Terms) -> Floats | None:
    if not all(arm in place.values for place, arm in (*arms, *bases)):
        return None
    first, second = (
        np.concatenate([place.values[arm] for place, arm in terms], axis=1)
        for terms in (arms, bases)
    )
    return first - second


def places(cells: Sequence[Stored]) -> list[Place]:
    """The cells of an experiment, as far as run."""
    found = []
    for cell in cells:
        if cell.asked is None:
            continue
        by = cell.by_truth()
        compared = document(cell.asked, cell.lines, by=by, known=cell.known)
        facts: dict[str, list[Line]] = {arm: [] for arm in cell.asked.arms}
        for line in cell.lines:
            facts[line["arm"]].append(line)
        clicks_choose = {
            arm: own
            for arm, own in facts.items()
            if own and own[0]["settings"].get("epoch_by", "held_out") == "held_out"
        }
        found.append(
            Place(
                cell.name,
                data_title(cell.data),
                _short(cell.data),
                compared["users"],
                {row["method"]: row["metrics"][METRIC]["mean"] for row in compared["results"]},
                cell.values(by),
                {label: arm.given for label, arm in cell.asked.arms.items()},
                _means(facts, lambda line: line.get("exposure_correlation")),
                _means(clicks_choose, lambda line: line["facts"]["best_value"]),
                _means(facts, lambda line: line["facts"]["best_epoch"]),
                keeps_values="dataset" in cell.data,
            )
        )
    return found


def _short(data: dict[str, Any]) -> str:
    if "semi_synthetic" not in data:
        return data_title(data)
    return f"{data['generator']}, power {data['power']:g}"


def _means(lines: dict[str, list[Line]], fact: Callable[[Line], float | None]) -> dict[str, float]:
    """The mean over seeds of each arm that has a number for every seed."""
    found = {arm: [fact(line) for line in own] for arm, own in lines.items()}
    return {
        arm: float(np.mean(numbers))
        for arm, numbers in found.items()
        if numbers and None not in numbers
    }
