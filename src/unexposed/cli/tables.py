"""Tables that commands print, as wide as the terminal."""

import sys
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from unexposed.cards import NONE, number
from unexposed.cli.talking import print_json
from unexposed.errors import plain
from unexposed.evaluation import significance as statistics
from unexposed.evaluation.compare import Comparison
from unexposed.experiments.results import Line
from unexposed.report.tables import spread

PLAIN_WIDTH = 140  # for a pipe or a file


def console() -> Console:
    """Standard output, as wide as the terminal, or of a fixed width without one."""
    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)


def show(table: Table, *, title: str | None = None) -> None:
    """Print a table; columns that a terminal cannot hold follow beneath, in a table of their own.

    The first column names the rows of every part. A head that is cut could not be told apart from
    another.
    """
    to = console()
    if title is not None:
        to.print(title.replace("[", r"\["))
    label, *others = table.columns
    here: list[Column] = []
    for column in others:
        if here and _natural_width(_part(table, [label, *here, column])) > to.width:
            to.print(_part(table, [label, *here]))
            here = []
        here.append(column)
    to.print(_part(table, [label, *here]))
    if table.caption is not None:  # beneath all parts, as wide as the terminal
        to.print(table.caption, style="table.caption")


def _natural_width(table: Table) -> int:
    endless = console().options.update(width=10_000)
    return console().measure(table, options=endless).maximum


def _part(table: Table, columns: list[Column]) -> Table:
    """These columns of a table, none of them cut or wrapped but a first one that is very long."""
    part = Table(box=table.box, pad_edge=False)
    for place, column in enumerate(columns):
        widest = console().width // 2 if place == 0 else None
        part.add_column(
            column.header,
            justify=column.justify,
            no_wrap=place > 0,
            overflow="fold",
            max_width=widest,
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        part.add_row(*cells)
    return part


def comparison_table(comparison: Comparison) -> Table:
    """Mean ± sd over seeds; the best bold, and † where a method is significantly below it."""
    return document_table(comparison.document())


def document_table(comparison: dict[str, Any]) -> Table:
    """The table of a comparison's document."""
    rows = comparison["results"]
    table = Table("method", box=SIMPLE_HEAD, caption=_caption(comparison))
    for metric in rows[0]["metrics"] if rows else ():
        table.add_column(metric, justify="right")
    table.add_column("seconds", justify="right")
    for row in rows:
        cells = []
        for own in row["metrics"].values():
            several = comparison["seeds"] > 1
            text = spread(own["mean"], own["sd"]) if several else number(own["mean"])
            if own.get("below_best") == 0:
                cells.append(f"[bold]{text}[/bold]  ")
            else:
                below = own.get("p_holm", 1) <= statistics.SIGNIFICANCE
                cells.append(text + (" †" if below else "  "))
        label = f"{row['method']} ({row['given']})" if "given" in row else row["method"]
        table.add_row(label.replace("[", r"\["), *cells, f"{row['seconds']:.1f}")
    return table


def _caption(comparison: dict[str, Any]) -> str:
    seeds = f"mean ± sd of {comparison['seeds']} seeds, " if comparison["seeds"] > 1 else ""
    apart = "; rows given more than clicks, named in brackets, do not compete"
    given = any("given" in row for row in comparison["results"])
    return (
        f"{comparison['protocol']}: {comparison['users']:,} users, {seeds}best in bold; "
        "† below the best, p < .05 (sign-flip test over users, Holm)"
        f"{apart if given else ''}"
    )


def run_table(lines: list[Line]) -> Table:
    """A row for each arm of an experiment: seeds, seconds and mean figures."""
    arms: dict[str, list[Line]] = {}
    for line in lines:
        arms.setdefault(line["arm"], []).append(line)
    figures = [k for k in lines[0] if k not in ("seed", "seconds") and type(lines[0][k]) is float]
    table = Table("arm", box=SIMPLE_HEAD)
    for name in ("seeds", *figures, "seconds"):
        table.add_column(name, justify="right")
    for arm, of_arm in arms.items():
        means = [_mean_text([line.get(name) for line in of_arm]) for name in figures]
        seconds = sum(line["seconds"] for line in of_arm)
        table.add_row(arm.replace("[", r"\["), str(len(of_arm)), *means, f"{seconds:.1f}")
    return table


def _mean_text(values: list[Any]) -> str:
    return NONE if None in values else number(sum(values) / len(values))


def key_value_table(rows: dict[str, Any], *, title: str | None = None) -> Table:
    """Two columns: name and value."""
    table = Table(box=None, show_header=False, pad_edge=False, title=title, title_justify="left")
    table.add_column()
    table.add_column(overflow="fold")
    for key, value in rows.items():
        # a file may have said it: no terminal escapes, no markup
        lines = [plain(line, 100_000) for line in _spoken(value).splitlines()]
        table.add_row(plain(key), "\n".join(lines).replace("[", r"\["))
    return table


def holdings_table(rows: list[dict[str, Any]], parts: dict[str, str]) -> Table:
    """A row for each data set, with a mark in the column of each part that it holds."""
    caption = "\n".join(f"{name}: {what}" for name, what in parts.items())
    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption=caption, caption_justify="left")
    table.add_column("data set", no_wrap=True)
    for name in ("here", *parts):
        table.add_column(name, justify="center")
    for row in rows:
        marks = [row["present"], *(part in row["holds"] for part in parts)]
        table.add_row(row["name"], *("●" if mark else "–" for mark in marks))
    return table


def listing(rows: dict[str, str], *, as_json: bool) -> None:
    """Print names and what they are: one line each, or folded beside the names on a terminal."""
    if as_json:
        return print_json([{"name": name, "about": about} for name, about in rows.items()])
    if sys.stdout.isatty():
        return console().print(key_value_table(rows))
    widest = max(map(len, rows))
    for name, about in rows.items():
        print(f"{name:<{widest}}  {about}")
    return None


def _spoken(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_spoken(part)}" for name, part in value.items())
    if isinstance(value, list):
        return " × ".join(map(_spoken, value))
    if type(value) is float:
        return f"{value:.4g}"
    return f"{value:,}" if type(value) is int else str(value)


def evaluation_table(document: dict[str, Any]) -> Table:
    """Every metric with its interval, for all relevant items and for each popularity stratum."""
    strata = document["by_popularity"]
    lists = document["recommended"]
    caption = (
        f"{document['protocol']}: {document['users']:,} users, 95 % interval over users; "
        "head, middle and tail items hold a third of the clicks each\n"
        f"top {lists['k']} lists: {lists['coverage']:.0%} of the catalogue, "
        f"Gini {number(lists['gini'])}, mean item has {lists['mean_popularity']:.0f} clicks"
    )
    table = Table(document["method"], box=SIMPLE_HEAD, caption=caption)
    table.add_column("all", justify="right")
    table.add_column("95 % interval", justify="right")
    for name, stratum in strata.items():
        table.add_column(f"{name}\n({stratum['items']:,} items)", justify="right")
    for metric, all_items in document["metrics"].items():
        low, high = all_items["ci95"]
        cells = [s["metrics"][metric] for s in strata.values()]
        table.add_row(
            metric,
            number(all_items["mean"]),
            f"{number(low)} – {number(high)}",
            *map(number, cells),
        )
    return table
