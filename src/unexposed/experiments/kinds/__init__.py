"""What a run of an experiment computes: one file a kind; KINDS names them all."""

from collections.abc import Callable
from typing import Any

from unexposed.experiments.kinds import compare, exposure_trend, gradient_variance, timing
from unexposed.experiments.task import Task

KINDS: dict[str, Callable[[Task], dict[str, Any]]] = {
    "compare": compare.body,
    "exposure_trend": exposure_trend.body,
    "gradient_variance": gradient_variance.body,
    "timing": timing.body,
}
