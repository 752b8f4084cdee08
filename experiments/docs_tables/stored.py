"""Stored results of an experiment's cells, and the differences of arms over the same users."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.evaluation.protocols import TRUE_RELEVANCE
from unexposed.evaluation.significance import bootstrap_interval, paired_test
from unexposed.experiments.kinds.compare import METRIC, document, from_lines
from unexposed.experiments.spec import cells
from unexposed.report.experiments import data_title, stored

Floats = NDArray[np.float64]
RESAMPLES = 2000


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


MEMORY = Memory(Path(__file__).parents[1] / "paired.json")
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


def places(path: Path, *, part: str | None = None) -> list[Place]:
    """The cells of an experiment file, or those whose name holds the part, as far as run."""
    found = []
    for cell in cells(path, part=part):
        asked, lines, _, known, _ = stored(cell)
        if asked is None:
            continue
        by = TRUE_RELEVANCE if TRUE_RELEVANCE in asked.also else asked.protocol
        compared = document(asked, lines, by=by, known=known)
        facts = {arm: [line for line in lines if line["arm"] == arm] for arm in asked.arms}
        clicks_choose = {
            arm: own
            for arm, own in facts.items()
            if own and own[0]["settings"].get("epoch_by", "held_out") == "held_out"
        }
        found.append(
            Place(
                cell.name,
                data_title(asked.data),
                _short(asked.data),
                compared["users"],
                {row["method"]: row["metrics"][METRIC]["mean"] for row in compared["results"]},
                {r.label: r.values[METRIC] for r in from_lines(asked, lines, by=by).results},
                {label: arm.given for label, arm in asked.arms.items()},
                _means({a: [li.get("exposure_correlation") for li in o] for a, o in facts.items()}),
                _means(
                    {a: [li["facts"]["best_value"] for li in o] for a, o in clicks_choose.items()}
                ),
                _means({a: [li["facts"]["best_epoch"] for li in o] for a, o in facts.items()}),
                keeps_values="dataset" in asked.data,
            )
        )
    return found


def _short(data: dict[str, Any]) -> str:
    if "semi_synthetic" not in data:
        return data_title(data)
    return f"{data['generator']}, power {data['power']:g}"


def _means(found: dict[str, list[float | None]]) -> dict[str, float]:
    """The mean over seeds of each arm that has a number for every seed."""
    return {
        arm: float(np.mean([n for n in numbers if n is not None]))
        for arm, numbers in found.items()
        if numbers and None not in numbers
    }
