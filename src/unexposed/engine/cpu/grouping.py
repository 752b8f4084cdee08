"""Group equal keys, and share the groups out over threads."""

from unexposed.engine.cpu.compile import Array, jit, prefetch

FAR_AHEAD = 16  # keys between the current one and the one prefetched


@jit
def group(
    keys: Array, n: int, place: Array, rows: Array, start: Array, number: Array, order: Array
) -> int:
    """Group the positions 0 … n − 1 by their key, in the order in which keys first come.

    Group g has the key rows[g] and the positions order[start[g] : start[g + 1]]; position k is in
    group number[k]. `start` needs room for two more than there are groups. `place` is −1 for
    every key, before and after. Return the number of groups.
    """
    n_rows = 0
    start[0] = start[1] = 0
    for k in range(n):
        prefetch(place, keys[min(k + FAR_AHEAD, n - 1)])
        key = keys[k]
        g = place[key]
        if g < 0:
            g = n_rows
            place[key] = g
            rows[g] = key
            start[g + 2] = 0
            n_rows += 1
        number[k] = g
        start[g + 2] += 1
    for g in range(n_rows):
        start[g + 2] += start[g + 1]
        place[rows[g]] = -1
    for k in range(n):  # start[g + 1] is where the next position of group g goes
        g = number[k] + 1
        order[start[g]] = k
        start[g] += 1
    return n_rows


@jit
def share_out(start: Array, n_rows: int, row_cost: int, unit: int, share: Array) -> None:
    """Cut rows into one run for each thread, about equal in cost: `row_cost` plus the row's terms.

    Runs begin at multiples of `unit`.
    """
    n_threads = len(share) - 1
    total_cost = row_cost * n_rows + start[n_rows]
    row = 0
    for thread in range(n_threads):
        share[thread] = min(row, n_rows)
        goal = total_cost * (thread + 1) // n_threads
        while row < n_rows and row_cost * row + start[row] < goal:
            row += unit
    share[n_threads] = n_rows
