"""Draw an epoch in compiled loops: every click in random order, with its drawn items.

An item is drawn by its chance, in constant time: by a table, by rejection, or from a list.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unexposed.compiled import CORES, STEP, Array, below, compiled, fraction, mix, random_bits
from unexposed.data.pairs import Indices

PART = 32_768  # items of the clicks shuffled at a time: they fit into a core's cache
NOWHERE = np.empty(0, dtype=np.int64)


class Chances(NamedTuple):
    """The chance q of every item, with the alias table of Walker (1977).

    A place of the table is drawn uniformly; it gives its own item with the probability `keep`,
    else `alias`. All three are empty where every item is as likely.
    """

    of_item: NDArray[np.float64]  # q, with sum 1
    keep: NDArray[np.float64]
    alias: NDArray[np.int32]

    @property
    def uniform(self) -> bool:
        return len(self.of_item) == 0


def chances(item_counts: NDArray[Any], exponent: float) -> Chances:
    """q ∝ clicks^exponent; an item without clicks counts as one with a single click.

    So every item can be drawn, and has a finite weight.
    """
    if exponent == 0:
        return Chances(np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int32))
    share = np.maximum(item_counts, 1).astype(np.float64) ** exponent
    share /= share.sum()
    return Chances(share, *alias_table(share))


EVEN = chances(np.zeros(0), 0.0)


@compiled
def alias_table(share: Array) -> tuple[Array, Array]:
    """Vose's (1991) construction: items short of 1 / n are filled up by items above it."""
    n = len(share)
    keep, alias = share * n, np.arange(n).astype(np.int32)
    waiting = np.empty(n, dtype=np.int64)  # the short from the front, the long from the back
    n_short, n_long = 0, 0
    for item in range(n):
        if keep[item] < 1:
            waiting[n_short] = item
            n_short += 1
        else:
            n_long += 1
            waiting[n - n_long] = item
    while n_short > 0 and n_long > 0:
        n_short -= 1
        short, long = waiting[n_short], waiting[n - n_long]
        alias[short] = long
        keep[long] -= 1 - keep[short]
        if keep[long] < 1:
            n_long -= 1
            waiting[n_short] = long
            n_short += 1
    keep[waiting[:n_short]] = 1  # what rounding left
    keep[waiting[n - n_long :]] = 1
    return keep, alias


@compiled
def list_unclicked(
    room: Array, clicked_by: Array, user: int, clicked: Array, always: bool, law: Chances
) -> int:
    """Write the items that a user has not clicked into `room`; return how many were written.

    Unless they are `always` wanted, do so only where more than half of the draws would give a
    clicked item: there rejection would take long.
    """
    n_items, n_listed, rejected = len(clicked_by), 0, 0.0
    if len(law.keep) == 0:
        rejected = len(clicked) / n_items
    else:
        for item in clicked:
            rejected += law.of_item[item]
    if always or rejected > 0.5:
        for item in range(n_items):
            if clicked_by[item] != user:
                room[n_listed] = item
                n_listed += 1
    return n_listed


@compiled
def add_up(sums: Array, listed: Array, law: Chances) -> Array:
    """The chances of the listed items, each with those before it; empty where all are alike."""
    if len(law.keep) == 0:
        return sums[:0]
    total = 0.0
    for n in range(len(listed)):
        total += law.of_item[listed[n]]
        sums[n] = total
    return sums[: len(listed)]


# Three ways to draw an item. A caller chooses: one function of all their arrays would be ten times
# slower, for it would count references to each of them in every draw.


@compiled
def draw_evenly(listed: Array, clicked_by: Array, user: int, bits: Any) -> tuple[int, Any]:
    """An item of the list or, where it is empty, one that the user has not clicked.

    Also return the random bits used last. `clicked_by` names the last user to click each item.
    """
    if len(listed):
        return listed[below(len(listed), bits)], bits
    item = below(len(clicked_by), bits)
    while clicked_by[item] == user:
        bits = mix(bits + STEP)
        item = below(len(clicked_by), bits)
    return item, bits


@compiled
def draw_by_table(
    clicked_by: Array, user: int, keep: Array, alias: Array, bits: Any
) -> tuple[int, Any]:
    """An item by its chance, drawn again while the user has clicked it; and the bits used last."""
    item = place_or_alias(keep, alias, bits)
    while clicked_by[item] == user:
        bits = mix(bits + STEP)
        item = place_or_alias(keep, alias, bits)
    return item, bits


