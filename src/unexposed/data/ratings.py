"""Ratings: what a threshold makes clicks, judgements or random traffic of."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unexposed.cards import Card
from unexposed.data.clicks import Clicks, drawn
from unexposed.data.ids import Ids
from unexposed.data.labelled import Impressions, Judgements, Traffic
from unexposed.data.pairs import Indices, Pairs
from unexposed.errors import InputError


@dataclass(frozen=True, eq=False, repr=False)
class Ratings(Pairs):
    """Ratings of distinct pairs, before a threshold makes clicks of them.

    Values are stars, or else have a `threshold` of their own, which comes before any other. Where
    each row of the log was a showing, `shown` holds the impressions of the same pairs.
    """

    noun = "rating"
    users: Indices
    items: Indices
    values: NDArray[np.float32]
    user_ids: Ids
    item_ids: Ids
    threshold: float | None = None
    times: NDArray[np.int64] | None = None  # seconds since 1970, of the last click if there is one
    shown: Impressions | None = None

    def __post_init__(self) -> None:
        self.check("a value, and a time or none,")
        if not np.isfinite(self.values).all():
            raise InputError("ratings must be finite numbers")
        if self.shown is not None and not (
            np.array_equal(self.shown.users, self.users)
            and np.array_equal(self.shown.items, self.items)
        ):
            raise InputError("ratings need the impressions of the same pairs, or none")

    def card(self) -> Card:
        """Sizes, the range of the ratings, and the first rows."""
        facts = {"from": self.values.min(), "to": self.values.max()} if len(self) else {}
        facts = {name: f"{value:g}" for name, value in facts.items()}
        return self.card_of({"rating": self.values}, facts)

    def liked(self, *, threshold: float) -> NDArray[np.bool_]:
        """Whether each pair is rated at least the threshold, or the ratings' own."""
        return self.values >= (threshold if self.threshold is None else self.threshold)

    def clicks(self, *, threshold: float) -> Clicks:
        """Clicks on the pairs rated at least the threshold; other pairs stay unknown."""
        liked = self.liked(threshold=threshold)
        return Clicks.from_pairs(
            self.users[liked],
            self.items[liked],
            counts=None if self.shown is None else self.shown.clicked[liked],
            times=None if self.times is None else self.times[liked],
            user_ids=self.user_ids,
            item_ids=self.item_ids,
            shown=self.shown,
        )

    def disliked(self, *, threshold: float) -> Impressions:
        """The pairs rated below the threshold: they were seen, and are no clicks."""
        below = ~self.liked(threshold=threshold)
        return Impressions.from_pairs(
            self.users[below], self.items[below], user_ids=self.user_ids, item_ids=self.item_ids
        )

    def judgements(self, *, threshold: float) -> Judgements:
        """Every rated pair, relevant if rated at least the threshold."""
        return Judgements.from_pairs(
            self.users,
            self.items,
            self.liked(threshold=threshold),
            user_ids=self.user_ids,
            item_ids=self.item_ids,
        )

    def traffic(self, *, threshold: float) -> Traffic:
        """Every rated pair as random traffic, for ratings of items shown at random."""
        judged = self.judgements(threshold=threshold)
        return Traffic(judged.users, judged.items, judged.relevant, self.user_ids, self.item_ids)

    def pick(self, chosen: NDArray[Any]) -> "Ratings":
        """The ratings at these positions (a mask, or ascending indices)."""
        shown = None if self.shown is None else self.shown.pick(chosen)
        columns = {name: column[chosen] for name, column in self._columns().items()}
        return replace(self, **columns, shown=shown)

    def hold_out(self, *, fraction: float, seed: int) -> tuple["Ratings", "Ratings"]:
        """The ratings without, and only, a random fraction of them (rounded down)."""
        chosen = drawn(len(self), fraction=fraction, seed=seed)
        return self.pick(~chosen), self.pick(chosen)
