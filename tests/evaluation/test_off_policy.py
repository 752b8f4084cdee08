"""Off-policy estimates on a simulated logging policy whose clicks are known."""

from dataclasses import replace

import numpy as np
import pytest

from known_scores import model_of
from unexposed.data.ids import Ids
from unexposed.data.labelled import Impressions, Judgements
from unexposed.errors import InputError
from unexposed.evaluation import off_policy
from unexposed.evaluation.describe import describe
from unexposed.evaluation.protocols import PROTOCOLS, evaluate

BY = PROTOCOLS["off_policy"]
USERS, ITEMS, LOGS, N = 12, 10, 3_000, 400
CLIP = 2.0


class World:
    """Users come at random; the logging policy prefers items that the model does not."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        score = rng.normal(size=(USERS, ITEMS))
        self.model = model_of(score)
        chance = np.exp(-0.5 * score + rng.normal(size=score.shape) / 2)
        self.policy = chance / chance.sum(axis=1, keepdims=True)
        self.click = 1 / (1 + np.exp(-score))
        self.best = np.argsort(-score, axis=1)

    def value(self, k: int) -> float:
        """The true click rate of showing one of the model's top k."""
        return float(np.take_along_axis(self.click, self.best[:, :k], axis=1).mean())

    def events(self, n: int, seed: int):
        """User, item, propensity and click of n impressions."""
        rng = np.random.default_rng(seed)
        users = rng.integers(USERS, size=n)
        items = (rng.random((n, 1)) > self.policy[users].cumsum(axis=1)).sum(axis=1)
        items = items.clip(max=ITEMS - 1)
        clicked = rng.random(n) < self.click[users, items]
        return users, items, self.policy[users, items], clicked.astype(float)

    def impressions(self, n: int, seed: int) -> Impressions:
        users, items, propensity, clicked = self.events(n, seed)
        ids = {"user_ids": self.model.user_ids, "item_ids": self.model.item_ids}
        return Impressions.from_pairs(users, items, clicked=clicked, propensity=propensity, **ids)


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.fixture(scope="module", params=[1, 3])
def logs(world, request):
    """The weights and clicks of many logs, and the true value: (k, weight, clicked)."""
    k = request.param
    users, items, propensity, clicked = world.events(LOGS * N, seed=k)
    inside = (world.best[users, :k] == items[:, None]).any(axis=1)
    weight = inside / (k * propensity)
    return k, weight.reshape(LOGS, N), clicked.reshape(LOGS, N)


ONCE = np.ones(N)


def estimated(estimator, weights, clicks, **more):
    found = [estimator(w, ONCE, c, **more) for w, c in zip(weights, clicks, strict=True)]
    return np.array([[one.value, one.standard_error] for one in found]).T


def test_ips_is_unbiased_and_its_variance_formula_too(world, logs):
    k, weight, clicked = logs
    value, error = estimated(off_policy.ips, weight, clicked)
    assert abs(value.mean() - world.value(k)) < 4 * value.std() / np.sqrt(LOGS)
    assert (error**2).mean() == pytest.approx(value.var(), rel=0.1)


def test_snips_varies_less_and_its_variance_formula_says_how_much(world, logs):
    k, weight, clicked = logs
    value, error = estimated(off_policy.snips, weight, clicked)
    assert value.mean() == pytest.approx(world.value(k), abs=0.02)  # its bias is of order 1/n
    assert (error**2).mean() == pytest.approx(value.var(), rel=0.2)
    assert value.var() < estimated(off_policy.ips, weight, clicked)[0].var()


def test_clipping_biases_downwards_and_lowers_the_variance(world, logs):
    k, weight, clicked = logs
    plain = estimated(off_policy.ips, weight, clicked)[0]
    clipped = estimated(off_policy.ips, weight, clicked, clip=CLIP)[0]
    assert (clipped <= plain).all()
    assert clipped.mean() < world.value(k) - 4 * clipped.std() / np.sqrt(LOGS)
    assert clipped.var() < plain.var()
    without = estimated(off_policy.ips, weight[:5], clicked[:5], clip=np.inf)[0]
    np.testing.assert_array_equal(without, plain[:5])


