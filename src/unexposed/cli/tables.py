"""Tables that commands print, as wide as the terminal."""

import sys
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from unexposed.errors import plain
from unexposed.evaluation import significance as statistics
from unexposed.evaluation.compare import Comparison
from unexposed.experiments.results import Line
from unexposed.report.tables import NONE, number, spread

PLAIN_WIDTH = 140  # for a pipe or a file


def console() -> Console:
    """Standard output, as wide as the terminal, or of a fixed width without one."""
    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)


def comparison_table(comparison: Comparison) -> Table:
    """Mean ± sd over seeds; the best bold, and † where a method is significantly below it."""
    several = comparison.seeds > 1
    caption = _caption(comparison)
    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption=caption, caption_justify="left")
    table.add_column("method", no_wrap=True)
    for metric in comparison.protocol.metrics:
        table.add_column(metric, justify="right")
    table.add_column("seconds", justify="right")
    against = {m: comparison.against_best(m) for m in comparison.protocol.metrics}
    best = {
        m: max(comparison.results, key=lambda r: float(r.values[m].mean())).label
        for m in comparison.protocol.metrics
    }
    for result in comparison.results:
        cells = []
        for metric, values in result.values.items():
            mean, sd = statistics.mean_sd(values)
            text = spread(mean, sd) if several else number(mean)
            if best[metric] == result.label:
                cells.append(f"[bold]{text}[/bold]  ")
            else:
                cells.append(text + (" †" if against[metric][result.label].significant else "  "))
        table.add_row(result.label.replace("[", r"\["), *cells, f"{result.seconds:.1f}")
    return table


def _caption(comparison: Comparison) -> str:
    seeds = f"mean ± sd of {comparison.seeds} seeds, " if comparison.seeds > 1 else ""
    return (
        f"{comparison.protocol.name}: {comparison.users:,} users, {seeds}best in bold; "
        "† below the best, p < .05 (sign-flip test over users, Holm)"
    )


def run_table(lines: list[Line]) -> Table:
    """A row for each arm of an experiment: seeds, seconds and mean figures."""
    arms: dict[str, list[Line]] = {}
    for line in lines:
        arms.setdefault(line["arm"], []).append(line)
    figures = [k for k in lines[0] if k not in ("seed", "seconds") and type(lines[0][k]) is float]
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("arm", no_wrap=True)
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
        table.add_row(plain(key), plain(_spoken(value), 100_000).replace("[", r"\["))
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
    table = Table(box=SIMPLE_HEAD, pad_edge=False, caption=caption, caption_justify="left")
    table.add_column(document["method"])
    table.add_column("all", justify="right")
    table.add_column("95 % interval", justify="right")
    for name, stratum in strata.items():
        table.add_column(f"{name} ({stratum['items']:,} items)", justify="right")
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
