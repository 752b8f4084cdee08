"""Time the epochs of a method, and compare the times of two.

Each seed is a repeat. Kernels are compiled and one epoch is run before the clock starts. Other
programs disturb wall time, so the result includes the load average.
"""

import os
import statistics
import time
from collections.abc import Sequence
from typing import Any

from unexposed.data.clicks import Clicks
from unexposed.errors import InputError
from unexposed.experiments.compare import KINDS
from unexposed.experiments.task import Kind, Task
from unexposed.methods.trained import TrainedMethod
from unexposed.model.recommender import Recommender
from unexposed.progress import Progress, Tick
from unexposed.training.side import Side


def body(task: Task) -> dict[str, Any]:
    """Time one repeat of one method."""
    clicks = task.data.split(task.seed).train
    return epochs(task.arm.method, clicks, seed=task.seed, progress=task.progress)


# by seed: a disturbance on the machine then slows down all arms alike
KINDS["timing"] = Kind(body, by_seed=True)


def epochs(method: Recommender, clicks: Clicks, *, seed: int, progress: Progress) -> dict[str, Any]:
    """Measure the seconds of each of the method's epochs, after one that warms up.

    An epoch draws its samples and learns from them, without the held-out clicks. A method without
    engines runs on the CPU, so its engine is "cpu".
    """
    if not isinstance(method, TrainedMethod):
        raise InputError(f"{method.name} does not learn by epochs, so it cannot be timed")
    trainee = method.trainee(clicks, seed=seed, side=Side(), progress=progress)
    trainee.epoch()
    seconds = []
    for number in range(1, method.epochs + 1):
        started = time.perf_counter()
        loss = trainee.epoch()
        seconds.append(time.perf_counter() - started)
        progress(Tick(method.name, number, method.epochs, loss, None, number))
    return {
        "epoch_seconds": seconds,
        "engine": trainee.facts.get("engine", "cpu"),
        "samples": method.pairs_of_epoch(clicks),
        "median": statistics.median(seconds),
        "facts": {"load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None},
    }


def ratio(lines: Sequence[dict[str, Any]], *, over: str, under: str) -> float | None:
    """Divide the epoch times of two arms in each repeat that has both; return the median."""
    median = {
        (line["arm"], line["seed"]): statistics.median(line["epoch_seconds"]) for line in lines
    }
    ratios = [
        seconds / median[under, seed]
        for (arm, seed), seconds in median.items()
        if arm == over and (under, seed) in median
    ]
    return statistics.median(ratios) if ratios else None
