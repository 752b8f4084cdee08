"""What one of several workers holds of a click log, and what all workers find out together.

A user belongs to one worker, with all clicks (by its partition). Users and clicks keep the numbers
that they have in the whole log, as one process would read it, so that workers draw and count as one
process does.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unexposed.data.ids import Ids, column, to_json
from unexposed.errors import InputError, plain
from unexposed.workers import Workers, in_all, summed

if TYPE_CHECKING:
    import polars as pl

    from unexposed.data.clicks import Clicks

PARTITIONS = 64  # of the users, by a hash of the raw id
BLOCK = 1 << 20  # users whose ids or counts travel at a time: no worker holds those of all
DIGIT = 8  # bits looked at in a round


@dataclass(frozen=True, eq=False)
class Share:
    """Where the users and clicks of this worker stand in the whole log.

    In the whole log, clicks are numbered by user and item: those of own user u are
    first_click[u], first_click[u] + 1, …
    """

    n_users: int  # of the whole log
    n_clicks: int  # pairs of the whole log
    users: NDArray[np.int64]  # (own users,): the index of each in the whole log, ascending
    first_click: NDArray[np.int64]  # (own users,)
    item_counts: NDArray[np.int64]  # (items,): how many users of the whole log clicked each

    def check(self, n_users: int, n_items: int) -> None:
        """Refuse the share of other users or items than these."""
        if not len(self.users) == len(self.first_click) == n_users:
            raise InputError("a share of clicks must know the place of each of its users")
        if len(self.item_counts) != n_items:
            raise InputError("a share of clicks must count every item of the whole log")


def owner(user_ids: Ids, size: int) -> NDArray[np.int64]:
    """The worker, of so many, that each user belongs to."""
    return partitions(user_ids) % size


def cut(clicks: "Clicks", workers: Workers) -> "Clicks":
    """This worker's own part of a log that every worker holds whole: none waits for another."""
    clicks = clicks.checked()
    if clicks.share is not None:
        raise InputError("these clicks are divided among workers already: cut a whole log")
    users = np.flatnonzero(owner(clicks.user_ids, workers.size) == workers.number)
    place = np.full(clicks.n_users, -1, dtype=np.int32)  # of an own user among them
    place[users] = np.arange(len(users), dtype=np.int32)
    user_ids, chosen = Ids(clicks.user_ids.values[users]), place[clicks.users] >= 0
    columns = {name: column[chosen] for name, column in clicks.columns().items()}
    shown = clicks.shown
    if shown is not None:
        shown = shown.pick(place[shown.users] >= 0)
        shown = replace(shown, users=place[shown.users], user_ids=user_ids)
    first = clicks.user_start[users]
    share = Share(clicks.n_users, len(clicks), users, first, clicks.item_counts)
    columns["users"] = place[columns["users"]]
    return replace(clicks, **columns, user_ids=user_ids, shown=shown, share=share)


# Reading


def check_divisible(part: str, ids: "pl.Series", name: str) -> None:
    """Refuse ids that workers cannot divide among them."""
    import polars as pl

    if ids.dtype == pl.Object:
        raise InputError(
            f"column {plain(name)!r} of {part} holds other ids than 64-bit integers or texts, "
            "which several workers cannot divide: write them as texts"
        )


def are_own(user_ids: "pl.Series", workers: Workers) -> "pl.Series":
    """Which rows of a part of a log are those of this worker's users."""
    import polars as pl

    every = user_ids.unique()
    plain_ids = every.cast(pl.String) if every.dtype == pl.Categorical else every
    values = plain_ids.to_numpy() if every.dtype == pl.Int64 else np.array(plain_ids, dtype=object)
    own = owner(Ids(values), workers.size) == workers.number
    return user_ids.is_in(every.filter(pl.Series(own)).implode())


def places_among_all(own: Ids, workers: Workers) -> tuple[NDArray[np.int64], int]:
    """The index of each own id among the ids of all workers, and how many there are.

    Own ids ascend, and no other worker has any of them. An id's index is its place among the own
    ones, plus how many smaller ids the others have: these pass by in blocks.
    """
    sizes = workers.every(len(own))
    between = np.zeros(len(own) + 1, dtype=np.int64)  # ids of others between two own ones
    for start in range(0, max(sizes), BLOCK):
        for worker, ids in enumerate(workers.every(own.values[start : start + BLOCK])):
            if worker != workers.number and len(own) and len(ids):
                gaps = column(own.values).search_sorted(column(ids)).to_numpy()
                np.add.at(between, gaps, 1)
    return np.arange(len(own)) + np.cumsum(between)[:-1], sum(sizes)


def counted(own: "Clicks", users: NDArray[np.int64], n_users: int, workers: Workers) -> "Clicks":
    """Clicks of own users with their share of the whole log, counted by all workers together.

    `users` are the indices of the own users among all n_users of the whole log, ascending.
    """
    first_click = before(np.bincount(own.users, minlength=len(users)), users, n_users, workers)
    item_counts = workers.sum(np.bincount(own.items, minlength=own.n_items))
    share = Share(n_users, in_all(len(own), workers), users, first_click, item_counts)
    return replace(own, share=share)


