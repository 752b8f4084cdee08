"""`unexposed report`: a page about experiments and their results, or about one model."""

from pathlib import Path
from typing import Annotated

import typer

from unexposed.cli import opening
from unexposed.cli.options import (
    NO_JUDGED_COLUMNS,
    AsJson,
    JudgedColumns,
    TitleColumn,
    with_columns,
)
from unexposed.cli.talking import print_json, say
from unexposed.errors import InputError


@with_columns
def report(
    path: Annotated[Path, typer.Argument(help="Folder of experiments, or of a saved model.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder for the experiments' report, file for a model's.")
    ] = None,
    judged: Annotated[
        Path | None, typer.Option(help="Model: judged pairs, to show how well it does.")
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(help="For --judged: see `unexposed protocols`. (default: catalogue)"),
    ] = None,
    titles: Annotated[
        Path | None, typer.Option(help="Model: file with the names of items, by id.")
    ] = None,
    title: TitleColumn = None,
    columns: JudgedColumns = NO_JUDGED_COLUMNS,
    as_json: AsJson = False,
) -> None:
    """Write a self-contained page: of experiments and their results, or of one saved model."""
    from unexposed.report import experiments, pages

    if out is None and not as_json:
        raise InputError("give --out to write a page, or --json to print what it would show")
    kind = pages.kind_of(path)
    if out is not None:
        pages.check_out(kind, out)
    if kind == "experiments":
        if columns.are_given() or any((judged, protocol, titles, title)):
            raise InputError(f"{path} holds experiments: --judged and --titles are for a model")
        document = experiments.document(path, say)
        written = [] if out is None else pages.write_experiments(document, out)
    else:
        given = pages.Given(judged, protocol, titles, title, columns.judged())
        document = pages.model_document(opening.whole(path), given, say=say)
        written = [] if out is None else pages.write_model(document, out, given)
    for line in written:
        say(line)
    if as_json:
        print_json(document)
