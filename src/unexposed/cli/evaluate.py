"""`unexposed evaluate`: how well a saved model ranks judged pairs."""

from pathlib import Path
from typing import Annotated

import typer

from unexposed.cli.options import (
    NO_JUDGED_COLUMNS,
    AsJson,
    JudgedColumns,
    ModelFolder,
    ProtocolName,
    with_columns,
)
from unexposed.cli.talking import print_json, say


@with_columns
def evaluate(
    folder: ModelFolder,
    judged: Annotated[Path, typer.Option(help="File with user, item, and relevance or rating.")],
    protocol: ProtocolName = "ubo-ijcai22",
    columns: JudgedColumns = NO_JUDGED_COLUMNS,
    as_json: AsJson = False,
) -> None:
    """Evaluate a saved model on judged pairs, whole and by how popular the items are."""
    from unexposed.cli import tables
    from unexposed.data.read import read_judged
    from unexposed.evaluation.protocols import describe
    from unexposed.evaluation.protocols import protocol as protocol_named
    from unexposed.methods import load

    by = protocol_named(protocol)
    model = load(folder)
    judgements = read_judged(judged, model, **columns.judged(), say=say)
    document = describe(model, judgements, by)
    if as_json:
        return print_json(document)
    tables.console().print(tables.evaluation_table(document))
    return None
