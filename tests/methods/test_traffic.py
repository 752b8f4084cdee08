"""Random traffic: training pairs, a guide, the choice of the epoch, each with pairs of its own."""

from dataclasses import replace

import numpy as np
import pytest
from shown_log import IDS, N_USERS, shown_log

from small import COMPOSED, TRAINED, assert_same_parameters, make_with, quick
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.labelled import Impressions, Traffic
from unexposed.errors import InputError
from unexposed.methods.composed import ComposedMethod
from unexposed.methods.pair_data import count_weights
from unexposed.progress import Silent
from unexposed.ranking.held_out import ByTraffic
from unexposed.sampling.validation import ValidationSet
from unexposed.training.side import Side, aligned

LOG = shown_log()
CLICKS = replace(LOG.clicks, shown=None)
BY_CHOICE = [name for name in TRAINED if name not in COMPOSED]


def fit(name, traffic=LOG.traffic, *, clicks=CLICKS, held_out=None, **settings):
    side = Side(traffic=traffic)
    return quick(name, epochs=3, **settings).fit(clicks, held_out, side=side, progress=Silent())


@pytest.fixture
def trained_on(monkeypatch: pytest.MonkeyPatch) -> list:
    """What every training learned from, and the inputs that it came from."""
    seen = []
    made = ComposedMethod.learning_data

    def noted(method, clicks, side):
        seen.append((made(method, clicks, side), side))
        return seen[-1][0]

    monkeypatch.setattr(ComposedMethod, "learning_data", noted)
    return seen


def pairs_of(part) -> set[tuple[int, int]]:
    return set(zip(part.users.tolist(), part.items.tolist(), strict=True))


# training pairs


@pytest.mark.parametrize("name", COMPOSED)
def test_every_composed_method_learns_from_traffic_by_default_and_says_how_much(name):
    model, without = fit(name), quick(name, epochs=3).fit(CLICKS, progress=Silent())
    assert model.facts["traffic"] == len(LOG.traffic)
    assert model.facts["side"] == ["traffic"]
    assert not np.array_equal(model.parameters["user_factors"], without.parameters["user_factors"])
    heavier = fit(name, traffic_weight=5.0)
    assert not np.array_equal(model.parameters["user_factors"], heavier.parameters["user_factors"])


@pytest.mark.parametrize("name", ["mf", "bpr", "relmf", "ubpr", "ubo", "ubo with items"])
def test_engines_agree_on_a_training_with_traffic(name):
    cpu, reference = (
        fit(name, engine=engine, refit=False, counts="linear").parameters
        for engine in ("cpu", "reference")
    )
    for key, table in reference.items():
        np.testing.assert_allclose(cpu[key], table, rtol=2e-3, atol=2e-5)


def test_a_click_on_a_pair_of_the_traffic_is_left_out_for_the_traffic_wins(trained_on):
    both = pairs_of(CLICKS) & pairs_of(LOG.traffic)
    assert both
    fit("mf")
    for one, _ in trained_on:  # the second training is on all clicks
        assert not pairs_of(one.clicks) & both
        assert one.marking.traffic is not None
        assert both <= pairs_of(one.marking.traffic)
    assert pairs_of(trained_on[1][0].clicks) == pairs_of(CLICKS) - both


def test_traffic_that_judges_every_click_is_refused():
    clicked = Traffic(CLICKS.users, CLICKS.items, np.ones(len(CLICKS), dtype=bool), **IDS)
    with pytest.raises(InputError, match="no click is left to train on.*traffic_use=none"):
        fit("mf", clicked)


# shares


