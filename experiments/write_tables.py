"""Write the tables of README and docs/ from the committed results.

A table stands between <!-- NAME --> and <!-- end of NAME -->; a test fails when one is stale.
"""

import json
import tomllib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

from docs_tables import benchmarks, comparisons, serving
from docs_tables.blocks import filled, section_block
from unexposed.report.experiments import document
from unexposed.report.sections import Section, sections
from unexposed.report.tables import Table, markdown

HERE = Path(__file__).parent
ROOT = HERE.parent
PAPER = tomllib.loads((HERE / "paper.toml").read_text(encoding="utf-8"))


def result(name: str) -> Any:
    return json.loads((HERE / "results" / f"{name}.json").read_text(encoding="utf-8"))


@cache
def results() -> tuple[dict[str, Any], list[Section]]:
    found = document(HERE)
    return found, sections(found)


def compared(name: str, dataset: str) -> str:
    """The table of a comparison that `compare --json` wrote."""
    metrics = ["dcg@3", "map@3"]
    table = comparisons.short_comparison(name, name, result(name), PAPER[dataset], metrics)
    return markdown(table)


def compared_in(name: str) -> str:
    """DCG@3 of the methods of an experiment."""
    return markdown(comparisons.short_comparison(name, name, comparison(name), {}, ["dcg@3"]))


def comparison(name: str) -> Any:
    """The comparison that an experiment's results give."""
    asked = next(a for a in results()[0]["experiments"] if a["name"] == name)
    return asked["found"]["comparison"]


def section(name: str, kind: str, files: str = "*") -> str:
    return section_block(*results(), name, kind=kind, files=files)


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


def written(make: Callable[[Any], Table], name: str) -> Callable[[], str]:
    """A table made from one file of results."""
    return lambda: markdown(make(result(name)))


ENGINE, SERVING, RESULTS = "docs/engine.md", "docs/serving.md", "docs/results.md"
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
    "coat selection": (RESULTS, written(benchmarks.selection, "selection_coat")),
    "yahoo selection": (RESULTS, written(benchmarks.selection, "selection_yahoo_r3")),
    "coat results": (RESULTS, partial(real, "coat")),
    "by hand table": (RESULTS, partial(compared, "coat_by_hand", "coat")),
    "yahoo results": (RESULTS, partial(real, "yahoo_r3")),
    "refit results": (RESULTS, partial(summary, "all_clicks")),
    "strategies results": (RESULTS, partial(section, "strategies", "compare", "strategies*")),
    "worlds results": (RESULTS, partial(section, "worlds", "compare", "worlds-*")),
    "exposure results": (RESULTS, partial(section, "exposure", "exposure_trend")),
    "variance results": (RESULTS, partial(section, "noise", "gradient_variance")),
    "timing results": (RESULTS, partial(section, "cost", "timing")),
}


def main() -> None:
    for name, (page, content) in TABLES.items():
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        path.write_text(filled(text, name, content()), encoding="utf-8")


if __name__ == "__main__":
    main()
