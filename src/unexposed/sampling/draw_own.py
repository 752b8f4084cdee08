"""Draw one worker's clicks of an epoch in compiled loops: as `draw` does it for all of them.

The order of an epoch sends each click to a random part and shuffles every part. Both follow from
random bits of a click's number in the whole log, so a worker finds the places of its own clicks
without those of the others: it hashes the numbers of all clicks, and keeps nothing of most.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from unexposed.compiled import CORES, Array, below, compiled, random_bits
from unexposed.data.share import Share
from unexposed.sampling.draw import EVEN, NOWHERE, PART, Chances, fill


def own_samples(
    items: Array,
    user_start: Array,
    n_items: int,
    negatives: int,
    everything: bool = False,
    *,
    share: Share,
    law: Chances = EVEN,
    seed: np.uint64,
) -> tuple[Array, Array, Array]:
    """The own clicks among `draw.samples` of the whole log, and the place of each, ascending."""
    own, width, n = int(user_start[-1]), 1 + negatives, share.n_clicks
    n_parts = n * width // PART + 1
    log = user_start, share.first_click
    part, place, part_start = locate(*log, n, n_parts, seed)
    at, position = settle(part, place, part_start, 2 * n, seed)
    found_users = np.empty(own, dtype=np.int32)
    found = np.empty((own, width), dtype=np.int32)
    given = (items, *log, n, n_items, everything, law, seed)
    users = np.searchsorted(user_start, own * np.arange(CORES + 1) // CORES)  # of each thread
    users[-1] = len(user_start) - 1
    with ThreadPoolExecutor(CORES) as pool:
        list(
            pool.map(
                lambda t: fill(found_users, found, NOWHERE, at, *given, *users[t : t + 2]),
                range(CORES),
            )
        )
    return found_users, found, position


@compiled
def locate(
    user_start: Array, first_click: Array, n: int, n_parts: int, seed: Any
) -> tuple[Array, Array, Array]:
    """The part of each own click, how many of all clicks come before it there, and part starts."""
    own = user_start[-1]
    part, place = np.empty(own, dtype=np.int32), np.empty(own, dtype=np.int32)
    counts, number = np.zeros(n_parts + 1, dtype=np.int64), 0
    for user in range(len(first_click)):
        for other in range(number, first_click[user]):
            counts[1 + below(n_parts, random_bits(seed, other))] += 1
        number = first_click[user]
        for click in range(user_start[user], user_start[user + 1]):
            to = below(n_parts, random_bits(seed, number))
            part[click], place[click] = to, counts[1 + to]
            counts[1 + to] += 1
            number += 1
    for other in range(number, n):
        counts[1 + below(n_parts, random_bits(seed, other))] += 1
    return part, place, np.cumsum(counts)


@compiled
def settle(
    part: Array, place: Array, part_start: Array, turn: int, seed: Any
) -> tuple[Array, Array]:
    """Where `draw.shuffle` puts the own clicks; `turn` is the first one of its random bits.

    The row of each own click among the own clicks of the epoch, and of each row its place among
    all of them.
    """
    own, n_parts = len(part), len(part_start) - 1
    start = np.zeros(n_parts + 1, dtype=np.int64)  # the own clicks of each part, listed
    for click in range(own):
        start[part[click] + 1] += 1
    start = np.cumsum(start)
    following, listed = start.copy(), np.empty(own, dtype=np.int64)
    for click in range(own):
        listed[following[part[click]]] = click
        following[part[click]] += 1
    at, position = np.empty(own, dtype=np.int64), np.empty(own, dtype=np.int64)
    room = np.empty(np.max(np.diff(part_start)), dtype=np.int64)
    for here in range(n_parts):
        row, begin = start[here], part_start[here]
        if row == start[here + 1]:
            continue
        size = part_start[here + 1] - begin
        room[:size] = -1  # a click of another worker
        for number in range(row, start[here + 1]):
            room[place[listed[number]]] = listed[number]
        for last in range(size - 1, 0, -1):
            other = below(last + 1, random_bits(seed, turn + begin + last))
            room[last], room[other] = room[other], room[last]
        for to in range(size):
            if room[to] >= 0:
                at[room[to]], position[row] = row, begin + to
                row += 1
    return at, position
