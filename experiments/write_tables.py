"""Write the tables of README and docs/ from the committed results.

A table stands between <!-- NAME --> and <!-- end of NAME -->; a test fails when one is stale.
"""

import json
import tomllib
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from docs_tables import benchmarks, comparisons, serving, stored, verdict
from docs_tables import criteria as criterion
from docs_tables.blocks import filled, section_block
from docs_tables.stored import Place
from unexposed.report.experiments import document
from unexposed.report.sections import Section, sections
from unexposed.report.tables import Table, markdown

HERE = Path(__file__).parent
ROOT = HERE.parent
PAPER = tomllib.loads((HERE / "paper.toml").read_text(encoding="utf-8"))


def result(name: str) -> Any:
    return _read(HERE / "results" / f"{name}.json")


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@cache
def results() -> tuple[dict[str, Any], list[Section]]:
    found = document(HERE)
    return found, sections(found)


def compared_in(name: str) -> str:
    """DCG@3 of the methods of an experiment."""
    return markdown(comparisons.short_comparison(name, name, comparison(name), {}, ["dcg@3"]))


def comparison(name: str) -> Any:
    """The comparison that an experiment's results give."""
    asked = next(a for a in results()[0]["experiments"] if a["name"] == name)
    return asked["found"]["comparison"]


def section(name: str, kind: str, files: str = "*", tables: str = "") -> str:
    return section_block(*results(), name, kind=kind, files=files, tables=tables)


def real(dataset: str) -> str:
    """The table of a data set with a tenth of the clicks held out."""
    name = f"real-{dataset}-held_out"
    return section(f"section-{name}", "compare", name)


def summary(trained_on: str) -> str:
    """DCG@3 on the real data sets beside the paper's."""
    names = [f"real-{dataset}-{trained_on}" for dataset in ("coat", "yahoo_r3")]
    asked = [a for a in results()[0]["experiments"] if a["name"] in names]
    found = {
        about["where"]: (about["found"]["comparison"], PAPER[about["data"]["dataset"]])
        for about in asked
        if about.get("found")
    }
    parts = []
    if found:
        parts.append(markdown(comparisons.side_by_side("results", "Results", found, "dcg@3")))
    lacking = (about for about in asked if about["missing"] or about["problem"])
    missing = dict.fromkeys(f"`{about['command']}`" for about in lacking)
    if missing:
        parts.append(f"Some results are missing; to make them: {', '.join(missing)}.")
    return "\n\n".join(parts)


def worlds() -> str:
    """Every method in every world, by true relevance: a table for each generator."""
    return section("worlds", "compare", "worlds-*", "powers-worlds-")


@cache
def places(question: str, part: str | None = None) -> list[Place]:
    return stored.places(HERE / question / f"{question}.toml", part=part)


def the_verdict() -> str:
    asked = [*places("real", "held_out"), *places("worlds")]
    return markdown(verdict.verdict(asked, places("exposure")))


def of_exposure(make: Callable[[Sequence[Place]], Table]) -> Callable[[], str]:
    """A table made from the ablation of exposure learning."""
    return lambda: markdown(make(places("exposure")))


def criteria() -> str:
    logs = {"Coat": "coat", "Yahoo!R3": "yahoo_r3"}
    found = {title: _read(HERE / "criterion" / f"{name}.json") for title, name in logs.items()}
    return markdown(criterion.criteria(found))


def written(make: Callable[[Any], Table], name: str) -> Callable[[], str]:
    """A table made from one file of results."""
    return lambda: markdown(make(result(name)))


ENGINE, SERVING, RESULTS = "docs/engine.md", "docs/serving.md", "docs/results.md"
READ_BY_CLICKS = {
    "mf": "MF",
    "umf": "UMF",
    "umf-true": "UMF, true exposure",
    "umf-item_means": "UMF, item means of it",
}
TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "results table": ("README.md", partial(summary, "held_out")),
    "cpu table": (ENGINE, written(benchmarks.cpu, "engine_cpu")),
    "validation batch table": (ENGINE, partial(compared_in, "validation_batch")),
    "share table": (ENGINE, written(benchmarks.share, "epoch_share")),
    "step table": (ENGINE, written(benchmarks.step, "step")),
    "estimator table": (ENGINE, written(benchmarks.estimator, "estimator")),
    "card table": (ENGINE, written(benchmarks.card, "engine_cuda")),
    "fold-in table": (SERVING, written(serving.fold_in, "fold_in_yahoo")),
    "update table": (SERVING, written(serving.update, "update_ml100k")),
    "lists table": (SERVING, written(serving.lists, "recommend")),
    "memory table": (SERVING, written(serving.memory, "recommend")),
    "verdict table": (RESULTS, the_verdict),
    "exposure table": (RESULTS, of_exposure(verdict.exposure)),
    "oracle share table": (RESULTS, of_exposure(verdict.share)),
    "clicks table": (RESULTS, of_exposure(partial(verdict.clicks_and_truth, arms=READ_BY_CLICKS))),
    "worlds results": (
        RESULTS,
        partial(section, "worlds", "compare", "worlds-*", "powers-worlds-"),
    ),
    "coat results": (RESULTS, partial(real, "coat")),
    "yahoo results": (RESULTS, partial(real, "yahoo_r3")),
    "refit results": (RESULTS, partial(summary, "all_clicks")),
    "criterion table": (RESULTS, criteria),
    "criteria": ("experiments/criterion/README.md", criteria),
    "ablation": ("experiments/exposure/README.md", of_exposure(verdict.exposure)),
    "shares": ("experiments/exposure/README.md", of_exposure(verdict.share)),
    "strategies results": (
        "experiments/strategies/README.md",
        partial(section, "strategies", "compare", "strategies*"),
    ),
    "trend results": (
        "experiments/trend/README.md",
        partial(section, "exposure", "exposure_trend"),
    ),
    "variance results": (
        "experiments/variance/README.md",
        partial(section, "noise", "gradient_variance"),
    ),
    "timing results": ("experiments/timing/README.md", partial(section, "cost", "timing")),
}


def main() -> None:
    for name, (page, content) in TABLES.items():
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        path.write_text(filled(text, name, content()), encoding="utf-8")


if __name__ == "__main__":
    main()
