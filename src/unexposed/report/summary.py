"""What the results of one experiment say, as plain data: means, tests, trends, times."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from unexposed import settings
from unexposed.evaluation import significance as statistics
from unexposed.evaluation.compare import Comparison, Result
from unexposed.experiments.kinds import timing as timings
from unexposed.experiments.results import Line
from unexposed.report.look import known_as, place

FEWEST_CLICKS = 50  # drawn in a range of exposure; with fewer its variance comes out too small
LOSSES = {  # the losses whose variance is measured → title, and the method that trains with it
    "inverse_propensity": ("L1, inverse propensity", "relmf"),
    "low_variance": ("L2, low variance", "umf"),
}


def by_arm(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """The lines of each arm by seed, arms in the order of every table."""
    arms: dict[str, list[Line]] = {}
    for line in sorted(lines, key=lambda line: line["seed"]):
        arms.setdefault(_name(line), []).append(line)
    return {arm: arms[arm] for arm in sorted(arms, key=place)}


def _name(line: Line) -> str:
    return known_as(line["arm"], line["method"], line["settings"].get("strategy"))


def _rows(found: Comparison) -> dict[str, Result]:
    """What each arm reached, in the order of every table."""
    named = {
        known_as(r.label, r.method.name, getattr(r.method, "strategy", None)): r
        for r in found.results
    }
    return {arm: named[arm] for arm in sorted(named, key=place)}


def comparison(found: Comparison, *, tested: bool) -> dict[str, Any]:
    """Every metric of every arm; as `Comparison.document` has it, tests only where asked for."""
    rows = _rows(found)
    metrics: dict[str, dict[str, Any]] = {arm: {} for arm in rows}
    for metric in found.protocol.metrics:
        best = max(rows, key=lambda arm: float(rows[arm].values[metric].mean()))
        against = found.against_best(metric) if tested else {}
        for arm, result in rows.items():
            mean, sd = statistics.mean_sd(result.values[metric])
            metrics[arm][metric] = {"mean": mean, "sd": sd, "best": arm == best}
            if tested:
                metrics[arm][metric] |= {
                    "below_best": 0.0 - against[result.label].difference,  # no negative zero
                    "p_holm": against[result.label].p_holm,
                    "significant": against[result.label].significant,
                }
    return {
        "protocol": found.protocol.name,
        "users": found.users,
        "seeds": found.seeds,
        "results": [{"method": arm, "metrics": metrics[arm]} for arm in rows],
    }


def ablation(found: Comparison, metric: str) -> list[dict[str, Any]]:
    """The forms of UBO, each with its interval and its paired difference from UBO itself."""
    rows = {arm: result for arm, result in _rows(found).items() if result.method.name == "ubo"}
    if "ubo" not in rows or len(rows) < 3:
        return []
    ours = rows["ubo"].values[metric].mean(axis=0)
    usual = settings.values(rows["ubo"].method)
    out = []
    for arm, result in rows.items():
        values = result.values[metric]
        by_user = values.mean(axis=0)
        less = by_user - ours
        own = settings.values(result.method)
        out.append(
            {
                "arm": arm,
                "changed": {k: [usual[k], v] for k, v in own.items() if v != usual[k]},
                "mean": float(by_user.mean()),
                "by_seed": values.mean(axis=1).tolist(),
                "ci95": list(statistics.bootstrap_interval(by_user, seed=0)),
                "difference": float(less.mean()),
                "difference_ci95": list(statistics.bootstrap_interval(less, seed=0)),
            }
        )
    return out


def strata(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Each arm by the popularity of the relevant items, and what it recommends; mean over seeds."""
    out = []
    for arm, own in by_arm(lines).items():
        parts = {}
        for name, first in own[0]["by_popularity"].items():
            metrics = [line["by_popularity"][name]["metrics"] for line in own]
            parts[name] = {
                "items": first["items"],  # of the first seed: they differ by its held-out clicks
                "users": first["users"],
                "metrics": {m: _mean([by[m] for by in metrics]) for m in metrics[0]},
            }
        lists = [line["recommended"] for line in own]
        recommended = {key: _mean([by[key] for by in lists]) for key in lists[0]}
        out.append({"method": arm, "by_popularity": parts, "recommended": recommended})
    return out


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
    """Over the steps that every seed reached: a mean over fewer would jump where one stops.

    A step at which a seed has no correlation, for want of variation over items, has no mean.
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
    """The highest correlation of an exposure that is the same for every user, mean over seeds."""
    found = [line["facts"]["ceiling"] for line in lines if "ceiling" in line.get("facts", {})]
    return _mean(found)


def variance(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Each loss by range of exposure, mean over seeds: as measured, and as the formula says."""
    out = []
    for arm, own in by_arm(lines).items():
        title, look = LOSSES.get(arm, (arm, arm))
        rows = []
        # of one world, so the same ranges of exposure in every line
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
        out.append({"arm": arm, "title": title, "look": look, "rows": rows, "on_omega": total})
    return out


def timing(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """By engine and machine: the seconds of an epoch of each arm, by repeat, and their median."""
    places: dict[tuple[str, str], list[Line]] = {}
    for line in lines:
        places.setdefault((str(line["engine"]), str(line["machine"])), []).append(line)
    out = []
    for (engine, machine), own in sorted(places.items()):
        arms = []
        for arm, repeats in by_arm(own).items():
            took = [float(np.median(line["epoch_seconds"])) for line in repeats]
            over = timings.ratio(own, over=repeats[0]["arm"], under="relmf")
            arms.append(
                {
                    "arm": arm,
                    "seconds": took,
                    "median": float(np.median(took)),
                    "of_relmf": over[0]["median"] if over else None,  # the median over repeats
                }
            )
        out.append({"engine": engine, "machine": machine, "arms": arms})
    return out


def origins(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Where the numbers of each arm came from: everything that was written down of its runs."""
    return [
        {
            "arm": arm,
            "method": own[0]["method"],
            "settings": own[0]["settings"],
            "options": own[0].get("options") or {},
            "study": own[0].get("study"),
            "seeds": [line["seed"] for line in own],
            "engines": _distinct(own, "engine"),
            "machines": _distinct(own, "machine"),
            "commits": _distinct(own, "commit"),
            "seconds": float(sum(line["seconds"] for line in own)),
            "finished": max(str(line["finished"]) for line in own),
        }
        for arm, own in by_arm(lines).items()
    ]


def _distinct(lines: Sequence[Line], key: str) -> list[Any]:
    return list(dict.fromkeys(line[key] for line in lines if line[key] is not None))
