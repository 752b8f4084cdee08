"""Draw one rank's clicks of an epoch in compiled loops: as `draw` does it for all of them.

The order of an epoch sends each click to a random part and shuffles every part. Both follow from
random bits of a click's number in the whole log, so a rank finds the places of its own clicks
without those of the others: it hashes the numbers of all clicks, and keeps nothing of most.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from unexposed.compiled import CORES, Array, below, compiled, random_bits
from unexposed.data.share import Share
from unexposed.sampling.chances import EVEN, Chances
from unexposed.sampling.draw import NOWHERE, PART, fill


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
    threads: int | None = None,
) -> tuple[Array, Array, Array]:
    """The own clicks among `draw.samples` of the whole log, and the place of each, ascending."""
    own, width = int(user_start[-1]), 1 + negatives
    n_parts = share.n_clicks * width // PART + 1
    threads = min(threads or CORES, n_parts)
    found_users = np.empty(own, dtype=np.int32)
    found = np.empty((own, width), dtype=np.int32)
    log, first = (user_start, share.first_click), _shares_of_work(share, threads)
    with ThreadPoolExecutor(threads) as pool:

        def each(work: Callable[[int], Any]) -> None:
            list((pool.map if threads > 1 else map)(work, range(threads)))

        at, position = _places(*log, share.n_clicks, n_parts, seed, first, each)
        given = (items, *log, share.n_clicks, n_items, everything, law, seed)
        each(lambda t: fill(found_users, found, NOWHERE, at, *given, *first.users[t : t + 2]))
    return found_users, found, position


class _First(NamedTuple):
    """The first own user and the first click of the whole log for each thread, and their ends."""

    users: Array
    clicks: Array


def _shares_of_work(share: Share, threads: int) -> _First:
    n = share.n_clicks
    users = np.searchsorted(share.first_click, n * np.arange(threads + 1) // threads)
    users[0], users[-1] = 0, len(share.users)
    clicks = np.append(share.first_click, n)[users]
    clicks[0], clicks[-1] = 0, n
    return _First(users, clicks)


def _places(
    user_start: Array,
    first_click: Array,
    n: int,
    n_parts: int,
    seed: np.uint64,
    first: _First,
    each: Callable[[Callable[[int], Any]], None],
) -> tuple[Array, Array]:
    """The row of each own click among the own clicks of the epoch, and of each row its place."""
    own, threads = int(user_start[-1]), len(first.users) - 1
    counts = np.zeros((threads, n_parts), dtype=np.int64)
    part, place = np.empty(own, dtype=np.int32), np.empty(own, dtype=np.int32)
    at, position = np.empty(own, dtype=np.int64), np.empty(own, dtype=np.int64)

    def count(t: int) -> None:
        bounds = *first.users[t : t + 2], *first.clicks[t : t + 2]
        locate(part, place, counts[t], user_start, first_click, seed, *bounds)

    each(count)
    part_start = np.concatenate([[0], np.cumsum(counts.sum(axis=0))])
    before = np.cumsum(counts, axis=0) - counts  # in the same part, of earlier threads
    for t in range(1, threads):
        mine = slice(*user_start[first.users[t : t + 2]])
        place[mine] += before[t][part[mine]].astype(np.int32)
    where = *list_by_part(part, n_parts), part_start, place
    parts = n_parts * np.arange(threads + 1) // threads
    each(lambda t: settle(at, position, *where, 2 * n, seed, *parts[t : t + 2]))
    return at, position


@compiled
def locate(
    part: Array,  # (own clicks): the part of each
    place: Array,  # (own clicks): how many clicks of this thread come before it in the part
    counts: Array,  # (parts)
    user_start: Array,
    first_click: Array,
    seed: Any,
    first_user: int,
    stop_user: int,
    first: int,
    stop: int,
) -> None:
    """Count the clicks from `first` to `stop` of the whole log by part, and note own ones."""
    n_parts, number = len(counts), first
    for user in range(first_user, stop_user):
        for other in range(number, first_click[user]):
            counts[below(n_parts, random_bits(seed, other))] += 1
        number = first_click[user]
        for click in range(user_start[user], user_start[user + 1]):
            to = below(n_parts, random_bits(seed, number))
            part[click], place[click] = to, counts[to]
            counts[to] += 1
            number += 1
    for other in range(number, stop):
        counts[below(n_parts, random_bits(seed, other))] += 1


@compiled
def list_by_part(part: Array, n_parts: int) -> tuple[Array, Array]:
    """The own clicks of each part, and where those of a part begin in this list."""
    start = np.zeros(n_parts + 1, dtype=np.int64)
    for click in range(len(part)):
        start[part[click] + 1] += 1
    start = np.cumsum(start)
    following, listed = start.copy(), np.empty(len(part), dtype=np.int64)
    for click in range(len(part)):
        listed[following[part[click]]] = click
        following[part[click]] += 1
    return listed, start


@compiled
def settle(
    at: Array,  # (own clicks): the row of each among the own clicks of the epoch
    position: Array,  # (own clicks): the place of each row among all clicks of the epoch
    listed: Array,
    own_start: Array,
    part_start: Array,
    place: Array,
    turn: int,
    seed: Any,
    first_part: int,
    stop_part: int,
) -> None:
    """Find where `draw.shuffle` puts the own clicks of these parts; `turn` is its first one."""
    largest = 0
    for part in range(first_part, stop_part):
        largest = max(largest, part_start[part + 1] - part_start[part])
    room = np.empty(largest, dtype=np.int64)
    for part in range(first_part, stop_part):
        row, begin = own_start[part], part_start[part]
        if row == own_start[part + 1]:
            continue
        size = part_start[part + 1] - begin
        room[:size] = -1  # a click of another rank
        for number in range(row, own_start[part + 1]):
            room[place[listed[number]]] = listed[number]
        for last in range(size - 1, 0, -1):
            other = below(last + 1, random_bits(seed, turn + begin + last))
            room[last], room[other] = room[other], room[last]
        for here in range(size):
            if room[here] >= 0:
                at[room[here]], position[row] = row, begin + here
                row += 1
