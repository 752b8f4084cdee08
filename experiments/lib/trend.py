"""Correlate learned with true exposure during training (RQ3 of the paper).

PCC: Pearson's correlation of estimated and true exposure over all items, averaged over users. It
is measured before the first step, after each of the first iterations, and after every epoch. An
iteration is a batch, or one round of EM for ExpoMF, where it is also the epoch.
"""

import math
from typing import Any

import numpy as np

from unexposed.data.clicks import Clicks
from unexposed.data.split import Split
from unexposed.errors import InputError
from unexposed.evaluation.protocols import exposure_correlation
from unexposed.experiments.compare import KINDS
from unexposed.experiments.task import Kind, Task
from unexposed.methods.trained import TrainedMethod
from unexposed.model.model import Model
from unexposed.model.recommender import Recommender
from unexposed.progress import Progress, Tick
from unexposed.ranking.blocks import Scores, blocks
from unexposed.settings import known
from unexposed.training.side import Side

ITERATIONS = 100
NOTHING = Side()


def body(task: Task) -> dict[str, Any]:
    """Watch one method while it learns."""
    world = task.data.known_world("exposure_trend")
    split = task.data.split(task.seed)
    found = trend(
        task.arm.method,
        split,
        world.exposure,
        iterations=ITERATIONS,
        seed=task.seed,
        side=task.side,
        progress=task.progress,
    )
    found["facts"]["ceiling"] = ceiling(world.exposure, split.train)
    return found


KINDS["exposure_trend"] = Kind(body)


def trend(
    method: Recommender,
    split: Split,
    truth: Scores,
    *,
    iterations: int,
    seed: int,
    progress: Progress,
    side: Side = NOTHING,
) -> dict[str, Any]:
    """Measure the correlation at the start, after the first iterations and after every epoch.

    All epochs are run, without early stopping. A correlation is None where no user's exposure
    varies over items.
    """
    if not isinstance(method, TrainedMethod):
        raise InputError(f"{method.name} does not learn by epochs, so it has no trend")
    clicks = split.train
    trainee = method.trainee(clicks, seed=seed, side=side, progress=progress)

    def correlation() -> float | None:
        found = exposure_correlation(Model(method, trainee.parameters(), clicks, {}), truth)
        return found if math.isfinite(found) else None

    early, late = [correlation()], []
    for number in range(1, method.epochs + 1):
        if len(early) > iterations:
            loss = trainee.epoch()
        else:
            taken = []
            for step_loss in trainee.steps():
                taken.append(step_loss)
                if len(early) <= iterations:
                    early.append(correlation())
            loss = float(np.mean(taken))
        if not math.isfinite(loss):
            break
        late.append(correlation())
        progress(Tick(method.name, number, method.epochs, loss, None, number))
    done = len(late) == method.epochs
    return {
        "iterations": early,
        "epochs": late,
        "last": late[-1] if late else None,
        "facts": {
            "iteration": "a batch" if "batch_size" in known(type(method)) else "a round of EM",
            "ended": "all epochs done" if done else "the loss was not finite",
        },
        "engine": trainee.facts.get("engine"),
    }


def ceiling(truth: Scores, clicks: Clicks) -> float:
    """Highest correlation of any exposure that is equal for all users.

    Let z_u be the true exposure of a user and v the estimate, both centred and scaled to length 1.
    The mean correlation is (mean of z_u)·v, at most the length of that mean.
    """
    total, users = np.zeros(clicks.n_items), np.arange(clicks.n_users, dtype=np.int32)
    n = 0
    for _, true in blocks(truth, users, clicks):
        centred = true - true.mean(axis=1, keepdims=True, dtype=np.float64)
        length = np.linalg.norm(centred, axis=1)
        total += (centred[length > 0] / length[length > 0, None]).sum(axis=0)
        n += int((length > 0).sum())
    return float(np.linalg.norm(total) / max(n, 1))
