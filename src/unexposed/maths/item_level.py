"""Exposure that is the same for all users, learned by the bi-level step.

    items       mᵢ = σ(αᵢ)                                    one number an item, from θ on
    popularity  mᵢ = σ(α₀)·(nᵢ / max n)^log(1 + exp α₁)       a level and an exponent

α descends L_val(ω′) as in `bilevel.py`, here with the gradient of a whole epoch's loss and at
η → 0, where ω′ = ω: only the direction of the gradient matters to Adam.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from unexposed.maths.exposure import Table

Array = NDArray[np.float64]
Form = Literal["items", "popularity"]

MOST = 0.98  # where exposure may start at most: from 1 no gradient leads back


class Factors(NamedTuple):
    """Two tables with one row for each user and for each item."""

    users: NDArray[Any]  # (n_users, dim)
    items: NDArray[Any]  # (n_items, dim)


@dataclass(frozen=True)
class ItemLevel:
    """A form of exposure: its numbers at the start, its table, and the way of a gradient."""

    start: Callable[[Table, Array], Array]  # from θ and log(n / max n), each (n_items,)
    table: Callable[[Array, Array], Array]  # m of each item, from α and log(n / max n)
    carry: Callable[[Array, Array, Array], Array]  # ∂/∂m (n_items,) into ∂/∂α


def _items_start(popularity: Table, share: Array) -> Array:
    del share
    return logit(np.clip(popularity.astype(np.float64), 1e-3, MOST))


def _items_table(alpha: Array, share: Array) -> Array:
    del share
    return expit(alpha)


def _items_carry(gradient: Array, alpha: Array, share: Array) -> Array:
    del share
    return gradient * expit(alpha) * expit(-alpha)


def _popularity_start(popularity: Table, share: Array) -> Array:
    exponent = max(float(_slope(share, np.log(popularity.astype(np.float64)))), 1e-2)
    return np.array([logit(MOST), np.log(np.expm1(exponent))])


def _popularity_table(alpha: Array, share: Array) -> Array:
    return expit(alpha[0]) * np.exp(np.logaddexp(0, alpha[1]) * share)


def _popularity_carry(gradient: Array, alpha: Array, share: Array) -> Array:
    exposure = _popularity_table(alpha, share)
    level = (gradient * exposure).sum() * expit(-alpha[0])
    return np.array([level, (gradient * exposure * share).sum() * expit(alpha[1])])


def _slope(x: Array, y: Array) -> float:
    """Slope of the line through 0 that is nearest to y(x)."""
    return float((x * y).sum() / max((x * x).sum(), 1e-12))


FORMS: dict[str, ItemLevel] = {
    "items": ItemLevel(_items_start, _items_table, _items_carry),
    "popularity": ItemLevel(_popularity_start, _popularity_table, _popularity_carry),
}


def log_share(item_counts: NDArray[Any]) -> Array:
    """log(nᵢ / max n); an item without clicks counts as if it had half of one."""
    counts = np.maximum(np.asarray(item_counts, dtype=np.float64), 0.5)
    share: Array = np.log(counts / counts.max())
    return share


def validation_gradient(
    factors: Factors, users: NDArray[Any], items: NDArray[Any], relevant: NDArray[Any]
) -> Factors:
    """g = ∂L_val/∂ω, L_val = Σ over validation pairs of L2 at m = 1."""
    slope = expit(pair_logits(factors, users, items)) - relevant
    found = Factors(*(np.zeros(table.shape) for table in factors))
    np.add.at(found.users, users, slope[:, None] * factors.items[items])
    np.add.at(found.items, items, slope[:, None] * factors.users[users])
    return found


def validation_losses(
    factors: Factors, users: NDArray[Any], items: NDArray[Any], relevant: NDArray[Any]
) -> Array:
    """L2 at m = 1 of each pair: log(1 + e⁻ˣ) where relevant, log(1 + eˣ) where not."""
    logits = pair_logits(factors, users, items)
    return np.logaddexp(0, np.where(relevant, -logits, logits))


def pair_logits(factors: Factors, users: NDArray[Any], items: NDArray[Any]) -> Array:
    product: Array = np.einsum(
        "pd,pd->p", factors.users[users], factors.items[items], dtype=np.float64
    )
    return product


class Block(NamedTuple):
    """Some users with all items, and what the training loss says of their unclicked pairs."""

    users: slice | NDArray[Any]
    clicked: tuple[NDArray[Any], NDArray[Any]]  # row of the block, item
    weight: NDArray[Any]  # of an unclicked pair in the loss, (users, 1) or (users, items)
    given: tuple[NDArray[Any], NDArray[Any]] | None = None  # pairs whose m is not the item's


def hypergradient(factors: Factors, direction: Factors, exposure: Table, block: Block) -> Array:
    """dL_val(ω′)/dmᵢ over η, summed over the users of a block, (n_items,), for L2 (appendix C).

    −Σᵤ weight·p(1 − p)/(1 − mᵢp)²·(gᵤᵀωᵢ + gᵢᵀωᵤ) over pairs without a click; `direction` is g.
    """
    mine, ahead = factors.users[block.users], direction.users[block.users]
    logits = mine @ factors.items.T
    along = ahead @ factors.items.T + mine @ direction.items.T
    relevance, dislike = expit(logits), expit(-logits)
    missed = dislike + (1 - exposure) * relevance  # 1 − mp, without its rounding to 0
    change = block.weight * relevance * dislike / (missed * missed) * along
    change[block.clicked] = 0.0  # appendix B: a click has no hypergradient
    if block.given is not None:
        change[block.given] = 0.0
    total: Array = -change.sum(axis=0, dtype=np.float64)
    return total


def train_gradient(factors: Factors, exposure: Table, block: Block) -> Array:
    """dL_train/dmᵢ, summed over the users of a block: −1/m for a click, p/(1 − mp) without one."""
    logits = factors.users[block.users] @ factors.items.T
    relevance = expit(logits)
    change = block.weight * relevance / (expit(-logits) + (1 - exposure) * relevance)
    rows, items = block.clicked
    change[rows, items] = -1 / exposure[items]
    if block.given is not None:
        change[block.given] = 0.0
    total: Array = change.sum(axis=0, dtype=np.float64)
    return total
