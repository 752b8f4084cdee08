"""`unexposed evaluate`: how well a saved model ranks judged pairs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unexposed.cli.options import (
    NO_COLUMNS,
    AsJson,
    Columns,
    ModelFolder,
    ProtocolName,
    with_columns,
)
from unexposed.cli.talking import leads, print_json, say
from unexposed.errors import InputError

if TYPE_CHECKING:
    from unexposed.data.labelled import Impressions, Judgements
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
    from unexposed import ranks
    from unexposed.cli import evaluation_tables, tables
    from unexposed.evaluation.beside import each_of_document, of_document
    from unexposed.evaluation.protocols import DEFAULT
    from unexposed.evaluation.protocols import protocol as protocol_named

    by = protocol_named(protocol or DEFAULT)
    logged = by.candidates == "logged"
    if logged and ranks.several():
        raise InputError(f"protocol {by.name!r} runs in one process, without torchrun")
    document = _document(folder, judged, by, columns, asked=protocol is not None)
    said = of_document(document)
    if not leads():
        return None
    if as_json:
        return print_json(document | ({} if said is None else {"verdict": str(said)}))
    table = evaluation_tables.off_policy_table if logged else tables.evaluation_table
    if said is not None:
        for one in each_of_document(document):
            say(str(one))
        for rival in document["beside"]:
            tables.show(evaluation_tables.beside_table(document, rival))
    tables.show(table(document))
    if "by_exposure" in document:
        tables.show(evaluation_tables.exposure_table(document))
    return None


def _document(
    folder: Path, judged: Path, by: "Protocol", columns: Columns, *, asked: bool
) -> dict[str, Any]:
    """What the evaluation finds; of a model saved by partitions, only judged users are opened.

    Unless the protocol was asked for, it is said where another may be meant.
    """
    from unexposed.data.judged import read_pairs
    from unexposed.evaluation.describe import describe
    from unexposed.evaluation.protocols import choice
    from unexposed.methods import load, load_partitions
    from unexposed.model.load import is_parted

    parted = is_parted(folder)
    if by.candidates == "logged":
        shown = _impressions(judged, by, columns)
        model = load_partitions(folder).of_users(shown.user_ids) if parted else load(folder)
        return describe(model, shown, by)
    if parted:
        users = read_pairs(judged, **columns.pair(), say=lambda _: None).user_ids
        model = load_partitions(folder).of_users(users)
    else:
        model = load(folder)
    pairs = _judgements(judged, model, by, columns)
    if not asked and (taken := choice(pairs, by)) and leads():
        say(taken)
    return describe(model, pairs, by)


def _judgements(path: Path, model: "Model", by: "Protocol", columns: Columns) -> "Judgements":
    from unexposed.data.judged import read_judged

    return read_judged(path, model, **columns.judged(), later_clicks=by.takes_clicks, say=say)


def _impressions(path: Path, by: "Protocol", columns: Columns) -> "Impressions":
    from unexposed.data.log import read_log

    shown = read_log(path, **columns.given(), any_size=True, say=say).shown
    if shown is None or shown.propensity is None:
        raise InputError(
            f"{path} holds no impressions with propensities, which protocol {by.name!r} needs: "
            "give a log of what was shown, clicked or not, and name the column with --propensity"
        )
    return shown
