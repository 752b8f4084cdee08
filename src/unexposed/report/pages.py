"""Results and models as pages for people: tables, figures, one self-contained HTML file."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from unexposed.data.read import check_title, read_judged, read_titles
from unexposed.errors import InputError
from unexposed.evaluation.protocols import protocol
from unexposed.files.whole import write_whole
from unexposed.methods import load
from unexposed.model.save import MODEL
from unexposed.report import experiments, origin_tables, page, portrait, tables
from unexposed.report import portrait_figures as draw
from unexposed.report import portrait_tables as make
from unexposed.report.drawing import need
from unexposed.report.names import Names
from unexposed.report.sections import sections

Say = Callable[[str], object]
Kind = Literal["experiments", "model"]

PAGE, MARKDOWN, LATEX = "report.html", "tables.md", "tables.tex"


def kind_of(path: Path) -> Kind:
    """Whether a folder holds experiments or a model."""
    if not path.is_dir():
        raise InputError(f"{path} is no folder: give one of experiments, or of a saved model")
    if (path / MODEL.about).is_file():
        return "model"
    if any(path.glob("*.toml")):
        return "experiments"
    raise InputError(
        f"{path} holds neither a model ({MODEL.about}) nor experiments (*.toml): "
        "give the folder of one or the other"
    )


def check_out(kind: Kind, out: Path) -> None:
    """Refuse what would only be found at the end: packages that are missing, a wrong place."""

    need("matplotlib", "jinja2")
    if kind == "experiments" and out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file: name a folder with --out")
    if kind == "model" and out.is_dir():
        raise InputError(f"{out} is a folder: name a file with --out, such as page.html")


def write_text(path: Path, text: str) -> None:
    write_whole(path, lambda to: to.write_text(text, encoding="utf-8"))


def experiments_document(folder: Path, *, say: Say = lambda _: None) -> dict[str, Any]:
    """What a folder of experiments and its results say, as plain data."""

    return experiments.document(folder, say)


def write_experiments(document: dict[str, Any], out: Path) -> list[str]:
    """The report of the experiments: a page, Markdown and LaTeX; what was written, a line each."""

    check_out("experiments", out)
    found = sections(document)
    title = "unexposed: the experiments"
    html = page.render(
        "experiments.html",
        title=title,
        folder=document["folder"],
        sections=found,
        missing=[
            (about, origin_tables.lacking(about))
            for about in document["experiments"]
            if about["missing"] or about["problem"]
        ],
        origins={
            about["name"]: origin_tables.origins(
                f"origin-{about['name']}", about["title"], about["origins"]
            )
            for section in found
            for about in section.experiments
        },
        environment=origin_tables.environment(document["environment"]),
    )
    every = [table for section in found for table in section.tables]
    write_text(out / PAGE, html)
    parts = [f"## {table.title}\n\n{tables.markdown(table)}\n" for table in every]
    write_text(out / MARKDOWN, "\n".join([f"# {title}\n", *parts]))
    head = "% needs \\usepackage{booktabs}\n"
    write_text(out / LATEX, head + "\n\n".join(tables.latex(table) for table in every) + "\n")
    lacking = sum(bool(a["missing"] or a["problem"]) for a in document["experiments"])
    return [
        f"{out / PAGE}: {len(document['experiments']) - lacking} of "
        f"{len(document['experiments'])} experiments complete, {len(every)} tables",
        f"{out / MARKDOWN} and {out / LATEX}: the tables alone",
    ]


@dataclass(frozen=True)
class Given:
    """What a model's page may show beside the model."""

    judged: Path | None = None
    protocol: str | None = None  # how to evaluate on them
    titles: Path | None = None
    title: str | None = None  # the column of names
    columns: dict[str, Any] = field(
        default_factory=dict
    )  # and threshold, as `read_judged` has them


def model_document(
    folder: Path, given: Given | None = None, *, say: Say = lambda _: None
) -> dict[str, Any]:
    """What a saved model says, as plain data."""

    given = given or Given()
    check_title(given.titles, given.title)
    if given.protocol is not None and given.judged is None:
        raise InputError("--protocol says how to evaluate on judged pairs: give --judged, too")
    by = portrait.PROTOCOL if given.protocol is None else protocol(given.protocol)
    model = load(folder)
    titles: dict[int, str] = {}
    if given.titles is not None:
        # a delimiter given is that of the judged pairs, if there are any
        own = {k: given.columns.get(k) for k in ("item",) if k in given.columns}
        delimiter = None if given.judged else given.columns.get("delimiter")
        titles = read_titles(given.titles, model, title=given.title, delimiter=delimiter, **own)
        say(f"{given.titles}: names of {len(titles):,} of {len(model.item_ids):,} items")
    judged = None
    if given.judged is not None:
        judged = read_judged(given.judged, model, **given.columns, say=say)
    names = Names(model.user_ids, model.item_ids, titles)
    return portrait.document(model, names, judged, by=by)


def write_model(document: dict[str, Any], out: Path) -> list[str]:
    """The page of a model; what was written, a line each."""

    check_out("model", out)
    lifted = document["lifted"]
    html = page.render(
        "model.html",
        title=f"What {document['method']} learned from the log",
        data=document,
        lead=make.lead(document),
        has_exposure=any(
            row["exposure"] is not None
            for group in document["relations"]["by_popularity"]
            for row in group["rows"]
        ),
        figures={
            "tail": draw.long_tail(document["log"]),
            "training": draw.training(document["facts"]),
            "relations": draw.relations(document["relations"]),
            "strata": draw.strata(document["lists"]),
        },
        tables={
            "spreads": make.spreads(document["log"]),
            "correlations": make.correlations(document["relations"]),
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
        command=f"unexposed report MODEL --out {out.name}",
    )
    write_text(out, html)
    return [f"{out}: one page, to be opened in a browser"]
