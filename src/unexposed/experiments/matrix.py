"""One file, many experiments: every combination of the values in its [matrix] is a cell.

    [matrix]
    "data.semi_synthetic" = ["ml_100k", "amazon_cds"]
    "settings.refit" = { held_out = false, all_clicks = true }   # values with names of their own

    [cells.ml_100k]                         # for the cells with this value
    "tune.splits" = 10

A cell is named after the file and its values, as in worlds-ml_100k-held_out.
"""

from copy import deepcopy
from itertools import product
from typing import Any

from unexposed.errors import InputError, did_you_mean

Document = dict[str, Any]


def cells(document: Document, *, name: str, where: str) -> dict[str, Document]:
    """Name and document of each cell; a document without a matrix is one cell."""
    matrix = document.get("matrix")
    if matrix is None:
        if "cells" in document:
            raise InputError(f"{where}: [cells] needs a [matrix]")
        return {name: document}
    axes = {key: _axis(key, values, f"{where}, [matrix]") for key, values in matrix.items()}
    if not axes:
        raise InputError(f"{where}: [matrix] is empty")
    changes = document.get("cells", {})
    every = {text for axis in axes.values() for text in axis}
    for name_of in changes:
        if name_of not in every:
            near = did_you_mean(name_of, every)
            raise InputError(f"{where}, [cells]: no value of the matrix is {name_of!r}; {near}")
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
    made = deepcopy({k: v for k, v in document.items() if k not in ("matrix", "cells")})
    for key, value in values.items():
        table, last = _table(made, key, f"{where}: [matrix]")
        if last in table:
            raise InputError(f"{where}: {key} is both in [matrix] and outside it")
        table[last] = value
    for text, changes in document.get("cells", {}).items():
        for key, value in changes.items() if text in spoken.values() else ():
            table, last = _table(made, key, f"{where}: [cells.{text}]")
            table[last] = deepcopy(value)
    title = str(document.get("title", ""))
    made["title"] = _filled(title, cell, spoken) if "{" in title else _titled(title, spoken)
    for table in made.get("methods", {}).values():
        if isinstance(table, dict) and isinstance(table.get("study"), str):
            table["study"] = _filled(table["study"], cell, spoken)
    return made


def _table(document: Document, key: str, where: str) -> tuple[Document, str]:
    """The table that a key such as data.power lies in, and its last word."""
    *tables, last = key.split(".")
    for name in tables:
        document = document.setdefault(name, {})
        if not isinstance(document, dict):
            raise InputError(f"{where} sets {key}, but {name} is not a table")
    return document, last


def _titled(title: str, spoken: dict[str, str]) -> str:
    values = ", ".join(spoken.values())
    return f"{title}: {values}" if title else values


def _filled(text: str, cell: str, spoken: dict[str, str]) -> str:
    """Replace {cell} by the cell's name, and {data.power} and the like by its values."""
    for key, value in {"cell": cell, **spoken}.items():
        text = text.replace(f"{{{key}}}", value)
    return text
