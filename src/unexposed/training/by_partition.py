"""What users have of their own in a training, by partition: for checkpoints and fingerprints.

So both are the same however many ranks divide the users.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from unexposed import ranks
from unexposed.data.ids import Ids
from unexposed.data.partitions import own_rows
from unexposed.files.archive import Arrays


def cut(arrays: Arrays, user_ids: Ids) -> Iterator[tuple[int, Arrays]]:
    """The rows of each partition of this rank; a table that is not in use has none."""
    for number, rows in own_rows(user_ids):
        yield number, {n: array[rows] if len(array) else array for n, array in arrays.items()}


def joined(parts: Sequence[Arrays], user_ids: Ids) -> Arrays:
    """The rows of this rank's users, from the arrays of every partition."""
    own = list(own_rows(user_ids))
    found = {}
    for name, first in parts[0].items():
        in_use = any(len(parts[number][name]) for number, _ in own)
        found[name] = np.empty((len(user_ids) * in_use, *first.shape[1:]), dtype=first.dtype)
        for number, rows in own if in_use else ():
            if parts[number][name].shape != (len(rows), *first.shape[1:]):
                raise ValueError(f"{name} of partition {number} has not the rows of its users")
            found[name][rows] = parts[number][name]
    return found


def digest(user_ids: Ids, of_rows: Callable[[NDArray[np.int64]], str]) -> str:
    """A hash of the users of all ranks, from a hash of the rows of each partition."""
    own = {number: of_rows(rows) if len(rows) else "" for number, rows in own_rows(user_ids)}
    others = ranks.current()
    every = {
        n: one for found in (others.every(own) if others else [own]) for n, one in found.items()
    }
    whole = "".join(f"{number} {every[number]}\n" for number in sorted(every))
    return hashlib.sha256(whole.encode()).hexdigest()[:16]
