"""Pages for people: one of a folder of experiments, one of a saved model."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from unexposed.data.judged import check_title, read_judged, read_titles
from unexposed.data.labelled import Judgements
from unexposed.errors import InputError
from unexposed.evaluation.protocols import Protocol, choice, protocol
from unexposed.files import write_whole
from unexposed.methods import load
from unexposed.model.model import Model
from unexposed.model.save import model_path
from unexposed.ranking.verdict import RIVAL
from unexposed.report import origin_tables, page, portrait, tables, verdict_tables
from unexposed.report import portrait_figures as draw
from unexposed.report import portrait_tables as make
from unexposed.report.drawing import need
from unexposed.report.experiments import files
from unexposed.report.look import looks
from unexposed.report.sections import sections, titles

Say = Callable[[str], object]
Kind = Literal["experiments", "model"]

PAGE, MARKDOWN = "report.html", "tables.md"


def kind_of(path: Path) -> Kind:
    """Whether a path is a saved model, or a folder of experiments."""
    if path.is_dir() and files(path):
        return "experiments"
    if model_path(path).is_file():
        return "model"
    raise InputError(
        f"{path} is neither a model ({model_path(path)}) nor a folder of experiments (*.toml)"
    )


def check_out(kind: Kind, out: Path) -> None:
    """Refuse missing packages and a wrong place before the work begins."""
    need("matplotlib", "jinja2")
    if kind == "experiments" and out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: name a folder with --out")
    if kind == "model" and out.is_dir():
        raise InputError(f"{out} is a folder: name a file with --out, such as page.html")


def write_experiments(document: dict[str, Any], out: Path) -> list[str]:
    """Write the experiments' page and their tables as Markdown; return a line about each file."""
    check_out("experiments", out)
    found, every = sections(document), document["experiments"]
    incomplete = [about for about in every if about["missing"] or about["problem"]]
    arms = (arm["arm"] for about in every for arm in about.get("origins", []))
    styles = looks(arms, titles(document))
    title = "unexposed: the experiments"
    html = page.render(
        "experiments.html",
        title=title,
        folder=document["folder"],
        sections=[(section, section.draw(styles)) for section in found],
        missing=[(about, origin_tables.lacking(about)) for about in incomplete],
        origins={
            about["name"]: origin_tables.origins(
                f"origin-{about['name']}", about["title"], about["origins"]
            )
            for section in found
            for about in section.experiments
        },
    )
    shown = [table for section in found for table in section.tables]
    _write(out / PAGE, html)
    parts = [f"## {table.title}\n\n{tables.markdown(table)}\n" for table in shown]
    _write(out / MARKDOWN, "\n".join([f"# {title}\n", *parts]))
    return [
        f"{out / PAGE}: {len(every) - len(incomplete)} of {len(every)} experiments complete, "
        f"{len(shown)} tables",
        f"{out / MARKDOWN}: the tables alone",
    ]


def _write(path: Path, text: str) -> None:
    write_whole(path, lambda to: to.write_text(text, encoding="utf-8"))


@dataclass(frozen=True)
class Given:
    """What a model's page may show beside the model."""

    judged: Any = None  # Judgements, or what `read_judged` reads
    protocol: str | Protocol | None = None  # for the judged pairs
    titles: Any = None  # what `read_titles` reads
    title: str | None = None  # the column of titles
    columns: dict[str, Any] = field(default_factory=dict)  # and threshold, for `read_judged`


def model_document(
    model: Path | Model, given: Given | None = None, *, say: Say = lambda _: None
) -> dict[str, Any]:
    """Everything on the page of a model, or of the model saved in a folder, as plain data."""
    given = given or Given()
    check_title(given.titles, given.title)
    if given.protocol is not None and given.judged is None:
        raise InputError("--protocol says how to evaluate on judged pairs: give --judged, too")
    by = portrait.PROTOCOL if given.protocol is None else protocol(given.protocol)
    model = model if isinstance(model, Model) else load(model)
    names: dict[int, str] = {}
    if given.titles is not None:
        # --delimiter belongs to the judged pairs, and to the titles if there are none
        own = {k: given.columns.get(k) for k in ("item",) if k in given.columns}
        delimiter = None if given.judged is not None else given.columns.get("delimiter")
        names = read_titles(given.titles, model, title=given.title, delimiter=delimiter, **own)
        say(f"{given.titles}: names of {len(names):,} of {len(model.item_ids):,} items")
    judged = given.judged
    if judged is not None and not isinstance(judged, Judgements):
        judged = read_judged(judged, model, **given.columns, later_clicks=by.takes_clicks, say=say)
        if given.protocol is None and (said := choice(judged, by)):
            say(said)
    called = page.Names(model.user_ids, model.item_ids, names)
    return portrait.document(model, called, judged, by=by)


def write_model(document: dict[str, Any], out: Path, given: Given | None = None) -> list[str]:
    """Write a model's page, which names the command with what was given.

    Returns the sentences of the verdict and a line on the file.
    """
    check_out("model", out)
    lifted = document["lifted"]
    html = page.render(
        "model.html",
        title=f"What {document['method']} learned from the log",
        data=document,
        lead=make.lead(document),
        head=verdict_tables.head(document),
        is_rival=document["method"] == RIVAL,  # what others are compared with
        has_exposure=any(
            row["exposure"] is not None
            for group in document["relations"]["by_popularity"]
            for row in group["rows"]
        ),
        figures={
            "tail": draw.long_tail(document["log"]),
            "training": draw.training(document["facts"]),
            "relations": draw.relations(document["relations"]),
        },
        tables={
            "verdict": verdict_tables.tables(document),
            "verdict_notes": verdict_tables.notes(document),
            "lists": make.lists(document["lists"]),
            "judged": make.judged(document["judged"]) if document["judged"] else None,
            "lifted": [
                make.lifted(lifted[way], f"lifted-{way}", title)
                for way, title in (("up", "Lifted"), ("down", "Lowered"))
                if lifted[way]
            ],
            "settings": make.settings(document),
        },
        users=[
            (user, make.clicked(user, at), make.recommended(user, at))
            for at, user in enumerate(document["users"])
        ],
        command=_command(out, given or Given()),
    )
    _write(out, html)
    return [*document["verdict"]["says"], f"{out}: one page, to be opened in a browser"]


def _command(out: Path, given: Given) -> str:
    """The command that makes the page again; files by their names alone."""
    options = {
        "judged": getattr(given.judged, "name", None),  # a path; anything else has no name
        "protocol": getattr(given.protocol, "name", given.protocol),
        "titles": getattr(given.titles, "name", None),
        "title": given.title,
        **given.columns,
        "out": out.name,
    }
    words = [
        f"--{name.replace('_', '-')} {shlex.quote(str(value))}"
        for name, value in options.items()
        if value is not None
    ]
    return " ".join(["unexposed report MODEL", *words])
