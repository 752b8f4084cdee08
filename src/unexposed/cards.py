"""What an object shows of itself in a notebook: a card of plain data, and that card as HTML."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from unexposed.errors import plain

WIDTH, HEIGHT, MARGIN = 320, 110, 6  # of a curve, in pixels
POINTS = 300  # of a curve, at most
LONGEST, LONGEST_FACT = 60, 700  # characters of a cell, and of a fact
NONE = "–"  # where there is no number
_CELL = "padding:.1em .7em .1em 0;text-align:"


@dataclass(frozen=True)
class Curve:
    """A line through points from left to right, with a mark at one of them."""

    title: str
    values: Sequence[float]
    mark: int | None = None  # index of the marked point


@dataclass(frozen=True)
class Card:
    """A heading, facts by name, a table and curves; every text is shown as it is, never as HTML."""

    title: str
    facts: dict[str, Any] = field(default_factory=dict)
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    curves: Sequence[Curve] = ()
    note: str = ""


class HasCard:
    """An object that shows a card in a notebook."""

    def card(self) -> Card:
        """What a notebook shows of this object."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return html(self.card())


def counted(number: int, noun: str) -> str:
    """A number of things: `1 click`, `1,200 clicks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def number(value: float | None) -> str:
    """Three decimals, without the zero before the point; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return NONE
    text = f"{abs(value):.3f}"
    sign = "−" if value < 0 and float(text) != 0 else ""
    return sign + (text[1:] if text.startswith("0.") else text)


def signed(value: float) -> str:
    """As `number`, with a plus sign above zero."""
    return ("+" if value > 0 else "") + number(value)


def text(value: Any, limit: int = LONGEST) -> str:
    """A value as people read it, on one line and cut where it is long."""
    if value is None:
        return NONE
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return plain(str(value)[: 2 * limit], limit)


def as_text(card: Card) -> str:
    """The table of the card with its note, in columns of text."""
    rows = [[text(cell, LONGEST_FACT) for cell in row] for row in (card.heads, *card.rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([*lines, *filter(None, [card.note])])


def html(card: Card) -> str:
    """The card as a piece of HTML without scripts, classes or anything from elsewhere."""
    parts = [f"<div><strong>{escape(card.title)}</strong></div>"]
    if card.facts:
        facts = [[name, text(fact, LONGEST_FACT)] for name, fact in card.facts.items()]
        parts.append(_table([], facts, align="left"))
    if card.rows:
        rows = [[text(cell) for cell in row] for row in card.rows]
        parts.append(_table(card.heads, rows, align="right"))
    parts += [_drawn(curve) for curve in card.curves if _can_be_drawn(curve)]
    if card.note:
        parts.append(f"<div><small>{escape(card.note)}</small></div>")
    return "<div>" + "".join(parts) + "</div>"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], *, align: str) -> str:
    """A table whose first column holds words."""

    def row(tag: str, cells: Sequence[str]) -> str:
        sides = ["left", *[align] * (len(cells) - 1)]
        return "".join(
            f'<{tag} style="{_CELL}{side}">{escape(cell)}</{tag}>'
            for side, cell in zip(sides, cells, strict=True)
        )

    head = f"<thead><tr>{row('th', heads)}</tr></thead>" if heads else ""
    body = "".join(f"<tr>{row('td', cells)}</tr>" for cells in rows)
    return f"<table>{head}<tbody>{body}</tbody></table>"


def _can_be_drawn(curve: Curve) -> bool:
    finite = all(isinstance(v, int | float) and math.isfinite(v) for v in curve.values)
    return len(curve.values) > 1 and finite


def _drawn(curve: Curve) -> str:
    """The curve as inline SVG in the colour of the text, with its lowest and highest value."""
    values = [float(value) for value in curve.values]
    low, high = min(values), max(values)
    wide, tall = WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN

    def point(at: int) -> tuple[float, float]:
        height = (values[at] - low) / (high - low) if high > low else 0.5
        return MARGIN + wide * at / (len(values) - 1), MARGIN + tall * (1 - height)

    step = max(1, len(values) // POINTS)
    kept = sorted({*range(0, len(values), step), len(values) - 1})
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(point, kept))
    mark = ""
    if curve.mark is not None and 0 <= curve.mark < len(values):
        x, y = point(curve.mark)
        mark = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="currentColor"/>'
    said = escape(f"{curve.title}: {text(low)} to {text(high)}")
    return (
        f'<div><svg role="img" aria-label="{said}" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}"><polyline points="{line}" fill="none" '
        f'stroke="currentColor" stroke-width="1.5"/>{mark}</svg><br><small>{said}</small></div>'
    )
