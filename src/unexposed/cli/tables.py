"""Tables that commands print, as wide as the terminal."""

import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from unexposed.cards import NONE, Card, number
from unexposed.errors import plain
from unexposed.evaluation.compare import card_of
from unexposed.experiments.results import Line

if TYPE_CHECKING:
    import polars as pl

PLAIN_WIDTH = 140  # for a pipe or a file
FIRST = 20  # users whose lists a terminal shows where no one is named
WORDS = ("user", "item", "title")  # columns of lists that wrap; the others hold numbers


def console() -> Console:
    """Standard output, as wide as the terminal, or of a fixed width without one."""
    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, caption: str = "") -> Table:
    """A table whose first column holds words and the others numbers."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False, caption=caption or None, caption_justify="left")
    for place, head in enumerate(heads):
        made.add_column(head, justify="right" if place else "left")
    for label, *cells in rows:
        made.add_row(label.replace("[", r"\["), *cells)
    return made


def show(table: Table, *, title: str | None = None) -> None:
    """Print a table; columns that a terminal cannot hold follow beneath, in a table of their own.

    The first column names the rows of every part, and no head is cut.
    """
    to = console()
    if title is not None:
        to.print(title.replace("[", r"\["))
    label, *others = table.columns
    here: list[Column] = []
    for column in others:
        endless = to.options.update(width=10_000)
        together = _part(table, [label, *here, column], to.width)
        if here and to.measure(together, options=endless).maximum > to.width:
            to.print(_part(table, [label, *here], to.width))
            here = []
        here.append(column)
    to.print(_part(table, [label, *here], to.width))
    if table.caption is not None:  # beneath all parts, as wide as the terminal
        to.print(table.caption, style="table.caption")


def _part(table: Table, columns: list[Column], width: int) -> Table:
    """These columns of a table, none of them cut or wrapped but a first one that is very long."""
    part = Table(box=table.box, pad_edge=False)
    for place, column in enumerate(columns):
        part.add_column(
            column.header,
            justify=column.justify,
            no_wrap=place > 0,
            overflow="fold",
            max_width=None if place else width // 2,
        )
    for cells in zip(*(column.cells for column in columns), strict=True):
        part.add_row(*cells)
    return part


def key_value_table(rows: dict[str, Any], *, title: str | None = None) -> Table:
    """Two columns: name and value, which may come from a file: no escapes, no markup."""
    made = Table(box=None, show_header=False, pad_edge=False, title=title, title_justify="left")
    made.add_column()
    made.add_column(overflow="fold")
    for key, value in rows.items():
        lines = [plain(line, 100_000) for line in _spoken(value).splitlines()]
        made.add_row(plain(key), Text("\n".join(lines)))
    return made


def _spoken(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} = {_spoken(part)}" for name, part in value.items())
    if isinstance(value, list):
        return " × ".join(map(_spoken, value))
    if type(value) is float:
        return f"{value:.4g}"
    return f"{value:,}" if type(value) is int else str(value)


def holdings_table(rows: list[dict[str, Any]], parts: dict[str, str]) -> Table:
    """A row for each data set, with a mark in the column of each part that it holds."""
    caption = "\n".join(f"{name}: {what}" for name, what in parts.items())
    marks = {row["name"]: [row["present"], *(p in row["holds"] for p in parts)] for row in rows}
    cells = ([name, *("●" if mark else "–" for mark in held)] for name, held in marks.items())
    return table(["data set", "here", *parts], cells, caption=caption)


# Lists of items or users


def show_lists(lists: Iterable["pl.DataFrame"]) -> None:
    """Print lists under one head, a user's id beside the first of its items."""
    from unexposed.data.write import printed

    for rows in map(printed, lists):
        # a score is for programs where there is a relevance, which is a probability
        names = [n for n in rows.columns if not (n == "score" and "relevance" in rows.columns)]
        made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for name in names:
            is_word = name in WORDS
            made.add_column(
                name,
                justify="left" if is_word else "right",
                no_wrap=not is_word,
                overflow="fold",
            )
        before = None
        for row in rows.iter_rows(named=True):
            cells = {name: _cell(row[name]) for name in names}
            if "user" in row and before == (before := row["user"]):
                cells["user"] = ""
            made.add_row(*map(Text, cells.values()))  # Text: ids and titles are no markup
        console().print(made)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value)
    return "" if value is None else plain(value, 200)