def counted_again(own: "Clicks", share: Share, workers: Workers | None) -> "Clicks":
    """Other clicks of the users of a share, counted by all workers together."""
    if workers is None:
        raise InputError(
            "clicks that workers have divided are chosen by all of them at once: do it on every "
            "worker, and give them their group, which unexposed.workers.together() opens"
        )
    return counted(own, share.users, share.n_users, workers)


# What all workers find out together


def before(
    counts: NDArray[np.int64],
    users: NDArray[np.int64],
    n_users: int,
    workers: Workers | None,
) -> NDArray[np.int64]:
    """How many things users before each own one have, in the whole log.

    `counts` are those of own users, `users` their indices in the whole log, ascending.
    """
    found, total = np.empty(len(users), dtype=np.int64), 0
    for begin in range(0, n_users, BLOCK):
        first, stop = np.searchsorted(users, (begin, begin + BLOCK))
        here = users[first:stop] - begin
        of_users = np.zeros(min(BLOCK, n_users - begin), dtype=np.int64)
        of_users[here] = counts[first:stop]
        of_users = summed(of_users, workers)
        found[first:stop] = total + (np.cumsum(of_users) - of_users)[here]
        total += int(of_users.sum())
    return found


def smallest(
    keys: NDArray[np.uint64], places: NDArray[Any], n: int, workers: Workers | None
) -> NDArray[np.bool_]:
    """Which own things are among the n smallest of all workers; ties go to the lower place.

    No two things have the same place.
    """
    if n <= 0 or in_all(len(keys), workers) <= n:
        return np.full(len(keys), n > 0)
    key, left = _nth(keys, n, workers)
    tied = np.flatnonzero(keys == key)
    chosen = keys < key
    last, _ = _nth(places[tied].astype(np.uint64), left, workers)
    chosen[tied] = places[tied] <= last
    return chosen


def _nth(keys: NDArray[np.uint64], n: int, workers: Workers | None) -> tuple[np.uint64, int]:
    """The nth smallest key of all workers, and its number among the equal ones (from 1).

    Digit by digit: the workers count how many keys have each value of the next one.
    """
    found, shifts = np.uint64(0), range(0, 64, DIGIT)
    longer = summed(np.array([np.count_nonzero(keys >> np.uint64(s)) for s in shifts]), workers)
    for shift in shifts[: max(1, int((longer > 0).sum()))][::-1]:
        digits = (keys >> np.uint64(shift)).astype(np.int64) & (2**DIGIT - 1)
        counts = summed(np.bincount(digits, minlength=2**DIGIT), workers)
        digit = int(np.searchsorted(np.cumsum(counts), n))
        n -= int(counts[:digit].sum())
        keys = keys[digits == digit]
        found = found | np.uint64(digit << shift)
    return found, n


# Partitions of the users, by raw id: what several workers divide among them


def partitions(ids: Ids) -> NDArray[np.int64]:
    """The partition of each user, the same in every log that holds the user.

    A hash of the raw id: integers by the finaliser of splitmix64, anything else by BLAKE2 of its
    text, or of its JSON where it is not a text.
    """
    if ids.are_integers:
        return (mixed(ids.values.astype(np.uint64)) % np.uint64(PARTITIONS)).astype(np.int64)
    texts = (raw if type(raw) is str else json.dumps(to_json(raw)) for raw in ids.values.tolist())
    return np.array([_hashed(text) % PARTITIONS for text in texts], dtype=np.int64)


def partitions_among(known: Ids, raw: Ids) -> NDArray[np.int64]:
    """The partition of each raw id in a log that has such users, whatever else is asked for.

    An integer counts as one among integers only: with others it is hashed as its text.
    """
    if known.are_integers and not raw.are_integers:
        found = partitions(raw)
        whole = [n for n, one in enumerate(raw.values.tolist()) if _is_integer(one)]
        found[whole] = partitions(Ids.of(raw.values[whole].tolist()))
        return found
    if raw.are_integers and not known.are_integers:
        values = np.empty(len(raw), dtype=object)
        values[:] = raw.values.tolist()
        return partitions(Ids(values))
    return partitions(raw)


def owned(workers: Workers | None) -> range:
    """The partitions of this worker; of a process that is alone, all."""
    return range(PARTITIONS) if workers is None else range(workers.number, PARTITIONS, workers.size)


def own_rows(ids: Ids, workers: Workers | None) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each partition of this worker with the rows of its users, ascending."""
    return rows_by(partitions(ids), workers)


def rows_by(
    number_of: NDArray[np.int64], workers: Workers | None
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Each partition of this worker with the places where it is named."""
    order = np.argsort(number_of, kind="stable")
    ends = np.searchsorted(number_of[order], np.arange(PARTITIONS + 1))
    return ((number, order[ends[number] : ends[number + 1]]) for number in owned(workers))


def _is_integer(raw: object) -> bool:
    return type(raw) is int and -(2**63) <= raw < 2**63


def mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
            x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x


def _hashed(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())
