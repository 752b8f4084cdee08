"""Protocols evaluate the right users, and exposure is correlated user by user."""

import numpy as np
import pytest

from known_scores import model_of
from unexposed.data import datasets
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.labelled import Judgements
from unexposed.errors import InputError
from unexposed.evaluation import protocols as evaluation
from unexposed.evaluation.describe import describe
from unexposed.evaluation.protocols import PROTOCOLS
from unexposed.methods import make
from unexposed.model.model import Model
from unexposed.progress import Silent

N_USERS, N_ITEMS = 6, 8
USERS, ITEMS = Ids.range(N_USERS), Ids.range(N_ITEMS)


def log(*pairs: tuple[int, int]) -> Clicks:
    users, items = np.array(pairs).reshape(-1, 2).T
    return Clicks.from_pairs(users, items, user_ids=USERS, item_ids=ITEMS)


def judgements(*triples: tuple[int, int, bool]) -> Judgements:
    users, items, relevant = np.array(triples).T
    return Judgements.from_pairs(users, items, relevant == 1, user_ids=USERS, item_ids=ITEMS)


def test_the_paper_evaluates_users_with_a_click_a_relevant_and_an_irrelevant_item():
    clicks = log((0, 0), (1, 1), (2, 2), (3, 3))
    judged = judgements(
        (0, 1, True), (0, 2, False),  # evaluated
        (1, 1, True), (1, 2, True),  # nothing irrelevant
        (2, 1, False), (2, 2, False),  # nothing relevant
        (3, 1, True), (3, 7, False),  # its irrelevant item was never clicked by anyone: dropped
        (4, 1, True), (4, 2, False),  # a user without clicks
    )  # fmt: skip
    kept = evaluation.eligible(judged, clicks, PROTOCOLS["ubo-ijcai22"])
    assert np.unique(kept.users).tolist() == [0]


@pytest.mark.parametrize(
    ("protocol", "pair"), [("ubo-ijcai22", (0, 1, True)), ("catalogue", (0, 0, True))]
)
def test_a_judged_set_that_evaluates_nobody_is_refused(protocol, pair):
    with pytest.raises(InputError, match="evaluates nobody"):
        evaluation.eligible(judgements(pair), log((0, 0), (1, 1)), PROTOCOLS[protocol])


@pytest.fixture(scope="module")
def popular(small_world) -> tuple[Model, Judgements]:
    split = small_world.split(seed=0)
    model = make("popularity").fit(split.train, split.held_out, progress=Silent())
    return model, split.judged


@pytest.mark.parametrize("name", [n for n, by in PROTOCOLS.items() if by.candidates != "logged"])
def test_every_protocol_gives_a_finite_value_for_each_user_and_metric(name, popular):
    model, judged = popular
    by = PROTOCOLS[name]
    found = evaluation.evaluate(model, judged, by)
    assert list(found.values) == list(by.metrics)
    for values in found.values.values():
        assert values.shape == found.users.shape
        assert np.isfinite(values).all()
    document = describe(model, judged, by)
    assert document["users"] == len(found.users)
    assert document["metrics"].keys() == by.metrics.keys()
    assert set(document["by_popularity"]) == {"head", "middle", "tail"}
    assert document["recommended"]["mean_popularity"] > model.clicks.item_counts.mean()


