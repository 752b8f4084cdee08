"""`ux.report`: a page about a model."""

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from unexposed.api.inputs import as_columns, as_judged, as_model, as_protocol
from unexposed.cards import Card, HasCard
from unexposed.data.log import Say
from unexposed.errors import as_path
from unexposed.evaluation.protocols import DEFAULT, Protocol
from unexposed.report import page


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
    """Write a self-contained page about a model.

    `judged` and `titles` are files or frames; `judged` may also be Judgements or later Clicks.
    `columns` are the keywords of `read_judged`. Without `out` nothing is written, and the page is
    its `document` alone.
    """
    words, tell = as_columns(columns), say or (lambda _: None)
    out = None if out is None else as_path(out, "the page to write")
    if out is not None:
        page.check_out(out)
    found = as_model(model)
    by = None if protocol is None else as_protocol(protocol)
    read = judged
    if judged is not None and not isinstance(judged, str | PathLike):
        by = by or as_protocol(DEFAULT)
        read = as_judged(judged, found, words, by)
    own = words.of_judged()
    document = page.document(
        found, judged=read, by=by, titles=titles, title=title, columns=own, say=tell
    )
    if out is not None:
        options = {"judged": judged, "protocol": by, "titles": titles, "title": title, **own}
        for line in page.write(document, out, options):
            tell(line)
    return Page(out, document)