@pytest.mark.parametrize(
    ("use", "by", "training", "guide"),
    [
        ("training", "held_out", 1, 0),
        ("guide", "held_out", 0, 1),
        ("both", "held_out", 1 / 2, 1 / 2),
        ("both", "traffic", 1 / 3, 1 / 3),
        ("training", "traffic", 1 / 2, 0),
        ("none", "traffic", 0, 0),
        ("guide", "validation", 0, 1),
    ],
)
def test_ubo_shares_traffic_out_over_its_uses(use, by, training, guide, trained_on):
    model = fit("ubo", traffic_use=use, epoch_by=by)
    side, n = trained_on[0][1], len(LOG.traffic)
    assert (0 if side.traffic is None else len(side.traffic)) == pytest.approx(n * training, abs=1)
    assert (0 if side.validation is None else len(side.validation)) == pytest.approx(
        n * guide, abs=1
    )
    assert model.facts["traffic"] == n
    if side.traffic is not None and side.validation is not None:
        assert not pairs_of(side.traffic) & pairs_of(side.validation)


def test_a_guide_of_traffic_is_the_validation_set_of_the_same_pairs():
    guide = ValidationSet(LOG.traffic.users, LOG.traffic.items, LOG.traffic.relevant)
    method = quick("ubo", epochs=2, traffic_use="guide", refit=False)
    # held-out clicks that the traffic judges do not count, so none are held out
    nothing = CLICKS.pick(np.zeros(len(CLICKS), dtype=bool))
    one, other = (
        method.fit(CLICKS, nothing, side=side, progress=Silent())
        for side in (Side(traffic=LOG.traffic), Side(validation=guide))
    )
    assert_same_parameters(one, other)
    with pytest.raises(InputError, match="both guide the exposure: give one"):
        method.fit(CLICKS, side=Side(traffic=LOG.traffic, validation=guide))


# the choice of the epoch


@pytest.mark.parametrize("name", TRAINED)
def test_every_method_with_epochs_can_choose_its_epoch_by_traffic(name):
    model = fit(name, epoch_by="traffic", traffic_use="none", refit=False)
    by_hand = ByTraffic.of(LOG.traffic, CLICKS, k=3)
    assert model.facts["best_value"] == pytest.approx(
        np.mean(model.facts["held_out"][: model.facts["best_epoch"]])
    )
    assert model.facts["held_out"][-1] > 0
    if model.facts["best_epoch"] == 1:
        assert by_hand(model.scores) == pytest.approx(model.facts["held_out"][0])


@pytest.mark.parametrize("name", BY_CHOICE)
def test_a_method_that_can_only_choose_by_traffic_says_so(name):
    with pytest.raises(InputError, match=f"{name} cannot use traffic.*epoch_by=traffic"):
        fit(name)


def test_a_choice_without_traffic_or_without_two_kinds_of_pairs_is_refused():
    with pytest.raises(InputError, match="epoch_by=traffic needs random traffic: give --traffic"):
        quick("mf", epoch_by="traffic").fit(CLICKS, progress=Silent())
    liked = LOG.traffic.pick(LOG.traffic.relevant)
    with pytest.raises(InputError, match="no user with both a relevant and an irrelevant pair"):
        fit("mf", liked, epoch_by="traffic", traffic_use="none")
    with pytest.raises(InputError, match="mf cannot use traffic with these settings"):
        fit("mf", traffic_use="none")


def test_pairs_are_aligned_by_raw_ids():
    like = Clicks.from_pairs(
        np.array([0]), np.array([0]), user_ids=Ids.of([7, 3, 900]), item_ids=Ids.of([2, 1])
    )
    found = aligned(LOG.traffic, like)
    wanted = {
        (like.user_ids.values[u], like.item_ids.values[i]): r
        for u, i, r in zip(found.users, found.items, found.relevant, strict=True)
    }
    t = LOG.traffic
    assert wanted == {
        (u, i): r
        for u, i, r in zip(t.users, t.items, t.relevant, strict=True)
        if u in (3, 7) and i in (1, 2)
    }
    assert len(aligned(LOG.clicks.shown, like)) == sum(
        u in (3, 7) and i in (1, 2) for u, i in pairs_of(LOG.clicks.shown)
    )


