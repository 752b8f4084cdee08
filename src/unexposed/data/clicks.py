"""Clicks, and ratings, of which a threshold makes clicks."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from unexposed.cards import Card, Curve
from unexposed.data.ids import Ids, column
from unexposed.data.labelled import Impressions, Judgements, Traffic
from unexposed.data.pairs import Indices, Pairs, pairs_of, row_keys, same_ids
from unexposed.data.share import Share, counted_again
from unexposed.data.write import Library, as_frame
from unexposed.errors import InputError, plain
from unexposed.workers import Workers


def drawn(n: int, *, fraction: float, seed: int) -> NDArray[np.bool_]:
    """A mask of a random fraction of n things (rounded down)."""
    if not 0 <= fraction < 1:
        raise InputError(f"the held-out fraction must lie in [0, 1), got {fraction}")
    order = np.arange(n, dtype=np.int32 if n < 2**31 else np.int64)  # half of permutation(n)
    np.random.default_rng(seed).shuffle(order)
    chosen = np.zeros(n, dtype=bool)
    chosen[order[: int(n * fraction)]] = True
    return chosen


@dataclass(frozen=True)
class Read:
    """How a log was read: which column was taken for what, and what its rows became."""

    source: str
    columns: dict[str, str]  # role → name of the column
    rule: str  # what is a click
    rows: int
    clicks: int  # rows that became clicks
    shown: int = 0  # rows that became impressions, and are not clicks themselves
    dropped: int = 0  # rows that became nothing
    pairs: int | None = None  # that were clicked
    notes: tuple[str, ...] = ()  # what else a reader should know
    doubts: tuple[str, ...] = ()  # what was dropped unasked, or assumed

    def __str__(self) -> str:
        taken = ", ".join(f"{role} = {plain(name)}" for role, name in self.columns.items())
        repeated = self.pairs is not None and self.pairs < self.clicks
        became = [f"{self.clicks:,} clicks" + (f" on {self.pairs:,} pairs" if repeated else "")]
        became += [f"{self.shown:,} impressions"] if self.shown else []
        became += [f"{self.dropped:,} dropped"] if self.dropped else []
        said = (f"{self.source}: {taken}", self.rule, f"{self.rows:,} rows: {', '.join(became)}")
        return "; ".join((*said, *self.notes, *self.doubts))


@dataclass(frozen=True, eq=False, repr=False)
class Clicks(Pairs):
    """The clicked pairs, each once, ordered by user and item, with the number of its clicks.

    Any other pair is unknown, never shown, or shown and not liked, unless the log also has
    impressions (`shown`). `times` are seconds since 1970 of the last click of each pair. Where
    several workers divide a log, users and clicks are those of one, whose `share` says where
    they stand in the whole log; items, and `item_counts`, are those of the whole log.
    """

    noun = "click"
    users: Indices
    items: Indices
    counts: Indices
    user_ids: Ids
    item_ids: Ids
    times: NDArray[np.int64] | None = None
    shown: Impressions | None = None
    read: Read | None = None  # how the log was read
    share: Share | None = None  # of several workers; None: the whole log

    def __post_init__(self) -> None:
        self.check("a count of at least 1, and a time or none,")
        if self.shown is not None and not same_ids(self.shown, self):
            raise InputError("impressions must know the same users and items as the clicks")
        if len(self) and self.counts.min() < 1:
            raise InputError("clicks need a count of at least 1 for each pair")
        if self.share is not None:
            self.share.check(self.n_users, self.n_items)

    @staticmethod
    def from_pairs(
        users: NDArray[Any],
        items: NDArray[Any],
        *,
        user_ids: Ids,
        item_ids: Ids,
        counts: NDArray[Any] | None = None,
        times: NDArray[Any] | None = None,
        shown: Impressions | None = None,
        read: Read | None = None,
    ) -> "Clicks":
        """Clicks from pairs of indices in any order; repeated pairs are merged and counted."""
        keys, last = row_keys(users, items, user_ids, item_ids, what="clicks"), None
        if counts is None and times is None:
            keys, merged = np.unique(keys, return_counts=True)
        else:
            keys, place = np.unique(keys, return_inverse=True)
            merged = np.bincount(place, weights=counts, minlength=len(keys))
        if len(merged) and merged.max() >= 2**31:
            raise InputError(f"a pair is clicked {merged.max():.0f} times, 2,147,483,647 at most")
        if times is not None:
            last = np.full(len(keys), np.iinfo(np.int64).min)
            np.maximum.at(last, place, np.asarray(times, dtype=np.int64))
        pairs, ids = pairs_of(keys, len(item_ids)), (user_ids, item_ids)
        return Clicks(*pairs, merged.astype(np.int32), *ids, last, shown, read)

    @staticmethod
    def stored(
        users: Indices,
        items: Indices,
        counts: Indices,
        user_start: NDArray[np.int64],
        *,
        user_ids: Ids,
        item_ids: Ids,
        share: Share | None = None,
    ) -> "Clicks":
        """Clicks in a memory-mapped file, not checked yet: see `checked`."""
        clicks = object.__new__(Clicks)
        clicks.__dict__.update(
            users=users,
            items=items,
            counts=counts,
            _stored_start=user_start,
            user_ids=user_ids,
            item_ids=item_ids,
            times=None,
            shown=None,
            read=None,
            share=share,
            _in_memory=False,
        )
        return clicks

    @cached_property
    def _in_memory(self) -> bool:
        return True

    def checked(self) -> "Clicks":
        """These clicks in memory and checked: itself, unless they were `stored`."""
        return self if self._in_memory else self._checked

    @cached_property
    def _checked(self) -> "Clicks":
        users, items, counts = (np.array(c) for c in (self.users, self.items, self.counts))
        clicks = Clicks(users, items, counts, self.user_ids, self.item_ids, share=self.share)
        if not np.array_equal(clicks.user_start, self.user_start):
            raise InputError("clicks must begin for each user where user_start says")
        return clicks

    def card(self) -> Card:
        """Sizes, the clicks of each item, and the first rows."""
        log = self.checked()
        counts = np.sort(log.item_counts)[::-1]
        columns: dict[str, NDArray[Any]] = {"clicks": log.counts}
        facts: dict[str, Any] = {}
        if log.times is not None and len(log):
            columns["time"] = log.times.astype("datetime64[s]")
            facts["time"] = f"{columns['time'].min()} … {columns['time'].max()}"
        if log.shown is not None:
            facts["impressions"] = len(log.shown)
        if log.read is not None:
            facts["read"] = log.read
        curve = Curve("clicks of each item, the most clicked first", counts.tolist())
        return log.card_of(columns, facts, [curve])

    def frame(self, library: Library = "polars") -> Any:
        """The clicks as a frame of raw ids: user, item, clicks, and time if it is known."""
        import polars as pl

        log = self.checked()
        columns = {
            "user": column(log.user_ids.values[log.users]),
            "item": column(log.item_ids.values[log.items]),
            "clicks": pl.Series(log.counts),
        }
        if log.times is not None:
            columns["time"] = pl.Series(log.times.astype("datetime64[s]").astype("datetime64[ms]"))
        return as_frame(pl.DataFrame(columns), library)

    @property
    def n_clicks(self) -> int:
        """How many pairs the whole log has: as many as these clicks, unless workers divide it."""
        return len(self) if self.share is None else self.share.n_clicks

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The number of each click in the whole log, ordered by user and item."""
        number = np.arange(len(self))
        if self.share is None:
            return number
        log = self.checked()
        return number + (self.share.first_click - log.user_start[:-1])[log.users]

    @cached_property
    def keys(self) -> NDArray[np.int64]:
        """The pairs as sorted numbers, for membership by binary search."""
        log = self.checked()
        return log.keys if log is not self else super().keys

    @cached_property
    def user_start(self) -> NDArray[np.int64]:
        """Where each user's clicks begin; one entry more than there are users."""
        if self._in_memory:
            return np.searchsorted(self.users, np.arange(self.n_users + 1))
        start: NDArray[np.int64] = self.__dict__["_stored_start"]
        if start[0] != 0 or start[-1] != len(self) or (start[1:] < start[:-1]).any():
            raise InputError("clicks must begin for each user where the user before ends")
        return start

    @cached_property
    def item_counts(self) -> NDArray[np.int64]:
        """How many users clicked each item, in the whole log."""
        if self.share is not None:
            return self.share.item_counts
        return np.bincount(self.checked().items, minlength=self.n_items)

    @cached_property
    def user_counts(self) -> NDArray[np.int64]:
        """How many items each user clicked."""
        return np.bincount(self.checked().users, minlength=self.n_users)

    def sum_by_user(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """The sum of a value of each item over the items that each user has clicked."""
        log = self.checked()
        sums = np.bincount(log.users, values[log.items], minlength=self.n_users)
        return sums.astype(np.float64, copy=False)

    def matrix(self) -> sp.csr_array:
        """A sparse matrix of users × items, 1 for a click."""
        ones, log = np.ones(len(self), dtype=np.float32), self.checked()
        return sp.csr_array((ones, log.items, log.user_start), shape=(self.n_users, self.n_items))

    def pick(self, chosen: NDArray[Any], workers: Workers | None = None) -> "Clicks":
        """The clicks at these positions (a mask, or ascending indices).

        Where workers divide the log, each picks among its own clicks, and all of them must.
        """
        columns = {name: column[chosen] for name, column in self.columns().items()}
        own = replace(self, **columns, share=None)
        return own if self.share is None else counted_again(own, self.share, workers)

    def pairs_alone(self) -> "Clicks":
        """The clicks without times and impressions: what a model keeps of its log."""
        return replace(self, times=None, shown=None)

    def hold_out(
        self, *, fraction: float, seed: int, workers: Workers | None = None
    ) -> tuple["Clicks", "Clicks"]:
        """The clicks without, and only, a random fraction of them (rounded down)."""
        chosen = drawn(self.n_clicks, fraction=fraction, seed=seed)
        if self.share is not None:
            chosen = chosen[self.numbers]
        return self.pick(~chosen, workers), self.pick(chosen, workers)

    def union(self, other: "Clicks", workers: Workers | None = None) -> "Clicks":
        """All clicks of both logs, which must know the same users and items."""
        if (self.share is None) != (other.share is None):
            raise InputError("workers divide one of two logs: divide both, or none")
        times = None
        if self.times is not None and other.times is not None:
            times = np.concatenate([self.times, other.times])
        both = Clicks.from_pairs(
            np.concatenate([self.users, other.users]),
            np.concatenate([self.items, other.items]),
            counts=np.concatenate([self.counts, other.counts]),
            user_ids=self.user_ids,
            item_ids=self.item_ids,
            times=times,
            shown=self.shown,
            read=self.read,
        )
        return both if self.share is None else counted_again(both, self.share, workers)


def check_clicks(given: object, *, of: str) -> None:
    """Refuse anything but clicks as the input of a method or a model."""
    if not isinstance(given, Clicks):
        raise InputError(
            f"{of} learns from Clicks, got {type(given).__name__}: "
            "read_log makes them from a file or a frame"
        )


# Ratings


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
        columns = {name: column[chosen] for name, column in self.columns().items()}
        return replace(self, **columns, shown=shown)

    def hold_out(self, *, fraction: float, seed: int) -> tuple["Ratings", "Ratings"]:
        """The ratings without, and only, a random fraction of them (rounded down)."""
        chosen = drawn(len(self), fraction=fraction, seed=seed)
        return self.pick(~chosen), self.pick(chosen)
