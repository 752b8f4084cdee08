"""Pairs of users and items as arrays: their order, and the checks every kind of pair shares."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.data.ids import Ids
from unexposed.errors import InputError

Indices = NDArray[np.int32]


def pair_keys(users: NDArray[Any], items: NDArray[Any], n_items: int) -> NDArray[np.int64]:
    """One number for each pair, ordered by user, then item."""
    return users.astype(np.int64) * n_items + items


def pairs_of(keys: NDArray[np.int64], n_items: int) -> tuple[Indices, Indices]:
    """The users and items of these keys."""
    return (keys // n_items).astype(np.int32), (keys % n_items).astype(np.int32)


def among(
    keys: NDArray[np.int64], users: NDArray[Any], items: NDArray[Any], n_items: int
) -> NDArray[np.bool_]:
    """Whether each pair is one of these sorted keys."""
    if len(keys) == 0:
        return np.zeros(len(users), dtype=bool)
    wanted = pair_keys(users, items, n_items)
    place = np.searchsorted(keys, wanted).clip(max=len(keys) - 1)
    return keys[place] == wanted


def check_pairs(users: Indices, items: Indices, user_ids: Ids, item_ids: Ids, *, what: str) -> None:
    """Refuse pairs that are not distinct, ordered by user and item, and inside the ids."""
    if users.shape != items.shape or users.ndim != 1:
        raise InputError(f"{what} need as many users as items")
    check_inside(users, items, user_ids, item_ids, what=what)
    if (np.diff(pair_keys(users, items, len(item_ids))) <= 0).any():
        raise InputError(f"{what} must be ordered by user and item without repeats: use from_pairs")


def check_inside(
    users: NDArray[Any], items: NDArray[Any], user_ids: Ids, item_ids: Ids, *, what: str
) -> None:
    """Refuse an index that no id has."""
    if len(users) == 0:
        return
    if users.min() < 0 or users.max() >= len(user_ids):
        raise InputError(f"{what} have a user index outside 0 … {len(user_ids) - 1}")
    if items.min() < 0 or items.max() >= len(item_ids):
        raise InputError(f"{what} have an item index outside 0 … {len(item_ids) - 1}")
