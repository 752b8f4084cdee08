"""How likely an item is shown to a user: given (popularity, a table, a constant) or learned.

The learned model lets a gate choose, item by item, between the user and the item's popularity:

    m = r·σ(eᵤᵀωᵢ + offset) + (1 − r)·θᵢ,   r = σ(wᵀωᵢ + b)                   (Eq. for m_α)

Its parameters α are eᵤ (one vector a user, or a map from the user's features), w and b.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from unexposed.errors import InputError
from unexposed.late import Tensor, sigmoid

Table = NDArray[np.float32]


def popularity(item_counts: NDArray[Any], *, exponent: float, floor: float) -> Table:
    """θᵢ = max((nᵢ / max n)^exponent, floor), with nᵢ the clicks of an item.

    The paper takes the square root and names no floor. Without a floor, θ of an item without
    clicks is 0 and 1/θ is infinite. With exponent 0 every item gets 1, clicked or not.
    """
    if not exponent >= 0:
        raise InputError(f"the popularity exponent must be at least 0, got {exponent}")
    if not 0 < floor <= 1:
        raise InputError(f"the popularity floor must lie in (0, 1], got {floor}")
    counts = np.asarray(item_counts, dtype=np.float64)
    if counts.ndim != 1 or not (counts >= 0).all():
        raise InputError("popularity needs one count of at least 0 for each item")
    if not counts.any():
        raise InputError("popularity needs at least one click, but no item has any")
    share: NDArray[np.float64] = counts / counts.max()
    return np.maximum(share**exponent, floor).astype(np.float32)


def given(table: NDArray[Any], *, n_users: int, n_items: int) -> Table:
    """Check a known exposure: one value for each item, or a users × items table."""
    table = np.asarray(table)
    if table.shape not in ((n_items,), (n_users, n_items)):
        raise InputError(
            f"exposure must hold {n_items} items, or {n_users} users × {n_items} items, "
            f"got an array of shape {table.shape}"
        )
    with np.errstate(over="ignore"):  # an overflow becomes infinite and is refused below
        values = table.astype(np.float32)
    bad = np.argwhere(~((values > 0) & (values <= 1)))  # refuses NaN too
    if len(bad):
        *user, item = bad[0].tolist()
        where = f"item {item}" + "".join(f" for user {u}" for u in user)
        raise InputError(f"exposure must lie in (0, 1], got {table[tuple(bad[0])]} at {where}")
    return values


def gated(
    user_vector: Tensor,  # eᵤ (B, dim)
    item_vector: Tensor,  # ωᵢ (B, dim)
    gate_weight: Tensor,  # w (dim,)
    gate_bias: Tensor,  # b ()
    popularity: Tensor,  # θᵢ (B,)
    *,
    offset: float = 0.0,
) -> Tensor:
    """m = r·σ(eᵤᵀωᵢ + offset) + (1 − r)·θᵢ of each row, (B,).

    A positive offset, which the paper does not have, lets exposure start high.
    ωᵢ is detached: exposure is a constant in the relevance step. Appendix B relies on it:
    otherwise −log m would move ωᵢ, and a clicked pair would have a hypergradient.
    """
    item_vector = item_vector.detach()
    gate = sigmoid(item_vector @ gate_weight + gate_bias)
    seen = sigmoid((user_vector * item_vector).sum(-1) + offset)
    return _mixed(gate, seen, popularity)


def gated_array(
    product: NDArray[Any],  # eᵤᵀωᵢ: (users, items), or (B,) of single pairs
    item_vectors: NDArray[Any],  # (items, dim), or (B, dim)
    gate_weight: NDArray[Any],  # (dim,)
    gate_bias: float,
    popularity: NDArray[Any],  # (items,), or (B,)
    *,
    offset: float = 0.0,
) -> NDArray[Any]:
    """The same m of a block of users × items or of single pairs, without gradients."""
    return _mixed(
        expit(item_vectors @ gate_weight + gate_bias), expit(product + offset), popularity
    )


def _mixed(gate: Any, seen: Any, popularity: Any) -> Any:
    """r·s + (1 − r)·θ."""
    return gate * seen + (1 - gate) * popularity
