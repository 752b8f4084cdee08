"""Chances of items: in proportion to clicks^exponent, drawn in constant time, with weights."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.sampling.draw import EVEN, chances
from unexposed.sampling.samples import Drawing

EXPONENTS = pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])


def popular_log(n_items: int, *clicked: list[int]) -> Clicks:
    """Item i has i clicks of users who clicked nothing else, and these users theirs."""
    pairs = [(u, item) for u, items in enumerate(clicked) for item in items]
    for item in range(n_items):
        pairs += [(len(clicked) + len(pairs) + n, item) for n in range(item)]
    users, items = (np.array(column) for column in zip(*pairs, strict=True))
    n_users = int(users.max()) + 1
    return Clicks.from_pairs(users, items, user_ids=Ids.range(n_users), item_ids=Ids.range(n_items))


def drawn_for(user: int, clicks: Clicks, drawing: Drawing, seed: int = 0) -> np.ndarray:
    """How often each item was drawn for a user in an epoch."""
    pairs = drawing.samples(clicks, np.random.default_rng(seed)).pairs()
    chosen = (pairs.users == user) & (pairs.click == 0)
    return np.bincount(pairs.items[chosen], minlength=clicks.n_items)


def assert_in_proportion(count: np.ndarray, chance: np.ndarray) -> None:
    """The χ² of the counts is one that chance gives more than once in a million times."""
    expected = count.sum() * chance / chance.sum()
    assert not count[expected == 0].any()
    count, expected = count[expected > 0], expected[expected > 0]
    assert len(count) == 1 or chisquare(count, expected).pvalue > 1e-6


@given(
    counts=st.lists(st.integers(0, 10**6), min_size=1, max_size=60),
    exponent=st.sampled_from([0.1, 0.5, 1.0]),
)
def test_the_alias_table_holds_the_chances(counts, exponent):
    law = chances(np.array(counts), exponent)
    n = len(counts)
    given_by = law.keep.copy()  # of n places, each as likely
    np.add.at(given_by, law.alias, 1 - law.keep)
    np.testing.assert_allclose(given_by / n, law.of_item, rtol=1e-9, atol=1e-12)
    share = np.maximum(counts, 1) ** exponent
    np.testing.assert_allclose(law.of_item, share / share.sum(), rtol=1e-12)


def test_an_item_without_clicks_is_as_likely_as_one_with_a_single_click():
    law = chances(np.array([0, 1, 4]), 0.5)
    np.testing.assert_allclose(law.of_item, [0.25, 0.25, 0.5])


# drawn for by rejection; the more popular half, most items, all but one item: from a list
CLICKED = [[2, 5], list(range(6, 12)), list(range(8)), [*range(3), *range(4, 12)]]


@EXPONENTS
@pytest.mark.parametrize("user", range(len(CLICKED)))
def test_unclicked_items_are_drawn_in_proportion_to_their_popularity(user, exponent):
    clicks = popular_log(12, *CLICKED)
    count = drawn_for(user, clicks, Drawing(20_000, exponent=exponent))
    chance = clicks.item_counts.astype(float) ** exponent
    chance[CLICKED[user]] = 0
    assert count.sum() == 20_000 * len(CLICKED[user])
    assert_in_proportion(count, chance)


def test_the_exponent_0_draws_the_bits_of_a_uniform_draw_without_a_table():
    clicks = popular_log(12, *CLICKED)
    drawing = Drawing(3, "unbiased", exponent=0.0)
    assert drawing.law(clicks) is EVEN
    samples = drawing.samples(clicks, np.random.default_rng(5))
    assert samples.item_weight is None
    # drawn before there was an exponent
    assert samples.items[:16].tolist() == [9, 10, 6, 3, 8, 7, 1, 0, 11, 9, 8, 7, 1, 3, 3, 3]
    n = clicks.user_counts[samples.users]
    np.testing.assert_array_equal(samples.weight, ((12 - n) / (3 * n)).astype(np.float32))


@pytest.mark.parametrize(
    ("clicked", "drawing", "few"),
    [
        ([0], Drawing(1, exponent=1.0), True),
        (list(range(1, 60)), Drawing(1, exponent=1.0), False),  # the least popular item is left
        (list(range(1, 60)), Drawing(1), True),
        (list(range(1, 60)), Drawing(1, source="catalogue", exponent=1.0), True),
        (list(range(60)), Drawing(1, exponent=1.0), True),  # nothing is left, nothing is drawn
        ([0], Drawing(1, every_pair=True), False),
    ],
)
def test_a_user_left_with_unlikely_items_is_not_drawn_for_by_rejection(clicked, drawing, few):
    assert drawing.sampler(popular_log(60, clicked)).rejects_few() == few
