"""Lay out the validation set for the kernel: its parts, by user and by item."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.engine.cpu.layout import BLOCK, Guide, aligned_zeros
from unexposed.sampling.validation import ValidationSet

Integers = NDArray[np.int32]


def new_guide(
    validation: ValidationSet | None,
    *,
    n_parts: int,
    n_users: int,
    n_items: int,
    width: int,
    dtype: np.dtype[Any],
    everywhere: Callable[[NDArray[np.int64]], NDArray[np.int64]] = np.unique,
) -> Guide:
    """Lay out these pairs; without any, the guide is empty.

    `everywhere` gives the distinct numbers, ascending, that any rank has among its own: every rank
    knows which items have validation pairs on some rank, and in which part.
    """
    none = np.zeros(0, dtype=np.int32)
    users = none if validation is None else validation.users
    items = none if validation is None else validation.items
    relevant = none if validation is None else validation.relevant.astype(np.int32)
    bounds, scale = np.zeros(n_parts + 1, dtype=np.int64), np.zeros(n_parts)
    if validation is not None:
        bounds, scale = validation.bounds(n_parts)
    part = np.repeat(np.arange(n_parts), np.diff(bounds))
    user_row, user = np.unique(users, return_inverse=True)
    by_user = np.lexsort((items, user, part))
    user_part, user_group, user_start = _groups(part[by_user], user[by_user], n_parts)
    key = part * n_items + items  # of the group that the pair belongs to
    item_groups = everywhere(key)
    item_row, item_group = np.unique(item_groups % n_items, return_inverse=True)
    item = np.searchsorted(item_row, items)
    by_item = np.lexsort((user, key))
    item_start = np.searchsorted(key[by_item], np.append(item_groups, n_parts * n_items))
    item_part = np.searchsorted(item_groups, np.arange(n_parts + 1) * n_items)
    n_blocks = -(-np.diff(item_start) // BLOCK)  # of each group
    item_blocks = np.concatenate([[0], np.cumsum(n_blocks)])
    block_group = np.repeat(np.arange(len(item_group)), n_blocks)
    number = np.arange(len(block_group)) - item_blocks[block_group]  # of a block of its group
    block_start = np.append(item_start[block_group] + BLOCK * number, len(users))

    def integers(values: NDArray[Any]) -> Integers:
        return np.ascontiguousarray(values, dtype=np.int32)

    return Guide(
        n_parts=n_parts,
        scale=scale,
        user_row=integers(user_row),
        item_row=integers(item_row),
        user_number=_numbers(user_row, n_users),
        item_number=_numbers(item_row, n_items),
        user_part=integers(user_part),
        user_group=integers(user_group),
        user_start=integers(user_start),
        user_items=integers(item[by_user]),
        user_relevant=integers(relevant[by_user]),
        item_part=integers(item_part),
        item_group=integers(item_group),
        item_blocks=integers(item_blocks),
        block_group=integers(block_group),
        block_start=integers(block_start),
        item_users=integers(user[by_item]),
        item_relevant=integers(relevant[by_item]),
        ahead_users=aligned_zeros((len(user_row) * width,), dtype),
        ahead_items=aligned_zeros((len(item_row) * width,), dtype),
    )


def _groups(
    part: NDArray[Any], number: NDArray[Any], n_parts: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Groups of equal neighbours: the first group of each part, each group's number and start."""
    differs = np.ones(len(part), dtype=bool)
    differs[1:] = (np.diff(part) != 0) | (np.diff(number) != 0)
    first = np.flatnonzero(differs)
    by_part = np.searchsorted(part[first], np.arange(n_parts + 1))
    return by_part, number[first], np.append(first, len(part))


def _numbers(rows: NDArray[Any], n: int) -> Integers:
    """The number of each of n rows among the given rows, −1 for the rest."""
    number = np.full(n, -1, dtype=np.int32)
    number[rows] = np.arange(len(rows), dtype=np.int32)
    return number
