"""Draw the imports between the rooms of src/unexposed: python docs/draw_rooms.py

Writes rooms.svg, and in architecture.md the tree of rooms.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from html import escape
from itertools import pairwise
from pathlib import Path

DOCS = Path(__file__).parent
PACKAGE = DOCS.parent / "src" / "unexposed"
PICTURE = DOCS / "rooms.svg"
PAGE = DOCS / "architecture.md"

Edges = dict[str, set[str]]  # a room or small module → what it imports

WIDTH, HEIGHT = 112, 34  # of a box
ACROSS, DOWN = 150, 72  # from one box to the next
MARGIN = 20


def layers() -> list[list[str]]:
    """The order that the import linter enforces: each layer imports from the ones after it."""
    configuration = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = configuration["tool"]["importlinter"]["contracts"]
    return [re.split(r"\s*\|\s*", layer) for layer in contract["layers"]]


def rooms() -> list[str]:
    """The folders of the package, in the order of the layers."""
    return [name for layer in layers() for name in layer if (PACKAGE / name).is_dir()]


def imported(node: ast.AST) -> Iterator[str]:
    """The dotted names a piece of source imports when it runs, so none for type checkers only."""
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        for child in node.orelse:
            yield from imported(child)
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module}.{alias.name}" for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from imported(child)


def edges() -> Edges:
    """Which rooms and small modules each of them imports; the package's own face is left out."""
    found: Edges = {name: set() for layer in layers() for name in layer}
    for path in sorted(PACKAGE.rglob("*.py")):
        home = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if home.startswith("__"):
            continue
        for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
            package, _, rest = name.partition(".")
            target = rest.partition(".")[0]
            if package == "unexposed" and target != home:
                found[home].add(target)
    return found


def reduced(graph: Edges) -> Edges:
    """The graph without the edges that a longer path already implies."""

    def reachable(start: str) -> set[str]:
        below = set(graph[start])
        for name in graph[start]:
            below |= reachable(name)
        return below

    return {
        name: {to for to in below if not any(to in reachable(via) for via in below)}
        for name, below in graph.items()
    }


def svg(graph: Edges) -> str:
    """The rooms from top to bottom, with an arrow for each import that no other arrows imply."""
    order = rooms()
    arrows = reduced({name: graph[name] & set(order) for name in order})
    paths, places = _layout(order, arrows)
    rows = 1 + max(row for _, row in places.values())
    half = max(abs(x) for x, _ in places.values()) + WIDTH / 2 + MARGIN
    centre = {
        name: (half + x, MARGIN + HEIGHT / 2 + DOWN * row) for name, (x, row) in places.items()
    }
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{2 * half:g}" '
        f'height="{DOWN * (rows - 1) + HEIGHT + 2 * MARGIN}" '
        'font-family="system-ui, sans-serif" font-size="15" text-anchor="middle">',
        "<title>Imports between the rooms of unexposed</title>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="#777"/></marker></defs>',
        '<rect width="100%" height="100%" fill="#fff"/>',
        *(_arrow([centre[stop] for stop in path]) for path in paths),
        *(_box(name, *centre[name]) for name in order),
    ]
    return "\n".join([*lines, "</svg>", ""])


def _layout(
    order: list[str], arrows: Edges
) -> tuple[list[list[str]], dict[str, tuple[float, int]]]:
    """The stops of each arrow, and the place of each room and stop: x from the middle, row.

    An arrow that passes a row has a stop there, so that it does not run through a box.
    """
    row = dict.fromkeys(order, 0)
    for name in order:  # every arrow points down the order, so one pass finds the longest paths
        for to in arrows[name]:
            row[to] = max(row[to], row[name] + 1)
    paths = []
    for name in order:
        for to in sorted(arrows[name], key=order.index):
            passed = {f"{name} to {to} in row {at}": at for at in range(row[name] + 1, row[to])}
            row |= passed
            paths.append([name, *passed, to])
    above: dict[str, list[str]] = {}
    for path in paths:
        for stop, following in pairwise(path):
            above.setdefault(following, []).append(stop)
    x: dict[str, float] = {}
    for at in range(max(row.values()) + 1):
        beneath = {
            name: sum(x[stop] for stop in above.get(name, [])) / len(above.get(name, [name]))
            for name in row
            if row[name] == at
        }
        for place, name in enumerate(sorted(beneath, key=beneath.__getitem__)):
            x[name] = ACROSS * (place - (len(beneath) - 1) / 2)
    return paths, {name: (x[name], row[name]) for name in row}


def _arrow(stops: list[tuple[float, float]]) -> str:
    """A curve that leaves each stop and reaches the next one vertically."""
    (x, top), (to_x, bottom) = stops[0], stops[-1]
    stops = [(x, top + HEIGHT / 2), *stops[1:-1], (to_x, bottom - HEIGHT / 2)]
    curve = f"M{stops[0][0]:g} {stops[0][1]:g}"
    for (x, y), (to_x, to_y) in pairwise(stops):
        middle = (y + to_y) / 2
        curve += f"C{x:g} {middle:g} {to_x:g} {middle:g} {to_x:g} {to_y:g}"
    return f'<path d="{curve}" fill="none" stroke="#777" marker-end="url(#head)"/>'


def _box(name: str, x: float, y: float) -> str:
    return (
        f'<rect x="{x - WIDTH / 2:g}" y="{y - HEIGHT / 2:g}" width="{WIDTH}" height="{HEIGHT}" '
        f'rx="6" fill="#eef4fb" stroke="#0b57a4"/>'
        f'<text x="{x:g}" y="{y + 5:g}">{escape(name)}</text>'
    )


def tree() -> str:
    """Every room with the first line of its docstring, from the top of the house down."""
    width = max(map(len, rooms())) + 2
    lines = (f"  {room + '/':{width}}{_about(PACKAGE / room / '__init__.py')}" for room in rooms())
    return "\n".join(["```", "src/unexposed/", *lines, "```"])


def _about(path: Path) -> str:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]


def filled(text: str) -> str:
    """The page with the tree between its markers."""
    before, start, rest = text.partition("<!-- tree of rooms -->\n")
    _, end, after = rest.partition("<!-- end of tree of rooms -->")
    if not start or not end:
        raise ValueError(f"{PAGE.name} has no place marked for the tree of rooms")
    return f"{before}{start}{tree()}\n{end}{after}"


def main() -> None:
    PICTURE.write_text(svg(edges()), encoding="utf-8")
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
