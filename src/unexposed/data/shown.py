"""What was really shown: impressions of a log, and traffic whose items were drawn at random."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.cards import Card, Shown
from unexposed.data import glance
from unexposed.data.ids import Ids
from unexposed.data.labelled import LabelledPairs
from unexposed.data.pairs import Indices, among, check_inside, check_pairs, pair_keys, pairs_of
from unexposed.errors import InputError


@dataclass(frozen=True, eq=False)
class Impressions(Shown):
    """The shown pairs, each once, ordered by user and item: how often shown, how often clicked.

    `propensity` is the logged chance that the pair was shown, where the log has it.
    """

    users: Indices
    items: Indices
    shown: Indices  # at least 1
    clicked: Indices  # 0 … shown
    user_ids: Ids
    item_ids: Ids
    propensity: NDArray[np.float32] | None = None  # in (0, 1]

    def __post_init__(self) -> None:
        check_pairs(self.users, self.items, self.user_ids, self.item_ids, what="impressions")
        for counts in (self.shown, self.clicked):
            if counts.shape != self.users.shape:
                raise InputError("impressions need the times shown and clicked of each pair")
        if len(self) and (self.shown.min() < 1 or self.clicked.min() < 0):
            raise InputError(
                "impressions need a pair shown at least once, clicked at least 0 times"
            )
        if (self.clicked > self.shown).any():
            raise InputError("impressions cannot be clicked more often than shown")
        chance = self.propensity
        if chance is None:
            return
        if chance.shape != self.users.shape or not ((chance > 0) & (chance <= 1)).all():
            raise InputError("impressions need a propensity in (0, 1] for each pair, or none")

    @staticmethod
    def from_pairs(
        users: NDArray[Any],
        items: NDArray[Any],
        *,
        user_ids: Ids,
        item_ids: Ids,
        shown: NDArray[Any] | None = None,
        clicked: NDArray[Any] | None = None,
        propensity: NDArray[Any] | None = None,
    ) -> "Impressions":
        """Impressions from rows in any order; rows of one pair are added up.

        A row counts as shown once and not clicked unless told otherwise. The propensity of a pair
        is the mean over its rows.
        """
        n_items = max(len(item_ids), 1)
        users, items = np.asarray(users), np.asarray(items)
        check_inside(users, items, user_ids, item_ids, what="impressions")
        keys, place = np.unique(pair_keys(users, items, n_items), return_inverse=True)

        def summed(values: NDArray[Any] | None) -> NDArray[np.float64]:
            return np.bincount(place, weights=values, minlength=len(keys)).astype(np.float64)

        times = summed(None)
        nothing = np.zeros(len(keys), dtype=np.int32)
        return Impressions(
            *pairs_of(keys, n_items),
            (times if shown is None else summed(shown)).astype(np.int32),
            nothing if clicked is None else summed(clicked).astype(np.int32),
            user_ids,
            item_ids,
            None if propensity is None else (summed(propensity) / times).astype(np.float32),
        )

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        return glance.line(self, "shown pair")

    def card(self) -> Card:
        """Sizes, how often a showing was clicked, and the first rows."""
        columns = {"shown": self.shown, "clicked": self.clicked}
        if self.propensity is not None:
            columns["propensity"] = self.propensity.astype(np.float64)
        facts = {"showings": int(self.shown.sum()), "clicked": int(self.clicked.sum())}
        return glance.card(self, "shown pair", columns, facts=facts)

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
        """Where each user's impressions begin; one entry more than there are users."""
        return np.searchsorted(self.users, np.arange(self.n_users + 1))

    def contain(self, users: NDArray[Any], items: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each pair was shown."""
        return among(self.keys, users, items, self.n_items)

    def pick(self, chosen: NDArray[Any]) -> "Impressions":
        """The impressions at these positions (a mask, or ascending indices)."""
        chance = None if self.propensity is None else self.propensity[chosen]
        columns = {n: getattr(self, n)[chosen] for n in ("users", "items", "shown", "clicked")}
        return replace(self, **columns, propensity=chance)


class Traffic(LabelledPairs):
    """Pairs shown at random, and whether each was relevant: labels that training may use."""

    noun = "pair"


@dataclass(frozen=True, eq=False)
class KnownExposure(Shown):
    """Pairs drawn at random, and whether each user had met the item before."""

    users: Indices
    items: Indices
    exposed: NDArray[np.bool_]
    user_ids: Ids
    item_ids: Ids

    def __post_init__(self) -> None:
        check_pairs(self.users, self.items, self.user_ids, self.item_ids, what="known exposure")
        if self.exposed.shape != self.users.shape or self.exposed.dtype != bool:
            raise InputError("known exposure needs one bool for each pair")

    def __len__(self) -> int:
        return len(self.users)

    def __repr__(self) -> str:
        return glance.line(self, "pair")

    def card(self) -> Card:
        """Sizes, the share of exposed pairs, and the first rows."""
        facts = {"exposed": f"{self.exposed.mean():.1%}"} if len(self) else {}
        return glance.card(self, "pair", {"exposed": self.exposed}, facts=facts)
