"""Invented results of experiments, as `unexposed run` writes them, and a check of a page."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from unexposed.experiments import results
from unexposed.experiments import spec as experiment
from unexposed.experiments.kinds.compare import comparisons
from unexposed.experiments.task import Experiment

LEVEL = {"random": 0.3, "mf": 0.7, "relmf": 0.75, "ubo": 0.9, "umf": 0.95}
STRATEGIES = ("bilevel", "joint", "alternate", "bilevel_on_batch", "frozen")
USERS = 40


def write(folder: Path, name: str, text: str, *, run: bool = True) -> None:
    """Write an experiment and, if it was run, its results."""
    (folder / "results").mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    if run:
        asked = experiment.read(folder / f"{name}.toml")
        found = [line(asked, arm, seed) for arm in asked.arms for seed in range(asked.seeds)]
        made = comparisons(asked, found, {}) if asked.kind == "compare" else {}
        results.Results(folder / "results", name).write(found, made)


def line(asked: Experiment, arm: str, seed: int, **changed: Any) -> dict[str, Any]:
    """The result of one run."""
    return {
        "experiment": asked.name,
        **asked.identity(asked.arms[arm]),
        "study": None,
        "seed": seed,
        **BODIES[asked.kind](asked, arm, seed),
        "seconds": 2.5,
        "engine": "cpu",
        "versions": {"unexposed": "0.1.0", "torch": "2.11"},
        "machine": "Some Processor",
        "commit": "0123456789abcdef",
        "finished": "2026-01-01T00:00:00+00:00",
        **changed,
    }


def compared(asked: Experiment, arm: str, seed: int) -> dict[str, Any]:
    """Each user's value: a level of the method, a trait of the user and some noise by seed."""
    method = asked.arms[arm].method
    level = LEVEL[method.name] - 0.1 * (getattr(method, "strategy", "bilevel") == "joint")
    trait = np.linspace(-0.1, 0.1, USERS)
    rng = np.random.default_rng([seed, len(arm)])
    protocols = {}
    for by in (asked.protocol, *asked.also):
        values = {m: level + trait + rng.normal(0, 0.01, USERS) for m in by.metrics}
        means = {m: float(v.mean()) for m, v in values.items()}
        protocols[by.name] = {"users": USERS, "who": "0123456789ab"}
        protocols[by.name] |= {"means": means, "values": values}
    part = {"items": 5, "users": 9, "metrics": dict.fromkeys(asked.protocol.metrics, level)}
    known = {} if "dataset" in asked.data else {"exposure_correlation": 0.4 + 0.1 * seed}
    return {
        **(known if getattr(method, "popularity_exponent", None) is not None else {}),
        "protocols": protocols,
        "by_popularity": {"head": part, "middle": part, "tail": part},
        "recommended": {"k": 10, "coverage": 0.4, "gini": 0.5, "mean_popularity": 12.0},
        "facts": {"best_epoch": 3, "best_value": 0.5},
    }


def trend(asked: Experiment, arm: str, seed: int) -> dict[str, Any]:
    start = 0.5 + 0.1 * seed
    return {
        "iterations": [None, start, start + 0.2],  # the first before any step
        "epochs": [start] * (3 + seed),
        "facts": {"ceiling": 0.9},
    }


def variance(asked: Experiment, arm: str, seed: int) -> dict[str, Any]:
    rows = []
    for exposure in (0.01, 0.1, 0.5):
        formula = 1 / exposure if arm == "inverse_propensity" else exposure
        on_p = {"empirical": 1.1 * formula, "standard_error": 0.1 * formula, "formula": formula}
        clicks = 70 if exposure > 0.01 else 7  # over two seeds: too few in the first
        rows.append({"exposure": exposure, "clicks": clicks, "on_p": on_p})
    total = {"inverse_propensity": 6.0, "low_variance": 2.0}[arm]
    return {"rows": rows, "on_omega": {"empirical": total, "formula": total}, "signal": 1.0}


def timing(asked: Experiment, arm: str, seed: int) -> dict[str, Any]:
    return {"epoch_seconds": [{"relmf": 0.1, "ubo": 0.25}[arm] + 0.01 * seed]}


BODIES = {
    "compare": compared,
    "exposure_trend": trend,
    "gradient_variance": variance,
    "timing": timing,
}

COAT = """
kind = "compare"
title = "Table 2: Coat"
also = ["judged"]
seeds = 3
[data]
dataset = "coat"
[methods.random]
[methods.mf]
[methods.ubo]
[methods.ubo-frozen]
method = "ubo"
settings = { strategy = "frozen" }
"""
ABLATION = 'kind = "compare"\nseeds = 3\n[data]\ndataset = "coat"\n' + "\n".join(
    f'[methods.{s}]\nmethod = "ubo"\nsettings = {{ strategy = "{s}" }}' for s in STRATEGIES
)
WORLD = '[data]\nsemi_synthetic = "amazon_cds"\npower = {power}\n'
POWER = (
    'kind = "compare"\nseeds = 2\n'
    + WORLD
    + "[methods.mf]\n[methods.ubo]\n"
    + '[methods.umf-true]\nmethod = "umf"\nexposure = "true"\n'
)
SAITO = POWER.replace("[data]", '[data]\ngenerator = "saito"')
TREND = (
    'kind = "exposure_trend"\nseeds = 2\n'
    + WORLD
    + '[methods.ubo]\n[methods.joint]\nmethod = "ubo"\nsettings = { strategy = "joint" }\n'
)
VARIANCE = (
    'kind = "gradient_variance"\nseeds = 2\n'
    + WORLD
    + "[arms.inverse_propensity]\n[arms.low_variance]\n"
)
TIMING = (
    'kind = "timing"\nseeds = 3\n[data]\ndataset = "yahoo_r3"\n[methods.relmf]\n[methods.ubo]\n'
)

PAPER = """
[coat."dcg@3"]
ubo = [0.931, 0.004]
[timing]
machine = "GTX 1650"
seconds = { relmf = 1.35, ubo = 6.54 }
[caveats]
amazon_cds = "Not the paper's data."
[titles]
ubo = "UBO"
ubo-frozen = "UBO, frozen exposure"
ubo-joint = "JointOpt"
inverse_propensity = "L1, inverse propensity"
"""


def write_all(folder: Path) -> Path:
    """One experiment of every kind, all of them run."""
    write(folder, "coat", COAT)
    write(folder, "ablation_coat", ABLATION)
    for power in (0.5, 2):
        write(folder, f"world_{power}", POWER.replace("{power}", str(power)))
    write(folder, "world_saito", SAITO.replace("{power}", "2"))
    write(folder, "trend", TREND.replace("{power}", "0.5"))
    write(folder, "variance", VARIANCE.replace("{power}", "0.5"))
    write(folder, "timing", TIMING)
    (folder / "paper.toml").write_text(PAPER, encoding="utf-8")
    return folder


def check_self_contained(page: str) -> None:
    """Assert that a page has no script, no handler, and no address outside itself."""
    assert "<script" not in page.lower()
    assert not re.search(r"\bon\w+=", re.sub(r">[^<]*<", "><", page))
    for address in re.findall(r'(?:href|src|xlink:href)="([^"]*)"', page):
        assert address.startswith("#")
    assert not re.search(r"https?:|@import|url\((?!#)", page)
