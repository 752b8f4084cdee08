"""Pairs of users and items as arrays: what clicks, judgements, ratings and impressions share."""

from collections.abc import Sequence
from dataclasses import fields, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from unexposed.cards import Card, Curve, HasCard, counted
from unexposed.data.ids import Ids
from unexposed.errors import InputError

Indices = NDArray[np.int32]
FIRST = 5  # rows on a card


class HasIds(Protocol):
    """Anything that knows users and items by raw id: clicks, judgements, a fitted model."""

    @property
    def user_ids(self) -> Ids: ...

    @property
    def item_ids(self) -> Ids: ...


def same_ids(one: HasIds, other: HasIds) -> bool:
    """Whether both know the same users and items, in the same order."""
    return one.user_ids == other.user_ids and one.item_ids == other.item_ids


class Pairs(HasCard):
    """Distinct pairs, ordered by user and item, with a value of each in other columns.

    The types are apart so that no training takes a test label. A subclass is a frozen dataclass
    with the fields below and its columns.
    """

    noun: ClassVar[str]  # for one pair
    users: Indices
    items: Indices
    user_ids: Ids
    item_ids: Ids

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._sizes()})"

    def _sizes(self) -> str:
        users, items = counted(self.n_users, "user"), counted(self.n_items, "item")
        return f"{counted(len(self), self.noun)}, {users}, {items}"

    def card_of(
        self,
        columns: dict[str, NDArray[Any]],
        facts: dict[str, Any] | None = None,
        curves: Sequence[Curve] = (),
    ) -> Card:
        """Sizes, facts, curves, and the first rows: user, item, and these columns."""
        first = slice(FIRST)
        users = self.user_ids.values[self.users[first]].tolist()
        items = self.item_ids.values[self.items[first]].tolist()
        rest = [column[first].tolist() for column in columns.values()]
        return Card(
            f"{type(self).__name__}: {self._sizes()}",
            facts or {},
            ["user", "item", *columns],
            [[str(u), str(i), *more] for u, i, *more in zip(users, items, *rest, strict=True)],
            curves,
            f"the first {FIRST} of {len(self):,} rows" if len(self) > FIRST else "",
        )

    @property
    def n_users(self) -> int:
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        return len(self.item_ids)

    @cached_property
    def keys(self) -> NDArray[np.int64]:
        """The pairs as sorted numbers, for membership by binary search."""
        return pair_keys(self.users, self.items, self.n_items)

    @cached_property
    def user_start(self) -> NDArray[np.int64]:
        """Where each user's pairs begin; one entry more than there are users."""
        return np.searchsorted(self.users, np.arange(self.n_users + 1))

    def contain(self, users: NDArray[Any], items: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each pair is one of these."""
        return among(self.keys, users, items, self.n_items)

    def pick(self, chosen: NDArray[Any]) -> Self:
        """The pairs at these positions (a mask, or ascending indices)."""
        return replace(self, **{n: c[chosen] for n, c in self.columns().items()})  # type: ignore[type-var]

    def columns(self) -> dict[str, Any]:
        """The arrays with an entry for each pair."""
        columns = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return {name: c for name, c in columns.items() if isinstance(c, np.ndarray)}

    def check(self, each: str) -> None:
        """Refuse pairs that are not distinct, ordered and inside the ids, and other lengths."""
        users, items, what = self.users, self.items, f"{self.noun}s"
        if users.shape != items.shape or users.ndim != 1:
            raise InputError(f"{what} need as many users as items")
        check_inside(users, items, self.user_ids, self.item_ids, what=what)
        if (np.diff(pair_keys(users, items, self.n_items)) <= 0).any():
            raise InputError(
                f"{what} must be ordered by user and item without repeats: use from_pairs"
            )
        if any(column.shape != users.shape for column in self.columns().values()):
            raise InputError(f"{what} need {each} for each pair")


def pair_keys(users: NDArray[Any], items: NDArray[Any], n_items: int) -> NDArray[np.int64]:
    """One number for each pair, ordered by user, then item."""
    return users.astype(np.int64) * n_items + items


def pairs_of(keys: NDArray[np.int64], n_items: int) -> tuple[Indices, Indices]:
    """The users and items of these keys."""
    n_items = max(n_items, 1)
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


def check_inside(
    users: NDArray[Any], items: NDArray[Any], user_ids: Ids, item_ids: Ids, *, what: str
) -> None:
    """Refuse an index that no id has."""
    for indices, ids, kind in ((users, user_ids, "a user"), (items, item_ids, "an item")):
        if len(indices) and (indices.min() < 0 or indices.max() >= len(ids)):
            raise InputError(f"{what} have {kind} index outside 0 … {len(ids) - 1}")


def row_keys(
    users: Any, items: Any, user_ids: Ids, item_ids: Ids, *, what: str
) -> NDArray[np.int64]:
    """The key of the pair of each row, in the order of rows."""
    users, items = np.asarray(users), np.asarray(items)
    check_inside(users, items, user_ids, item_ids, what=what)
    return pair_keys(users, items, max(len(item_ids), 1))
