"""Who clicked what, what was judged, and the raw ids behind the indices."""

import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from unexposed.errors import InputError

Indices = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Ids:
    """Raw ids in the order of their indices: int64 where all are integers, else objects."""

    values: NDArray[Any]

    def __post_init__(self) -> None:
        if self.values.dtype != object and self.values.dtype != np.int64:
            raise InputError(f"ids must be int64 or object arrays, got {self.values.dtype}")

    @staticmethod
    def of(raw: Iterable[Hashable]) -> "Ids":
        """Ids from distinct raw values, in the order given."""
        raw = list(raw)
        if all(_is_int64(r) for r in raw):
            return Ids(np.array(raw, dtype=np.int64))
        values = np.empty(len(raw), dtype=object)
        values[:] = raw
        return Ids(values)

    @staticmethod
    def range(n: int) -> "Ids":
        return Ids(np.arange(n, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ids) and (
            self is other or bool(np.array_equal(self.values, other.values))
        )

    @property
    def are_integers(self) -> bool:
        return self.values.dtype == np.int64

    @cached_property
    def _position(self) -> dict[Hashable, int]:
        return {raw: index for index, raw in enumerate(self.values.tolist())}

    def index(self, raw: Iterable[Hashable]) -> Indices:
        """The index of each raw id, −1 for one never seen."""
        if self.are_integers and isinstance(raw, np.ndarray) and raw.dtype.kind in "iu":
            return self._index_integers(raw)
        position = self._position
        return np.array([position.get(r, -1) for r in raw], dtype=np.int32)

    def _index_integers(self, raw: NDArray[Any]) -> Indices:
        order = np.argsort(self.values, kind="stable")
        if len(order) == 0:
            return np.full(len(raw), -1, dtype=np.int32)
        place = np.searchsorted(self.values, raw, sorter=order).clip(max=len(order) - 1)
        found = order[place]
        return np.where(self.values[found] == raw, found, -1).astype(np.int32)

    def parse(self, texts: Sequence[str]) -> list[Hashable]:
        """Raw ids from text, as they come from a file or a command line."""
        if not self.are_integers:
            return list(texts)
        return [int(t) if re.fullmatch("0|-?[1-9][0-9]{0,17}", t) else t for t in texts]


def _is_int64(raw: Hashable) -> bool:
    whole = type(raw) is int or isinstance(raw, np.integer)
    return whole and -(2**63) <= raw < 2**63  # type: ignore[operator]


class HasIds(Protocol):
    """Anything that knows users and items by raw id: clicks, judgements, a fitted model."""

    @property
    def user_ids(self) -> Ids: ...

    @property
    def item_ids(self) -> Ids: ...


def pair_keys(users: NDArray[Any], items: NDArray[Any], n_items: int) -> NDArray[np.int64]:
    """One number for each pair, ordered by user, then item."""
    return users.astype(np.int64) * n_items + items


@dataclass(frozen=True, eq=False)
class Clicks:
    """The clicked pairs, ordered by user and item, each once, with how often it was clicked.

    A pair that is not here is unknown: never shown, or shown and not liked.
    """

    users: Indices
    items: Indices
    counts: Indices
    user_ids: Ids
    item_ids: Ids

    def __post_init__(self) -> None:
        _check_pairs(self.users, self.items, self.user_ids, self.item_ids, what="clicks")
        if self.counts.shape != self.users.shape or (len(self.counts) and self.counts.min() < 1):
            raise InputError("clicks need a count of at least 1 for each pair")

    @staticmethod
    def from_pairs(
        users: NDArray[Any],
        items: NDArray[Any],
        *,
        user_ids: Ids,
        item_ids: Ids,
        counts: NDArray[Any] | None = None,
    ) -> "Clicks":
        """Clicks from pairs of indices in any order; repeated pairs are merged and counted."""
        n_items = max(len(item_ids), 1)
        keys = pair_keys(np.asarray(users), np.asarray(items), n_items)
        if counts is None:
            keys, merged = np.unique(keys, return_counts=True)
        else:
            keys, place = np.unique(keys, return_inverse=True)
            merged = np.bincount(place, weights=counts, minlength=len(keys))
        return Clicks(
            (keys // n_items).astype(np.int32),
            (keys % n_items).astype(np.int32),
            merged.astype(np.int32),
            user_ids,
            item_ids,
        )

    def __len__(self) -> int:
        return len(self.users)

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
        """Where each user's clicks begin; one entry more than there are users."""
        return np.searchsorted(self.users, np.arange(self.n_users + 1))

    @cached_property
    def item_counts(self) -> NDArray[np.int64]:
        """How many users clicked each item."""
        return np.bincount(self.items, minlength=self.n_items)

    @cached_property
    def user_counts(self) -> NDArray[np.int64]:
        """How many items each user clicked."""
        return np.bincount(self.users, minlength=self.n_users)

    def contain(self, users: NDArray[Any], items: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each pair was clicked."""
        if len(self) == 0:
            return np.zeros(len(users), dtype=bool)
        wanted = pair_keys(users, items, self.n_items)
        place = np.searchsorted(self.keys, wanted).clip(max=len(self) - 1)
        return self.keys[place] == wanted

    def matrix(self) -> sp.csr_array:
        """Users × items, sparse, 1 for a click."""
        ones = np.ones(len(self), dtype=np.float32)
        return sp.csr_array((ones, self.items, self.user_start), shape=(self.n_users, self.n_items))

    def pick(self, chosen: NDArray[Any]) -> "Clicks":
        """The clicks at these positions (a mask, or ascending indices)."""
        return replace(
            self, users=self.users[chosen], items=self.items[chosen], counts=self.counts[chosen]
        )

    def hold_out(self, *, fraction: float, seed: int) -> tuple["Clicks", "Clicks"]:
        """The clicks without, and only, a random fraction of them (rounded down)."""
        if not 0 <= fraction < 1:
            raise InputError(f"the held-out fraction must lie in [0, 1), got {fraction}")
        chosen = np.zeros(len(self), dtype=bool)
        order = np.random.default_rng(seed).permutation(len(self))
        chosen[order[: int(len(self) * fraction)]] = True
        return self.pick(~chosen), self.pick(chosen)

    def union(self, other: "Clicks") -> "Clicks":
        """All clicks of both, which know the same users and items."""
        return Clicks.from_pairs(
            np.concatenate([self.users, other.users]),
            np.concatenate([self.items, other.items]),
            counts=np.concatenate([self.counts, other.counts]),
            user_ids=self.user_ids,
            item_ids=self.item_ids,
        )


@dataclass(frozen=True, eq=False)
class Judgements:
    """Pairs whose relevance is known, because their exposure was: the test labels."""

    users: Indices
    items: Indices
    relevant: NDArray[np.bool_]
    user_ids: Ids
    item_ids: Ids

    def __post_init__(self) -> None:
        _check_pairs(self.users, self.items, self.user_ids, self.item_ids, what="judgements")
        if self.relevant.shape != self.users.shape or self.relevant.dtype != bool:
            raise InputError("judgements need one bool for each pair")

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
        n_items = max(len(item_ids), 1)
        keys = pair_keys(np.asarray(users), np.asarray(items), n_items)
        keys, place = np.unique(keys, return_inverse=True)
        ever = np.zeros(len(keys), dtype=bool)
        np.logical_or.at(ever, place, np.asarray(relevant, dtype=bool))
        return Judgements(
            (keys // n_items).astype(np.int32),
            (keys % n_items).astype(np.int32),
            ever,
            user_ids,
            item_ids,
        )

    def __len__(self) -> int:
        return len(self.users)

    def pick(self, chosen: NDArray[Any]) -> "Judgements":
        """The judgements at these positions (a mask, or ascending indices)."""
        return replace(
            self, users=self.users[chosen], items=self.items[chosen], relevant=self.relevant[chosen]
        )


@dataclass(frozen=True, eq=False)
class Ratings:
    """Explicit ratings of distinct pairs: what data sets hold before a threshold makes clicks."""

    users: Indices
    items: Indices
    values: NDArray[np.float32]
    user_ids: Ids
    item_ids: Ids

    def __post_init__(self) -> None:
        if not len(self.users) == len(self.items) == len(self.values):
            raise InputError("ratings need one user, item and value each")
        if not np.isfinite(self.values).all():
            raise InputError("ratings must be finite numbers")

    def __len__(self) -> int:
        return len(self.users)

    def clicks(self, *, threshold: float) -> Clicks:
        """The pairs rated at least this; the others stay unknown."""
        liked = self.values >= threshold
        return Clicks.from_pairs(
            self.users[liked], self.items[liked], user_ids=self.user_ids, item_ids=self.item_ids
        )

    def judgements(self, *, threshold: float) -> Judgements:
        """Every rated pair, relevant if rated at least this."""
        return Judgements.from_pairs(
            self.users,
            self.items,
            self.values >= threshold,
            user_ids=self.user_ids,
            item_ids=self.item_ids,
        )


@dataclass(frozen=True, eq=False)
class Split:
    """What a method trains on, what chooses its epoch and settings, and what judges it."""

    train: Clicks
    held_out: Clicks
    judged: Judgements

    def __post_init__(self) -> None:
        for part in (self.held_out, self.judged):
            same = part.user_ids == self.train.user_ids and part.item_ids == self.train.item_ids
            if not same:
                raise InputError("the parts of a split must know the same users and items")
        if self.train.contain(self.held_out.users, self.held_out.items).any():
            raise InputError("held-out clicks must not be among the training clicks")


def _check_pairs(
    users: Indices, items: Indices, user_ids: Ids, item_ids: Ids, *, what: str
) -> None:
    if users.shape != items.shape or users.ndim != 1:
        raise InputError(f"{what} need as many users as items")
    if len(users) == 0:
        return
    if users.min() < 0 or users.max() >= len(user_ids):
        raise InputError(f"{what} have a user index outside 0 … {len(user_ids) - 1}")
    if items.min() < 0 or items.max() >= len(item_ids):
        raise InputError(f"{what} have an item index outside 0 … {len(item_ids) - 1}")
    if (np.diff(pair_keys(users, items, len(item_ids))) <= 0).any():
        raise InputError(f"{what} must be ordered by user and item without repeats: use from_pairs")
