"""`unexposed datasets`: the known data sets."""

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
        shown = {k: v.replace("\n", ", ") for k, v in row.items() if k not in left_out and v}
        title = f"[bold]{row['name']}[/bold]  {row['title']}"
        console.print(tables.key_value_table(shown, title=title), "")
    console.print(tables.holdings_table(rows, HOLDS))
    return None
