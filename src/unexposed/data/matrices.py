"""Sparse matrices of users × items as clicks, or as columns."""

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks, Read
from unexposed.data.ids import Ids
from unexposed.errors import InputError


def columns_of_matrix(matrix: Any, values: str) -> dict[str, NDArray[Any]]:
    """Row, column and value of every stored entry, explicit zeros included."""
    if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
        shape = f"{matrix.ndim} dimensions of {matrix.dtype}"
        raise InputError(f"the matrix has {shape}: give users × items of real numbers")
    coo = sp.coo_array(matrix)
    coo.sum_duplicates()
    for at in np.flatnonzero(~(np.isfinite(coo.data) & (coo.data >= 0)))[:1]:
        raise InputError(
            f"the matrix holds {coo.data[at]} in row {coo.row[at]}, column {coo.col[at]}: "
            "make every value finite and at least 0"
        )
    return {"user": coo.row, "item": coo.col, values: coo.data}


def clicks_of_matrix(matrix: Any, threshold: float | None) -> Clicks:
    """Clicks on the pairs with a positive value, their count, or one of at least the threshold."""
    users, items, values = columns_of_matrix(matrix, "value").values()
    user_ids, item_ids = Ids.range(matrix.shape[0]), Ids.range(matrix.shape[1])
    check_universe("the matrix", *matrix.shape)
    clicked = (values > 0) & (values >= (threshold or 0))
    if not clicked.any():
        raise InputError("the matrix has no click: store positive values, or lower threshold=")
    counts = values[clicked] if threshold is None else None
    if counts is not None and ((counts % 1 != 0) | (counts >= 2**31)).any():
        raise InputError("the matrix holds more than counts: give threshold= if these are ratings")
    rule, n = "a click is a value above 0, its count", int(clicked.sum())
    if threshold is not None:
        rule = f"a click is a value ≥ {threshold:g}"
    return Clicks.from_pairs(
        users[clicked],
        items[clicked],
        counts=counts,
        user_ids=user_ids,
        item_ids=item_ids,
        read=Read("the matrix", {"user": "row", "item": "column"}, rule, len(values), n),
    )


def check_universe(name: str, n_users: int, n_items: int) -> None:
    for role, n in (("user", n_users), ("item", n_items)):
        if n < 2:
            raise InputError(
                f"{name} has fewer than two {role}s, which leaves nothing to learn: "
                f"check that {role}= (--{role}) names the right column"
            )
