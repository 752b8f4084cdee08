"""Results of one experiment as plain data: means, tests, trends, times."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from unexposed import settings
from unexposed.evaluation import significance as statistics
from unexposed.evaluation.compare import Comparison, Result
from unexposed.experiments.kinds import timing as timings
from unexposed.experiments.results import Line
from unexposed.experiments.task import Experiment
from unexposed.methods import METHODS

FEWEST_CLICKS = 50  # drawn in a range of exposure; with fewer its variance comes out too small


def by_arm(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """The lines of each arm, in the order of the lines."""
    arms: dict[str, list[Line]] = {}
    for line in lines:
        name = known_as(line["arm"], line["method"], line["settings"].get("strategy"))
        arms.setdefault(name, []).append(line)
    return arms


def known_as(label: str, method: str | None, strategy: str | None) -> str:
    """The name of an arm in all tables and figures, whatever its experiment calls it.

    An experiment may call an arm by its strategy alone: `joint` is `ubo-joint`, and the usual
    strategy of a method is the method itself.
    """
    if method is None or strategy is None or label != strategy:
        return label
    usual = settings.known(METHODS[method])["strategy"].default
    return method if strategy == usual else f"{method}-{strategy}"


def learns(method: str) -> bool:
    """Whether a method has settings; one without any learns nothing from the log but counts."""
    return bool(settings.known(METHODS[method]))


def _rows(found: Comparison) -> dict[str, Result]:
    return {
        known_as(r.label, r.method.name, getattr(r.method, "strategy", None)): r
        for r in found.results
    }


def comparison(found: Mapping[str, Any], asked: Experiment, *, tested: bool) -> dict[str, Any]:
    """Every metric of every arm of a comparison's document, with tests where asked for."""
    rows: list[dict[str, Any]] = []
    for result in found["results"]:
        method, metrics = asked.arms[result["method"]].method, {}
        for metric, own in result["metrics"].items():
            metrics[metric] = {"mean": own["mean"], "sd": own["sd"]}
            first = not any(row["metrics"][metric]["best"] for row in rows)  # among equals
            metrics[metric]["best"] = first and own.get("below_best") == 0
            if tested and "p_holm" in own:
                metrics[metric] |= {
                    "below_best": own["below_best"],
                    "p_holm": own["p_holm"],
                    "significant": own["p_holm"] <= statistics.SIGNIFICANCE,
                }
        strategy, name = getattr(method, "strategy", None), getattr(method, "name", None)
        arm = known_as(result["method"], name, strategy)
        rows.append({"method": arm, "given": result.get("given", ""), "metrics": metrics})
    return {**{key: found[key] for key in ("protocol", "users", "seeds")}, "results": rows}


def ablation(found: Comparison, metric: str) -> list[dict[str, Any]]:
    """The forms of one method, each with its paired difference from the method's usual form."""
    rows = _rows(found)
    for base in rows:
        forms = {arm: result for arm, result in rows.items() if result.method.name == base}
        if len(forms) >= 3:
            return [_form(arm, result, rows[base], metric) for arm, result in forms.items()]
    return []


def _form(arm: str, result: Result, base: Result, metric: str) -> dict[str, Any]:
    values, usual = result.values[metric], settings.values(base.method)
    by_user = values.mean(axis=0)
    less = by_user - base.values[metric].mean(axis=0)
    own = settings.values(result.method)
    return {
        "arm": arm,
        "changed": {k: [usual[k], v] for k, v in own.items() if v != usual[k]},
        "mean": float(by_user.mean()),
        "ci95": list(statistics.bootstrap_interval(by_user, seed=0)),
        "difference": float(less.mean()),
        "difference_ci95": list(statistics.bootstrap_interval(less, seed=0)),
    }


