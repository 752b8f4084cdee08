"""How relevant an item is to a user: p = σ(logit), from tables whose rows training moves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from unexposed.late import Tensor, torch

Tables = Mapping[str, Tensor]
Biases = Literal["none", "item", "both"]
ROWS = 1 << 14  # first values drawn at a time, where few of them are kept
BIAS_COLUMNS: dict[Biases, int] = {"none": 0, "item": 1, "both": 2}


class Touched(NamedTuple):
    """The distinct rows of a table that a batch reads, and how many of its pairs read each."""

    rows: Tensor
    pairs: Tensor


class Columns(NamedTuple):
    """How a step treats the columns of a table: all of them move and decay, except these."""

    fixed: int | None = None  # the column of ones, which never moves
    decaying: int | None = None  # how many columns, the first ones, have weight decay; None: all


class Relevance(Protocol):
    """A model of relevance. The reference engine runs any; the fast engines know `DotProduct`."""

    def initial(
        self, n_users: int, n_items: int, rng: np.random.Generator
    ) -> dict[str, NDArray[Any]]:
        """Every table at the start of training, by name."""
        ...

    def touched(self, tables: Tables, users: Tensor, items: Tensor) -> dict[str, Touched]:
        """The rows of each table that the logits of these pairs depend on."""
        ...

    def logits(self, tables: Tables, users: Tensor, items: Tensor) -> Tensor:
        """The logit of each pair, (B,), differentiable in the tables."""
        ...

    def item_vectors(self, tables: Tables, items: Tensor) -> Tensor:
        """The vector ωᵢ (B, dim) that a learned exposure reads of each item."""
        ...

    def scores(self, tables: Mapping[str, NDArray[Any]], users: NDArray[Any]) -> NDArray[Any]:
        """The logits of all items for each of these users, (users, items)."""
        ...


@runtime_checkable
class HasColumns(Protocol):
    """A relevance model that fixes a column of a table, or keeps weight decay from some."""

    def columns(self, table: str) -> Columns:
        """How a step treats the columns of this table."""
        ...


@dataclass(frozen=True)
class DotProduct:
    """p_ui = σ(ω_uᵀω_i), or with biases σ(ω_uᵀω_i + b_u + b_i).

    Biases are further columns of both tables, so the logit stays one dot product:

        both   users [ω_u, b_u, 1],  items [ω_i, 1, b_i]
        item   users [ω_u, 1],       items [ω_i, b_i]

    The columns of ones are fixed, and biases have no weight decay, which would pull a rare click
    towards even odds. b_i starts at 0 and b_u at `start`: the global term is where b_u begins.
    A pairwise loss takes the item's bias alone, since b_u cancels in a difference of logits.
    """

    dim: int
    initial_scale: float  # standard deviation of the first vectors
    biases: Biases = "none"
    start: float = 0.0  # of b_u

    @property
    def width(self) -> int:
        """Length of a row of either table."""
        return self.dim + BIAS_COLUMNS[self.biases]

    def initial(
        self,
        n_users: int,
        n_items: int,
        rng: np.random.Generator,
        rows: NDArray[Any] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """As `Relevance.initial`; of the users' table these rows alone, ascending, if given."""
        users = normal(rng, (n_users, self.dim), self.initial_scale, rows)
        items = normal(rng, (n_items, self.dim), self.initial_scale)
        return {
            "user_factors": np.hstack([users, self._tail(len(users), (self.start, 1))]),
            "item_factors": np.hstack([items, self._tail(n_items, (1, 0))]),
        }

    def new_users(self, n_users: int) -> NDArray[np.float32]:
        """Rows of users whose vectors start at zero."""
        zeros = np.zeros((n_users, self.dim), dtype=np.float32)
        return np.hstack([zeros, self._tail(n_users, (self.start, 1))])

    def columns(self, table: str) -> Columns:
        """A table's own column of ones is fixed; only the columns of ω decay."""
        if self.biases == "none":
            return Columns()
        if table == "user_factors":
            return Columns(self.width - 1, self.dim)
        return Columns(self.dim if self.biases == "both" else None, self.dim)

    def without_biases(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The columns of ω."""
        return rows[:, : self.dim]

    def _tail(self, n: int, both: tuple[float, float]) -> NDArray[np.float32]:
        """The columns after ω of n rows."""
        own = both[len(both) - BIAS_COLUMNS[self.biases] :]
        return np.tile(np.array(own, dtype=np.float32), (n, 1))

    def touched(self, tables: Tables, users: Tensor, items: Tensor) -> dict[str, Touched]:
        del tables
        return {"user_factors": rows_of(users), "item_factors": rows_of(items)}

    def logits(self, tables: Tables, users: Tensor, items: Tensor) -> Tensor:
        return (tables["user_factors"][users] * tables["item_factors"][items]).sum(dim=1)

    def item_vectors(self, tables: Tables, items: Tensor) -> Tensor:
        return tables["item_factors"][items]

    def scores(self, tables: Mapping[str, NDArray[Any]], users: NDArray[Any]) -> NDArray[Any]:
        return tables["user_factors"][users] @ tables["item_factors"].T


ITEM_FEATURES = "item_feature_weight"  # W of `WithFeatures`, a parameter of the model


@dataclass(frozen=True, eq=False)
class WithFeatures:
    """The dot product whose item vector is ω_i + F_iᵀW: W learns what items with a feature share.

    An item that nobody clicked has ω_i = 0, so its features alone speak for it. W starts at 0 and
    decays, as ω does, once for every pair that reads the row. With biases F_iᵀW has a part of b_i
    too, and none in the column of ones.
    """

    product: DotProduct
    features: NDArray[np.float32]  # F, (n_items, columns)
    clicked: NDArray[np.bool_]  # (n_items,): whether anyone clicked the item

    def initial(
        self,
        n_users: int,
        n_items: int,
        rng: np.random.Generator,
        rows: NDArray[Any] | None = None,
    ) -> dict[str, NDArray[Any]]:
        tables = self.product.initial(n_users, n_items, rng, rows)
        tables["item_factors"][~self.clicked, : self.product.dim] = 0
        shape = self.features.shape[1], self.product.width
        return tables | {ITEM_FEATURES: np.zeros(shape, dtype=np.float32)}

    def columns(self, table: str) -> Columns:
        """W moves in the columns that the items' table moves in, and all of it decays."""
        if table == ITEM_FEATURES:
            return Columns(self.product.columns("item_factors").fixed)
        return self.product.columns(table)

    def touched(self, tables: Tables, users: Tensor, items: Tensor) -> dict[str, Touched]:
        pairs = (self._of(items) != 0).sum(dim=0)
        (rows,) = torch.nonzero(pairs, as_tuple=True)
        shared = {ITEM_FEATURES: Touched(rows, pairs[rows])}
        return self.product.touched(tables, users, items) | shared

    def logits(self, tables: Tables, users: Tensor, items: Tensor) -> Tensor:
        return (tables["user_factors"][users] * self.item_vectors(tables, items)).sum(dim=1)

    def item_vectors(self, tables: Tables, items: Tensor) -> Tensor:
        weight = tables[ITEM_FEATURES]
        return tables["item_factors"][items] + self._of(items).to(weight.dtype) @ weight

    def scores(self, tables: Mapping[str, NDArray[Any]], users: NDArray[Any]) -> NDArray[Any]:
        return self.product.scores(self.combined(tables), users)

    def combined(self, tables: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The tables with ω_i + F_iᵀW in place of ω_i: what serving needs."""
        whole = tables["item_factors"] + self.features @ tables[ITEM_FEATURES]
        return {**tables, "item_factors": whole.astype(tables["item_factors"].dtype)}

    def separated(self, tables: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The tables of an earlier model, whose items come first, with ω_i alone again."""
        if ITEM_FEATURES not in tables:
            return dict(tables)
        whole = tables["item_factors"]
        own = whole - self.features[: len(whole)] @ tables[ITEM_FEATURES]
        return {**tables, "item_factors": own.astype(whole.dtype)}

    def along(self, direction: NDArray[Any]) -> NDArray[Any]:
        """How item vectors move where ω_i and W step along ∂/∂(item vectors): G + F·FᵀG."""
        return direction + self.features @ (self.features.T @ direction)

    def _of(self, items: Tensor) -> Tensor:
        return torch.from_numpy(self.features)[items]


def columns_of(relevance: Relevance, table: str) -> Columns:
    """How a step treats the columns of this table; all alike where the model does not say."""
    return relevance.columns(table) if isinstance(relevance, HasColumns) else Columns()


def rows_of(indices: Tensor) -> Touched:
    """The distinct rows among these indices."""
    return Touched(*torch.unique(indices, return_counts=True))


def normal(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    deviation: float,
    rows: NDArray[Any] | None = None,
) -> NDArray[np.float32]:
    """First values of a table: normal, around zero; of these rows alone, ascending, if given.

    The generator goes on as if all rows had been kept.
    """
    if rows is None:
        return rng.normal(0, deviation, shape).astype(np.float32)
    n, *width = shape
    found = np.empty((len(rows), *width), dtype=np.float32)
    for begin in range(0, n, ROWS):
        drawn = rng.normal(0, deviation, (min(ROWS, n - begin), *width))
        own = slice(*np.searchsorted(rows, (begin, begin + ROWS)).tolist())
        found[own] = drawn[rows[own] - begin]
    return found
