"""Pairs with a label of relevance: what judgements and random traffic have in common."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from unexposed.cards import Card, Shown
from unexposed.data import glance
from unexposed.data.ids import Ids
from unexposed.data.pairs import Indices, check_pairs, pair_keys
from unexposed.errors import InputError


@dataclass(frozen=True, eq=False, repr=False)
class LabelledPairs(Shown):
    """Distinct pairs, ordered by user and item, and whether each is relevant.

    Judgements and traffic are types of their own, so that no training takes a test label.
    """

    noun: ClassVar[str]  # for one pair

    users: Indices
    items: Indices
    relevant: NDArray[np.bool_]
    user_ids: Ids
    item_ids: Ids

    def __post_init__(self) -> None:
        what = f"{self.noun}s"
        check_pairs(self.users, self.items, self.user_ids, self.item_ids, what=what)
        if self.relevant.shape != self.users.shape or self.relevant.dtype != bool:
            raise InputError(f"{what} need one bool for each pair")

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        return glance.line(self, self.noun)

    def card(self) -> Card:
        """Sizes, the share of relevant pairs, and the first rows."""
        facts = {"relevant": f"{self.relevant.mean():.1%}"} if len(self) else {}
        return glance.card(self, self.noun, {"relevant": self.relevant}, facts=facts)

    @cached_property
    def keys(self) -> NDArray[np.int64]:
        """The pairs as sorted numbers, for membership by binary search."""
        return pair_keys(self.users, self.items, len(self.item_ids))

    def pick(self, chosen: NDArray[Any]) -> Self:
        """The pairs at these positions (a mask, or ascending indices)."""
        columns = {n: getattr(self, n)[chosen] for n in ("users", "items", "relevant")}
        return replace(self, **columns)
