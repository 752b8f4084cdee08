"""Train one method on one seed's split and evaluate it by every protocol; compare the arms."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unexposed.data.worlds.simulate import World
from unexposed.errors import InputError
from unexposed.evaluation.compare import Comparison, Result, refuse_shared, train
from unexposed.evaluation.describe import by_popularity, recommended
from unexposed.evaluation.protocols import (
    TRUE_RELEVANCE,
    Evaluation,
    Protocol,
    by_truth,
    evaluate,
    exposure_correlation,
)
from unexposed.evaluation.significance import mean_sd
from unexposed.experiments.results import Line
from unexposed.experiments.task import Experiment, Kind, Task
from unexposed.model.model import Model

METRIC = "dcg@3"


def headline(by: Protocol) -> str:
    """The metric that figures and popularity are shown by."""
    return METRIC if METRIC in by.metrics else next(iter(by.metrics))


def body(task: Task) -> dict[str, Any]:
    """Compute the values of every metric for each user, and the facts of the training."""
    split, side = task.data.split(task.seed), task.side
    refuse_shared(side.traffic, split.judged)
    model, seconds = train(
        task.arm.method, split, seed=task.seed, progress=task.progress, side=side
    )
    first = task.experiment.protocol
    metric = headline(first)
    found = {by.name: _evaluate(model, task, by) for by in (first, *task.experiment.also)}
    return {
        "protocols": {
            name: {
                "users": len(evaluation.users),
                "who": hashlib.sha256(evaluation.users.astype("<i4").tobytes()).hexdigest()[:12],
                "means": evaluation.means(),
                "values": {metric: own.tolist() for metric, own in evaluation.values.items()},
            }
            for name, evaluation in found.items()
        },
        "by_popularity": {
            name: {**part, "metrics": {metric: part["metrics"][metric]}}
            for name, part in by_popularity(model, split.judged, first).items()
        },
        "recommended": recommended(model, found[first.name].users),
        **_correlation(model, task.data.world),
        "facts": {
            name: model.facts.get(name)
            for name in ("best_epoch", "best_value", "epochs_run", "ended")
        },
        "engine": model.facts.get("engine"),
        "seconds": seconds,
    }


KINDS: dict[str, Kind] = {"compare": Kind(body)}


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
    """The comparison of the arms of which every seed is stored with the values of users."""
    by = by or experiment.protocol
    results: list[Result] = []
    users = 0
    for label, done in _whole_arms(experiment, lines, by).items():
        stored = [line["protocols"][by.name] for line in done]
        users = stored[0]["users"]
        if all("values" in own for own in stored):
            values = {m: np.array([own["values"][m] for own in stored]) for m in by.metrics}
            results.append(Result(label, experiment.arms[label].method, values, _seconds(done)))
    return Comparison(by, users, experiment.seeds, results, given=_given(experiment))


def document(
    experiment: Experiment,
    lines: Sequence[Line],
    *,
    by: Protocol | None = None,
    known: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The comparison as plain data, as `Comparison.document` makes it from values of users.

    Where those are not kept, the `known` comparison holds as long as it is of the same means;
    else there are means without intervals and tests.
    """
    by = by or experiment.protocol
    whole = _whole_arms(experiment, lines, by)
    found = from_lines(experiment, lines, by=by)
    if len(found.results) == len(whole):
        return found.document()
    rows: list[dict[str, Any]] = []
    for label, done in whole.items():
        means = [line["protocols"][by.name]["means"] for line in done]
        metrics = {}
        for metric in by.metrics:
            mean, sd = mean_sd([[own[metric]] for own in means])
            metrics[metric] = {"mean": mean, "sd": sd}
        rows.append({"method": label, "metrics": metrics})
    before = (known or {}).get(by.name, {"results": []})["results"]
    if _means(before) == _means(rows):
        rows = before
    given = _given(experiment)
    return {
        "protocol": by.name,
        "users": found.users,
        "seeds": experiment.seeds,
        "results": [
            {
                "method": row["method"],
                **({"given": given[row["method"]]} if row["method"] in given else {}),
                "settings": whole[row["method"]][0]["settings"],
                "metrics": row["metrics"],
                "seconds": _seconds(whole[row["method"]]),
            }
            for row in rows
        ],
    }


def comparisons(
    experiment: Experiment, lines: Sequence[Line], known: Mapping[str, Any]
) -> dict[str, Any]:
    """What is stored of the comparison by each protocol."""
    if not any("protocols" in line for line in lines):
        return {}
    found = {}
    for by in (experiment.protocol, *experiment.also):
        made = document(experiment, lines, by=by, known=known)
        rows = [{key: row[key] for key in ("method", "metrics")} for row in made["results"]]
        found[by.name] = {"users": made["users"], "seeds": made["seeds"], "results": rows}
    return found


def _means(rows: Sequence[Mapping[str, Any]]) -> list[Any]:
    return [
        (row["method"], metric, round(own["mean"], 12), round(own["sd"], 12))
        for row in rows
        for metric, own in row["metrics"].items()
    ]


def _given(experiment: Experiment) -> dict[str, str]:
    return {label: arm.given for label, arm in experiment.arms.items() if arm.given}


def _seconds(lines: Sequence[Line]) -> float:
    return float(sum(line["seconds"] for line in lines))


def _whole_arms(
    experiment: Experiment, lines: Sequence[Line], by: Protocol
) -> dict[str, list[Line]]:
    """The runs of every arm whose seeds are all stored; they must have evaluated the same users."""
    found: dict[str, list[Line]] = {}
    evaluated: dict[tuple[int, str], Line] = {}
    for label in experiment.arms:
        of_arm = {line["seed"]: line for line in lines if line["arm"] == label}
        done = [of_arm[seed] for seed in range(experiment.seeds) if seed in of_arm]
        if len(done) < experiment.seeds:
            continue
        try:
            stored = [line["protocols"][by.name] for line in done]
            evaluated |= {(s["users"], s["who"]): li for s, li in zip(stored, done, strict=True)}
        except (KeyError, TypeError) as error:
            raise InputError(
                f"{experiment.name}: the results of {label} are damaged ({error}); "
                f"run again with --fresh --only {label}"
            ) from error
        found[label] = done
    if len(evaluated) > 1:
        odd = list(evaluated.values())[-1]
        raise InputError(
            f"{experiment.name}: {odd['arm']}, seed {odd['seed']} evaluated other users than the "
            "rest, so the data has changed; run again with --fresh"
        )
    return found
