"""How relevant an item is to a user: p = σ(logit), from tables whose rows training moves."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Tables = Mapping[str, Tensor]


class Touched(NamedTuple):
    """The distinct rows of a table that a batch reads, and how many of its pairs read each."""

    rows: Tensor
    pairs: Tensor


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


@dataclass(frozen=True)
class DotProduct:
    """p_ui = σ(ω_uᵀω_i)."""

    dim: int
    initial_scale: float  # standard deviation of the first vectors

    def initial(
        self, n_users: int, n_items: int, rng: np.random.Generator
    ) -> dict[str, NDArray[Any]]:
        return {
            "user_factors": normal(rng, (n_users, self.dim), self.initial_scale),
            "item_factors": normal(rng, (n_items, self.dim), self.initial_scale),
        }

    def touched(self, tables: Tables, users: Tensor, items: Tensor) -> dict[str, Touched]:
        del tables
        return {"user_factors": rows_of(users), "item_factors": rows_of(items)}

    def logits(self, tables: Tables, users: Tensor, items: Tensor) -> Tensor:
        return (tables["user_factors"][users] * tables["item_factors"][items]).sum(dim=1)

    def item_vectors(self, tables: Tables, items: Tensor) -> Tensor:
        return tables["item_factors"][items]

    def scores(self, tables: Mapping[str, NDArray[Any]], users: NDArray[Any]) -> NDArray[Any]:
        return tables["user_factors"][users] @ tables["item_factors"].T


def rows_of(indices: Tensor) -> Touched:
    """The distinct rows among these indices."""
    return Touched(*torch.unique(indices, return_counts=True))


def normal(
    rng: np.random.Generator, shape: tuple[int, ...], deviation: float
) -> NDArray[np.float32]:
    """First values of a table: normal, around zero."""
    return rng.normal(0, deviation, shape).astype(np.float32)