def test_counts_by_pair_give_what_single_impressions_give(world):
    users, items, propensity, clicked = world.events(500, seed=2)
    found = describe(world.model, world.impressions(500, seed=2), BY)
    inside = (world.best[users, :3] == items[:, None]).any(axis=1)
    weight, ones = inside / (3 * propensity), np.ones(500)
    for name, estimator in off_policy.ESTIMATORS.items():
        one = estimator(weight, ones, clicked, BY.clip)
        assert found["metrics"][f"{name}@3"]["mean"] == pytest.approx(one.value, rel=1e-5)
        assert found["metrics"][f"{name}@3"]["se"] == pytest.approx(one.standard_error, rel=1e-4)
    means = evaluate(world.model, world.impressions(500, seed=2), BY).means()
    assert means == pytest.approx({name: one["mean"] for name, one in found["metrics"].items()})
    effective = weight.sum() ** 2 / (weight**2).sum()
    assert found["weights"]["3"]["effective_sample"] == pytest.approx(effective, rel=1e-5)
    assert found["weights"]["3"]["clipped_share"] == pytest.approx((weight > BY.clip).mean())


def test_an_unknown_item_counts_as_not_shown_and_an_unknown_user_is_left_out(world):
    log = world.impressions(400, seed=4)
    more_users, more_items = Ids.range(USERS + 1), Ids.of([*range(ITEMS), 99])
    users = np.concatenate([log.users, [0, USERS]])
    items = np.concatenate([log.items, [ITEMS, 0]])
    wider = Impressions.from_pairs(
        users,
        items,
        shown=np.concatenate([log.shown, [400, 7]]),
        clicked=np.concatenate([log.clicked, [400, 7]]),
        propensity=np.concatenate([log.propensity, [0.5, 0.5]]),
        user_ids=more_users,
        item_ids=more_items,
    )
    narrow, wide = describe(world.model, log, BY), describe(world.model, wider, BY)
    assert (wide["impressions"], wide["unknown_users"], wide["users"]) == (800, 1, USERS)
    for k in (1, 3, 10):
        before, after = (found["metrics"][f"ips@{k}"]["mean"] for found in (narrow, wide))
        assert after == pytest.approx(before / 2)  # as many impressions again, of weight 0


def test_the_policy_shows_what_the_model_recommends_so_not_what_it_was_trained_on(world):
    clicked = np.nonzero(np.arange(ITEMS) == world.best[:, :1])  # each user's best item
    model = model_of(world.model.scores(slice(None)), clicked)
    log = world.impressions(100_000, seed=5)
    found = describe(model, log, BY)
    second = world.click[np.arange(USERS), world.best[:, 1]].mean()
    assert found["metrics"]["snips@1"]["mean"] == pytest.approx(second, abs=0.02)
    hidden = log.clicked[(log.items == world.best[log.users, 0])].sum()
    assert found["clicks_trained_on"] == hidden


def test_what_cannot_be_estimated_is_refused_in_one_sentence(world):
    log = world.impressions(300, seed=6)
    trained = model_of(world.model.scores(slice(None)), (log.users, log.items))
    worst = log.pick(log.items == world.best[log.users, -1])
    ids = {"user_ids": Ids.of(["a", "b"]), "item_ids": log.item_ids}
    strangers = Impressions.from_pairs(np.array([0, 1]), np.array([0, 1]), propensity=[1, 1], **ids)
    few = replace(BY, metrics={"ips@3": "ips@3"})
    for model, given, by, words in (
        (world.model, replace(log, propensity=None), BY, "have no propensities"),
        (trained, log, BY, "trained on every click"),
        (world.model, worst, few, "never shows an item"),
        (world.model, strangers, BY, "knows none of the users"),
        (world.model, log, replace(BY, metrics={"dcg@3": "dcg@3"}), "no estimate 'dcg@3'"),
        (world.model, log, PROTOCOLS["catalogue"], "needs judgements, got Impressions"),
        (world.model, judgements(world), BY, "needs impressions with propensities"),
    ):
        for call in (evaluate, describe):
            with pytest.raises(InputError, match=words):
                call(model, given, by)


def judgements(world) -> Judgements:
    ids = {"user_ids": world.model.user_ids, "item_ids": world.model.item_ids}
    return Judgements.from_pairs(np.array([0]), np.array([0]), np.array([True]), **ids)