def strata(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Metrics of each arm by popularity of the relevant items, and its lists; mean over seeds."""
    out = []
    for arm, own in by_arm(lines).items():
        parts = {}
        for name, first in own[0]["by_popularity"].items():
            metrics = [line["by_popularity"][name]["metrics"] for line in own]
            parts[name] = {
                "items": first["items"],  # differs between seeds with the held-out clicks
                "users": first["users"],
                "metrics": {m: _mean([by[m] for by in metrics]) for m in metrics[0]},
            }
        lists = [line["recommended"] for line in own]
        recommended = {key: _mean([by[key] for by in lists]) for key in lists[0]}
        out.append({"method": arm, "by_popularity": parts, "recommended": recommended})
    return out


def exposures(lines: Sequence[Line]) -> dict[str, float | None]:
    """PCC of each arm's exposure with the true one, mean over seeds, where both are known."""
    return {
        arm: _mean([line["exposure_correlation"] for line in own])
        for arm, own in by_arm(lines).items()
        if all("exposure_correlation" in line for line in own)
    }


def _mean(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return float(np.mean(known)) if known else None


def trend(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Mean and deviation over seeds of the correlation, at every iteration and every epoch."""
    return [
        {
            "arm": arm,
            "iterations": _band(own, "iterations", first=0),  # 0: before the first step
            "epochs": _band(own, "epochs", first=1),
        }
        for arm, own in by_arm(lines).items()
    ]


def _band(lines: Sequence[Line], over: str, *, first: int) -> dict[str, list[Any]]:
    """Mean and deviation at the steps that every seed reached, so that no mean jumps.

    A step has no mean if a seed has no correlation there, because nothing varies over items.
    """
    shortest = min(len(line[over]) for line in lines)
    table = np.array([line[over][:shortest] for line in lines], dtype=np.float64)  # None: nan
    sd = table.std(axis=0, ddof=1) if len(table) > 1 else np.zeros(shortest)
    known = np.flatnonzero(np.isfinite(table).all(axis=0))
    return {
        "at": (known + first).tolist(),
        "mean": table.mean(axis=0)[known].tolist(),
        "sd": sd[known].tolist(),
    }


def ceiling(lines: Sequence[Line]) -> float | None:
    """The highest correlation that one exposure for all users can reach, mean over seeds."""
    found = [line["facts"]["ceiling"] for line in lines if "ceiling" in line.get("facts", {})]
    return _mean(found)


def variance(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The variance of each loss by range of exposure, mean over seeds: measured and by formula."""
    out = []
    for arm, own in by_arm(lines).items():
        rows = []
        # every line has the same ranges of exposure: they are of one world
        for same in zip(*(line["rows"] for line in own), strict=True):
            on_p = [row["on_p"] for row in same]
            errors = np.array([of["standard_error"] for of in on_p])
            rows.append(
                {
                    "exposure": float(np.mean([row["exposure"] for row in same])),
                    "clicks": int(sum(row["clicks"] for row in same)),
                    "empirical": float(np.mean([of["empirical"] for of in on_p])),
                    "error": float(np.sqrt((errors**2).sum()) / len(errors)),
                    "formula": float(np.mean([of["formula"] for of in on_p])),
                }
            )
        on_omega = [line["on_omega"] for line in own]
        total = {key: _mean([of[key] for of in on_omega]) for key in ("empirical", "formula")}
        rows.sort(key=lambda row: row["exposure"])
        out.append({"arm": arm, "rows": rows, "on_omega": total})
    return out


def timing(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Seconds of an epoch by engine and machine, arm and repeat, with medians."""
    places: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        places.setdefault((str(line["engine"]), str(line["machine"])), []).append(line)
    out = []
    for (engine, machine), own in sorted(places.items()):
        arms = []
        for arm, repeats in by_arm(own).items():
            took = [float(np.median(line["epoch_seconds"])) for line in repeats]
            arms.append(
                {
                    "arm": arm,
                    "seconds": took,
                    "median": float(np.median(took)),
                    "of_relmf": timings.ratio(own, over=repeats[0]["arm"], under="relmf"),
                }
            )
        out.append({"engine": engine, "machine": machine, "arms": arms})
    return out


def origins(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Where the numbers of each arm came from: settings, seeds, machine, commit, seconds."""
    return [
        {
            "arm": arm,
            "method": own[0]["method"],
            "settings": own[0]["settings"],
            "study": own[0].get("study"),
            "exposure": own[0].get("exposure"),
            "seeds": [line["seed"] for line in own],
            "engines": _distinct(own, "engine"),
            "machines": _distinct(own, "machine"),
            "commits": _distinct(own, "commit"),
            "seconds": float(sum(line["seconds"] for line in own)),
        }
        for arm, own in by_arm(lines).items()
    ]


def _distinct(lines: Sequence[Line], key: str) -> list[Any]:
    return list(dict.fromkeys(line[key] for line in lines if line[key] is not None))
