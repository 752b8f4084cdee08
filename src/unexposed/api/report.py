"""`ux.report`: a page about a model, or about experiments."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from unexposed.api.inputs import Columns, as_judged, as_model, as_protocol
from unexposed.cards import Card, HasCard
from unexposed.errors import InputError, as_path
from unexposed.evaluation.protocols import DEFAULT, Protocol
from unexposed.model.model import Model
from unexposed.report import experiments, pages


@dataclass(frozen=True, eq=False)
class Page(HasCard):
    """A page that was written, and everything on it as plain data."""

    path: Path
    document: dict[str, Any]

    def __repr__(self) -> str:
        return f"Page({str(self.path)!r})"

    def card(self) -> Card:
        """Where the page is."""
        return Card("Page", {"open in a browser": self.path.absolute()})


def report(
    model: Any,
    out: str | Path,
    *,
    judged: Any = None,
    protocol: str | Protocol | None = None,
    titles: Any = None,
    title: str | None = None,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    threshold: float | None = None,
    delimiter: str | None = None,
) -> Page:
    """Write a self-contained page about a model, or about a folder of experiments.

    `judged` and `titles` are files or frames; `judged` may also be Judgements or later Clicks.
    """
    out = as_path(out, "the page to write")
    folder = Path(model) if isinstance(model, str | PathLike) else None
    if folder is not None and pages.kind_of(folder) == "experiments":
        if any(given is not None for given in (judged, protocol, titles, title)):
            raise InputError(f"{folder} holds experiments: judged and titles are for a model")
        pages.check_out("experiments", out)
        document = experiments.document(folder, lambda _: None)
        pages.write_experiments(document, out)
        return Page(out / pages.PAGE, document)
    pages.check_out("model", out)
    found: Model = as_model(model)
    columns = Columns(user, item, rating, threshold, delimiter)
    by = None if protocol is None else as_protocol(protocol)
    if judged is not None:
        by = by or as_protocol(DEFAULT)
        judged = as_judged(judged, found, columns, by)
    given = pages.Given(judged, by, titles, title, columns.given())
    document = pages.model_document(found, given)
    pages.write_model(document, out)
    return Page(out, document)
