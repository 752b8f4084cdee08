"""How relevant an item is to a user: p = σ(logit), from tables whose rows training moves.

A new model is a class here and its line in `RELEVANCE`. The reference engine runs any of them; the
fast engines run those that name a `kernel`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unexposed.errors import InputError
from unexposed.late import Tensor, torch

if TYPE_CHECKING:
    from unexposed.data.clicks import Clicks

Tensors = Mapping[str, Tensor]
Arrays = Mapping[str, NDArray[Any]]
Biases = Literal["none", "item", "both"]
Rows = Literal["users", "items", "shared"]
BLOCK = 1 << 14  # first values drawn at a time, where few of them are kept
BIAS_COLUMNS: dict[Biases, int] = {"none": 0, "item": 1, "both": 2}
BIAS_START = "bias_start"  # the parameter that keeps where user biases start, for new users
ITEM_FEATURES = "item_feature_weight"  # W of `WithFeatures`, a parameter of the model


class Vectors(NamedTuple):
    """Vectors of users and items; their dot product is the score of a pair."""

    users: NDArray[Any]
    items: NDArray[Any]


@dataclass(frozen=True)
class Table:
    """Whose rows a table holds, and how a step treats its columns."""

    rows: Rows
    fixed: int | None = None  # the column of ones, which never moves
    decaying: int | None = None  # how many columns, the first ones, have weight decay; None: all


class Touched(NamedTuple):
    """The distinct rows of a table that a batch reads, and how many of its pairs read each."""

    rows: Tensor
    pairs: Tensor


class Relevance(ABC):
    """A model of relevance: its tables, the logit of a pair, and what serving takes from it."""

    kernel: ClassVar[str | None] = None  # its name in the fast engines; None: it has no fast form
    counted: NDArray[np.bool_] | None = None  # which items count where drawn; None: all

    @property
    @abstractmethod
    def tables(self) -> Mapping[str, Table]:
        """Every table that training moves, by name."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Length of the vector of an item that a learned exposure reads."""

    @abstractmethod
    def initial(
        self,
        n_users: int,
        n_items: int,
        rng: np.random.Generator,
        rows: NDArray[Any] | None = None,
    ) -> dict[str, NDArray[Any]]:
        """Every table at the start; of users' tables these rows alone, ascending, if given."""

    @abstractmethod
    def logits(self, tables: Tensors, users: Tensor, items: Tensor) -> Tensor:
        """The logit of each pair, (B,), differentiable in the tables."""

    @abstractmethod
    def item_vectors(self, tables: Mapping[str, Any], items: Any) -> Any:
        """The vector ωᵢ (B, width) that a learned exposure reads of each item, by indexing."""

    def of(
        self, clicks: "Clicks", *, log_odds: float, item_features: NDArray[np.float32] | None = None
    ) -> "Relevance":
        """The model of a log, which may need its clicks or the log-odds of a click in samples."""
        del clicks, log_odds
        if item_features is not None:
            raise InputError("item_features belong to a dot product: use relevance=dot")
        return self

    def touched(self, tables: Tensors, users: Tensor, items: Tensor) -> dict[str, Touched]:
        """The rows of each table that pairs of these users, and of these items, depend on.

        Every pair reads every row of a shared table, unless the model says otherwise.
        """
        own = {"users": rows_of(users), "items": rows_of(items)}

        def every(n: int) -> Touched:
            whole = torch.arange(n, device=items.device)
            return Touched(whole, torch.full_like(whole, len(items)))

        return {
            name: own[t.rows] if t.rows != "shared" else every(len(tables[name]))
            for name, t in self.tables.items()
        }

    def scores(self, tables: Arrays, users: NDArray[Any]) -> NDArray[Any]:
        """The logits of all items for each of these users, (users, items)."""
        here = {n: torch.from_numpy(np.require(tables[n], requirements="W")) for n in self.tables}
        n_items = next(len(tables[n]) for n, t in self.tables.items() if t.rows == "items")
        items = torch.arange(n_items)
        with torch.no_grad():
            rows = [
                self.logits(here, torch.full_like(items, user), items) for user in users.tolist()
            ]
        return torch.stack(rows).numpy() if rows else np.zeros((0, n_items), dtype=np.float32)

    def kept(self, tables: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The parameters that a model keeps, from the tables that training has moved."""
        return dict(tables)

    def continued(self, parameters: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The tables to continue from, of an earlier model whose rows come first."""
        return dict(parameters)

    def new_users(self, parameters: Arrays, n_users: int) -> dict[str, NDArray[np.float32]]:
        """Rows of new users in each of the users' tables, before they learn from their clicks."""
        return {
            name: np.zeros((n_users, *parameters[name].shape[1:]), dtype=np.float32)
            for name, table in self.tables.items()
            if table.rows == "users"
        }

    def vectors(self, parameters: Arrays) -> Vectors | None:
        """Vectors whose product is the logit, from kept parameters; None: it is no product."""
        del parameters
        return None

    def tastes(self, parameters: Arrays) -> Vectors | None:
        """Vectors whose angle says how alike two users or items are: without biases."""
        return self.vectors(parameters)

    def along(self, on_items: NDArray[Any]) -> NDArray[Any]:
        """How item vectors move where all tables step along a gradient on the item vectors."""
        return on_items


@dataclass(frozen=True)
class DotProduct(Relevance):
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
    kernel: ClassVar[str | None] = "dot"

    @property
    def width(self) -> int:
        """Length of a row of either table."""
        return self.dim + BIAS_COLUMNS[self.biases]

    @property
    def tables(self) -> Mapping[str, Table]:
        """A table's own column of ones is fixed; only the columns of ω decay."""
        if self.biases == "none":
            return {"user_factors": Table("users"), "item_factors": Table("items")}
        return {
            "user_factors": Table("users", self.width - 1, self.dim),
            "item_factors": Table("items", self.dim if self.biases == "both" else None, self.dim),
        }

    def of(
        self, clicks: "Clicks", *, log_odds: float, item_features: NDArray[np.float32] | None = None
    ) -> Relevance:
        product = replace(self, start=log_odds) if self.biases == "both" else self
        if item_features is None:
            return product
        return WithFeatures(product, item_features, clicks.item_counts > 0)

    def initial(
        self,
        n_users: int,
        n_items: int,
        rng: np.random.Generator,
        rows: NDArray[Any] | None = None,
    ) -> dict[str, NDArray[Any]]:
        users = normal(rng, (n_users, self.dim), self.initial_scale, rows)
        items = normal(rng, (n_items, self.dim), self.initial_scale)
        return {
            "user_factors": np.hstack([users, self._tail(len(users), (self.start, 1))]),
            "item_factors": np.hstack([items, self._tail(n_items, (1, 0))]),
        }

    def _tail(self, n: int, both: tuple[float, float]) -> NDArray[np.float32]:
        """The columns after ω of n rows."""
        own = both[len(both) - BIAS_COLUMNS[self.biases] :]
        return np.tile(np.array(own, dtype=np.float32), (n, 1))

    def logits(self, tables: Tensors, users: Tensor, items: Tensor) -> Tensor:
        return (tables["user_factors"][users] * tables["item_factors"][items]).sum(dim=1)

    def item_vectors(self, tables: Mapping[str, Any], items: Any) -> Any:
        return tables["item_factors"][items]

    def scores(self, tables: Arrays, users: NDArray[Any]) -> NDArray[Any]:
        return tables["user_factors"][users] @ tables["item_factors"].T

    def kept(self, tables: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        if self.biases == "none":
            return dict(tables)
        return {**tables, BIAS_START: np.array([self.start], dtype=np.float32)}

    def continued(self, parameters: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        earlier = BIAS_START in parameters
        if earlier != (self.biases != "none"):
            raise InputError(
                f"the earlier model was trained with biases={earlier}: continue it with the same"
            )
        return dict(parameters)

    def new_users(self, parameters: Arrays, n_users: int) -> dict[str, NDArray[np.float32]]:
        start = float(parameters[BIAS_START][0]) if BIAS_START in parameters else self.start
        zeros = np.zeros((n_users, self.dim), dtype=np.float32)
        return {"user_factors": np.hstack([zeros, self._tail(n_users, (start, 1))])}

    def vectors(self, parameters: Arrays) -> Vectors:
        return Vectors(parameters["user_factors"], parameters["item_factors"])

    def tastes(self, parameters: Arrays) -> Vectors:
        return Vectors(*(rows[:, : self.dim] for rows in self.vectors(parameters)))


@dataclass(frozen=True, eq=False)
class WithFeatures(Relevance):
    """The dot product whose item vector is ω_i + F_iᵀW: W learns what items with a feature share.

    An item that nobody clicked has ω_i = 0, so its features alone speak for it; where drawn it
    counts nothing, or what is new would be disliked. W starts at 0 and decays, as ω does, once for
    every pair that reads the row. With biases F_iᵀW has a part of b_i too, and none in the column
    of ones. A model keeps ω_i + F_iᵀW in place of ω_i, and serves as a plain dot product.
    """

    product: DotProduct
    features: NDArray[np.float32]  # F, (n_items, columns)
    counted: NDArray[np.bool_]  # (n_items,): whether anyone clicked the item

    @property
    def width(self) -> int:
        return self.product.width

    @property
    def tables(self) -> Mapping[str, Table]:
        """W moves in the columns that the items' table moves in, and all of it decays."""
        own = self.product.tables
        return {**own, ITEM_FEATURES: Table("shared", own["item_factors"].fixed)}

    def initial(
        self,
        n_users: int,
        n_items: int,
        rng: np.random.Generator,
        rows: NDArray[Any] | None = None,
    ) -> dict[str, NDArray[Any]]:
        tables = self.product.initial(n_users, n_items, rng, rows)
        tables["item_factors"][~self.counted, : self.product.dim] = 0
        shape = self.features.shape[1], self.product.width
        return tables | {ITEM_FEATURES: np.zeros(shape, dtype=np.float32)}

    def touched(self, tables: Tensors, users: Tensor, items: Tensor) -> dict[str, Touched]:
        pairs = (self._of(items) != 0).sum(dim=0)
        (rows,) = torch.nonzero(pairs, as_tuple=True)
        own = self.product.touched(tables, users, items)
        return own | {ITEM_FEATURES: Touched(rows, pairs[rows])}

    def logits(self, tables: Tensors, users: Tensor, items: Tensor) -> Tensor:
        return (tables["user_factors"][users] * self.item_vectors(tables, items)).sum(dim=1)

    def item_vectors(self, tables: Mapping[str, Any], items: Any) -> Any:
        weight = tables[ITEM_FEATURES]
        return tables["item_factors"][items] + self._of(items).to(weight.dtype) @ weight

    def kept(self, tables: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        whole = tables["item_factors"] + self.features @ tables[ITEM_FEATURES]
        whole = whole.astype(tables["item_factors"].dtype)
        return self.product.kept({**tables, "item_factors": whole})

    def continued(self, parameters: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        tables = self.product.continued(parameters)
        if ITEM_FEATURES in tables:  # ω_i alone again
            whole = tables["item_factors"]
            own = whole - self.features[: len(whole)] @ tables[ITEM_FEATURES]
            tables["item_factors"] = own.astype(whole.dtype)
        return tables

    def vectors(self, parameters: Arrays) -> Vectors:
        return self.product.vectors(parameters)

    def along(self, on_items: NDArray[Any]) -> NDArray[Any]:
        """G + F·FᵀG."""
        return on_items + self.features @ (self.features.T @ on_items)

    def _of(self, items: Tensor) -> Tensor:
        return torch.from_numpy(self.features).to(items.device)[items]


# by name: from the length of a vector, the deviation of the first ones, and the biases wanted
RELEVANCE: dict[str, Callable[[int, float, Biases], Relevance]] = {"dot": DotProduct}


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
    values = np.empty((len(rows), *width), dtype=np.float32)
    for begin in range(0, n, BLOCK):
        drawn = rng.normal(0, deviation, (min(BLOCK, n - begin), *width))
        own = slice(*np.searchsorted(rows, (begin, begin + BLOCK)).tolist())
        values[own] = drawn[rows[own] - begin]
    return values