def test_exposure_is_correlated_user_by_user_in_blocks(small_world, monkeypatch):
    model = make("umf", epochs=1, dim=2, engine="reference").fit(small_world.clicks(0))
    monkeypatch.setattr("unexposed.ranking.blocks.BLOCK_ENTRIES", 7 * small_world.n_items)

    def own(users):
        return model.method.exposure(model.parameters, users)

    def half_constant(users):  # a user without variation has no correlation and is left out
        return np.where(users[:, None] % 2 == 0, 0.25, own(users))

    assert evaluation.exposure_correlation(model, own) == pytest.approx(1)
    assert evaluation.exposure_correlation(model, lambda u: 1 - own(u)) == pytest.approx(-1)
    assert evaluation.exposure_correlation(model, half_constant) == pytest.approx(1)
    assert np.isnan(evaluation.exposure_correlation(model, lambda u: 0 * own(u)))
    users = np.arange(small_world.n_users, dtype=np.int32)
    pairs = zip(own(users), small_world.exposure(users), strict=True)
    by_hand = np.mean([np.corrcoef(a, b)[0, 1] for a, b in pairs])
    found = evaluation.exposure_correlation(model, small_world.exposure)
    assert found == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "users", "train", "held_out"),
    [("coat", 237, 1_715, 190), ("yahoo_r3", 2_374, 112_570, 12_507)],
)
def test_the_papers_protocol_evaluates_its_users_and_clicks(data_dir, name, users, train, held_out):
    by = PROTOCOLS["ubo-ijcai22"]
    data = datasets.load(name, data_dir=data_dir, download=False)
    for seed in (0, 1):
        split = evaluation.split_ratings(data.logged, data.random, by, seed=seed)
        assert (len(split.train), len(split.held_out)) == (train, held_out)
        model = make("popularity").fit(split.train, split.held_out, progress=Silent())
        found = evaluation.evaluate(model, split.judged, by)
        assert len(found.users) == users
        means = found.means()
        assert list(means) == ["dcg@1", "dcg@2", "dcg@3", "map@1", "map@2", "map@3"]
        assert means["dcg@1"] == means["map@1"]


@pytest.mark.data
def test_a_rating_set_without_a_random_part_needs_a_catalogue_protocol(data_dir):
    data = datasets.load("ml_100k", data_dir=data_dir, download=False)
    with pytest.raises(InputError, match="use --protocol catalogue"):
        evaluation.split_ratings(data.logged, data.random, PROTOCOLS["ubo-ijcai22"], seed=0)
    split = evaluation.split_ratings(data.logged, data.random, PROTOCOLS["catalogue"], seed=0)
    assert not split.train.contain(split.judged.users, split.judged.items).any()


# ure: recall from a few pairs judged at random

URE = PROTOCOLS["ure"]
TASTES, COPIES, WIDTH, JUDGED = 15, 400, 40, 0.08
KS = (1, 3, 10)


class Tastes:
    """A few tastes with many users each; every pair is judged with the same small chance.

    The model ranks better for tastes with few relevant items, so that a mean over users that
    leaves some out is not the mean over all.
    """

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        n_relevant = np.linspace(2, 20, TASTES).astype(int)
        relevant = np.argsort(rng.random((TASTES, WIDTH)), axis=1) < n_relevant[:, None]
        score = rng.normal(size=relevant.shape) + 12 * relevant / n_relevant[:, None]
        # ranks by brute force: nothing is clicked, so all items are candidates
        rank = (-score).argsort(axis=1).argsort(axis=1) + 1
        self.recall = {k: ((rank <= k) & relevant).sum(axis=1) / n_relevant for k in KS}
        self.pooled = {k: ((rank <= k) & relevant).sum() / relevant.sum() for k in KS}
        self.model = model_of(np.repeat(score, COPIES, axis=0))
        judged = rng.random((TASTES * COPIES, WIDTH)) < JUDGED
        users, items = np.nonzero(judged)
        liked = relevant[users // COPIES, items]
        ids = {"user_ids": self.model.user_ids, "item_ids": self.model.item_ids}
        self.judged = Judgements.from_pairs(users, items, liked, **ids)


@pytest.mark.parametrize("k", KS)
def test_recall_from_few_judged_pairs_is_unbiased_for_a_user_and_for_all_pairs(k):
    world = Tastes(0)
    found = evaluation.evaluate(world.model, world.judged, URE)
    taste, values = found.users // COPIES, found.values[f"recall@{k}"]
    for one in range(TASTES):
        of_taste = values[taste == one]
        error = of_taste.std() / np.sqrt(len(of_taste))
        assert abs(of_taste.mean() - world.recall[k][one]) < 4 * error + 1e-9
    assert found.means()[f"recall_pooled@{k}"] == pytest.approx(world.pooled[k], abs=0.01)
