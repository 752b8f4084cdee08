"""What there is to see: report, doctor."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from unexposed.cli.options import (
    NO_COLUMNS,
    AsJson,
    Columns,
    DataDir,
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
        str | None, typer.Option(help="How to evaluate on --judged. (default: ubo-ijcai22)")
    ] = None,
    titles: Annotated[
        Path | None, typer.Option(help="Model: file with the names of items, by id.")
    ] = None,
    title: TitleColumn = None,
    columns: Columns = NO_COLUMNS,
    as_json: AsJson = False,
) -> None:
    """Write a self-contained page: of experiments and their results, or of one saved model."""
    from unexposed.report import pages as reports

    if out is None and not as_json:
        raise InputError("give --out to write a page, or --json to print what it would show")
    kind = reports.kind_of(path)
    if out is not None:
        reports.check_out(kind, out)
    if kind == "experiments":
        if columns.are_given() or any((judged, protocol, titles, title)):
            raise InputError(f"{path} holds experiments: --judged and --titles are for a model")
        document = reports.experiments_document(path, say=say)
        written = [] if out is None else reports.write_experiments(document, out)
    else:
        given = reports.Given(judged, protocol, titles, title, columns.given())
        document = reports.model_document(path, given, say=say)
        written = [] if out is None else reports.write_model(document, out)
    for line in written:
        say(line)
    if as_json:
        print_json(document)


def doctor(
    folder: Annotated[
        Path | None, typer.Argument(metavar="[MODEL]", help="Look at this saved model instead.")
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Check this installation, with exit code 1 if something is broken; or all of a saved model."""
    from unexposed.cli import doctor_checks as doctors

    if folder is not None:
        return _examine_model(folder, as_json=as_json)
    checks = []
    for check in doctors.examine(data_dir, say=say):
        checks.append(check)
        if not as_json:
            print("\n".join(check.lines()), flush=True)
    if as_json:
        print_json(doctors.document(checks))
    if not doctors.healthy(checks):
        sys.exit(1)
    return None


def _examine_model(folder: Path, *, as_json: bool) -> None:
    from unexposed.cli import tables
    from unexposed.methods import make
    from unexposed.model.load import describe

    document = describe(folder, make)
    if as_json:
        return print_json(document)
    tables.console().print(tables.key_value_table(document), "every checksum is right")
    return None
