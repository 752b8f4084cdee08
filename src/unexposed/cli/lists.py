"""Lists of items or users as people read them on a terminal; elsewhere they are CSV."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from unexposed.errors import plain

if TYPE_CHECKING:
    import polars as pl

FIRST = 20  # users shown on a terminal where no one is named
WORDS = ("user", "item", "title")  # these wrap, the others hold numbers


def on_terminal() -> bool:
    """Whether a person reads standard output."""
    return sys.stdout.isatty()


def show_lists(tables: Iterable["pl.DataFrame"]) -> None:
    """Print lists under one head, a user's id beside the first of its items."""
    from rich.table import Table
    from rich.text import Text

    from unexposed.cli.tables import console
    from unexposed.data.write import printed

    for rows in map(printed, tables):
        names = [name for name in rows.columns if _is_shown(name, rows.columns)]
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        for name in names:
            is_word = name in WORDS
            justify: Any = "left" if is_word else "right"
            table.add_column(name, justify=justify, no_wrap=not is_word, overflow="fold")
        before = None
        for row in rows.iter_rows(named=True):
            cells = {name: _cell(row[name]) for name in names}
            if "user" in row and before == (before := row["user"]):
                cells["user"] = ""
            table.add_row(*map(Text, cells.values()))  # Text: ids and titles are no markup
        console().print(table)


def _is_shown(name: str, columns: list[str]) -> bool:
    """A score is for programs where there is a relevance, which is a probability."""
    return not (name == "score" and "relevance" in columns)


def _cell(value: Any) -> str:
    from unexposed.cards import number

    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value)
    return "" if value is None else plain(value, 200)
