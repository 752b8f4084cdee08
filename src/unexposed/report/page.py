"""The page of a model: one self-contained HTML file."""

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from unexposed.data.judged import check_title, read_judged, read_titles
from unexposed.data.labelled import Judgements
from unexposed.errors import InputError
from unexposed.evaluation.protocols import Protocol, choice, protocol
from unexposed.files import write_whole
from unexposed.methods import load
from unexposed.model.model import Model
from unexposed.ranking.verdict import RIVAL
from unexposed.report import figures, portrait, tables
from unexposed.report.figures import need, swatch

Say = Callable[[str], object]


def check_out(out: Path) -> None:
    """Refuse missing packages and a wrong place before the work begins."""
    need("matplotlib", "jinja2")
    if out.is_dir():
        raise InputError(f"{out} is a folder: name a file with --out, such as page.html")


def document(
    model: Path | Model,
    *,
    judged: Any = None,
    by: str | Protocol | None = None,
    titles: Any = None,
    title: str | None = None,
    columns: Mapping[str, Any] | None = None,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Everything on the page of a model, or of the model saved in a file, as plain data.

    `judged` are judged pairs or what `read_judged` reads with these columns, evaluated by the
    protocol; `titles` what `read_titles` reads, with its column of titles.
    """
    columns = columns or {}
    check_title(titles, title)
    if by is not None and judged is None:
        raise InputError("--protocol says how to evaluate on judged pairs: give --judged, too")
    asked = portrait.PROTOCOL if by is None else protocol(by)
    model = model if isinstance(model, Model) else load(model)
    names: dict[int, str] = {}
    if titles is not None:
        # --delimiter belongs to the judged pairs, and to the titles if there are none
        own = {k: columns[k] for k in ("item",) if k in columns}
        delimiter = None if judged is not None else columns.get("delimiter")
        names = read_titles(titles, model, title=title, delimiter=delimiter, **own)
        say(f"{titles}: names of {len(names):,} of {len(model.item_ids):,} items")
    if judged is not None and not isinstance(judged, Judgements):
        judged = read_judged(judged, model, **columns, later_clicks=asked.takes_clicks, say=say)
        if by is None and (said := choice(judged, asked)):
            say(said)
    called = portrait.Names(model.user_ids, model.item_ids, names)
    return portrait.document(model, called, judged, by=asked)


def write(
    document: dict[str, Any], out: Path, options: Mapping[str, Any] | None = None
) -> list[str]:
    """Write a model's page, which names the command with its options.

    Returns the sentences of the verdict and a line on the file.
    """
    check_out(out)
    lifted = document["lifted"]
    html = render(
        title=f"What {document['method']} learned from the log",
        data=document,
        lead=tables.lead(document),
        head=tables.verdict_head(document),
        is_rival=document["method"] == RIVAL,  # what others are compared with
        has_exposure=any(
            row["exposure"] is not None
            for group in document["relations"]["by_popularity"]
            for row in group["rows"]
        ),
        figures={
            "tail": figures.long_tail(document["log"]),
            "training": figures.training(document["facts"]),
            "relations": figures.relations(document["relations"]),
        },
        tables={
            "verdict": tables.verdict(document),
            "verdict_notes": tables.verdict_notes(document),
            "lists": tables.lists(document["lists"]),
            "judged": tables.judged(document["judged"]) if document["judged"] else None,
            "lifted": [
                tables.lifted(lifted[way], f"lifted-{way}", title)
                for way, title in (("up", "Lifted"), ("down", "Lowered"))
                if lifted[way]
            ],
            "settings": tables.settings(document),
        },
        users=[
            (user, tables.clicked(user, at), tables.recommended(user, at))
            for at, user in enumerate(document["users"])
        ],
        command=_command(**(options or {}), out=out),
    )
    write_whole(out, lambda to: to.write_text(html, encoding="utf-8"))
    return [*document["verdict"]["says"], f"{out}: one page, to be opened in a browser"]


def _command(**options: Any) -> str:
    """The command that makes the page again; files by their names alone, and frames left out."""
    said = {key: getattr(value, "name", value) for key, value in options.items()}
    words = [
        f"--{key.replace('_', '-')} {shlex.quote(str(value))}"
        for key, value in said.items()
        if isinstance(value, str | int | float)
    ]
    return " ".join(["unexposed report MODEL", *words])


def render(**parts: Any) -> str:
    """Fill the template, with all data escaped."""
    need("jinja2")
    import jinja2
    from markupsafe import Markup, escape

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("unexposed.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def code(text: str) -> Markup:
        """Text in which `…` is code."""
        return Markup(re.sub("`([^`]+)`", r"<code>\1</code>", str(escape(text))))

    environment.filters["code"] = code
    environment.filters["drawn"] = Markup  # our own drawing, whose texts matplotlib has escaped
    environment.filters["swatch"] = lambda look: Markup(swatch(look))
    return environment.get_template("page.html").render(**parts).lstrip()
