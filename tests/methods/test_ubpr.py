"""UBPR: its estimate, its clipping, and BPR where everything was seen."""

from itertools import product

import numpy as np
import pytest

from small import BRIEF, make_with
from unexposed.errors import InputError
from unexposed.training.side import Side


def test_the_weights_of_the_paper_have_the_expectation_of_the_ideal_ones():
    """E[R̃_i/m_i·(1 − R̃_j/m_j)] = γ_i(1 − γ_j), over every outcome; clipping leaves unclicked j."""
    shown, relevant = (0.3, 0.7), (0.6, 0.2)
    total, kept = 0.0, 0.0
    for seen_i, seen_j, liked_i, liked_j in product((0, 1), repeat=4):
        outcomes = (
            (seen_i, shown[0]),
            (seen_j, shown[1]),
            (liked_i, relevant[0]),
            (liked_j, relevant[1]),
        )
        chance = np.prod([p if happened else 1 - p for happened, p in outcomes])
        click_i, click_j = seen_i * liked_i, seen_j * liked_j
        weight = click_i / shown[0] * (1 - click_j / shown[1])
        total += chance * weight
        kept += chance * max(weight, 0)
    assert total == pytest.approx(relevant[0] * (1 - relevant[1]))
    assert kept == pytest.approx(relevant[0] * (1 - shown[1] * relevant[1]))  # i clicked, j not


def test_where_everything_was_seen_it_is_bpr(small_world):
    clicks = small_world.clicks(0)
    ubpr, bpr = (make_with(name, BRIEF | {"weight_decay": 0.0}) for name in ("ubpr", "bpr"))
    seen = ubpr.fit(clicks, side=Side(exposure=np.ones(clicks.n_items)))
    for name, table in bpr.fit(clicks).parameters.items():
        assert table.tobytes() == seen.parameters[name].tobytes(), name
    by_popularity = ubpr.fit(clicks).parameters
    assert not np.array_equal(by_popularity["item_factors"], seen.parameters["item_factors"])


def test_negatives_that_may_be_clicked_are_refused():
    with pytest.raises(InputError, match="negatives_from must be one of 'unclicked'"):
        make_with("ubpr", {"negatives_from": "catalogue"})
