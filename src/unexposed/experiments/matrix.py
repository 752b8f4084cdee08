"""One file, many experiments: every combination of the values in its [matrix] is a cell.

    [matrix]
    "data.semi_synthetic" = ["ml_100k", "amazon_cds"]
    "settings.refit" = { held_out = false, all_clicks = true }   # values with names of their own

A cell is named after the file and its values, as in worlds-ml_100k-held_out.
"""

from copy import deepcopy
from itertools import product
from typing import Any

from unexposed.errors import InputError

Document = dict[str, Any]


def cells(document: Document, *, name: str, where: str) -> dict[str, Document]:
    """Name and document of each cell; a document without a matrix is one cell."""
    matrix = document.get("matrix")
    if matrix is None:
        return {name: document}
    axes = {key: _axis(key, values, f"{where}, [matrix]") for key, values in matrix.items()}
    if not axes:
        raise InputError(f"{where}: [matrix] is empty")
    made: dict[str, Document] = {}
    for chosen in product(*(axis.items() for axis in axes.values())):
        spoken = dict(zip(axes, (text for text, _ in chosen), strict=True))
        cell = "-".join([name, *spoken.values()])
        if cell in made:
            raise InputError(f"{where}: [matrix] makes two cells named {cell!r}")
        values = {key: value for key, (_, value) in zip(axes, chosen, strict=True)}
        made[cell] = _cell(document, cell, spoken, values, where)
    return made


def _axis(key: str, values: Any, where: str) -> dict[str, Any]:
    """The values of one key of the matrix, by the names that they have in a cell's name."""
    if isinstance(values, list):
        values = {str(value).lower(): value for value in values}
    if not isinstance(values, dict) or not values:
        raise InputError(f"{where}: {key} must be a list of values, or a table of named ones")
    for name, value in values.items():
        if isinstance(value, dict | list) or not name or set(name) & set("/\\{}"):
            raise InputError(f"{where}: {key} has the value {value!r}, which cannot name a file")
    return values


def _cell(
    document: Document, cell: str, spoken: dict[str, str], values: Document, where: str
) -> Document:
    """The document with the cell's values put in, and with its names in titles and studies."""
    made = deepcopy({key: value for key, value in document.items() if key != "matrix"})
    for key, value in values.items():
        *tables, last = key.split(".")
        here = made
        for table in tables:
            here = here.setdefault(table, {})
            if not isinstance(here, dict):
                raise InputError(f"{where}: [matrix] sets {key}, but {table} is not a table")
        if last in here:
            raise InputError(f"{where}: {key} is both in [matrix] and outside it")
        here[last] = value
    title = str(document.get("title", ""))
    made["title"] = _filled(title, cell, spoken) if "{" in title else _titled(title, spoken)
    for table in made.get("methods", {}).values():
        if isinstance(table, dict) and isinstance(table.get("study"), str):
            table["study"] = _filled(table["study"], cell, spoken)
    return made


def _titled(title: str, spoken: dict[str, str]) -> str:
    values = ", ".join(spoken.values())
    return f"{title}: {values}" if title else values


def _filled(text: str, cell: str, spoken: dict[str, str]) -> str:
    """Replace {cell} by the cell's name, and {data.power} and the like by its values."""
    for key, value in {"cell": cell, **spoken}.items():
        text = text.replace(f"{{{key}}}", value)
    return text
