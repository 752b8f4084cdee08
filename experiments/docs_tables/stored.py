"""Stored results of an experiment's cells, with one value for each user."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.evaluation.truth import TRUE_RELEVANCE
from unexposed.experiments.kinds.compare import from_lines
from unexposed.experiments.spec import cells
from unexposed.report.experiments import METRIC, data_title, stored

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Place:
    """A data set or world: DCG@3 of each user with each seed, and facts of each arm.

    By true relevance in a world, which is the least noisy, and else by the experiment's protocol.
    """

    name: str  # of the cell
    title: str
    short: str  # the title without the ratings that a world is made from
    values: dict[str, Floats]  # arm → (seeds, users)
    given: dict[str, str]  # arm → what it is given that clicks do not tell
    pcc: dict[str, float]  # arm → correlation of its exposure with the true one
    held_out: dict[str, float]  # arm → quality on held-out clicks at its best epoch
    epoch: dict[str, float]  # arm → its best epoch

    def less(self, arm: str, base: str) -> Floats | None:
        """Arm minus base, (seeds, users); None where one of them has not been run."""
        if arm not in self.values or base not in self.values:
            return None
        return self.values[arm] - self.values[base]


def places(path: Path, *, part: str | None = None) -> list[Place]:
    """The cells of an experiment file, or those whose name holds the part, as far as run."""
    found = []
    for cell in cells(path, part=part):
        asked, lines, _, _ = stored(cell)
        if asked is None:
            continue
        by = TRUE_RELEVANCE if TRUE_RELEVANCE in asked.also else asked.protocol
        compared = from_lines(asked, lines, by=by)
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
                {r.label: r.values[METRIC] for r in compared.results},
                {label: arm.given for label, arm in asked.arms.items()},
                _means({a: [li.get("exposure_correlation") for li in o] for a, o in facts.items()}),
                _means(
                    {a: [li["facts"]["best_value"] for li in o] for a, o in clicks_choose.items()}
                ),
                _means({a: [li["facts"]["best_epoch"] for li in o] for a, o in facts.items()}),
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
