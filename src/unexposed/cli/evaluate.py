"""`unexposed evaluate`: how well a saved model ranks judged pairs."""

from pathlib import Path
from typing import Annotated

import typer

from unexposed.cli import options
from unexposed.cli.talking import leads, print_json, say
from unexposed.data.columns import Columns
from unexposed.errors import InputError


@options.with_columns
def evaluate(
    folder: options.ModelFolder,
    judged: Annotated[
        Path, typer.Option(help="File with user, item, and relevance or rating, or later clicks.")
    ],
    columns: Columns,
    protocol: options.Protocol = None,
    as_json: options.AsJson = False,
) -> None:
    """Evaluate a saved model on judged pairs, whole and by how popular and exposed they are."""
    from unexposed.api.evaluate import prepared
    from unexposed.cli import tables
    from unexposed.evaluation.describe import each_of_document
    from unexposed.evaluation.protocols import DEFAULT
    from unexposed.evaluation.protocols import protocol as protocol_named
    from unexposed.ranking.verdict import joined
    from unexposed.workers import several

    if protocol_named(protocol or DEFAULT).candidates == "logged" and several():
        raise InputError(f"protocol {protocol!r} runs in one process, without torchrun")
    found = prepared(folder, judged, protocol, say=say, **columns.of_log())
    document, verdicts = found.document, each_of_document(found.document)
    if not leads():
        return
    if as_json:
        print_json(document | ({"verdict": str(joined(verdicts))} if verdicts else {}))
        return
    for verdict in verdicts:
        say(str(verdict))
    for table in tables.evaluation_tables(found.card(), document):
        tables.show(table)
