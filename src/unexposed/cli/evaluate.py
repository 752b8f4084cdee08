"""`unexposed evaluate`: how well a saved model ranks judged pairs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from unexposed.cli.options import (
    NO_COLUMNS,
    AsJson,
    Columns,
    ModelFolder,
    ProtocolName,
    with_columns,
)
from unexposed.cli.talking import print_json, say
from unexposed.errors import InputError

if TYPE_CHECKING:
    from unexposed.data.clicks import Judgements
    from unexposed.data.shown import Impressions
    from unexposed.evaluation.protocols import Protocol
    from unexposed.model.model import Model


@with_columns
def evaluate(
    folder: ModelFolder,
    judged: Annotated[
        Path, typer.Option(help="File with user, item, and relevance or rating, or later clicks.")
    ],
    protocol: ProtocolName = None,
    columns: Columns = NO_COLUMNS,
    as_json: AsJson = False,
) -> None:
    """Evaluate a saved model on judged pairs, whole and by how popular and exposed they are."""
    from unexposed.cli import evaluation_tables, tables
    from unexposed.evaluation.beside import each_of_document, of_document
    from unexposed.evaluation.describe import describe
    from unexposed.evaluation.protocols import DEFAULT, choice
    from unexposed.evaluation.protocols import protocol as protocol_named
    from unexposed.methods import load

    by = protocol_named(protocol or DEFAULT)
    model = load(folder)
    logged = by.candidates == "logged"
    if logged:
        document = describe(model, _impressions(judged, by, columns), by)
    else:
        pairs = _judgements(judged, model, by, columns)
        if protocol is None and (taken := choice(pairs, by)):
            say(taken)
        document = describe(model, pairs, by)
    said = of_document(document)
    if as_json:
        return print_json(document | ({} if said is None else {"verdict": str(said)}))
    table = evaluation_tables.off_policy_table if logged else tables.evaluation_table
    if said is not None:
        for rival in document["beside"]:
            tables.show(evaluation_tables.beside_table(document, rival))
        for one in each_of_document(document):
            say(str(one))
    tables.show(table(document))
    if "by_exposure" in document:
        tables.show(evaluation_tables.exposure_table(document))
    return None


def _judgements(path: Path, model: "Model", by: "Protocol", columns: Columns) -> "Judgements":
    from unexposed.data.read import read_judged

    return read_judged(path, model, **columns.judged(), later_clicks=by.takes_clicks, say=say)


def _impressions(path: Path, by: "Protocol", columns: Columns) -> "Impressions":
    from unexposed.data.read import read_log

    shown = read_log(path, **columns.given(), any_size=True, say=say).shown
    if shown is None or shown.propensity is None:
        raise InputError(
            f"{path} holds no impressions with propensities, which protocol {by.name!r} needs: "
            "give a log of what was shown, clicked or not, and name the column with --propensity"
        )
    return shown