@compiled
def draw_from_list(listed: Array, sums: Array, bits: Any) -> int:
    """An item of the list by its chance."""
    value, low, high = fraction(bits) * sums[len(sums) - 1], 0, len(sums) - 1
    while low < high:  # the first place whose sum is above the value
        middle = (low + high) // 2
        if sums[middle] > value:
            high = middle
        else:
            low = middle + 1
    return listed[low]


@compiled
def place_or_alias(keep: Array, alias: Array, bits: Any) -> int:
    """The whole part of a random number gives the place in the table, the rest the choice."""
    number = fraction(bits) * len(keep)
    place = np.int64(number)
    return place if number - place < keep[place] else np.int64(alias[place])  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class Pool:
    """The listed items of each user, with the sums of their chances; a list may be empty."""

    user_start: NDArray[np.int64]  # (users + 1,)
    items: Indices
    sums: NDArray[Any]  # (items + 1,): whole numbers where all are alike

    @staticmethod
    def of(users: Indices, items: Indices, *, n_users: int, law: Chances) -> "Pool":
        """The lists of these pairs, which are ordered by user."""
        start = np.searchsorted(users, np.arange(n_users + 1))
        if law.uniform:
            return Pool(start, items, np.arange(len(items) + 1))
        return Pool(start, items, np.concatenate([[0.0], np.cumsum(law.of_item[items])]))

    def redrawn(
        self,
        users: Indices,
        start: NDArray[np.int64],
        items: Indices,
        rng: np.random.Generator,
    ) -> Indices:
        """The items of samples, each drawn one replaced by an item of its user's list.

        A user with an empty list keeps the items that were drawn.
        """
        drawn = np.ones(len(items), dtype=bool)
        drawn[start[:-1]] = False
        of = np.repeat(users, np.diff(start) - 1)
        first, end = self.user_start[of], self.user_start[of + 1]
        value = self.sums[first] + rng.random(len(of)) * (self.sums[end] - self.sums[first])
        at = np.floor(value) if self.sums.dtype.kind == "i" else self._place(value)
        listed = first < end
        at = np.clip(at.astype(np.int64), first, end - 1)[listed]  # clipped: what rounding moved
        found = items[drawn]
        found[listed] = self.items[at]
        out = items.copy()
        out[drawn] = found
        return out

    def _place(self, value: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.searchsorted(self.sums, value, side="right") - 1


# an epoch ---------------------------------------------------------------------------------------


def samples(
    items: Array,
    user_start: Array,
    n_items: int,
    negatives: int,
    everything: bool = False,
    *,
    law: Chances = EVEN,
    seed: np.uint64,
    threads: int | None = None,
) -> tuple[Array, Array]:
    """Every click once, in a uniformly random order: users (n), items (n, 1 + negatives).

    The clicked item comes first, then items drawn by `law` from the items that its user has not
    clicked, −1 where there are none; or from `everything`.

    The order follows Rao (1961) and Sandelius (1962): send each click to a random part, then
    shuffle every part. Memory access stays local, and threads share the work: each has its own
    users, then its own parts.
    """
    n, width = int(user_start[-1]), 1 + negatives
    n_parts = n * width // PART + 1
    threads = min(threads or CORES, n_parts)
    shares = np.arange(threads + 1)
    users = np.searchsorted(user_start, n * shares // threads)  # the first of each share
    parts = n_parts * shares // threads
    found_users = np.empty(n, dtype=np.int32)
    found = np.empty((n, width), dtype=np.int32)
    with ThreadPoolExecutor(threads) as pool:

        def each(work: Callable[[int], Any]) -> list[Any]:
            return list((pool.map if threads > 1 else map)(work, range(threads)))

        counts = np.array(
            each(lambda t: part_counts(n_parts, seed, *user_start[users[t : t + 2]]))
        )  # (threads, parts)
        end = np.cumsum(counts.T).reshape(n_parts, threads)  # a share follows another in each part
        part_start = np.concatenate([[0], end[:, -1]])
        place = np.ascontiguousarray(end.T) - counts
        given = (items, user_start, user_start, n, n_items, everything, law, seed)
        each(lambda t: fill(found_users, found, place[t], NOWHERE, *given, *users[t : t + 2]))
        each(lambda t: shuffle(found_users, found, part_start, seed, *parts[t : t + 2]))
    return found_users, found


@compiled
def part_counts(n_parts: int, seed: Any, first: int, stop: int) -> Array:
    """How many of these clicks go to each part."""
    counts = np.zeros(n_parts, dtype=np.int64)
    for click in range(first, stop):
        counts[below(n_parts, random_bits(seed, click))] += 1
    return counts


@compiled
def fill(
    found_users: Array,
    found: Array,
    place: Array,  # (parts): where the next click goes
    at: Array,  # (clicks): where each click goes, if that is known; else empty
    items: Array,
    user_start: Array,
    first_click: Array,  # (users): the number of each user's first click in the whole log
    n: int,  # clicks of the whole log
    n_items: int,
    everything: bool,
    law: Chances,
    seed: Any,
    first_user: int,
    stop_user: int,
) -> None:
    """Put the clicks of these users, with drawn items, into random parts."""
    width = found.shape[1]
    clicked_by = np.full(n_items, -1, dtype=np.int32)
    even, keep, alias = len(law.keep) == 0, law.keep, law.alias
    room, room_for_sums = np.empty(n_items, dtype=np.int32), np.empty(len(law.of_item))
    for user in range(first_user, stop_user):
        first, stop = user_start[user], user_start[user + 1]
        avoided = items[first:first] if everything else items[first:stop]
        clicked_by[avoided] = user
        listed = room[: list_unclicked(room, clicked_by, user, avoided, False, law)]
        sums = add_up(room_for_sums, listed, law)
        for click in range(first, stop):
            turn = first_click[user] + click - first
            if len(at):
                row = at[click]
            else:
                part = below(len(place), random_bits(seed, turn))
                row = place[part]
                place[part] = row + 1
            found_users[row], found[row, 0] = user, items[click]
            bits = random_bits(seed, n + turn)
            for number in range(1, width):
                found[row, number] = -1
                if len(avoided) < n_items:
                    bits = mix(bits + STEP)
                    if even:
                        item, bits = draw_evenly(listed, clicked_by, user, bits)
                    elif len(sums):
                        item = draw_from_list(listed, sums, bits)
                    else:
                        item, bits = draw_by_table(clicked_by, user, keep, alias, bits)
                    found[row, number] = item


@compiled
def fill_alone(
    found: Array,
    step: Array,  # (epochs, clicks): the step of its epoch that each click goes to
    start: Array,  # (epochs × clicks + 1): where the items of each begin, its own first
    items: Array,
    user_start: Array,
    n_items: int,
    everything: bool,
    every_pair: bool,
    law: Chances,
    steps: int,
    seed: Any,
) -> None:
    """Draw the items of every click of some epochs; each user starts from the same random bits.

    Where `every_pair` is wanted, a user's unclicked items are dealt out in random order.
    """
    clicked_by = np.full(n_items, -1, dtype=np.int32)
    even, keep, alias = len(law.keep) == 0, law.keep, law.alias
    room, room_for_sums = np.empty(n_items, dtype=np.int32), np.empty(len(law.of_item))
    for user in range(len(user_start) - 1):
        first, stop = user_start[user], user_start[user + 1]
        avoided = items[first:first] if everything else items[first:stop]
        clicked_by[avoided] = user
        listed = room[: list_unclicked(room, clicked_by, user, avoided, every_pair, law)]
        sums = add_up(room_for_sums, listed, law)
        bits = seed
        for epoch in range(len(step)):
            n_dealt = 0
            for click in range(first, stop):
                begin = start[epoch * len(items) + click]
                found[begin] = items[click]
                for at in range(begin + 1, start[epoch * len(items) + click + 1]):
                    bits = mix(bits + STEP)
                    if every_pair:  # shuffle the list as it is dealt out
                        other = n_dealt + below(len(listed) - n_dealt, bits)
                        listed[n_dealt], listed[other] = listed[other], listed[n_dealt]
                        found[at] = listed[n_dealt]
                        n_dealt += 1
                    elif even:
                        found[at], bits = draw_evenly(listed, clicked_by, user, bits)
                    elif len(sums):
                        found[at] = draw_from_list(listed, sums, bits)
                    else:
                        found[at], bits = draw_by_table(clicked_by, user, keep, alias, bits)
            for click in range(first, stop):
                bits = mix(bits + STEP)
                step[epoch, click] = below(steps, bits)


@compiled
def shuffle(
    users: Array, items: Array, part_start: Array, seed: Any, first_part: int, stop_part: int
) -> None:
    """Fisher and Yates' shuffle of the clicks within each of these parts."""
    for part in range(first_part, stop_part):
        begin = part_start[part]
        for last in range(part_start[part + 1] - 1, begin, -1):
            other = begin + below(last - begin + 1, random_bits(seed, 2 * len(users) + last))
            users[last], users[other] = users[other], users[last]
            for k in range(items.shape[1]):
                items[last, k], items[other, k] = items[other, k], items[last, k]
