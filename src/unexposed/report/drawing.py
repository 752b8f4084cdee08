"""Draw panels with matplotlib as inline SVG, in the colours of the page, with unique ids."""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from unexposed.late import optional
from unexposed.report.look import GRID, INK, Look

WIDTH, HEIGHT = 4.4, 3.1  # inches: a phone shows a panel at its full size

_STYLE: dict[str, Any] = {
    "svg.fonttype": "none",  # text stays text, to be read aloud, searched and copied
    "text.parse_math": False,  # a dollar sign stays a dollar sign
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.labelsize": 10,
    "axes.titlesize": 11,
    "xtick.labelsize": 9.5,
    "ytick.labelsize": 9.5,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


@dataclass(frozen=True)
class Panel:
    """One drawing: the text for a screen reader, and the SVG."""

    title: str
    svg: str


@dataclass(frozen=True)
class Figure:
    """Panels side by side under one caption and one legend."""

    name: str
    title: str
    caption: str
    panels: list[Panel]
    legend: list[Look] = field(default_factory=list)
    columns: int = 3  # at most, where there is room


def need(*packages: str) -> None:
    """Refuse a missing package with the command that installs it."""
    for package in packages:
        optional(package, extra="report")


def draw(
    name: str,
    title: str,
    paint: Callable[..., object],
    *data: Any,
    height: float = HEIGHT,
) -> Panel:
    """A panel of one set of axes, painted by the function from the data."""
    need("matplotlib")
    name = re.sub(r"[^\w-]", "-", name)
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    # the same results give the same bytes: ids are salted with the name, and no date is written
    style: Any = {**_STYLE, "svg.hashsalt": name}
    with matplotlib.rc_context(style):
        canvas = Canvas(figsize=(WIDTH, height), layout="constrained")
        axes = canvas.subplots()
        axes.set_title(title, loc="left")
        paint(axes, *data)
        out = io.StringIO()
        canvas.savefig(out, format="svg", metadata={"Date": None})
    return Panel(title, inline(out.getvalue(), name=name))


def inline(svg: str, *, name: str) -> str:
    """Part of a page from an SVG file: no prolog, no links, unique ids, the page's colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' xmlns(:xlink)?="[^"]*"', "", svg)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(?:xlink:)?href="#', f'href="#{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-")
    svg = svg.replace(INK, "currentColor").replace(GRID, "var(--line)")
    svg = re.sub(r"\n\s*\n", "\n", svg)
    return svg.replace("<svg ", '<svg aria-hidden="true" focusable="false" ', 1)


def line_style(look: Look) -> dict[str, Any]:
    """Line and markers as keywords for matplotlib."""
    return {
        "color": look.colour,
        "marker": look.marker,
        "linestyle": (0, look.dashes) if look.dashes else "-",
    }
