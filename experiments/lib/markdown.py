"""Tables as Markdown."""

from unexposed.cards import number
from unexposed.report.tables import Cell, Table


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


def p_value(p: float) -> str:
    """A p-value as papers report it: never 0."""
    return "< .001" if p < 0.001 else number(p)
