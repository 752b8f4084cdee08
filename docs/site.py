"""A hook of mkdocs: the pages that lie outside `docs/`, and the reference, made from the code."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer
from mkdocs.structure.files import File

import unexposed as ux
from unexposed import cli, settings

ROOT = Path(__file__).parents[1]
PAGES = {  # pages outside docs/, and their place on the site
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
    **{
        str(page.relative_to(ROOT)): f"experiments/{page.parent.name}.md"
        for page in sorted(ROOT.glob("experiments/*/README.md"))
    },
}
PAGES = {source: place for source, place in PAGES.items() if (ROOT / source).exists()}
LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")


def on_files(files: Any, config: Any) -> Any:
    for source, place in PAGES.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, place, content=_relinked(text, source, place)))
    for name, lines in REFERENCE.items():
        files.append(File.generated(config, f"reference/{name}.md", content="\n".join(lines())))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    place = page.file.src_uri
    return markdown if page.file.generated_by else _relinked(markdown, f"docs/{place}", place)


def _relinked(text: str, source: str, place: str) -> str:
    """The text with its links between files of the repository as links between pages."""

    def link(match: re.Match[str]) -> str:
        start, target, anchor, end = match[1], match[2], match[3] or "", match[4]
        path = os.path.normpath(os.path.join(os.path.dirname(source), target))
        there = PAGES.get(path, path.removeprefix("docs/") if path.startswith("docs/") else None)
        if there is None:
            return match[0]
        return start + os.path.relpath(there, os.path.dirname(place) or ".") + anchor + end

    return LINK.sub(link, text)


def python() -> Iterator[str]:
    yield from ("# In Python", "", "After `import unexposed as ux`.", "")
    for name in sorted(set(ux.__all__) - {"__version__"}, key=str.lower):
        object_ = getattr(ux, name)
        if not isinstance(object_, dict):
            yield from (f"::: {object_.__module__}.{object_.__qualname__}", "")


def commands() -> Iterator[str]:
    yield from ("# Commands", "", "`unexposed COMMAND --help` shows the same.", "")
    group: Any = typer.main.get_command(cli.app)
    for name, command in sorted(group.commands.items()):
        arguments = [(p.metavar or p.name.upper()) for p in command.params if not _is_option(p)]
        usage = " ".join(["unexposed", name, *arguments])
        yield from (f"## {name}", "", command.help or "", "", f"`{usage} [OPTIONS]`", "")
        options = [
            (", ".join(f"`{one}`" for one in p.opts), p.help or "", _default(p))
            for p in command.params
            if _is_option(p)
        ]
        yield from (*_table(("option", "", "default"), options), "")


def methods() -> Iterator[str]:
    yield from ("# Settings of the methods", "")
    yield "As `ux.make(method, setting=value)` or `--set setting=value`."
    for name, method in ux.METHODS.items():
        yield from ("", f"## {name}", "", (method.__doc__ or "").strip(), "")
        rows = [
            (
                f"`{field}`",
                f"`{one.default}`",
                settings.allowed(method, field),
                one.metadata["about"],
            )
            for field, one in settings.known(method).items()
        ]
        yield from _table(("setting", "default", "allowed", ""), rows) if rows else ["No settings."]


def names() -> Iterator[str]:
    yield from ("# Metrics, protocols, criteria and data sets", "", "## Metrics", "")
    yield from _table(("name", ""), [(f"`{n}`", _first_line(f)) for n, f in ux.METRICS.items()])
    yield from ("", "## Protocols", "")
    rows = [(f"`{n}`", by.about, ", ".join(by.metrics)) for n, by in ux.PROTOCOLS.items()]
    yield from _table(("name", "", "metrics"), rows)
    yield from ("", "## Criteria", "")
    yield from _table(("name", ""), [(f"`{n}`", by.about) for n, by in ux.CRITERIA.items()])
    yield from ("", "## Data sets", "")
    sets = [
        (f"`{n}`", d.title, f"<{d.homepage}>", d.terms, d.clicks, ", ".join(d.holds))
        for n, d in ux.DATASETS.items()
    ]
    yield from _table(("name", "", "from", "terms", "a click is", "holds"), sets)


REFERENCE = {"python": python, "commands": commands, "methods": methods, "names": names}


def _is_option(parameter: Any) -> bool:
    return parameter.param_type_name == "option"


def _default(parameter: Any) -> str:
    return (
        ""
        if parameter.default in (None, False) or callable(parameter.default)
        else f"`{parameter.default}`"
    )


def _first_line(function: Any) -> str:
    return (getattr(function, "__doc__", "") or "").strip().partition("\n\n")[0]


def _table(head: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    for cells in (head, ("---",) * len(head), *rows):
        yield "| " + " | ".join(" ".join(str(c).split()).replace("|", r"\|") for c in cells) + " |"
