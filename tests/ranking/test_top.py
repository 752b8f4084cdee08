"""Compiled loops give what plain Python gives."""

import numpy as np
import pytest

from unexposed.ranking import top
from unexposed.ranking.blocks import tie_break


def sorted_rows(block, users):
    """All columns of each row, best first, ties by the hash of the pair."""
    return np.array(
        [
            np.lexsort((tie_break(np.full(len(row), user), np.arange(len(row))), -row))
            for row, user in zip(block, users, strict=True)
        ]
    )


@pytest.mark.parametrize("n_items", [1, 7, 256, 257, 1500])
@pytest.mark.parametrize("k", [1, 3, 40, 1500])
def test_the_best_items_come_in_the_order_of_a_full_sort_ties_included(n_items, k):
    rng = np.random.default_rng(n_items)
    block = rng.normal(size=(30, n_items)).round(1).astype(np.float32)  # with many ties
    block[0] = 0  # nothing but ties
    block[1] = np.sort(block[1])  # each better than all before it
    users = rng.integers(10_000, size=30).astype(np.int32)
    k = min(k, n_items)
    expected = sorted_rows(block, users)[:, :k]
    for threads in (1, 2, 5):
        items, scores = top.best(block, users, k, threads=threads)
        np.testing.assert_array_equal(items, expected)
        np.testing.assert_array_equal(scores, np.take_along_axis(block, expected, axis=1))


def test_minus_infinity_and_nan_are_never_among_the_best():
    block = np.full((2, 600), -np.inf, dtype=np.float32)
    block[0, [5, 300]] = [1, 2]
    block[0, 299] = np.nan
    items, scores = top.best(block, np.zeros(2, dtype=np.int32), 3)
    assert items.tolist() == [[300, 5, -1], [-1, -1, -1]]
    assert scores.tolist() == [[2, 1, -np.inf], [-np.inf] * 3]
