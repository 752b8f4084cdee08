"""Train one method on one seed's split and evaluate it by every protocol."""

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unexposed.data.simulate import World
from unexposed.errors import InputError
from unexposed.evaluation.compare import Comparison, Result, refuse_shared, train
from unexposed.evaluation.describe import by_popularity, recommended
from unexposed.evaluation.protocols import (
    Evaluation,
    Protocol,
    evaluate,
    exposure_correlation,
)
from unexposed.evaluation.truth import TRUE_RELEVANCE, by_truth
from unexposed.experiments.results import Line, pack, unpack
from unexposed.experiments.task import Experiment, Task
from unexposed.model.model import Model


def body(task: Task) -> dict[str, Any]:
    """Compute the values of every metric for each user, and the facts of the training."""
    assert task.method is not None
    split = task.data.split(task.seed)
    refuse_shared(task.side.traffic, split.judged)
    model, seconds = train(
        task.method, split, seed=task.seed, progress=task.progress, side=task.side
    )
    first = task.experiment.protocol
    found = {by.name: _evaluate(model, task, by) for by in (first, *task.experiment.also)}
    return {
        "protocols": {
            name: {
                "users": len(evaluation.users),
                "who": hashlib.sha256(evaluation.users.astype("<i4").tobytes()).hexdigest()[:12],
                "values": {metric: pack(values) for metric, values in evaluation.values.items()},
            }
            for name, evaluation in found.items()
        },
        "by_popularity": by_popularity(model, split.judged, first),
        "recommended": recommended(model, found[first.name].users),
        **_correlation(model, task.data.world),
        "facts": {
            name: model.facts.get(name)
            for name in ("best_epoch", "best_value", "epochs_run", "ended")
        },
        "engine": model.facts.get("engine"),
        "seconds": seconds,
    }


def _evaluate(model: Model, task: Task, by: Protocol) -> Evaluation:
    if by.name == TRUE_RELEVANCE.name:  # a worker has a copy of its own
        return by_truth(model.scores, task.data.known_world(by.name), task.data.clicks)
    return evaluate(model, task.data.judged, by)


def _correlation(model: Model, world: World | None) -> dict[str, float | None]:
    """PCC of the model's exposure with the true one, where both are known.

    None: no user's exposure varies over items.
    """
    first = np.zeros(1, dtype=np.int32)
    if world is None or model.method.exposure(model.parameters, first) is None:
        return {}
    found = exposure_correlation(model, world.exposure)
    return {"exposure_correlation": found if math.isfinite(found) else None}


def from_lines(
    experiment: Experiment, lines: Sequence[Line], *, by: Protocol | None = None
) -> Comparison:
    """Build the comparison of the arms whose seeds are all in the stored results."""
    by = by or experiment.protocol
    results: list[Result] = []
    evaluated: dict[tuple[int, str], Line] = {}
    for label, arm in experiment.arms.items():
        of_arm = {line["seed"]: line for line in lines if line["arm"] == label}
        done = [of_arm[seed] for seed in range(experiment.seeds) if seed in of_arm]
        if arm.method is None or len(done) < experiment.seeds:
            continue
        try:
            stored = [line["protocols"][by.name] for line in done]
            values = {m: np.stack([unpack(s["values"][m]) for s in stored]) for m in by.metrics}
            seconds = float(sum(line["seconds"] for line in done))
            evaluated |= {(s["users"], s["who"]): li for s, li in zip(stored, done, strict=True)}
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{experiment.name}: the results of {label} are damaged ({error}); "
                f"run again with --fresh --only {label}"
            ) from error
        results.append(Result(label, arm.method, values, seconds))
    if len(evaluated) > 1:
        odd = list(evaluated.values())[-1]
        raise InputError(
            f"{experiment.name}: {odd['arm']}, seed {odd['seed']} evaluated other users than the "
            "rest, so the data has changed; run again with --fresh"
        )
    users = next(iter(evaluated))[0] if evaluated else 0
    given = {r.label: what for r in results if (what := experiment.arms[r.label].given)}
    return Comparison(by, users, experiment.seeds, results, given=given)
