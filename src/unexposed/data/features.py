"""Features of users and items: encoded rows by raw id, and the encoding, which a model keeps.

    number      (x − mean) / deviation, in [−10, 10]       one column
    categories  1 for the row's value, or for each of its values, else 0
                                                           one column a value, rare ones share one

A missing value is 0. The first column is 1 in every row, so that a row of missing values still has
what all rows have in common.
"""

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids, joined, match

Role = Literal["user", "item"]
CONSTANT, OTHER = "constant", "other"


@dataclass(frozen=True)
class Number:
    """A number, less the mean and divided by the deviation of the rows it was fitted to."""

    name: str
    mean: float
    deviation: float

    @property
    def columns(self) -> list[str]:
        return [self.name]

    def __str__(self) -> str:
        return f"{self.name} a number"


@dataclass(frozen=True)
class Categories:
    """A column for each value; `other` says whether rarer and unknown values share one more."""

    name: str
    values: tuple[str, ...]
    other: bool
    many: bool = False  # a row may have several values

    @property
    def columns(self) -> list[str]:
        return [f"{self.name}={value}" for value in [*self.values, *([OTHER] * self.other)]]

    def __str__(self) -> str:
        kind = "lists of categories" if self.many else "categories"
        return f"{self.name} {kind} ({len(self.values)}{' and others' * self.other})"


Coding = Number | Categories


@dataclass(frozen=True)
class Encoding:
    """The encoded columns, after a first one that is constant."""

    codings: tuple[Coding, ...]

    @cached_property
    def columns(self) -> list[str]:
        """The name of each number of a row."""
        return [CONSTANT, *(name for coding in self.codings for name in coding.columns)]

    def missing(self, n: int) -> NDArray[np.float32]:
        """Rows of which nothing is known."""
        rows = np.zeros((n, len(self.columns)), dtype=np.float32)
        rows[:, 0] = 1
        return rows

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(coding) for coding in self.codings]

    @staticmethod
    def from_json(document: Any) -> "Encoding":
        """The encoding of a saved model; ValueError where it is not one."""
        if not isinstance(document, list):
            raise ValueError("its encoding of features is not a list")
        return Encoding(tuple(_coding(table) for table in document))


def _coding(table: Any) -> Coding:
    match table:
        case {"name": str(name), "mean": int() | float() as mean, "deviation": float(deviation)}:
            if math.isfinite(mean) and 0 < deviation < math.inf:
                return Number(name, float(mean), deviation)
        case {"name": str(name), "values": [*values], "other": bool(other), "many": bool(many)}:
            if all(isinstance(value, str) for value in values):
                return Categories(name, tuple(values), other, many)
    raise ValueError("its encoding of features has a column of no known kind")


@dataclass(frozen=True, eq=False)
class Features:
    """Encoded features of users or items, by raw id."""

    ids: Ids
    matrix: NDArray[np.float32]  # a row for each id, a column for each of `encoding.columns`
    encoding: Encoding

    def of(self, ids: Ids) -> NDArray[np.float32]:
        """The row of each of these ids; an id without features has a row of missing values."""
        at = match(ids, self.ids)
        rows = self.encoding.missing(len(ids))
        rows[at >= 0] = self.matrix[at[at >= 0]]
        return rows


def with_items(clicks: Clicks, ids: Ids) -> Clicks:
    """The clicks with these items in the catalogue, so that those without a click can be served."""
    new = match(ids, clicks.item_ids) < 0
    if not new.any():
        return clicks
    every = joined(clicks.item_ids, ids, new)
    shown = clicks.shown and replace(clicks.shown, item_ids=every)
    share = clicks.share
    if share is not None:
        share = replace(share, item_counts=np.pad(share.item_counts, (0, int(new.sum()))))
    return replace(clicks.checked(), item_ids=every, shown=shown, share=share)
