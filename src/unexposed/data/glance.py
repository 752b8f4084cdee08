"""Pairs at a glance: one line about them, and a card with the first few."""

from collections.abc import Sequence
from typing import Any, Protocol

from numpy.typing import NDArray

from unexposed.cards import Card, Curve, counted
from unexposed.data.ids import Ids
from unexposed.data.pairs import Indices

FIRST = 5  # rows on a card


class Pairs(Protocol):
    """Clicks, judgements, ratings, impressions or traffic."""

    @property
    def users(self) -> Indices: ...

    @property
    def items(self) -> Indices: ...

    @property
    def user_ids(self) -> Ids: ...

    @property
    def item_ids(self) -> Ids: ...

    def __len__(self) -> int: ...


def line(pairs: Pairs, noun: str) -> str:
    """How many pairs, users and items there are, after the name of their type."""
    return f"{type(pairs).__name__}({_sizes(pairs, noun)})"


def card(
    pairs: Pairs,
    noun: str,
    columns: dict[str, NDArray[Any]],
    *,
    facts: dict[str, Any] | None = None,
    curves: Sequence[Curve] = (),
) -> Card:
    """Sizes, facts, curves, and the first rows: user, item, and these columns."""
    first = slice(FIRST)
    users = pairs.user_ids.values[pairs.users[first]].tolist()
    items = pairs.item_ids.values[pairs.items[first]].tolist()
    rest = [column[first].tolist() for column in columns.values()]
    return Card(
        f"{type(pairs).__name__}: {_sizes(pairs, noun)}",
        facts or {},
        ["user", "item", *columns],
        [[str(u), str(i), *more] for u, i, *more in zip(users, items, *rest, strict=True)],
        curves,
        f"the first {FIRST} of {len(pairs):,} rows" if len(pairs) > FIRST else "",
    )


def _sizes(pairs: Pairs, noun: str) -> str:
    n_users, n_items = len(pairs.user_ids), len(pairs.item_ids)
    return f"{counted(len(pairs), noun)}, {counted(n_users, 'user')}, {counted(n_items, 'item')}"
