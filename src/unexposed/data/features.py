"""Features of users and items: rows of numbers by raw id, and how columns became these numbers.

A model keeps its encoding for later users and items.

    number      (x − mean) / deviation, in [−10, 10]       one column
    categories  1 for the row's value, or for each of its values, else 0
                                                           one column a value, rare ones share one

A missing value is 0. The first column is 1 in every row, so that a row of missing values still has
what all rows have in common.
"""

import math
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids, joined, match

if TYPE_CHECKING:
    import polars as pl

Role = Literal["user", "item"]
MOST_VALUES = 100  # of a column, the most frequent: the others share a column
LEAST_ROWS = 2  # that must have a value: what a single row has tells nothing of another
MOST_DEVIATIONS = 10.0  # a number beyond would outweigh all else that is known of its row
SEPARATOR = "|"  # between the values of one text
CONSTANT, OTHER = "constant", "other"


@dataclass(frozen=True)
class Number:
    """A number, less the mean and divided by the deviation of the rows it was fitted to."""

    name: str
    mean: float
    deviation: float

    @staticmethod
    def fit(name: str, numbers: "pl.Series") -> "Number | str":
        """The encoding of finite numbers, null where missing; or why the column is left out."""
        values = numbers.drop_nulls().to_numpy().astype(np.float64)
        if len(values) == 0:
            return "it is empty"
        if values.min() == values.max():
            return "it is constant"
        scale = np.abs(values).max()  # keeps sums and squares of large numbers finite
        mean, deviation = scale * (values / scale).mean(), scale * (values / scale).std()
        if not 0 < deviation < math.inf:
            return "it is nearly constant"
        return Number(name, float(mean), float(deviation))

    @property
    def columns(self) -> list[str]:
        return [self.name]

    def encode(self, numbers: "pl.Series") -> NDArray[np.float32]:
        import polars as pl

        standard = (numbers.cast(pl.Float64) - self.mean) / self.deviation
        within = standard.fill_null(0).clip(-MOST_DEVIATIONS, MOST_DEVIATIONS)
        return within.to_numpy().astype(np.float32)[:, None]

    def __str__(self) -> str:
        return f"{self.name} a number"


@dataclass(frozen=True)
class Categories:
    """A column for each value; `other` says whether rarer and unknown values share one more."""

    name: str
    values: tuple[str, ...]
    other: bool
    many: bool = False  # a row may have several values

    @staticmethod
    def fit(name: str, held: "Held") -> "Categories | str":
        """The encoding of these values, the most frequent first; or why the column is left out."""
        import polars as pl

        count = held.values.value_counts(name="rows")
        if len(count) == 0:
            return "it is empty"
        # by code points where equally frequent, so that the order of rows does not matter
        order = count.sort("rows", held.values.name, descending=[True, False])
        kept = order.filter(pl.col("rows") >= LEAST_ROWS).head(MOST_VALUES)
        if len(kept) == 0:
            return "no two rows share a value"
        if len(order) == 1 and kept["rows"][0] == held.n_rows:
            return "it is constant"
        values = tuple(kept[held.values.name].to_list())
        return Categories(name, values, len(kept) < len(order), held.many)

    @property
    def columns(self) -> list[str]:
        return [f"{self.name}={value}" for value in [*self.values, *([OTHER] * self.other)]]

    def encode(self, held: "Held") -> NDArray[np.float32]:
        found = np.zeros((held.n_rows, len(self.values) + self.other), dtype=np.float32)
        place = {value: at for at, value in enumerate(self.values)}
        otherwise = len(self.values) if self.other else -1
        at = np.array([place.get(v, otherwise) for v in held.values.to_list()], dtype=np.int64)
        found[held.rows[at >= 0], at[at >= 0]] = 1
        return found

    def __str__(self) -> str:
        kind = "lists of categories" if self.many else "categories"
        return f"{self.name} {kind} ({len(self.values)}{' and others' * self.other})"


@dataclass(frozen=True, eq=False)
class Held:
    """The values of a text column: values[n] is one of row rows[n]; each once in a row."""

    values: "pl.Series"
    rows: NDArray[np.int64]
    n_rows: int
    many: bool

    @staticmethod
    def of(column: "pl.Series") -> "Held":
        """The values of a column of texts or of lists; blank ones are missing."""
        import polars as pl

        many = column.dtype == pl.List
        if not many and column.str.contains(SEPARATOR, literal=True).any():
            column, many = column.str.split(SEPARATOR), True
        frame = pl.DataFrame({"row": pl.Series(np.arange(len(column))), "value": column})
        frame = frame.explode("value") if many else frame
        frame = frame.select("row", pl.col("value").cast(pl.String).str.strip_chars())
        frame = frame.filter(pl.col("value").is_not_null() & (pl.col("value") != ""))
        frame = frame.unique(maintain_order=True)
        return Held(frame["value"], frame["row"].to_numpy(), len(column), many)


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
