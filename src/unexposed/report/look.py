"""How an arm looks in every figure of a page: one colour, one marker, one kind of line.

The colours come from Okabe and Ito, darkened where they would be faint on white: they stay apart
for colour-blind readers and show on a light and on a dark page. Marker and line tell arms apart in
print without colour, too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

INK = "#010203"  # replaced by the text colour of the page
GRID = "#040506"  # replaced by the colour of faint lines

BLUE, SKY, GREEN, GREY = "#1274bb", "#45a5dd", "#009e73", "#808080"
OLIVE, VIOLET, PINK, ORANGE, VERMILLION = "#9c9400", "#7050d8", "#cc79a7", "#e09a00", "#c84a00"

# neighbours in order of appearance share neither colour nor marker nor line
COLOURS = (VERMILLION, BLUE, ORANGE, VIOLET, GREEN, SKY, PINK, OLIVE, GREY)
DASHES: tuple[tuple[float, ...], ...] = ((), (4, 2), (1, 2), (5, 2, 1, 2), (2, 1))
MARKERS = {  # of matplotlib → the same as SVG, for legends
    "o": '<circle cx="17" cy="7" r="3.6"/>',
    "s": '<path d="M13.6 3.6h6.8v6.8h-6.8z"/>',
    "^": '<path d="M17 2.8l4 7.4h-8z"/>',
    "v": '<path d="M17 11.2l4-7.4h-8z"/>',
    "D": '<path d="M17 2.6l4.4 4.4-4.4 4.4-4.4-4.4z"/>',
    "*": '<path d="M17 2l1.2 3.6h3.8l-3 2.3 1.1 3.6-3.1-2.2-3.1 2.2 1.1-3.6-3-2.3h3.8z"/>',
    "P": '<path d="M15.6 3h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6v-2.8h2.6z"/>',
    "d": '<path d="M17 2.2l2.8 4.8-2.8 4.8-2.8-4.8z"/>',
    "h": '<path d="M17 2.6l3.8 2.2v4.4l-3.8 2.2-3.8-2.2v-4.4z"/>',
    "X": '<path d="M13.6 3.6l6.8 6.8m0-6.8l-6.8 6.8" stroke-width="3"/>',
    "p": '<path d="M17 2.6l4.2 3-1.6 5h-5.2l-1.6-5z"/>',
    "x": '<path d="M13.6 3.6l6.8 6.8m0-6.8l-6.8 6.8" stroke-width="2"/>',
    "+": '<path d="M17 3v8m-4-4h8" stroke-width="2"/>',
}


@dataclass(frozen=True)
class Look:
    """Title, colour, marker and line of an arm."""

    title: str
    colour: str
    marker: str  # of matplotlib
    dashes: tuple[float, ...]  # on and off, in points; empty: a solid line


Looks = Mapping[str, Look]  # by arm


def looks(arms: Iterable[str], titles: Mapping[str, str]) -> dict[str, Look]:
    """A look for each arm, by order of appearance; an arm without a title is shown by its name."""
    markers = list(MARKERS)
    return {
        arm: Look(
            titles.get(arm, arm),
            COLOURS[at % len(COLOURS)],
            markers[at % len(markers)],
            DASHES[at % len(DASHES)],
        )
        for at, arm in enumerate(dict.fromkeys(arms))
    }


def swatch(look: Look) -> str:
    """A short piece of the line with its marker, for a legend."""
    dashes = " ".join(f"{length * 1.8:g}" for length in look.dashes)
    array = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        '<svg width="34" height="14" viewBox="0 0 34 14" aria-hidden="true">'
        f'<g stroke="{look.colour}" fill="{look.colour}">'
        f'<path d="M1 7H33" stroke-width="2"{array}/>{MARKERS[look.marker]}</g></svg>'
    )
