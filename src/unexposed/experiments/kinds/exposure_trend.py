"""Whether the learned exposure is the true one, while training goes on (RQ3 of the paper).

PCC: Pearson's correlation of estimated and true exposure over all items, averaged over users. It
is taken before the first step, after each of the first iterations, and after every epoch. An
iteration is a batch of the factor methods and of CJMF; of ExpoMF, which has no batches, it is one
round of EM, which is its epoch too.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks, Split
from unexposed.errors import InputError
from unexposed.evaluation.protocols import Scores, exposure_correlation
from unexposed.methods.trained import TrainedMethod
from unexposed.model.model import Model
from unexposed.model.recommender import Recommender
from unexposed.progress import Progress, Tick
from unexposed.ranking.blocks import blocks
from unexposed.settings import check_keys
from unexposed.training.given import Side

if TYPE_CHECKING:
    from unexposed.experiments.task import Task

HIGH = 0.8  # what the paper's methods reach early
DROP = 0.05  # a fall of more than this is a decay; of less, stable

Line = dict[str, Any]


def body(task: "Task") -> dict[str, Any]:
    """The kind `exposure_trend` of an experiment: one method watched while it learns."""
    check_keys(task.options, {"iterations": int}, f"{task.experiment.name}, [options]")
    world = task.data.known_world(task.experiment.kind)
    assert task.method is not None
    split = task.data.split(task.seed)
    found = trend(
        task.method,
        split,
        world.exposure,
        iterations=task.options.get("iterations", 100),
        seed=task.seed,
        progress=task.progress,
    )
    found["facts"]["ceiling"] = ceiling(world.exposure, split.train)
    return found


def trend(
    method: Recommender,
    split: Split,
    truth: Scores,
    *,
    iterations: int,
    seed: int,
    progress: Progress,
) -> dict[str, Any]:
    """The correlation at the start, after each of the first iterations, and after every epoch.

    All epochs of the method are run: nothing is chosen, so nothing stops early. The held-out
    clicks only say, beside each epoch, how good the relevance is. A correlation is None where no
    user has one, for want of variation over items.
    """
    if not isinstance(method, TrainedMethod):
        raise InputError(f"{method.name} does not learn by epochs, so it has no trend")
    clicks = split.train
    trainee = method.trainee(clicks, seed=seed, side=Side(), progress=progress)
    quality = method.loop(clicks, split.held_out).quality

    def correlation() -> float | None:
        found = exposure_correlation(Model(method, trainee.parameters(), clicks, {}), truth)
        return found if math.isfinite(found) else None

    early, late = [correlation()], []
    held_out, losses = [], []
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
        losses.append(loss)
        late.append(correlation())
        if quality is not None:
            held_out.append(quality(trainee.parameters()))
        value = held_out[-1] if held_out else None
        progress(Tick(method.name, number, method.epochs, loss, value, number))
    done = len(late) == method.epochs
    return {
        "iterations": early,
        "epochs": late,
        "last": late[-1] if late else None,
        "facts": {
            "iteration": "a round of EM" if method.name == "expomf" else "a batch",
            "ended": "all epochs done" if done else "the loss was not finite",
            "held_out": held_out,  # SNIPS after every epoch
            "losses": losses,
        },
        "engine": trainee.facts.get("engine"),
    }


def ceiling(truth: Scores, clicks: Clicks) -> float:
    """The highest correlation that an exposure can have which is the same for every user.

    With z_u the true exposure of a user, centred and of length 1, an estimate v that is so too
    has the mean correlation (mean of z_u)·v, at most the length of that mean.
    """
    total, users = np.zeros(clicks.n_items), np.arange(clicks.n_users, dtype=np.int32)
    n = 0
    for _, true in blocks(truth, users, clicks):
        centred = true - true.mean(axis=1, keepdims=True, dtype=np.float64)
        length = np.linalg.norm(centred, axis=1)
        total += (centred[length > 0] / length[length > 0, None]).sum(axis=0)
        n += int((length > 0).sum())
    return float(np.linalg.norm(total) / max(n, 1))


def observations(
    lines: Sequence[Line], *, ubo: str = "ubo", joint: str = "ubo-joint"
) -> list[dict[str, Any]]:
    """What the paper saw in its trends, each decided by a rule, for every world in the lines.

    A rule looks at the mean over seeds. An observation whose methods are missing is left out.
    """
    found = []
    for world in sorted({_world(line) for line in lines}):
        mean = _means([line for line in lines if _world(line) == world])
        four = ("expomf", "cjmf", joint, ubo)
        if mean.keys() >= set(four):
            found.append(_early(world, {arm: mean[arm] for arm in four}))
        if joint in mean and world.startswith("ml_100k"):
            found.append(_decays(world, joint, mean[joint]))
        if ubo in mean:
            found.append(_stays(world, ubo, mean[ubo]))
        if {ubo, joint} <= mean.keys() and world.startswith("amazon_cds"):
            found.append(_above(world, mean[ubo], mean[joint]))
    return found


class _Mean(NamedTuple):
    """The mean trend of a method over its seeds, as far as all of them went."""

    iterations: NDArray[np.float64]
    epochs: NDArray[np.float64]


def _means(lines: Sequence[Line]) -> dict[str, _Mean]:
    arms: dict[str, list[Line]] = {}
    for line in lines:
        arms.setdefault(line["arm"], []).append(line)
    return {arm: _Mean(*(_mean(own, over) for over in _Mean._fields)) for arm, own in arms.items()}


def _mean(lines: list[Line], over: str) -> NDArray[np.float64]:
    shortest = min(len(line[over]) for line in lines)
    table = np.array([line[over][:shortest] for line in lines], dtype=np.float64)  # None: nan
    return table.mean(axis=0)


def _world(line: Line) -> str:
    data = line["data"]
    if "semi_synthetic" in data:
        return f"{data['semi_synthetic']}, power {data['power']:g}"
    return "simulated"


def _early(world: str, lines: dict[str, _Mean]) -> dict[str, Any]:
    highest = {arm: float(np.nanmax(line.iterations[1:])) for arm, line in lines.items()}
    return {
        "observation": "all four reach a high correlation early",
        "world": world,
        "rule": f"the highest after one of the first iterations is above {HIGH}, of all four",
        "holds": min(highest.values()) > HIGH,
        "numbers": highest,
    }


def _decays(world: str, arm: str, line: _Mean) -> dict[str, Any]:
    highest, last = float(np.nanmax(np.concatenate(line))), float(line.epochs[-1])
    return {
        "observation": f"{arm} decays",
        "world": world,
        "rule": f"the last epoch is more than {DROP} below the highest of the whole trend",
        "holds": highest - last > DROP,
        "numbers": {"highest": highest, "last": last, "drop": highest - last},
    }


def _stays(world: str, arm: str, line: _Mean) -> dict[str, Any]:
    # all iterations, then all epochs: the early epochs are told twice, which changes no maximum
    whole = np.concatenate([line.iterations, line.epochs])
    whole = whole[np.isfinite(whole)]
    falls = np.maximum.accumulate(whole) - whole
    return {
        "observation": f"{arm} stays stable",
        "world": world,
        "rule": f"at no time is it more than {DROP} below what it had reached before",
        "holds": bool(falls.max() <= DROP),
        "numbers": {
            "highest": float(whole.max()),
            "last": float(whole[-1]),
            "greatest_fall": float(falls.max()),
        },
    }


def _above(world: str, ubo: _Mean, joint: _Mean) -> dict[str, Any]:
    parts = zip(ubo, joint, strict=True)
    difference = np.concatenate([a[: len(b)] - b[: len(a)] for a, b in parts])
    difference = difference[1:]  # before the first step both are at the same place
    return {
        "observation": "ubo stays above joint all along",
        "world": world,
        "rule": "the difference is above 0 after every iteration and epoch",
        "holds": bool((difference > 0).all()),
        "numbers": {
            "least": float(difference.min()),
            "greatest": float(difference.max()),
            "share_above": float((difference > 0).mean()),
        },
    }
