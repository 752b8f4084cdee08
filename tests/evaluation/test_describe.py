"""An evaluation as plain data: by exposure, and beside rivals on the same users."""

import numpy as np
import pytest

from known_scores import model_of
from unexposed.data.ids import Ids
from unexposed.data.labelled import Impressions, Judgements
from unexposed.errors import InputError
from unexposed.evaluation.describe import describe, of_document
from unexposed.evaluation.protocols import PROTOCOLS, evaluate
from unexposed.methods.popularity import popular_list

N_USERS, N_ITEMS = 20, 12
RNG = np.random.default_rng(0)
SCORES, EXPOSURE = RNG.normal(size=(N_USERS, N_ITEMS)), RNG.random((N_USERS, N_ITEMS))
CLICKED = np.arange(N_USERS), np.arange(N_USERS) % N_ITEMS
MODEL = model_of(SCORES, CLICKED, exposure=EXPOSURE)
IDS = {"user_ids": MODEL.user_ids, "item_ids": MODEL.item_ids}
USERS, ITEMS = np.nonzero(RNG.random(SCORES.shape) < 0.6)
JUDGED = Judgements.from_pairs(USERS, ITEMS, RNG.random(len(USERS)) < 0.5, **IDS)
CATALOGUE = PROTOCOLS["catalogue"]


def by_exposure(model, judged, by, *, logged=None):
    return describe(model, judged, by, logged=logged)["by_exposure"]


def relevant_pairs() -> tuple[np.ndarray, np.ndarray]:
    kept = JUDGED.pick(JUDGED.relevant & ~MODEL.clicks.contain(JUDGED.users, JUDGED.items))
    return kept.users, kept.items


def by_hand(exposure: np.ndarray, name: str = "recall@10") -> list[float]:
    """The metric on each third of the relevant pairs alone, sorted by exposure."""
    users, items = relevant_pairs()
    order = np.argsort(exposure[users, items])
    found = []
    for third in np.array_split(order, 3):
        ones = np.ones(len(third), dtype=bool)
        part = Judgements.from_pairs(users[third], items[third], ones, **IDS)
        found.append(evaluate(MODEL, part, CATALOGUE).means()[name])
    return found


def test_each_third_of_the_relevant_pairs_is_evaluated_by_itself():
    found = by_exposure(MODEL, JUDGED, CATALOGUE)
    assert list(found) == ["seldom", "sometimes", "often"]
    sizes = [part["pairs"] for part in found.values()]
    assert sum(sizes) == len(relevant_pairs()[0])
    assert max(sizes) - min(sizes) <= 1
    limits = [limit for part in found.values() for limit in part["exposure"]]
    assert limits == sorted(limits)
    means = [part["metrics"]["recall@10"] for part in found.values()]
    assert means == pytest.approx(by_hand(EXPOSURE))


def test_logged_propensities_take_the_place_of_the_models_exposure():
    users, items = np.nonzero(np.ones(SCORES.shape))
    logged = Impressions.from_pairs(users, items, propensity=1 - EXPOSURE.ravel(), **IDS)
    found = by_exposure(MODEL, JUDGED, CATALOGUE, logged=logged)
    means = [part["metrics"]["recall@10"] for part in found.values()]
    assert means == pytest.approx(by_hand(1 - EXPOSURE))


def test_without_propensities_a_pair_is_as_exposed_as_it_was_often_shown():
    users, items = relevant_pairs()
    shown = 1 + np.arange(len(users))
    ids = {"user_ids": Ids.of([*range(N_USERS - 1, -1, -1)]), "item_ids": MODEL.item_ids}
    half = slice(len(users) // 2, None)  # the first half was never shown; user ids in other order
    logged = Impressions.from_pairs(
        N_USERS - 1 - users[half], items[half], shown=shown[half], **ids
    )
    found = by_exposure(MODEL, JUDGED, CATALOGUE, logged=logged)
    assert found["seldom"]["exposure"] == [0, 0]
    assert found["seldom"]["pairs"] == len(users) // 2
    assert found["often"]["exposure"][1] == len(users)


def test_a_model_without_exposure_has_no_strata_by_exposure():
    found = describe(model_of(SCORES, CLICKED), JUDGED, CATALOGUE)
    assert "by_exposure" not in found
    assert "by_popularity" in found


# beside the popular list, and other models

LIKED = RNG.random((N_USERS, N_ITEMS)) < 0.3
BEST, WORST = model_of(LIKED * 1.0, CLICKED), model_of(LIKED * -1.0, CLICKED)
KNOWN = Judgements.from_pairs(*np.nonzero(LIKED | ~LIKED), LIKED.ravel(), **IDS)


@pytest.mark.parametrize("name", ["catalogue", "judged", "snips"])
def test_every_metric_has_the_difference_to_the_popular_list(name):
    by = PROTOCOLS[name]
    found = describe(BEST, KNOWN, by)["beside"]["popularity"]
    ours = evaluate(BEST, KNOWN, by).values
    theirs = evaluate(popular_list(BEST.clicks), KNOWN, by).values
    assert list(found) == list(by.metrics)
    for metric, one in found.items():
        assert one["difference"] == pytest.approx((ours[metric] - theirs[metric]).mean())
        low, high = one["ci95"]
        assert low <= one["difference"] <= high


def test_the_best_model_is_above_its_opposite_warns_and_rivals_are_those_given():
    best, worst = (of_document(describe(m, KNOWN, CATALOGUE)) for m in (BEST, WORST))
    assert "on judged pairs (catalogue)" in best.text
    assert "is above popularity: ndcg@10" in best.text
    assert (best.warns, worst.warns) == (False, True)
    of_fewer_clicks = model_of(LIKED * 1.0, tuple(part[:9] for part in CLICKED))
    document = describe(WORST, KNOWN, CATALOGUE, rivals={"best": of_fewer_clicks})
    ours = describe(BEST, KNOWN, CATALOGUE)["metrics"]["ndcg@10"]["mean"]
    assert document["beside"]["best"]["ndcg@10"]["best"] == pytest.approx(ours)
    with pytest.raises(InputError, match="the rival 'other' knows other users or items"):
        describe(BEST, KNOWN, CATALOGUE, rivals={"other": model_of(LIKED[:5] * 1.0)})
    assert list(document["beside"]) == ["popularity", "best"]
    assert "take best instead" in of_document(document).text
    itself = describe(popular_list(BEST.clicks), KNOWN, CATALOGUE)
    assert "beside" not in itself
    assert of_document(itself) is None


def test_impressions_judge_beside_the_popular_list_too():
    users, items = np.nonzero(np.ones((N_USERS, N_ITEMS)))
    new = ~BEST.clicks.contain(users.astype(np.int32), items.astype(np.int32))
    clicked = (LIKED.ravel() & new).astype(np.int64)
    propensity = np.full(len(users), 1 / N_ITEMS)
    log = Impressions.from_pairs(users, items, clicked=clicked, propensity=propensity, **IDS)
    found = describe(BEST, log, PROTOCOLS["off_policy"])["beside"]["popularity"]
    assert found["ips@1"]["finding"] == "above"
