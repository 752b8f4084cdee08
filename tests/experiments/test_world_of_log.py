"""Worlds made from clicks alone: they look like the log, and turn as their dials say."""

from dataclasses import replace

import numpy as np
import pytest

from small import clicks_of
from unexposed.data.worlds.simulate import world
from unexposed.errors import InputError
from world_of_log import (
    LARGEST,
    LOWEST,
    Dials,
    disliked_like,
    fit_clicks,
    spread_dials,
    world_like,
)

USUAL = Dials(exposed=0.6, relevance_rate=0.2, taste=1.0, personal=0.2)


@pytest.fixture(scope="module")
def log():
    return world(300, 80, exposure_rate=0.15, seed=1).clicks(seed=0)


@pytest.fixture(scope="module")
def fitted(log):
    return fit_clicks(log, seed=0)


def expected(made):
    everyone = np.arange(made.n_users)
    return made.exposure(everyone) * made.relevance(everyone)


@pytest.mark.parametrize("dials", [USUAL, *spread_dials(3, seed=0, click_rate=0.044)])
def test_a_world_gives_every_user_and_item_the_clicks_they_have_in_the_log(log, fitted, dials):
    clicks = expected(world_like(log, fitted, dials))
    assert clicks.sum() == pytest.approx(len(log), rel=0.02)
    np.testing.assert_allclose(clicks.sum(axis=0), log.item_counts, rtol=0.1, atol=1)
    np.testing.assert_allclose(clicks.sum(axis=1), log.user_counts, rtol=0.1, atol=1)


def test_the_more_popularity_is_exposure_the_less_relevance_follows_it(log, fitted):
    clicked = log.item_counts > 0
    popularity = np.log(log.item_counts[clicked])

    def slopes(exposed):
        made = world_like(log, fitted, Dials(exposed, 0.2, taste=1.0, personal=0.0))
        truth = made.truth(np.arange(log.n_users))
        return [np.polyfit(popularity, np.log(part.mean(axis=0)[clicked]), 1)[0] for part in truth]

    exposure, relevance = zip(*map(slopes, (0.2, 0.6, 1.0)), strict=True)
    assert exposure == pytest.approx([0.2, 0.6, 1.0], abs=0.25)
    assert sorted(exposure) == list(exposure)
    assert relevance == pytest.approx([0.8, 0.4, 0.0], abs=0.25)
    assert sorted(relevance, reverse=True) == list(relevance)


def test_relevance_has_the_rate_and_the_taste_it_is_given(log, fitted):
    made = world_like(log, fitted, USUAL)
    assert made.relevance(np.arange(log.n_users)).mean() == pytest.approx(0.2, abs=1e-3)
    likes = made.relevance_factors
    assert (likes.user_vectors @ likes.item_vectors.T).std() == pytest.approx(1.0, rel=0.01)


def test_dials_are_spread_over_their_whole_range():
    many = np.array([list(vars(dials).values()) for dials in spread_dials(20, seed=3)])
    low, high = (np.array(list(vars(dials).values())) for dials in (LOWEST, LARGEST))
    assert ((low <= many) & (many <= high)).all()
    reach = (many.max(axis=0) - many.min(axis=0)) / (high - low)
    assert (reach > 0.8).all()


@pytest.mark.parametrize("click_rate", [0.001, 0.1, 0.3, 0.9])
def test_relevance_stays_above_the_clicks_and_below_1(click_rate):
    rates = [dials.relevance_rate for dials in spread_dials(9, seed=0, click_rate=click_rate)]
    assert min(rates) >= min(max(0.05, 3 * click_rate), 0.8)
    assert max(rates) <= 0.9
    assert len(set(rates)) == 9


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.6])
def test_what_was_shown_tells_how_often_it_is_liked(rate, fitted, log):
    wanted = Dials(exposed=0.6, relevance_rate=rate, taste=1.0, personal=0.2)
    made = world_like(log, fitted, wanted)
    told = replace(made.clicks(0), shown=made.disliked(0))
    found = disliked_like(told, fitted, replace(wanted, relevance_rate=0.02))
    assert found.relevance_rate == pytest.approx(rate, rel=0.25)
    assert replace(found, relevance_rate=rate) == wanted
    again = world_like(told, fitted, found)
    assert len(again.disliked(1)) == pytest.approx(len(told.shown), rel=0.1)


def test_a_log_without_clicks_is_refused():
    with pytest.raises(InputError, match="at least one click"):
        fit_clicks(clicks_of(np.zeros((3, 3))), seed=0)
