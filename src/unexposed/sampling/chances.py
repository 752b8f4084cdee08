"""How likely each item is to be drawn, and a table that draws it in constant time."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unexposed.compiled import STEP, Array, below, compiled, fraction, mix


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
