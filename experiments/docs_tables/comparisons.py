"""Short tables of comparisons for README and docs/, with the paper's figures beside ours."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from unexposed.cards import NONE
from unexposed.report.experiment_tables import (
    APART,
    Paper,
    Titles,
    against_best,
    explained,
    mean_cell,
    named,
    paper_figure,
    protocol_note,
    test_heads,
)
from unexposed.report.tables import Cell, Table, cells, shown


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


@dataclass(frozen=True)
class Column:
    """One metric of one comparison, with the paper's figures where they are comparable."""

    head: str
    document: dict[str, Any]
    metric: str
    paper: Paper


def columns(name: str, title: str, asked: Sequence[Column], titles: Titles) -> Table:
    """The methods of several comparisons, with the paper's figures in brackets."""
    names: dict[str, Cell] = {}
    rows: dict[str, list[Cell]] = {}
    for at, column in enumerate(asked):
        for result in column.document["results"]:
            method = result["method"]
            names[method] = named(result)
            row = rows.setdefault(method, [Cell(NONE)] * len(asked))
            theirs = paper_figure(column.paper, column.metric, method)
            row[at] = mean_cell(result["metrics"][column.metric], aside=theirs)
    body = [cells(names[method], *row) for method, row in rows.items()]
    notes = [_note(column.document for column in asked), "In brackets: the paper's figure."]
    if any(cell.aside for cell in names.values()):
        notes.append(APART)
    if said := explained(list(names), titles):
        notes.append(f"{said}.")
    return Table(name, title, ["method", *(column.head for column in asked)], body, notes)


def _note(documents: Iterable[dict[str, Any]]) -> str:
    seeds = " and ".join(str(n) for n in sorted({document["seeds"] for document in documents}))
    return (
        f"Mean ± sd of {seeds} seeds, best in bold; † below the best, p < .05 (sign-flip test over "
        "users, Holm)."
    )


def side_by_side(
    name: str,
    title: str,
    found: Mapping[str, tuple[dict[str, Any], Paper]],
    metric: str,
    only: Collection[str],
) -> Table:
    """One metric of these methods on several data sets, each with the paper's figure."""
    rows: dict[str, list[Cell]] = {}
    names: dict[str, Cell] = {}
    for document, _ in found.values():
        for result in document["results"]:
            if result["method"] in only:
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
    note = _note(document for document, _ in found.values())
    notes = [note, APART] if any(cell.aside for cell in names.values()) else [note]
    return Table(name, title, heads, body, notes)
