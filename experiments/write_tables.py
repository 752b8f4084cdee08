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
from unexposed.report.tables import markdown

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


def summary() -> str:
    """The README's table: both data sets of the paper by one metric."""
    asked = [a for a in results()[0]["experiments"] if a["name"] in ("coat", "yahoo")]
    found = {
        about["where"]: (about["found"]["comparison"], PAPER[about["data"]["dataset"]])
        for about in asked
        if about.get("found")
    }
    parts = []
    if found:
        parts.append(markdown(comparisons.side_by_side("results", "Results", found, "dcg@3")))
    missing = [f"`{about['command']}`" for about in asked if about["missing"] or about["problem"]]
    if missing:
        parts.append(f"Some results are missing; to make them: {', '.join(missing)}.")
    return "\n\n".join(parts)


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "results table": ("README.md", summary),
    "cpu table": ("docs/engine.md", lambda: markdown(benchmarks.cpu(result("engine_cpu")))),
    "validation batch table": ("docs/engine.md", partial(compared_in, "validation_batch_yahoo")),
    "share table": ("docs/engine.md", lambda: markdown(benchmarks.share(result("epoch_share")))),
    "step table": ("docs/engine.md", lambda: markdown(benchmarks.step(result("step")))),
    "card table": ("docs/engine.md", lambda: markdown(benchmarks.card(result("engine_cuda")))),
    "coat selection": (
        "docs/results.md",
        lambda: markdown(benchmarks.selection(result("selection_coat"))),
    ),
    "yahoo selection": (
        "docs/results.md",
        lambda: markdown(benchmarks.selection(result("selection_yahoo_r3"))),
    ),
    "fold-in table": (
        "docs/serving.md",
        lambda: markdown(serving.fold_in(result("fold_in_yahoo"))),
    ),
    "update table": ("docs/serving.md", lambda: markdown(serving.update(result("update_ml100k")))),
    "lists table": ("docs/serving.md", lambda: markdown(serving.lists(result("recommend")))),
    "memory table": ("docs/serving.md", lambda: markdown(serving.memory(result("recommend")))),
    "coat results": ("docs/results.md", partial(section, "section-coat", "compare", "coat")),
    "by hand table": ("docs/results.md", partial(compared, "coat_by_hand", "coat")),
    "yahoo results": ("docs/results.md", partial(section, "section-yahoo", "compare", "yahoo")),
    "refit results": (
        "docs/results.md",
        lambda: "\n\n".join(
            section(f"section-{name}", "compare", name) for name in ("refit_coat", "refit_yahoo")
        ),
    ),
    "strategies results": (
        "docs/results.md",
        partial(section, "strategies", "compare", "ablation*"),
    ),
    "worlds results": ("docs/results.md", partial(section, "worlds", "compare", "semi_synthetic*")),
    "exposure results": ("docs/results.md", partial(section, "exposure", "exposure_trend")),
    "variance results": ("docs/results.md", partial(section, "noise", "gradient_variance")),
    "timing results": ("docs/results.md", partial(section, "cost", "timing")),
    "other results": ("docs/results.md", partial(section, "appendix", "compare", "")),
}


def main() -> None:
    for name, (page, content) in TABLES.items():
        path = ROOT / page
        text = path.read_text(encoding="utf-8")
        path.write_text(filled(text, name, content()), encoding="utf-8")


if __name__ == "__main__":
    main()
