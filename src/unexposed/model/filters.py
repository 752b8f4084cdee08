"""Rules for serving: which items a user may get, and what ranks them."""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids, match
from unexposed.data.pairs import Indices
from unexposed.errors import InputError

Array = NDArray[Any]
Unknown = Literal["refuse", "skip", "popular"]


@dataclass(frozen=True, eq=False)
class Rules:
    """Which items a user may get, and what ranks them.

    Items are ranked by score − popularity_penalty · log(1 + n), where n users clicked the item.
    Unknown users are refused, skipped, or get the popular list: the items of the greatest mean
    relevance over users (see `Average`).
    """

    hide_clicked: bool = True
    allow: Sequence[Hashable] | None = None  # only these items
    deny: Sequence[Hashable] = ()  # never these
    candidates: Clicks | None = None  # only these pairs
    minimum_exposure: float = 0.0
    popularity_penalty: float = 0.0
    unknown: Unknown = "refuse"

    def __post_init__(self) -> None:
        if not 0 <= self.minimum_exposure <= 1:
            raise InputError(f"minimum_exposure must lie in [0, 1], got {self.minimum_exposure}")
        if not 0 <= self.popularity_penalty < math.inf:
            raise InputError(
                "popularity_penalty must be a finite number of at least 0, "
                f"got {self.popularity_penalty}"
            )
        if self.unknown not in get_args(Unknown):
            allowed = ", ".join(get_args(Unknown))
            raise InputError(f"unknown must be one of {allowed}, got {self.unknown!r}")
        for name in ("allow", "deny"):
            if isinstance(getattr(self, name), str | bytes):
                raise InputError(f"{name} must be a list of item ids, got a string")

    def offset(self, clicks: Clicks) -> NDArray[np.float32] | None:
        """The amount to subtract from each item's score; ∞ for items never recommended."""
        if self.allow is None and len(self.deny) == 0 and self.popularity_penalty == 0:
            return None
        ids = clicks.item_ids
        offset = np.zeros(len(ids), dtype=np.float32)
        if self.popularity_penalty > 0:
            offset[:] = self.popularity_penalty * np.log1p(clicks.item_counts)
        if self.allow is not None:
            allowed = ids.index(list(self.allow))
            if not (allowed >= 0).any():
                raise InputError(f"the model knows none of the {len(allowed)} items to allow")
            others = np.ones(len(ids), dtype=bool)
            others[allowed[allowed >= 0]] = False
            offset[others] = np.inf
        denied = ids.index(list(self.deny))
        offset[denied[denied >= 0]] = np.inf
        return offset


@dataclass(frozen=True, eq=False)
class Candidates:
    """The items each user may get: items[start[n]:end[n]] for user n."""

    start: Array
    end: Array
    items: Indices

    @staticmethod
    def of(pairs: Clicks, users: Ids, item_ids: Ids) -> "Candidates":
        """The candidates of these users as item indices; unknown users may have some too."""
        at = match(users, pairs.user_ids)  # −1: no candidates
        items = match(pairs.item_ids, item_ids)[pairs.items]
        place = np.concatenate(
            [[0], np.cumsum(items >= 0)]
        )  # drop items that the model does not know
        start = place[pairs.user_start]
        return Candidates(start[at], np.where(at < 0, start[at], start[at + 1]), items[items >= 0])

    def part(self, part: slice) -> "Candidates":
        return Candidates(self.start[part], self.end[part], self.items)

    def only(self, block: Array) -> Array:
        """The block with −∞ for all other items."""
        here = entries(self.start, self.end, self.items)
        out = np.full_like(block, -np.inf)
        out[here] = block[here]
        return out


def hide(block: Array, clicks: Clicks, users: Indices) -> None:
    """Set the score of every clicked pair to −∞, in place; unknown users have no clicks."""
    end = clicks.user_start[np.minimum(users + 1, clicks.n_users)]
    rows, items = entries(clicks.user_start[users], end, clicks.items)
    if len(items) and not 0 <= items.min() <= items.max() < block.shape[1]:
        raise InputError("the clicks of this model are damaged; train it again")
    block[rows, items] = -np.inf


def entries(start: Array, end: Array, items: Array) -> tuple[Array, Array]:
    """The row and column in a block of each user's items."""
    lengths = end - start
    rows = np.repeat(np.arange(len(start)), lengths)
    offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return rows, items[np.repeat(start, lengths) + offsets]
