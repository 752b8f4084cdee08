"""What one of several ranks holds of a click log: its own users, and what it knows of the rest.

A user belongs to one rank, with all clicks (see `partitions`). Users and clicks keep the numbers
that they have in the whole log, as one process would read it, so that ranks draw and count as one
process does.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Share:
    """Where the users and clicks of this rank stand in the whole log.

    In the whole log, clicks are numbered by user and item: those of own user u are
    first_click[u], first_click[u] + 1, …
    """

    n_users: int  # of the whole log
    n_clicks: int  # pairs of the whole log
    users: NDArray[np.int64]  # (own users,): the index of each in the whole log, ascending
    first_click: NDArray[np.int64]  # (own users,)
    item_counts: NDArray[np.int64]  # (items,): how many users of the whole log clicked each
