"""The compiled loops that draw an epoch: every click in random order, with its drawn items."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from unexposed.compiled import CORES, STEP, Array, below, compiled, mix, random_bits

PART = 32_768  # samples shuffled at a time: they fit into a core's own cache


def samples(
    items: Array,
    user_start: Array,
    n_items: int,
    negatives: int,
    everything: bool = False,
    *,
    seed: np.uint64,
    threads: int | None = None,
) -> tuple[Array, Array]:
    """Every click once, in random order, each order as likely: users (n), items (n, 1 + negatives).

    The clicked item comes first, then items drawn uniformly from those that its user has not
    clicked, −1 where there are none; or from `everything`.

    The order follows Rao (1961) and Sandelius (1962): send each click to a part by chance, then
    shuffle every part. Neither reaches far in memory, and threads can share the work: each has
    its own users, then its own parts.
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
        log = (items, user_start, n_items)
        each(
            lambda t: fill(found_users, found, place[t], *log, everything, seed, *users[t : t + 2])
        )
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
    items: Array,
    user_start: Array,
    n_items: int,
    everything: bool,
    seed: Any,
    first_user: int,
    stop_user: int,
) -> None:
    """Put the clicks of these users, with drawn items, into the parts that chance sends them to."""
    n, width = found.shape
    last_clicked_by = np.full(n_items, -1, dtype=np.int32)
    unclicked = np.empty(n_items, dtype=np.int32)
    for user in range(first_user, stop_user):
        first, stop = user_start[user], user_start[user + 1]
        for click in range(first, stop):
            last_clicked_by[items[click]] = user
        n_unclicked = n_items - (stop - first)
        listed = (
            2 * n_unclicked < n_items and not everything
        )  # rejection would take long: draw from a list
        if listed:
            n_listed = 0
            for item in range(n_items):
                if last_clicked_by[item] != user:
                    unclicked[n_listed] = item
                    n_listed += 1
        for click in range(first, stop):
            part = below(len(place), random_bits(seed, click))
            at = place[part]
            place[part] = at + 1
            found_users[at], found[at, 0] = user, items[click]
            bits = random_bits(seed, n + click)
            for number in range(1, width):
                bits = mix(bits + STEP)
                if listed:
                    found[at, number] = unclicked[below(n_listed, bits)] if n_listed else -1
                    continue
                item = below(n_items, bits)
                while last_clicked_by[item] == user and not everything:
                    bits = mix(bits + STEP)
                    item = below(n_items, bits)
                found[at, number] = item


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
