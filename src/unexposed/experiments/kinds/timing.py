"""Time the epochs of a method, and compare UBO with RelMF.

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
from unexposed.experiments.task import Task
from unexposed.methods.trained import TrainedMethod
from unexposed.model.recommender import Recommender
from unexposed.progress import Progress, Tick
from unexposed.training.given import Side


def body(task: Task) -> dict[str, Any]:
    """Time one repeat of one method."""
    assert task.method is not None
    clicks = task.data.split(task.seed).train
    return epochs(task.method, clicks, seed=task.seed, progress=task.progress)


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


def ratio(
    lines: Sequence[dict[str, Any]], *, over: str = "ubo", under: str = "relmf"
) -> list[dict[str, Any]]:
    """Divide the epoch times of two methods: by repeat, on each engine that ran both."""
    found = []
    for engine in sorted({line["engine"] for line in lines}):
        median = {
            (line["arm"], line["seed"]): statistics.median(line["epoch_seconds"])
            for line in lines
            if line["engine"] == engine
        }
        ratios = [
            median[over, seed] / median[under, seed]
            for seed in sorted({seed for _, seed in median})
            if (over, seed) in median and (under, seed) in median
        ]
        if ratios:
            found.append(
                {
                    "engine": engine,
                    "ratios": ratios,
                    "median": statistics.median(ratios),
                    "least": min(ratios),
                    "greatest": max(ratios),
                }
            )
    return found
