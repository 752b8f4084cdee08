"""What a run of an experiment computes: one file for each kind; KINDS lists them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from unexposed.experiments.kinds import compare, exposure_trend, gradient_variance, timing
from unexposed.experiments.task import Task


@dataclass(frozen=True)
class Kind:
    """How to make the body of a result line from a task, and what its experiments contain."""

    body: Callable[[Task], dict[str, Any]]
    options: Mapping[str, type] = field(default_factory=dict)
    has_methods: bool = True  # its arms are methods; otherwise tables of options
    oracles: bool = False  # its methods can be given a part of the true exposure
    by_seed: bool = False  # run all arms of a seed before the next seed


KINDS = {
    "compare": Kind(compare.body, oracles=True),
    "exposure_trend": Kind(exposure_trend.body, exposure_trend.OPTIONS),
    "gradient_variance": Kind(gradient_variance.body, gradient_variance.OPTIONS, has_methods=False),
    # by seed: a disturbance on the machine then slows down all arms alike
    "timing": Kind(timing.body, by_seed=True),
}
