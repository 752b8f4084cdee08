"""Draw an epoch in compiled loops: every click in random order, with its drawn items."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from unexposed.compiled import CORES, STEP, Array, below, compiled, mix, random_bits
from unexposed.sampling.chances import (
    EVEN,
    Chances,
    add_up,
    draw_by_table,
    draw_evenly,
    draw_from_list,
    list_unclicked,
)

PART = 32_768  # items of the clicks shuffled at a time: they fit into a core's cache
NOWHERE = np.empty(0, dtype=np.int64)


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
