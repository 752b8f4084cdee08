"""Training on what was shown: which m a pair has, and what never reaches training."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import logit
from shown_log import IDS, N_ITEMS, N_USERS, shown_log

from small import EXPOSED, assert_same_parameters, quick
from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Impressions
from unexposed.errors import InputError
from unexposed.maths.losses import LOSSES
from unexposed.methods.composed import ComposedMethod
from unexposed.methods.exposures import Assumed
from unexposed.methods.pair_data import LearningData, PairRules, share_shown
from unexposed.progress import Silent
from unexposed.sampling.samples import Drawing
from unexposed.training.side import Side

LOG = shown_log()


@pytest.fixture
def trained_on(monkeypatch: pytest.MonkeyPatch) -> list[LearningData]:
    """What every training learned from."""
    seen: list[LearningData] = []
    made = ComposedMethod.learning_data

    def noted(method, clicks, side):
        seen.append(made(method, clicks, side))
        return seen[-1]

    monkeypatch.setattr(ComposedMethod, "learning_data", noted)
    return seen


def fit(name, log=LOG, *, held_out=None, seed=0, side=None, **settings):
    method = quick(name, epochs=2, **settings)
    return method.fit(log.clicks, held_out, seed=seed, side=side, progress=Silent())


def listed(table) -> dict[tuple[int, int], float]:
    users = np.repeat(np.arange(N_USERS), np.diff(table.user_start))
    return {(int(u), int(i)): v for u, i, v in zip(users, table.items, table.values, strict=True)}


# which m


def test_a_pair_shown_n_times_and_not_clicked_has_its_chance_of_being_seen_and_no_other_has(
    trained_on,
):
    fit("umf", exposure_from="shown", attention=0.25, refit=False)
    known = listed(trained_on[0].marking.known)
    shown = LOG.clicks.shown
    expected = {
        (int(u), int(i)): 1 - 0.75**n
        for u, i, n, c in zip(shown.users, shown.items, shown.shown, shown.clicked, strict=True)
        if c == 0
    }
    assert known.keys() == expected.keys()
    assert all(known[pair] == pytest.approx(expected[pair], rel=1e-6) for pair in known)


def test_attention_is_learned_from_the_log_and_kept_as_a_fact():
    big = shown_log(1)
    model = fit("umf", big)
    assert 0.25 < model.facts["attention"] < 0.75  # the true one is 0.5
    assert fit("umf", big, attention=0.3).facts["attention"] == 0.3
    assert "attention" not in fit("umf", exposure_from="modelled").facts
    assert model.facts["impressions"] < len(big.clicks.shown)


@pytest.mark.parametrize("name", ["relmf", "ubpr"])
def test_a_loss_that_divides_by_m_takes_the_share_of_users_who_saw_an_item(name, trained_on):
    model = fit(name, exposure_from="shown", attention=0.5, refit=False)
    assert trained_on[0].marking is None
    shown = trained_on[0].side.impressions
    by_hand = np.zeros(N_ITEMS)
    np.add.at(by_hand, shown.items, 1 - 0.5**shown.shown)
    np.testing.assert_allclose(
        model.parameters["exposure"], np.maximum(by_hand / N_USERS, 0.01), rtol=1e-5
    )


@pytest.mark.parametrize("name", EXPOSED)
def test_auto_takes_impressions_where_the_log_has_them_and_nothing_else_changes(name):
    auto, shown, modelled = (fit(name, exposure_from=how) for how in ("auto", "shown", "modelled"))
    assert_same_parameters(auto, shown)
    without = LOG._replace(clicks=replace(LOG.clicks, shown=None))
    plain = fit(name, without)
    assert_same_parameters(plain, modelled)
    assert not np.array_equal(auto.parameters["user_factors"], plain.parameters["user_factors"])
    assert "impressions" not in plain.facts


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"exposure_from": "shown"}, "exposure_from=shown needs impressions"),
        ({"exposure_from": "logged"}, "exposure_from=logged needs impressions with propensities"),
        ({"negatives_from": "shown"}, "negatives_from=shown needs impressions"),
    ],
)
def test_what_the_log_cannot_tell_is_refused_with_the_cure(settings, said):
    without = LOG._replace(clicks=replace(LOG.clicks, shown=None))
    with pytest.raises(InputError, match=f"{said}.*or .*=(modelled|unclicked)"):
        fit("umf", without, **settings)


# the right expectation


def slopes(how: str, *, name_of_loss: str, logs: int = 150) -> tuple[float, float]:
    """Mean of Σ ∂L/∂x over shown pairs at the true relevance, over logs; its standard error.

    Showings stay, and likes are drawn anew: for a loss that is least at the truth the mean is 0.
    """
    rng, a = np.random.default_rng(5), 0.4
    times = rng.poisson(1.5, (N_USERS, N_ITEMS))
    true = np.broadcast_to(rng.uniform(0.2, 0.8, N_ITEMS), times.shape)
    users, items = np.nonzero(times)
    found = []
    for _ in range(logs):
        seen = rng.random(times.shape) < 1 - (1 - a) ** times
        clicked = (rng.random(times.shape) < true) & seen
        impressions = Impressions.from_pairs(
            users, items, shown=times[users, items], clicked=clicked[users, items], **IDS
        )
        clicks = Clicks.from_pairs(*np.nonzero(clicked), **IDS)
        inverse = name_of_loss == "inverse_propensity"
        rules = PairRules(Assumed(source=how, attention=a), divides=inverse)
        data = rules.applied(clicks, Side(impressions=impressions))
        samples = Drawing(4, "unbiased").sampler(data.clicks).draw(rng)
        pairs = (samples if data.marking is None else data.marking.mark(samples, rng)).pairs()
        at = pairs.users, pairs.items
        model = 0.6 if data.side.exposure is None else data.side.exposure[pairs.items]
        known = np.full(len(pairs), np.nan) if pairs.exposure is None else pairs.exposure
        m = np.where(np.isnan(known), model, known)
        counts = pairs.weight * ((times[at] > 0) | inverse)
        given = (_tensor(column) for column in (logit(true[at]), pairs.click, m))
        found.append(float((counts * LOSSES[name_of_loss].gradient(*given).numpy()).sum()))
    return float(np.mean(found)), float(np.std(found) / np.sqrt(logs))


def _tensor(column):
    return torch.tensor(np.asarray(column, dtype=np.float64))


def test_the_loss_over_what_was_shown_has_no_slope_at_the_true_relevance():
    mean, error = slopes("shown", name_of_loss="low_variance")
    assert abs(mean) < 4 * error
    mean, error = slopes("modelled", name_of_loss="low_variance")
    assert abs(mean) > 8 * error


def test_the_inverse_propensity_loss_with_shares_shown_has_no_slope_at_the_true_relevance():
    # showings do not depend on the user; the share is of the same showings for every log
    mean, error = slopes("shown", name_of_loss="inverse_propensity")
    assert abs(mean) < 4 * error
    mean, error = slopes("modelled", name_of_loss="inverse_propensity")
    assert abs(mean) > 20 * error


# no label leaks


@pytest.mark.parametrize("clicks_only", [False, True])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("settings", [{"exposure_from": "shown"}, {"negatives_from": "shown"}])
def test_a_held_out_click_is_never_shown_and_not_clicked_to_training(
    clicks_only, given, settings, trained_on
):
    log = shown_log(2, clicks_only=clicks_only)
    train, held_out = log.clicks.hold_out(fraction=0.1, seed=3)
    if clicks_only:  # a pair is shown without a click, and clicked another time
        assert log.clicks.shown.contain(held_out.users, held_out.items).any()
    if given:
        fit("umf", log._replace(clicks=train), held_out=held_out, **settings)
    else:
        fit("umf", log, seed=3, **settings)
    assert len(trained_on) == 2  # the second training is on all clicks
    for one in trained_on:
        table = one.marking and one.marking.known
        pairs = set(listed(table)) if table else set(zip(*one.pool, strict=True))
        assert pairs
        clicked = set(zip(log.clicks.users.tolist(), log.clicks.items.tolist(), strict=True))
        assert not pairs & clicked


# engines, and what is kept


@pytest.mark.parametrize("name", ["umf", "ubo", "ubo with items"])
def test_engines_agree_on_a_training_with_impressions(name):
    cpu, reference = (
        fit(name, engine=engine, refit=False).parameters for engine in ("cpu", "reference")
    )
    for key, table in reference.items():
        np.testing.assert_allclose(cpu[key], table, rtol=2e-3, atol=2e-5)


@pytest.mark.parametrize("name", ["mf", "bpr", "ubpr", "ubo"])
def test_negatives_come_from_what_was_shown_and_not_clicked(name, trained_on):
    model = fit(name, negatives_from="shown", refit=False)
    assert np.isfinite(model.score([0], [0])).all()
    users, items = trained_on[0].pool
    assert len(users) == model.facts["impressions"]
    assert LOG.clicks.shown.contain(users, items).all()
    assert not LOG.clicks.contain(users, items).any()
    other = fit(name, refit=False)
    assert not np.array_equal(model.parameters["user_factors"], other.parameters["user_factors"])


def test_a_share_shown_counts_a_click_as_a_showing():
    clicks = Clicks.from_pairs(np.array([0]), np.array([1]), **IDS)
    shown = Impressions.from_pairs(np.array([0, 2]), np.array([1, 3]), **IDS)
    share = share_shown(clicks, shown, 0.5) * N_USERS
    np.testing.assert_allclose(share[[1, 3, 4]], [0.75, 0.5, 0])
