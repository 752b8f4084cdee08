"""Pairs with what is known of them: judged, shown in a log, or shown at random."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unexposed.cards import Card
from unexposed.data.ids import Ids
from unexposed.data.pairs import Indices, Pairs, pairs_of, row_keys
from unexposed.errors import InputError

if TYPE_CHECKING:
    from unexposed.data.clicks import Clicks


@dataclass(frozen=True, eq=False, repr=False)
class _Labelled(Pairs):
    """Distinct pairs, and whether each is relevant."""

    users: Indices
    items: Indices
    relevant: NDArray[np.bool_]
    user_ids: Ids
    item_ids: Ids

    def __post_init__(self) -> None:
        self.check("one bool")
        if self.relevant.dtype != bool:
            raise InputError(f"{self.noun}s need one bool for each pair")

    def card(self) -> Card:
        """Sizes, the share of relevant pairs, and the first rows."""
        facts = {"relevant": f"{self.relevant.mean():.1%}"} if len(self) else {}
        return self.card_of({"relevant": self.relevant}, facts)


class Traffic(_Labelled):
    """Pairs shown at random, and whether each was relevant: labels that training may use."""

    noun = "pair"


class Judgements(_Labelled):
    """Pairs whose relevance is known because their exposure was: the test labels."""

    noun = "judgement"

    @staticmethod
    def from_pairs(
        users: NDArray[Any],
        items: NDArray[Any],
        relevant: NDArray[Any],
        *,
        user_ids: Ids,
        item_ids: Ids,
    ) -> "Judgements":
        """Judgements from pairs in any order; a pair judged twice is relevant if it ever was."""
        rows = row_keys(users, items, user_ids, item_ids, what="judgements")
        keys, place = np.unique(rows, return_inverse=True)
        ever = np.zeros(len(keys), dtype=bool)
        np.logical_or.at(ever, place, np.asarray(relevant, dtype=bool))
        return Judgements(*pairs_of(keys, len(item_ids)), ever, user_ids, item_ids)

    @staticmethod
    def from_clicks(clicks: "Clicks") -> "Judgements":
        """Later clicks as judgements: every pair relevant, and none known to be irrelevant.

        Only a protocol that ranks the catalogue can use them.
        """
        log, every = clicks.checked(), np.ones(len(clicks), dtype=bool)
        return Judgements(log.users, log.items, every, clicks.user_ids, clicks.item_ids)


@dataclass(frozen=True, eq=False, repr=False)
class Impressions(Pairs):
    """The shown pairs: how often each was shown, and how often clicked.

    `propensity` is the logged chance that the pair was shown, where the log has it.
    """

    noun = "shown pair"
    users: Indices
    items: Indices
    shown: Indices  # at least 1
    clicked: Indices  # 0 … shown
    user_ids: Ids
    item_ids: Ids
    propensity: NDArray[np.float32] | None = None  # in (0, 1]

    def __post_init__(self) -> None:
        self.check("the times shown and clicked, and a propensity or none,")
        if len(self) and (self.shown.min() < 1 or self.clicked.min() < 0):
            raise InputError(
                "impressions need a pair shown at least once, clicked at least 0 times"
            )
        if (self.clicked > self.shown).any():
            raise InputError("impressions cannot be clicked more often than shown")
        chance = self.propensity
        if chance is not None and not ((chance > 0) & (chance <= 1)).all():
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

        By default, a row counts as shown once and not clicked. The propensity of a pair is the mean
        over its rows.
        """
        rows = row_keys(users, items, user_ids, item_ids, what="shown pairs")
        keys, place = np.unique(rows, return_inverse=True)

        def summed(values: NDArray[Any] | None) -> NDArray[np.float64]:
            return np.bincount(place, weights=values, minlength=len(keys)).astype(np.float64)

        times = summed(None)
        return Impressions(
            *pairs_of(keys, len(item_ids)),
            (times if shown is None else summed(shown)).astype(np.int32),
            (0 * times if clicked is None else summed(clicked)).astype(np.int32),
            user_ids,
            item_ids,
            None if propensity is None else (summed(propensity) / times).astype(np.float32),
        )

    def card(self) -> Card:
        """Sizes, how often a showing was clicked, and the first rows."""
        columns = {"shown": self.shown, "clicked": self.clicked}
        if self.propensity is not None:
            columns["propensity"] = self.propensity.astype(np.float64)
        facts = {"showings": int(self.shown.sum()), "clicked": int(self.clicked.sum())}
        return self.card_of(columns, facts)


@dataclass(frozen=True, eq=False, repr=False)
class KnownExposure(Pairs):
    """Pairs drawn at random, and whether each user had met the item before."""

    noun = "pair"
    users: Indices
    items: Indices
    exposed: NDArray[np.bool_]
    user_ids: Ids
    item_ids: Ids

    def __post_init__(self) -> None:
        self.check("one bool")

    def card(self) -> Card:
        """Sizes, the share of exposed pairs, and the first rows."""
        facts = {"exposed": f"{self.exposed.mean():.1%}"} if len(self) else {}
        return self.card_of({"exposed": self.exposed}, facts)
