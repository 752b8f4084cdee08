"""The figures of a model's page: panels drawn with matplotlib as inline SVG."""

import io
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from unexposed.late import optional
from unexposed.training.loop import peak

INK = "#010203"  # replaced by the text colour of the page
GRID = "#040506"  # replaced by the colour of faint lines

# of Okabe and Ito, darkened: they stay apart for colour-blind readers, on light and dark pages
BLUE, ORANGE, VERMILLION = "#1274bb", "#e09a00", "#c84a00"
MARKERS = {  # of matplotlib → the same as SVG, for legends
    "o": '<circle cx="17" cy="7" r="3.6"/>',
    "s": '<path d="M13.6 3.6h6.8v6.8h-6.8z"/>',
    "^": '<path d="M17 2.8l4 7.4h-8z"/>',
}


@dataclass(frozen=True)
class Look:
    """Title, colour, marker and line of a curve, which tell it apart in print without colour."""

    title: str
    colour: str
    marker: str  # of matplotlib
    dashes: tuple[float, ...]  # on and off, in points; empty: a solid line


def swatch(look: Look) -> str:
    """A short piece of the line with its marker, for a legend."""
    dashes = " ".join(f"{length * 1.8:g}" for length in look.dashes)
    array = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        '<svg width="34" height="14" viewBox="0 0 34 14" aria-hidden="true">'
        f'<g stroke="{look.colour}" fill="{look.colour}">'
        f'<path d="M1 7H33" stroke-width="2"{array}/>{MARKERS[look.marker]}</g></svg>'
    )


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


# thirds of the users by their clicks
ACTIVITY = (
    Look("users with few clicks", BLUE, "s", (1, 2)),
    Look("users with some clicks", ORANGE, "^", (4, 2)),
    Look("users with many clicks", VERMILLION, "o", ()),
)


def long_tail(log: dict[str, Any]) -> Figure:
    """Clicks of items and of users, by rank."""
    panels = [
        draw("tail-items", "Clicks of an item", _curve, log["item_curve"], "item, by clicks"),
        draw("tail-users", "Clicks of a user", _curve, log["user_curve"], "user, by clicks"),
    ]
    caption = "From the most clicked item and the most active user on. Both axes are logarithmic."
    return Figure("tail", "The long tail", caption, panels, columns=2)


def _curve(axes: Any, curve: dict[str, list[int]], label: str) -> None:
    kept = [at for at, clicks in enumerate(curve["clicks"]) if clicks > 0]
    axes.plot([curve["rank"][at] for at in kept], [curve["clicks"][at] for at in kept], color=BLUE)
    _logarithmic(axes)
    axes.set_xlabel(label)
    axes.set_ylabel("clicks")


def _logarithmic(axes: Any, *, both: bool = True) -> None:
    scales = [(axes.xaxis, axes.set_xscale), (axes.yaxis, axes.set_yscale)]
    for axis, scale in scales if both else scales[:1]:
        scale("log")
        axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
        axis.set_minor_formatter(lambda *_: "")


def training(facts: dict[str, Any]) -> Figure | None:
    """Loss and held-out quality of every epoch, with the best epoch marked."""
    if not facts.get("losses"):
        return None
    best = facts["best_epoch"]
    panels = [
        draw(f"training-{name}", title, _epochs, facts[key], best, label)
        for name, key, title, label in (
            ("loss", "losses", "Loss", "mean loss of an epoch"),
            ("held-out", "held_out", "Quality on held-out clicks", "SNIPS estimate of DCG"),
        )
        if facts.get(key)
    ]
    caption = f"The dashed line marks epoch {best}, the best one."
    if highest := peak(facts):
        caption += (
            " The mean held-out quality over several epochs up to it chooses, because a single "
            f"epoch is noisy: by itself epoch {highest} was highest."
        )
    return Figure("training", "The training", caption, panels, columns=2)


def _epochs(axes: Any, values: list[float], best: int, label: str) -> None:
    axes.plot(range(1, len(values) + 1), values, color=BLUE)
    axes.axvline(best, color=VERMILLION, linewidth=1.4, linestyle=(0, (4, 2)))
    axes.set_xlabel("epoch")
    axes.set_ylabel(label)


def relations(data: dict[str, Any]) -> Figure | None:
    """Exposure and relevance by clicks of the item and activity of the user."""
    panels = []
    for what, title in (
        ("exposure", "Exposure under this model"),
        ("relevance", "Relevance under this model"),
    ):
        if what == "exposure" and data["exposure_is_assumed"]:
            continue  # it follows popularity by assumption: drawn, it would look like a finding
        groups = [
            (look, [row for row in group["rows"] if row[what] is not None and row["clicks"] > 0])
            for look, group in zip(ACTIVITY, data["by_popularity"], strict=False)
        ]
        if any(rows for _, rows in groups):
            panels.append(draw(f"relation-{what}", title, _lines, groups, what))
    if not panels:
        return None
    title = "What it assigns to popular and rare items"
    caption = (
        "Exposure is how likely an item was shown, relevance how likely a click is, once shown: "
        f"means over {data['pairs']:,} sampled pairs without a click. They describe the model; "
        "clicks alone cannot say how often an item was shown."
    )
    return Figure("relations", title, caption, panels, list(ACTIVITY), columns=2)


def _lines(axes: Any, groups: list[tuple[Look, list[dict[str, Any]]]], what: str) -> None:
    for look, rows in groups:
        x, y = [row["clicks"] for row in rows], [row[what] for row in rows]
        axes.plot(x, y, **line_style(look))
    _logarithmic(axes, both=False)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("clicks of the item")
    axes.set_ylabel({"exposure": "exposure m", "relevance": "relevance p"}[what])
