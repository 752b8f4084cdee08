"""Write every page as an HTML file, with links between them: python docs/make_html.py"""

import re
from functools import cache
from html import escape
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

DOCS = Path(__file__).parent
ROOT = DOCS.parent
REFERENCE = DOCS / "reference"
OUT = ROOT / "build" / "docs"
MARKDOWN = MarkdownIt("commonmark").enable("table")
TEMPLATE = (DOCS / "page.html").read_text(encoding="utf-8")


def sources() -> dict[Path, str]:
    """Every page and the name of its HTML file: the index, then the pages in its order."""
    index = DOCS / "README.md"
    linked = [(DOCS / link).resolve() for link in links(index) if link.endswith(".md")]
    every = [*sorted(DOCS.glob("*.md")), *sorted(REFERENCE.glob("*.md"))]
    return {page: html_name(page) for page in dict.fromkeys([index, *linked, *every])}


def html_name(page: Path) -> str:
    """The name in OUT, where all files lie side by side."""
    if page.parent == DOCS:
        return "index.html" if page.name == "README.md" else f"{page.stem}.html"
    if page.parent == REFERENCE:
        return "reference.html" if page.name == "README.md" else f"reference-{page.stem}.html"
    return f"project-{page.stem.lower()}.html"


def parse(page: Path) -> list[Token]:
    """The tokens of a page, each heading with its anchor."""
    tokens = MARKDOWN.parse(page.read_text(encoding="utf-8"))
    taken: dict[str, int] = {}
    for opening, inline in pairwise(tokens):
        if opening.type == "heading_open":
            anchor = slug(inline.content)
            taken[anchor] = taken.get(anchor, -1) + 1
            opening.attrSet("id", anchor + (f"-{taken[anchor]}" if taken[anchor] else ""))
    return tokens


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    kept = re.sub(r"[^\w\- ]", "", heading.lower().strip())
    return kept.replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {str(token.attrGet("id")) for token in parse(page) if token.type == "heading_open"}


def links(page: Path) -> list[str]:
    """The targets of the links in a page, outside code."""
    inline = (child for token in parse(page) for child in token.children or [])
    return [str(child.attrGet("href")) for child in inline if child.type == "link_open"]


@cache
def title(page: Path) -> str:
    tokens = parse(page)
    first = next(at for at, token in enumerate(tokens) if token.type == "heading_open")
    return tokens[first + 1].content


def as_html(page: Path, names: dict[Path, str]) -> str:
    """The whole HTML file of a page."""
    tokens = parse(page)
    for child in (child for token in tokens for child in token.children or []):
        for kind, attribute in (("link_open", "href"), ("image", "src")):
            if child.type == kind:
                child.attrSet(attribute, _href(page, str(child.attrGet(attribute)), names))
    _name_cells(tokens)
    body = MARKDOWN.renderer.render(tokens, MARKDOWN.options, {})
    body = body.replace("<table>", '<div class="table"><table>').replace(
        "</table>", "</table></div>"
    )
    navigation = "\n".join(
        f'<a href="{name}"{" aria-current=page" * (other == page)}>{escape(title(other))}</a>'
        for other, name in names.items()
        if other.parent != REFERENCE or other.name == "README.md"
    )
    kind = "reference" if page.parent == REFERENCE else "page"
    return TEMPLATE.format(title=escape(title(page)), kind=kind, navigation=navigation, body=body)


def _name_cells(tokens: list[Token]) -> None:
    """Tell each cell the head of its column: a narrow screen shows a row as lines."""
    heads: list[str] = []
    column = 0
    for opening, inline in pairwise(tokens):
        if opening.type == "thead_open":
            heads = []
        elif opening.type == "th_open":
            heads.append(inline.content)
        elif opening.type == "tr_open":
            column = 0
        elif opening.type == "td_open":
            if heads[column]:
                opening.attrSet("data-head", heads[column])
            column += 1


def _href(page: Path, href: str, names: dict[Path, str]) -> str:
    """The HTML file of a linked page, or the path from OUT to any other file."""
    if re.match(r"[a-z]+:|#", href):
        return href
    path, hash_sign, anchor = href.partition("#")
    target = (page.parent / path).resolve()
    name = names.get(target) or f"../../{target.relative_to(ROOT)}"
    return name + hash_sign + anchor


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    names = sources()
    for page, name in names.items():
        (OUT / name).write_text(as_html(page, names), encoding="utf-8")
    print(f"{len(names)} pages: open {(OUT / 'index.html').relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