@pytest.mark.parametrize("strategy", ["bilevel", "joint"])
def test_an_exposure_of_items_does_not_learn_from_pairs_whose_m_is_given(strategy):
    everything = np.indices((N_USERS, 30)).reshape(2, -1)
    shown = Impressions.from_pairs(*everything, propensity=np.full(N_USERS * 30, 0.5), **IDS)
    given = {"strategy": strategy, "exposure_weight_decay": 0.0, "refit": False}

    def learned(side, **settings):
        method = quick("ubo with items", epochs=2, **given | settings)
        # a held-out click would be dropped from the impressions, and its m learned
        nothing = CLICKS.pick(np.zeros(len(CLICKS), dtype=bool))
        return method.fit(CLICKS, nothing, side=side, progress=Silent()).parameters["exposure"]

    first = make_with("ubo with items", given).composition().exposure.table(CLICKS, Side())
    trained_on = learned(Side(impressions=shown), exposure_from="logged")
    np.testing.assert_array_equal(trained_on, first)
    judged = Traffic(*(part.astype(np.int32) for part in everything), shown.shown > 1, **IDS)
    rest = judged.pick(~CLICKS.contain(judged.users, judged.items))
    if strategy == "bilevel":  # there a click has no hypergradient
        np.testing.assert_array_equal(learned(Side(traffic=rest)), first)
    assert np.abs(learned(Side()) - first).max() > 1e-3


# counts


def test_a_weight_of_counts_is_one_for_a_single_click_and_rises():
    counts = np.array([1, 2, 9])
    for form in ("linear", "logarithmic"):
        weights = count_weights(counts, form=form, alpha=2.0)
        assert weights[0] == 1
        assert (np.diff(weights) > 0).all()
    np.testing.assert_allclose(
        count_weights(counts, form="linear", alpha=2.0), (1 + 2 * counts) / 3
    )
    np.testing.assert_array_equal(count_weights(counts, form="ignored", alpha=2.0), 1)


@pytest.mark.parametrize("name", [*COMPOSED, "wmf"])
def test_counts_are_ignored_unless_asked_for(name):
    often = replace(CLICKS, counts=(1 + np.arange(len(CLICKS)) % 7).astype(np.int32))

    def trained(clicks, **settings):
        return quick(name, epochs=2, **settings).fit(clicks, progress=Silent())

    assert_same_parameters(trained(CLICKS), trained(often))
    plain, weighted = trained(often), trained(often, counts="linear")
    assert not np.array_equal(plain.parameters["user_factors"], weighted.parameters["user_factors"])
    once = trained(CLICKS, counts="linear").parameters["user_factors"]
    np.testing.assert_allclose(once, plain.parameters["user_factors"], rtol=1e-3, atol=1e-5)


def test_wmf_weighs_errors_by_its_confidence():
    """The rows solve the least squares of Hu, Koren and Volinsky, by hand with dense tables."""
    clicks = replace(CLICKS, counts=(1 + np.arange(len(CLICKS)) % 5).astype(np.int32))
    method = quick("wmf", counts="logarithmic", count_weight=0.5)
    items = np.random.default_rng(0).normal(size=(clicks.n_items, method.dim)).astype(np.float32)
    found = method._solve(method._weighted(clicks), items)
    confidence = np.full((clicks.n_users, clicks.n_items), method.unclicked_weight)
    confidence[clicks.users, clicks.items] = count_weights(
        clicks.counts, form="logarithmic", alpha=0.5
    )
    clicked = clicks.matrix().toarray()
    for user in (0, 5, 40):
        weighted = items.T * confidence[user]
        left = weighted @ items + method.regularisation * np.eye(method.dim)
        expected = np.linalg.solve(left, weighted @ clicked[user])
        np.testing.assert_allclose(found[user], expected, rtol=1e-3, atol=1e-5)
