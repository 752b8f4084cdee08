"""`ux.report`: a page about a model, or about experiments."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from unexposed.api.inputs import as_columns, as_judged, as_model, as_protocol
from unexposed.cards import Card, HasCard
from unexposed.data.log import Say
from unexposed.errors import InputError, as_path
from unexposed.evaluation.protocols import DEFAULT, Protocol
from unexposed.report import experiments, pages


@dataclass(frozen=True, eq=False)
class Page(HasCard):
    """A page that was written, and everything on it as plain data."""

    path: Path | None  # None: nothing was written
    document: dict[str, Any]

    def __repr__(self) -> str:
        return f"Page({str(self.path)!r})"

    def card(self) -> Card:
        """Where the page is."""
        where = "nowhere" if self.path is None else self.path.absolute()
        return Card("Page", {"open in a browser": where})


def report(
    model: Any,
    out: str | Path | None,
    *,
    judged: Any = None,
    protocol: str | Protocol | None = None,
    titles: Any = None,
    title: str | None = None,
    say: Say | None = None,
    **columns: Any,
) -> Page:
    """Write a self-contained page about a model, or about a folder of experiments.

    `judged` and `titles` are files or frames; `judged` may also be Judgements or later Clicks.
    `columns` are the keywords of `read_judged`. Without `out` nothing is written, and the page is
    its `document` alone.
    """
    words, tell = as_columns(columns), say or (lambda _: None)
    out = None if out is None else as_path(out, "the page to write")
    folder = Path(model) if isinstance(model, str | PathLike) else None
    kind = "model" if folder is None else pages.kind_of(folder)
    if out is not None:
        pages.check_out(kind, out)
    if folder is not None and kind == "experiments":
        if columns or any(given is not None for given in (judged, protocol, titles, title)):
            raise InputError(f"{folder} holds experiments: judged and titles are for a model")
        document = experiments.document(folder, tell)
        written = [] if out is None else pages.write_experiments(document, out)
        page = None if out is None else out / pages.PAGE
    else:
        found = as_model(model)
        by = None if protocol is None else as_protocol(protocol)
        if judged is not None and not isinstance(judged, str | PathLike):
            by = by or as_protocol(DEFAULT)
            judged = as_judged(judged, found, words, by)
        given = pages.Given(judged, by, titles, title, words.of_judged())
        document = pages.model_document(found, given, say=tell)
        written = [] if out is None else pages.write_model(document, out, given)
        page = out
    for line in written:
        tell(line)
    return Page(page, document)
