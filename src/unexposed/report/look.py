"""How a method looks in every figure and table: one colour, one marker, one kind of line.

The colours are those of Okabe and Ito, darkened where they would be faint on white, so that they
stay apart for colour-blind readers and show on a light and on a dark page. Methods of a family
share a colour; marker and line tell them apart, in print without colour too.
"""

from dataclasses import dataclass

INK = "#010203"  # stands for the page's own colour of text, black or white
GRID = "#040506"  # and for its faint lines

GREY, BLUE, SKY, GREEN = "#808080", "#1274bb", "#45a5dd", "#009e73"
OLIVE, VIOLET, PINK, ORANGE, VERMILLION = "#9c9400", "#7050d8", "#cc79a7", "#e09a00", "#c84a00"


@dataclass(frozen=True)
class Look:
    """What a reader recognises a method by."""

    title: str
    colour: str
    marker: str  # of matplotlib
    dashes: tuple[float, ...]  # on and off, in points; empty: a solid line


LOOKS = {
    "random": Look("Random", GREY, "x", (1, 2)),
    "popularity": Look("Popularity", GREY, "+", (4, 2)),
    "mf": Look("MF", BLUE, "s", ()),
    "wmf": Look("WMF", BLUE, "d", (1, 2)),
    "bpr": Look("BPR", SKY, "^", ()),
    "relmf": Look("RelMF", OLIVE, "v", ()),
    "expomf": Look("ExpoMF", GREEN, "h", (4, 2)),
    "cjmf": Look("CJMF", VIOLET, "*", (5, 2, 1, 2)),
    "umf": Look("UMF", PINK, "P", ()),
    "ubo": Look("UBO", VERMILLION, "o", ()),
    "ubo-drawn": Look("UBO, drawn validation set", VERMILLION, "*", (4, 2)),
    "ubo-frozen": Look("UBO, frozen exposure", ORANGE, "D", (4, 2)),
    "ubo-paper": Look("UBO, the paper's settings", VERMILLION, "p", (1, 2)),
    "ubo-joint": Look("JointOpt", INK, "s", (4, 2)),
    "ubo-joint-paper": Look("JointOpt, the paper's settings", INK, "p", (1, 1)),
    "ubo-alternate": Look("AlterOpt", INK, "^", (1, 2)),
    "ubo-bilevel_on_batch": Look("BiOpt2", INK, "v", (5, 2, 1, 2)),
}
ORDER = list(LOOKS)  # of rows and bars


def known_as(label: str, method: str | None, strategy: str | None) -> str:
    """The one name of an arm in all tables and figures, whatever its experiment calls it."""
    if method == "ubo" and label == strategy:
        return "ubo" if strategy == "bilevel" else f"ubo-{strategy}"
    return label


def look(arm: str) -> Look:
    """The look of an arm; one that is not known here is a relative of the one it is named after.

    So `ubo-512` has the colour of `ubo`, under its own name; where there is none it is grey.
    """
    if arm in LOOKS:
        return LOOKS[arm]
    relatives = [name for name in LOOKS if arm.startswith(f"{name}-")]
    colour = LOOKS[max(relatives, key=len)].colour if relatives else GREY
    return Look(arm, colour, "X", (2, 1))


def place(arm: str) -> tuple[int, str]:
    """Where an arm comes in a table: known ones in their order, others after them by name."""
    return (ORDER.index(arm) if arm in LOOKS else len(ORDER), arm)
