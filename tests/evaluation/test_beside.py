"""A model is judged beside the popular list of its own clicks, on the same users."""

import numpy as np
import pytest

from known_scores import model_of
from small import clicks_of
from unexposed.data.labelled import Impressions, Judgements
from unexposed.evaluation import beside
from unexposed.evaluation.describe import describe
from unexposed.evaluation.protocols import PROTOCOLS, evaluate
from unexposed.methods.popularity import popular_list

N_USERS, N_ITEMS = 30, 12
RNG = np.random.default_rng(0)
CLICKED = np.arange(N_USERS), np.arange(N_USERS) ** 2 % N_ITEMS
LIKED = RNG.random((N_USERS, N_ITEMS)) < 0.3
BEST, WORST = model_of(LIKED * 1.0, CLICKED), model_of(LIKED * -1.0, CLICKED)
IDS = {"user_ids": BEST.user_ids, "item_ids": BEST.item_ids}
JUDGED = Judgements.from_pairs(*np.nonzero(LIKED | ~LIKED), LIKED.ravel(), **IDS)


@pytest.mark.parametrize("name", ["catalogue", "judged", "ubo-ijcai22", "snips", "ure"])
def test_every_metric_has_the_difference_to_the_popular_list(name):
    by = PROTOCOLS[name]
    found = describe(BEST, JUDGED, by)["beside"]["popularity"]
    ours = evaluate(BEST, JUDGED, by).values
    theirs = evaluate(popular_list(BEST.clicks), JUDGED, by).values
    assert list(found) == list(by.metrics)
    for metric, one in found.items():
        assert one["difference"] == pytest.approx((ours[metric] - theirs[metric]).mean())
        low, high = one["ci95"]
        assert low <= one["difference"] <= high


def test_the_best_model_is_above_and_its_opposite_warns():
    said = {
        model: beside.of_document(describe(model, JUDGED, PROTOCOLS["catalogue"]))
        for model in (BEST, WORST)
    }
    assert "on judged pairs (catalogue)" in said[BEST].text
    assert "is above popularity: ndcg@10" in said[BEST].text
    assert (said[BEST].warns, said[WORST].warns) == (False, True)
    assert "is below popularity" in said[WORST].text


def test_the_popular_list_itself_has_no_rival():
    document = describe(popular_list(BEST.clicks), JUDGED, PROTOCOLS["catalogue"])
    assert "beside" not in document
    assert beside.of_document(document) is None


def test_impressions_judge_beside_the_popular_list_too():
    users, items = np.nonzero(np.ones((N_USERS, N_ITEMS)))
    new = ~BEST.clicks.contain(users.astype(np.int32), items.astype(np.int32))
    clicked = (LIKED.ravel() & new).astype(np.int64)
    propensity = np.full(len(users), 1 / N_ITEMS)
    log = Impressions.from_pairs(users, items, clicked=clicked, propensity=propensity, **IDS)
    found = describe(BEST, log, PROTOCOLS["off_policy"])["beside"]["popularity"]
    assert found["ips@1"]["finding"] == "above"


def test_many_users_are_tested_without_resampling_and_agree_with_it(monkeypatch):
    ours, theirs = RNG.random(800) + 0.03, RNG.random(800)
    resampled = beside.gain(ours, theirs)
    monkeypatch.setattr(beside, "MANY", 800)
    direct = beside.gain(ours, theirs)
    assert direct.p == pytest.approx(resampled.p, abs=0.02)
    assert (direct.low, direct.high) == pytest.approx((resampled.low, resampled.high), abs=0.005)
    assert direct.low != resampled.low


def test_a_metric_that_some_users_lack_is_left_out():
    values = {"a": np.array([0.1, np.nan]), "b": np.array([0.1, 0.2])}
    assert list(beside.gains(values, values)) == ["b"]


def test_popularity_counts_all_clicks_it_is_given():
    clicks = clicks_of([[1, 1], [0, 1]])
    assert popular_list(clicks).scores(np.array([0])).tolist() == [[1, 2]]
