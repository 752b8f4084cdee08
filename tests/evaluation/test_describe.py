"""Results by exposure: each third holds its own relevant pairs, at the ranks they have in all."""

import numpy as np
import pytest

from known_scores import model_of
from unexposed.data.ids import Ids
from unexposed.data.labelled import Impressions, Judgements
from unexposed.evaluation.describe import by_exposure, describe
from unexposed.evaluation.protocols import PROTOCOLS, evaluate

N_USERS, N_ITEMS = 20, 12
RNG = np.random.default_rng(0)
SCORES, EXPOSURE = RNG.normal(size=(N_USERS, N_ITEMS)), RNG.random((N_USERS, N_ITEMS))
CLICKED = np.arange(N_USERS), np.arange(N_USERS) % N_ITEMS
MODEL = model_of(SCORES, CLICKED, exposure=EXPOSURE)
IDS = {"user_ids": MODEL.user_ids, "item_ids": MODEL.item_ids}
USERS, ITEMS = np.nonzero(RNG.random(SCORES.shape) < 0.6)
JUDGED = Judgements.from_pairs(USERS, ITEMS, RNG.random(len(USERS)) < 0.5, **IDS)
CATALOGUE = PROTOCOLS["catalogue"]


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
    assert describe(MODEL, JUDGED, CATALOGUE, logged=logged)["by_exposure"] == found


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


@pytest.mark.parametrize("name", [n for n, by in PROTOCOLS.items() if by.candidates != "logged"])
def test_every_protocol_for_judgements_has_strata_by_exposure(name):
    found = by_exposure(MODEL, JUDGED, PROTOCOLS[name])
    for part in found.values():
        assert part["metrics"].keys() == PROTOCOLS[name].metrics.keys()
