"""Strata, coverage, evenness and popularity by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from unexposed.errors import InputError
from unexposed.ranking import catalogue


def test_head_middle_and_tail_hold_a_third_of_the_clicks_each():
    counts = [2, 10, 1, 5, 5, 4, 3, 0]  # from the top: 10 | 5 5 | 4 3 2 1, then one without
    assert catalogue.strata(counts).tolist() == [2, 0, 2, 1, 1, 2, 2, 2]
    assert catalogue.strata(counts).dtype == np.int8


def test_ties_go_to_the_strata_by_index_and_items_without_clicks_to_the_tail():
    assert catalogue.strata([1] * 6).tolist() == [0, 0, 1, 1, 2, 2]
    assert catalogue.strata([0, 0, 0]).tolist() == [2, 2, 2]
    assert catalogue.strata([]).shape == (0,)


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=60).filter(any))
def test_a_stratum_misses_its_third_by_less_than_its_largest_item(counts):
    counts = np.array(counts)
    stratum = catalogue.strata(counts)
    for which in (0, 1, 2):
        held = counts[stratum == which].sum()
        assert abs(held - counts.sum() / 3) <= counts.max()
    for above, below in [(0, 1), (0, 2), (1, 2)]:
        inside, beyond = counts[stratum == above], counts[stratum == below]
        assert inside.min(initial=10**6) >= beyond.max(initial=0)


LISTS = np.array([[0, 1, 2], [0, 1, -1], [0, -1, -1], [-1, -1, -1]])


def test_coverage_is_the_share_of_items_recommended_to_anyone():
    assert catalogue.coverage(LISTS, 6) == 3 / 6


def test_gini_is_half_the_relative_mean_difference():
    counts = np.array([3, 2, 1, 0, 0, 0])
    differences = np.abs(counts[:, None] - counts[None, :]).mean()
    assert catalogue.gini(LISTS, 6) == pytest.approx(differences / (2 * counts.mean()))


def test_gini_is_0_for_equal_shares_and_nearly_1_for_one_item():
    assert catalogue.gini(np.array([[0, 1], [2, 3]]), 4) == 0
    assert catalogue.gini(np.zeros((5, 1), dtype=int), 100) == pytest.approx(0.99)
    assert catalogue.gini(np.full((2, 2), -1), 4) == 0


def test_mean_popularity_averages_within_a_list_and_then_over_users_with_one():
    assert catalogue.mean_popularity(LISTS, [6, 3, 0, 100]) == pytest.approx((3 + 4.5 + 6) / 3)
    with pytest.raises(InputError, match="no popularity to average"):
        catalogue.mean_popularity(np.full((2, 2), -1), [1, 2])
