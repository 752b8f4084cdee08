"""The compiled loops outside the engines: drawing samples, ranking, the best of a catalogue.

Import it where a loop is called: numba is slow to start. A loop is compiled at its first call on
a machine and kept on disk. The same arguments give the same bits, for any number of threads.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numba
import numpy as np

from unexposed.kernel_cache import cached

F = TypeVar("F", bound=Callable[..., Any])
Array = Any

CORES: int = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
PART = 32_768  # samples shuffled at a time: they fit into a core's own cache
CHUNK = 256  # scores looked at together: most chunks hold none that is good enough

# of splitmix64, and of `recommender.pair_hash`, whose numbers `tie_break` repeats here
STEP = np.uint64(0x9E3779B97F4A7C15)
ITEM_STEP = np.uint64(0xD1B54A32D192ED03)
SALT = np.uint64(0x5EED * 0x8CB92BA72F3D8DD7 % 2**64)
FACTOR_1, FACTOR_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)
EXCESS_BITS = np.uint64(11)  # of 64, beyond those of a float64


def compiled(function: F) -> F:
    njit: Any = numba.njit
    return cached(njit(nogil=True, error_model="numpy", cache=True), function)


@compiled
def mix(x: Any) -> Any:
    """The finaliser of splitmix64: 64 bits that look random, other ones for every x."""
    x = (x ^ (x >> SHIFTS[0])) * FACTOR_1
    x = (x ^ (x >> SHIFTS[1])) * FACTOR_2
    return x ^ (x >> SHIFTS[2])


@compiled
def below(n: int, bits: Any) -> int:
    """A number from 0 … n − 1, uniform (to within n / 2⁵³) where the bits are."""
    return np.int64(np.int64(bits >> EXCESS_BITS) * 2.0**-53 * n)  # type: ignore[return-value]


@compiled
def random_bits(seed: Any, turn: int) -> Any:
    """The bits of this turn: whoever asks, and when, they are the same (splitmix64)."""
    return mix(seed + np.uint64(turn + 1) * STEP)


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


@compiled
def tie_break(user: int, item: int) -> Any:
    """As `recommender.tie_break`."""
    return mix(np.uint64(user) * STEP + np.uint64(item) * ITEM_STEP + SALT)


@compiled
def stands_before(rival: int, item: int, row: Array, user: int) -> bool:
    """Whether the rival is ranked above the item, by the scores of the user's row."""
    return row[rival] > row[item] or (
        row[rival] == row[item] and tie_break(user, rival) < tie_break(user, item)
    )


@compiled
def ranks(
    block: Array, rows: Array, items: Array, users: Array, user_start: Array, clicked: Array
) -> Array:
    """The rank of each wanted item in its row, among all items that the row's user left unclicked.

    1 + all items that stand before it − the clicked ones that do.
    """
    found = np.empty(len(rows), dtype=np.int64)
    for n in range(len(rows)):
        row, item, user = block[rows[n]], items[n], users[rows[n]]
        score = row[item]
        before = equal = 0
        for rival in range(len(row)):
            before += row[rival] > score
            equal += row[rival] == score
        first, stop = user_start[user], user_start[user + 1]
        if equal == 1:  # itself
            for click in range(first, stop):
                before -= row[clicked[click]] > score
        else:
            before = 0
            for rival in range(len(row)):
                before += stands_before(rival, item, row, user)
            for click in range(first, stop):
                before -= stands_before(clicked[click], item, row, user)
        found[n] = 1 + before
    return found


def best(block: Array, users: Array, k: int, *, threads: int | None = None) -> tuple[Array, Array]:
    """The k best columns of each row, best first, and their scores; −1 where only −∞ is left.

    What is not a number is never among them.
    """
    items = np.full((len(block), k), -1, dtype=np.int32)
    scores = np.full((len(block), k), -np.inf, dtype=np.float32)
    threads = max(1, min(threads or CORES, len(block)))
    bounds = [len(block) * share // threads for share in range(threads + 1)]

    def share(number: int) -> None:
        fill_best(items, scores, block, users, *bounds[number : number + 2])

    if threads == 1:
        share(0)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(share, range(threads)))
    return items, scores


@compiled
def fill_best(
    items: Array, scores: Array, block: Array, users: Array, first: int, stop: int
) -> None:
    """The best of these rows: a heap with the worst of the best at its root, then sorted."""
    k = items.shape[1]
    for number in range(first, stop):
        row, user, heap, worth = block[number], users[number], items[number], scores[number]
        size = 0
        for begin in range(0, len(row), CHUNK):
            chunk = row[begin : begin + CHUNK]  # a slice: its loop runs many entries at a time
            if size == k:
                good = 0
                for at in range(len(chunk)):
                    good += chunk[at] >= worth[0]
                if good == 0:
                    continue
            for at in range(len(chunk)):
                score, item = chunk[at], begin + at
                if size < k and score > -np.inf:
                    heap[size], worth[size] = item, score
                    rise(heap, worth, size, user)
                    size += 1
                elif size == k and follows(heap[0], worth[0], item, score, user):
                    heap[0], worth[0] = item, score
                    sink(heap, worth, k, user)
        for last in range(size - 1, 0, -1):
            swap(heap, worth, 0, last)
            sink(heap, worth, last, user)


@compiled
def follows(item: int, score: float, rival: int, rival_score: float, user: int) -> bool:
    """Whether the item is ranked below the rival."""
    return score < rival_score or (
        score == rival_score and tie_break(user, item) > tie_break(user, rival)
    )


@compiled
def rise(heap: Array, worth: Array, at: int, user: int) -> None:
    """Move the entry up until it stands below a worse one."""
    while at > 0:
        parent = (at - 1) // 2
        if not follows(heap[at], worth[at], heap[parent], worth[parent], user):
            return
        swap(heap, worth, at, parent)
        at = parent


@compiled
def sink(heap: Array, worth: Array, size: int, user: int) -> None:
    """Move the root down until both below it are better."""
    at = 0
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and follows(
            heap[child + 1], worth[child + 1], heap[child], worth[child], user
        ):
            child += 1
        if not follows(heap[child], worth[child], heap[at], worth[at], user):
            return
        swap(heap, worth, at, child)
        at = child


@compiled
def swap(heap: Array, worth: Array, one: int, other: int) -> None:
    heap[one], heap[other] = heap[other], heap[one]
    worth[one], worth[other] = worth[other], worth[one]