# Comparisons and experiments


def document_table(comparison: dict[str, Any]) -> Table:
    """The table of a comparison's document: mean ± sd over seeds, the best bold."""
    card = card_of(comparison, title="")
    rows = []
    for result, (label, *cells) in zip(comparison["results"], card.rows, strict=True):
        best = [own.get("below_best") == 0 for own in result["metrics"].values()]
        marked = zip(cells, [*best, False], strict=True)
        rows.append([label, *(f"[bold]{cell}[/bold]" if b else cell for cell, b in marked)])
    return table(card.heads, rows, caption=f"{card.note}; the best in bold")


def run_table(lines: list[Line]) -> Table:
    """A row for each arm of an experiment: seeds, seconds and mean figures."""
    arms: dict[str, list[Line]] = {}
    for line in lines:
        arms.setdefault(line["arm"], []).append(line)
    figures = [k for k in lines[0] if k not in ("seed", "seconds") and type(lines[0][k]) is float]
    rows = []
    for arm, of_arm in arms.items():
        every: list[list[Any]] = [[line.get(name) for line in of_arm] for name in figures]
        means = [NONE if None in values else number(float(np.mean(values))) for values in every]
        seconds = sum(line["seconds"] for line in of_arm)
        rows.append([arm, str(len(of_arm)), *means, f"{seconds:.1f}"])
    return table(["arm", "seeds", *figures, "seconds"], rows)


# Evaluations


def evaluation_tables(card: Card, document: dict[str, Any]) -> Iterator[Table]:
    """Every metric, beside the rivals and by popularity; by exposure, or off-policy."""
    yield table(card.heads, card.rows, caption=card.note)
    if "weights" in document:
        yield _off_policy_table(document)
    if "by_exposure" in document:
        yield _exposure_table(document)


def _exposure_table(document: dict[str, Any]) -> Table:
    """Every metric on each third of the relevant pairs, from seldom to often shown."""
    heads, parts = ["by exposure"], document["by_exposure"]
    for name, part in parts.items():
        limits = NONE if part["exposure"] is None else " – ".join(map(number, part["exposure"]))
        heads.append(f"{name} shown ({limits})")
    rows = [
        [metric, *(number(part["metrics"][metric]) for part in parts.values())]
        for metric in document["metrics"]
    ]
    caption = "thirds of the relevant pairs, by how likely the user was shown the item"
    return table(heads, rows, caption=caption)


def _off_policy_table(document: dict[str, Any]) -> Table:
    """The click rate of each top-k policy by every estimator, and how much of the log counts."""
    caption = (
        f"{document['protocol']}: click rate ± standard error if each of "
        f"{document['impressions']:,} impressions had shown one of the top k; as logged "
        f"{_spread(document['logged_rate'])}\nclipped: weights of at most {document['clip']:g}, so "
        "biased downwards; a mean weight far from 1 is a warning"
    )
    if hidden := document["clicks_trained_on"]:
        caption += (
            f"\n{hidden:,} of {document['clicks']:,} clicks are on pairs that the model was "
            "trained on, which its lists leave out"
        )
    if strangers := document["unknown_users"]:
        caption += f"\nleft out: {strangers:,} users that the model does not know"
    names = list(dict.fromkeys(text.partition("@")[0] for text in document["metrics"]))
    rows = []
    for k, facts in document["weights"].items():
        estimates = (document["metrics"].get(f"{name}@{k}") for name in names)
        rows.append(
            [
                f"top {k}",
                *(NONE if one is None else _spread(one) for one in estimates),
                f"{facts['effective_sample']:,.0f}",
                f"{facts['mean_weight']:.2f}",
                f"{facts['largest_weight']:,.1f}",
                f"{facts['clipped_share']:.1%}",
            ]
        )
    heads = [document["method"], *names, "effective sample", "mean weight", "largest", "clipped"]
    return table(heads, rows, caption=caption)


def _spread(estimate: dict[str, Any]) -> str:
    if not math.isfinite(estimate["mean"]):  # no impression counts
        return NONE
    return f"{estimate['mean']:.4f} ± {estimate['se']:.4f}"
