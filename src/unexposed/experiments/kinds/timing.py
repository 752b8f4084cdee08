"""How long an epoch takes: every method on one engine, and how much slower UBO is than RelMF.

A repeat is a seed. Everything is compiled and one epoch run before the clock starts. The seconds
are those on the wall, so that other programs disturb them: the load average stands in the result.
"""

import os
import statistics
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unexposed.data.clicks import Clicks
from unexposed.errors import InputError
from unexposed.methods.cjmf import CJMF
from unexposed.methods.trained import FactorMethod, TrainedMethod
from unexposed.model.recommender import Recommender
from unexposed.progress import Progress, Tick
from unexposed.sampling.samples import drawn
from unexposed.settings import check_keys
from unexposed.training.given import Side

if TYPE_CHECKING:
    from unexposed.experiments.task import Task


def body(task: "Task") -> dict[str, Any]:
    """The kind `timing` of an experiment: one repeat of one method."""
    check_keys(task.options, {}, f"{task.experiment.name}, [options]")
    assert task.method is not None
    clicks = task.data.split(task.seed).train
    return epochs(task.method, clicks, seed=task.seed, progress=task.progress)


def epochs(method: Recommender, clicks: Clicks, *, seed: int, progress: Progress) -> dict[str, Any]:
    """The seconds of each of the method's epochs, after one that warms up.

    An epoch draws its samples and learns from them; the held-out clicks are not looked at. A
    method that has no engine runs on the processor, and so is under "cpu".
    """
    if not isinstance(method, TrainedMethod):
        raise InputError(f"{method.name} does not learn by epochs, so there is none to time")
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
        "samples": samples(method, clicks),
        "median": statistics.median(seconds),
        "facts": {"load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None},
    }


def samples(method: TrainedMethod, clicks: Clicks) -> int:
    """How many pairs an epoch learns from; of a sweep over the whole matrix, all of them."""
    rng = np.random.default_rng(0)
    if isinstance(method, FactorMethod):
        learned_from = method.trained_on(clicks, Side())
        return len(method.drawing().samples(learned_from, rng).items)
    if isinstance(method, CJMF):
        return len(drawn(clicks, negatives=method.negatives, rng=rng).items)
    return clicks.n_users * clicks.n_items


def ratio(
    lines: Sequence[dict[str, Any]], *, over: str = "ubo", under: str = "relmf"
) -> list[dict[str, Any]]:
    """How many times longer an epoch of one method is: by repeat, on each engine both ran on."""
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
