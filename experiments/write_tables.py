"""Fill the tables of the pages from the committed results: python experiments/write_tables.py

A table stands between <!-- NAME --> and <!-- end of NAME -->; a test fails when one is stale.
"""

import json
import tomllib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from statistics import mean
from typing import Any

from unexposed.report import benchmark_tables as benchmarks
from unexposed.report import experiment_tables as experiments
from unexposed.report import serving_tables as serving
from unexposed.report.blocks import filled, section_block
from unexposed.report.experiments import document
from unexposed.report.sections import Section, sections
from unexposed.report.tables import Cell, Table, markdown, number
from unexposed.results import read_lines

HERE = Path(__file__).parent
ROOT = HERE.parent
PAPER = tomllib.loads((HERE / "paper.toml").read_text(encoding="utf-8"))


def result(name: str) -> Any:
    return json.loads((HERE / "results" / f"{name}.json").read_text(encoding="utf-8"))


@cache
def results() -> tuple[dict[str, Any], list[Section]]:
    found = document(HERE)
    return found, sections(found, drawn=False)


def compared(name: str, dataset: str = "") -> str:
    """A comparison that the command `compare --json` wrote."""
    paper = PAPER.get(dataset, {})
    metrics = ["dcg@3", "map@3"]
    return markdown(experiments.short_comparison(name, name, result(name), paper, metrics))


def compared_in(name: str) -> str:
    """DCG@3 of the methods of an experiment."""
    return markdown(experiments.short_comparison(name, name, comparison(name), {}, ["dcg@3"]))


def comparison(name: str) -> Any:
    """What the results of an experiment come to."""
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
        parts.append(markdown(experiments.side_by_side("results", "Results", found, "dcg@3")))
    missing = [f"`{about['command']}`" for about in asked if about["missing"] or about["problem"]]
    if missing:
        parts.append(f"Some results are missing; to make them: {', '.join(missing)}.")
    return "\n\n".join(parts)


LONGER = {  # the experiment, with more epochs, with all clicks, with both
    "Yahoo!R3": ("yahoo", "yahoo_long", "refit_yahoo", "refit_yahoo_long"),
    "Coat": ("coat", "coat_long", "refit_coat", "refit_coat_long"),
    "Coat, settings of Yahoo!R3": (
        "coat_transfer",
        "coat_transfer_long",
        "",
        "refit_coat_transfer_long",
    ),
}


def longer() -> str:
    """What more epochs do: on the held-out clicks that chose them, and on the judged set."""
    heads = ["data", "method", "held-out, 100", "300", "DCG@3, 100", "300"]
    heads += ["all clicks, 100", "300"]
    rows = []
    for data, names in LONGER.items():
        judged = [means(name) if name else {} for name in names]
        chosen_by = [held_out(name) for name in names[:2]]
        for arm in judged[1]:
            values = [found.get(arm) for found in (*chosen_by, *judged)]
            rows.append([Cell(data), Cell(f"`{arm}`"), *(Cell(number(v)) for v in values)])
    note = (
        "At most 100 and at most 300 epochs, and settings chosen among as many; means of 5 seeds. "
        "Held-out: the SNIPS DCG@3 that the epoch was chosen by."
    )
    table = markdown(Table("longer", "More epochs", heads, rows, [note], words=2))
    most = [names[-1] for data, names in LONGER.items() if data != "Coat"]
    return "\n\n".join([table, *(section(f"section-{n}", "compare", n) for n in most)])


def means(name: str) -> dict[str, float]:
    """The mean DCG@3 of each arm of an experiment."""
    found = comparison(name)["results"]
    return {arm["method"]: arm["metrics"]["dcg@3"]["mean"] for arm in found}


def held_out(name: str) -> dict[str, float]:
    """The mean over seeds of the quality at the chosen epoch, of each arm of an experiment."""
    found: dict[str, list[float]] = {}
    for line in read_lines(HERE / "results" / f"{name}.jsonl"):
        if line["facts"]["best_value"] is not None:
            found.setdefault(line["arm"], []).append(line["facts"]["best_value"])
    return {arm: mean(values) for arm, values in found.items()}


def adam() -> Any:
    """What the optimiser costs on both data sets."""
    return [*result("row_adam_coat"), *result("row_adam_yahoo_r3")]


TABLES: dict[str, tuple[str, Callable[[], str]]] = {
    "results table": ("README.md", summary),
    "coat table": ("docs/methods.md", partial(compared, "coat_defaults", "coat")),
    "strategies table": ("docs/methods.md", partial(compared, "coat_strategies")),
    "fast strategies table": ("docs/methods.md", partial(compared, "coat_strategies_fast")),
    "yahoo table": ("docs/methods.md", partial(compared, "yahoo_defaults_cuda", "yahoo_r3")),
    "cpu table": ("docs/engine.md", lambda: markdown(benchmarks.cpu(result("engine_cpu")))),
    "validation batch table": ("docs/engine.md", partial(compared_in, "validation_batch_yahoo")),
    "share table": ("docs/engine.md", lambda: markdown(benchmarks.share(result("epoch_share")))),
    "adam table": ("docs/engine.md", lambda: markdown(benchmarks.adam(adam()))),
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
    "transfer results": (
        "docs/results.md",
        partial(section, "section-coat_transfer", "compare", "coat_transfer"),
    ),
    "yahoo results": ("docs/results.md", partial(section, "section-yahoo", "compare", "yahoo")),
    "refit results": (
        "docs/results.md",
        lambda: "\n\n".join(
            section(f"section-{name}", "compare", name) for name in ("refit_coat", "refit_yahoo")
        ),
    ),
    "longer results": ("docs/results.md", longer),
    "levers results": ("docs/results.md", partial(section, "levers", "compare", "levers*")),
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
