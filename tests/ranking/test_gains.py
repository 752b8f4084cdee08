"""The verdict on a model: right numbers, and plain words that follow from them."""

import numpy as np
import pytest
from scipy import stats

from small import clicks_of, quick
from unexposed.methods import load, make
from unexposed.methods.popularity import popular_list
from unexposed.progress import Silent
from unexposed.ranking.held_out import CRITERIA
from unexposed.ranking.verdict import (
    FEWEST,
    RIVAL,
    Gain,
    each_of_facts,
    gains,
    joined,
    on_held_out,
    verdict,
)

RNG = np.random.default_rng(0)
ABOVE = Gain(0.3, 0.2, 0.05, 0.15, 0.001, 50)
BELOW = Gain(0.2, 0.3, -0.15, -0.05, 0.001, 50)
LEVEL = Gain(0.2, 0.3, -0.3, 0.1, 0.4, 50)
READINGS = {"a": "NDCG@10", "b": "weighed"}


def said(*gains: Gain):
    named = dict(zip("ab", gains, strict=False))
    return verdict("ubo", named, where="on held-out clicks", readings=READINGS)


def test_a_gain_is_the_paired_t_test_of_the_users():
    ours, theirs = RNG.random(40), RNG.random(40) ** 2
    lacking = np.append(ours[1:], np.nan)
    both = gains({"a": ours, "b": lacking, "c": ours}, {"a": theirs, "b": theirs, "c": ours})
    assert (both["c"].p, both["c"].finding) == (1.0, "chance")
    assert "b" not in both  # some users lack it
    assert gains({"a": ours[: FEWEST - 1]}, {"a": theirs[: FEWEST - 1]}) == {}
    found, tested = both["a"], stats.ttest_rel(ours, theirs)
    ends = tested.confidence_interval(0.95)
    assert found.difference == pytest.approx((ours - theirs).mean())
    assert found.p == pytest.approx(tested.pvalue)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))


def test_a_verdict_says_above_below_or_chance_and_a_loss_by_any_reading_warns():
    assert "is above popularity: NDCG@10 .300 against .200" in str(said(ABOVE))
    assert "+.100 [.050, .150], more than chance" in str(said(ABOVE))
    assert not said(ABOVE, LEVEL).warns
    assert str(said(BELOW)).startswith("warning: on held-out clicks ubo is below popularity")
    assert "do not put it into production" in str(said(LEVEL, BELOW))
    assert "must decide" in str(said(BELOW, ABOVE))
    assert said(BELOW, ABOVE).warns
    assert "no more than chance" in str(said(LEVEL))
    assert "nothing here says that it is better" in str(said(LEVEL))
    together = str(joined([said(LEVEL), said(BELOW)]))  # a warning begins with what it warns of
    assert together.startswith("warning: on held-out clicks ubo is below popularity")
    assert joined([]) is None


@pytest.fixture(scope="module")
def split(small_world):
    return small_world.split(seed=0)


def test_a_model_that_knows_the_held_out_clicks_wins_and_its_opposite_loses(split):
    train, held_out = split.train, split.held_out
    wanted = np.zeros((train.n_users, train.n_items), dtype=np.float32)
    wanted[held_out.users, held_out.items] = 1
    popular = popular_list(train).scores
    beside = {RIVAL: lambda: popular}
    for sign, finding in ((1, "above"), (-1, "below")):
        found = on_held_out(
            lambda u, s=sign: s * wanted[u], beside, train, held_out, CRITERIA["uniform"]
        )
        assert {one["finding"] for one in found[RIVAL].values()} == {finding}
        (said,) = each_of_facts("x", {"verdict": found})
        assert said.warns == (sign < 0)
    itself = on_held_out(popular, beside, train, held_out, CRITERIA["uniform"])
    assert all(one["difference"] == 0 for one in itself[RIVAL].values())


@pytest.mark.parametrize("name", ["mf", "ease"])
def test_the_verdict_is_of_the_model_before_the_refit(split, name):
    refit, kept = (
        quick(name, epochs=5, refit=r).fit(split.train, split.held_out, progress=Silent())
        for r in (True, False)
    )
    assert refit.facts["verdict"] == kept.facts["verdict"]
    popular = popular_list(split.train).scores
    scores = make(name, refit=False).scores
    found = on_held_out(
        lambda users: scores(kept.parameters, users, split.train),
        {RIVAL: lambda: popular},
        split.train,
        split.held_out,
        CRITERIA["uniform"],
    )
    assert found == kept.facts["verdict"]
    assert str(kept.verdict) in kept._repr_html_()


def test_few_held_out_clicks_and_the_popular_list_have_no_verdict(split):
    few = clicks_of(np.eye(5) + np.eye(5)[::-1])
    assert quick("mf", epochs=1).fit(few, progress=Silent()).verdict is None
    assert make("popularity").fit(split.train).verdict is None


def test_a_verdict_is_saved_with_its_model(split, tmp_path):
    model = quick("mf", epochs=2).fit(split.train, split.held_out, progress=Silent())
    model.save(tmp_path / "model")
    assert load(tmp_path / "model").verdict == model.verdict
