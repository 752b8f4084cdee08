"""`unexposed datasets`, `methods`, `protocols` and `metrics`: what options can name."""

import sys

from unexposed.cli.options import AsJson, DataDir
from unexposed.cli.talking import print_json


def datasets(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Show the known data sets: what each holds, its source and terms, whether it is here."""
    from unexposed.cli import tables
    from unexposed.data import datasets as known
    from unexposed.data.datasets import HOLDS

    rows = known.status(data_dir)
    if as_json:
        return print_json(rows)
    console = tables.console()
    for row in rows:
        left_out = ("name", "title", "holds", "absent" if row["present"] else "present")
        facts = {k: v.replace("\n", ", ") for k, v in row.items() if k not in left_out and v}
        title = f"[bold]{row['name']}[/bold]  {row['title']}"
        console.print(tables.key_value_table(facts, title=title), "")
    console.print(tables.holdings_table(rows, HOLDS))
    return None


def methods(as_json: AsJson = False) -> None:
    """Show the methods, one line each; the reference lists their settings."""
    from unexposed.methods import METHODS, about

    _list({name: about(name) for name in METHODS}, as_json=as_json)


def protocols(as_json: AsJson = False) -> None:
    """Show the protocols, which say who is evaluated, on what and by which metrics."""
    from unexposed.evaluation.protocols import PROTOCOLS

    found = {name: f"{by.about} ({', '.join(by.metrics)})" for name, by in PROTOCOLS.items()}
    _list(found, as_json=as_json)


def metrics(as_json: AsJson = False) -> None:
    """Show the metrics, one line each; a protocol names those that it reports."""
    from unexposed.ranking.metrics import METRICS, about

    _list({name: about(name) for name in METRICS}, as_json=as_json)


def _list(rows: dict[str, str], *, as_json: bool) -> None:
    """Print names and what they are: one line each, or folded beside the names on a terminal."""
    from unexposed.cli import tables

    if as_json:
        return print_json([{"name": name, "about": about} for name, about in rows.items()])
    if sys.stdout.isatty():
        return tables.console().print(tables.key_value_table(rows))
    widest = max(map(len, rows))
    for name, about in rows.items():
        print(f"{name:<{widest}}  {about}")
    return None
