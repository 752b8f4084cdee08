"""Strata, coverage, evenness and popularity by hand."""

import numpy as np
import pytest

from unexposed.errors import InputError
from unexposed.ranking import catalogue


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([2, 10, 1, 5, 5, 4, 3, 0], [2, 0, 2, 1, 1, 2, 2, 2]),  # 10 | 5 5 | 4 3 2 1 0
        ([1] * 6, [0, 0, 1, 1, 2, 2]),  # ties go by index
        ([0, 0, 0], [2, 2, 2]),
        ([], []),
    ],
)
def test_head_middle_and_tail_hold_a_third_of_the_clicks_each(counts, expected):
    assert catalogue.strata(counts).tolist() == expected


LISTS = np.array([[0, 1, 2], [0, 1, -1], [0, -1, -1], [-1, -1, -1]])


def test_coverage_is_the_share_of_items_and_gini_half_the_relative_mean_difference():
    counts = np.array([3, 2, 1, 0, 0, 0])
    differences = np.abs(counts[:, None] - counts[None, :]).mean()
    assert catalogue.coverage(LISTS, 6) == 3 / 6
    assert catalogue.gini(LISTS, 6) == pytest.approx(differences / (2 * counts.mean()))
    assert catalogue.gini(np.full((2, 2), -1), 4) == 0


def test_mean_popularity_averages_within_a_list_and_then_over_users_with_one():
    assert catalogue.mean_popularity(LISTS, [6, 3, 0, 100]) == pytest.approx((3 + 4.5 + 6) / 3)
    with pytest.raises(InputError, match="no popularity to average"):
        catalogue.mean_popularity(np.full((2, 2), -1), [1, 2])
