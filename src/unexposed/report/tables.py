"""Tables of a report, as Markdown; a template writes them as HTML."""

from dataclasses import dataclass, field
from typing import Any

from unexposed.cards import NONE, number


@dataclass(frozen=True)
class Cell:
    """Text of a cell as people read it, never markup."""

    text: str
    bold: bool = False
    code: bool = False
    aside: str = ""  # smaller, in brackets after the text


@dataclass(frozen=True)
class Table:
    """Heads, rows of cells, and notes beneath."""

    name: str  # short and without spaces: the anchor in HTML
    title: str
    heads: list[str]
    rows: list[list[Cell]]
    notes: list[str] = field(default_factory=list)
    words: int = 1  # how many columns from the left hold words and not numbers


def code(text: str) -> Cell:
    return Cell(text, code=True)


def cells(*parts: Cell | str) -> list[Cell]:
    """A row of cells, plain where only text is given."""
    return [part if isinstance(part, Cell) else Cell(part) for part in parts]


def spread(mean: float | None, sd: float | None) -> str:
    """Mean ± standard deviation."""
    return NONE if mean is None else f"{number(mean)} ± {number(sd)}"


def shown(metric: str) -> str:
    """A metric's name as people write it."""
    words = {"recall": "recall", "precision": "precision", "hit": "hit", "rate": "rate"}
    name, at, k = metric.partition("@")
    spelt = " ".join(words.get(word, word.upper()) for word in name.split("_"))
    return spelt[0].upper() + spelt[1:] + at + k


def p_value(p: float) -> str:
    """A p-value as papers report it: never 0."""
    return "< .001" if p < 0.001 else number(p)


def seconds(value: float | None) -> str:
    """A length of time in a unit that suits it."""
    if value is None:
        return NONE
    for unit, size in (("h", 3600), ("min", 60)):
        if value >= 2 * size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.1f} s" if value >= 1 else f"{1000 * value:.3g} ms"


def setting_value(value: Any) -> str:
    """A setting's value as an experiment file writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def markdown(table: Table) -> str:
    """The table and its notes, without the title."""
    lines = [_row([_markdown_text(h) for h in table.heads])]
    lines.append("|" + "".join("---|" for _ in table.heads))
    lines += [_row([_markdown_cell(cell) for cell in row]) for row in table.rows]
    for note in table.notes:
        lines += ["", note]
    return "\n".join(lines)


def _row(cells: list[str]) -> str:
    return "|" + "".join(f" {cell} |" if cell else " |" for cell in cells)


def _markdown_cell(cell: Cell) -> str:
    text = _markdown_text(cell.text)
    if cell.code:
        text = f"`` {text} ``" if "`" in text else f"`{text}`"
    text = f"**{text}**" if cell.bold else text
    return f"{text} ({_markdown_text(cell.aside)})" if cell.aside else text


def _markdown_text(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
