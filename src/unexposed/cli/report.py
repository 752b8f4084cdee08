"""`unexposed report`: a page about a saved model."""

from pathlib import Path
from typing import Annotated

import typer

from unexposed.cli import options
from unexposed.cli.talking import print_json, say
from unexposed.data.columns import Columns
from unexposed.errors import InputError


@options.with_judged_columns
def report(
    path: Annotated[Path, typer.Argument(help="A saved model.")],
    columns: Columns,
    out: Annotated[Path | None, typer.Option(help="File for the page, such as page.html.")] = None,
    judged: Annotated[
        Path | None, typer.Option(help="Judged pairs, to show how well it does.")
    ] = None,
    protocol: options.Protocol = None,
    titles: options.Titles = None,
    title: options.TitleColumn = None,
    as_json: options.AsJson = False,
) -> None:
    """Write a self-contained page of a saved model."""
    from unexposed.api.report import report as write

    if out is None and not as_json:
        raise InputError("give --out to write a page, or --json to print what it would show")
    given = {name: value for name, value in columns.of_judged().items() if value is not None}
    page = write(
        path,
        out,
        judged=judged,
        protocol=protocol,
        titles=titles,
        title=title,
        say=say,
        **given,
    )
    if as_json:
        print_json(page.document)
