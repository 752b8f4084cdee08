"""Short tables of comparisons for README and docs/, with the paper's figures beside ours."""

from collections.abc import Mapping, Sequence
from typing import Any

from unexposed.report.experiment_tables import (
    APART,
    Paper,
    against_best,
    mean_cell,
    named,
    paper_figure,
    protocol_note,
    test_heads,
)
from unexposed.report.tables import NONE, Cell, Table, cells, shown


def short_comparison(
    name: str, title: str, document: dict[str, Any], paper: Paper, metrics: Sequence[str]
) -> Table:
    """A few metrics, the paper's figure in a column of its own, and the test by the first."""
    heads, first = ["method"], metrics[0]
    for metric in metrics:
        heads += [shown(metric)] + ["paper"] * bool(paper)
    rows = []
    for result in document["results"]:
        row = [named(result)]
        for metric in metrics:
            row.append(mean_cell(result["metrics"][metric]))
            if paper:
                row.append(Cell(paper_figure(paper, metric, result["method"]) or NONE))
        rows.append([*row, *against_best(result["metrics"][first])])
    return Table(name, title, heads + test_heads(first), rows, [protocol_note(document)])


def side_by_side(
    name: str, title: str, found: Mapping[str, tuple[dict[str, Any], Paper]], metric: str
) -> Table:
    """One metric on several data sets, each with the paper's figure."""
    rows: dict[str, list[Cell]] = {}
    names: dict[str, Cell] = {}
    for document, _ in found.values():
        for result in document["results"]:
            rows.setdefault(result["method"], [])
            names[result["method"]] = named(result)
    for document, paper in found.values():
        own = {result["method"]: result["metrics"][metric] for result in document["results"]}
        for method, row in rows.items():
            row.append(mean_cell(own[method]) if method in own else Cell(NONE))
            row.append(Cell(paper_figure(paper, metric, method) or NONE))
    heads = ["method"]
    for where in found:
        heads += [f"{where} {shown(metric)}", "paper"]
    body = [cells(names[method], *row) for method, row in rows.items()]
    seeds = " and ".join(str(n) for n in sorted({d["seeds"] for d, _ in found.values()}))
    note = (
        f"Mean ± sd of {seeds} seeds, best in bold; † below the best, p < .05 (sign-flip test over "
        "users, Holm)."
    )
    notes = [note, APART] if any(cell.aside for cell in names.values()) else [note]
    return Table(name, title, heads, body, notes)
