"""The quality on held-out clicks, by candidates of any popularity and by weighted draws."""

import math
from dataclasses import replace

import numpy as np
import pytest

from small import clicks_of
from unexposed.data.labelled import Impressions, Judgements
from unexposed.data.worlds.simulate import world
from unexposed.errors import InputError
from unexposed.methods import make, trained
from unexposed.ranking import metrics
from unexposed.ranking.blocks import tie_break
from unexposed.ranking.held_out import (
    CRITERIA,
    DEFAULT,
    Criterion,
    as_if_uniform,
    dissent,
    held_out_quality,
    passed_over,
    qualities,
    quality_of_users,
)
from unexposed.ranking.rank import rank_catalogue
from unexposed.training.side import Side


@pytest.fixture(scope="module")
def problem():
    """Scores with many ties, a log with a long tail, and a part of it held out."""
    rng = np.random.default_rng(0)
    popularity = 0.8 / np.arange(1, 31)
    clicks = clicks_of(rng.random((40, 30)) < popularity)
    score = np.floor(rng.integers(0, 4, (40, 30)) + 5 * popularity).astype(np.float32)
    return lambda users: score[users], *clicks.hold_out(fraction=0.3, seed=1)


def impressions(clicks):
    """What was shown beside the clicks: a tenth of all pairs, some of them clicked."""
    drawn = np.nonzero(np.random.default_rng(5).random((clicks.n_users, clicks.n_items)) < 0.1)
    return Impressions.from_pairs(*drawn, user_ids=clicks.user_ids, item_ids=clicks.item_ids)


def wanted(held_out):
    yes = np.ones(len(held_out), dtype=bool)
    return Judgements(held_out.users, held_out.items, yes, held_out.user_ids, held_out.item_ids)


def test_the_quality_is_what_drawing_candidates_by_popularity_gives_on_average(problem):
    exponent = 0.5
    scores, train, held_out = problem
    rng, draws, others, k = np.random.default_rng(2), 4000, 4, 3
    mass = np.maximum(train.item_counts, 1) ** exponent
    gains = []
    for user, item in zip(held_out.users, held_out.items, strict=True):
        row = scores(np.array([user]))[0]
        free = ~train.contain(np.full(30, user), np.arange(30))
        free[item] = False
        chance = np.where(free, mass, 0) / mass[free].sum()
        hashed = tie_break(np.full(30, user), np.arange(30))
        above = (row > row[item]) | ((row == row[item]) & (hashed < hashed[item]))
        n_above = above[rng.choice(30, (draws, others), p=chance)].sum(axis=1)
        gains.append(np.where(n_above < k, 1 / np.log2(n_above + 2), 0))
    drawn = np.array(gains)  # (held-out clicks, draws)
    by_user = [drawn[held_out.users == user].mean() for user in np.unique(held_out.users)]
    alike = Criterion("", exponent=-1.0, k=k, candidates=others + 1)
    found = held_out_quality(
        scores,
        train,
        held_out,
        replace(alike, candidates_exponent=exponent),
    )
    error = drawn.std() / np.sqrt(drawn.size)
    assert found == pytest.approx(np.mean(by_user), abs=5 * error)
    uniform = held_out_quality(scores, train, held_out, alike)
    assert abs(found - uniform) > 10 * error  # the test can tell the two apart


def test_the_weighted_draw_levels_the_shares_of_items():
    # two items of 900 and 100 clicks by users of one click: weights of 1/9 to 1 level the shares
    matrix = np.zeros((2000, 2))
    matrix[:900, 0] = matrix[900:1000, 1] = 1
    clicks = clicks_of(matrix)
    nothing = clicks.pick(np.zeros(len(clicks), dtype=bool))
    items = clicks.items[as_if_uniform(nothing, clicks)]
    # without replacement, a draw of half takes nearly all clicks of the rare item
    assert (items == 1).sum() >= 97
    assert len(items) == 500


def test_a_model_is_judged_by_every_criterion_that_can_judge(problem):
    scores, train, held_out = problem
    others = passed_over(impressions(train), train, held_out)
    found = qualities(scores, train, held_out, others)
    assert list(found) == list(CRITERIA)
    assert list(qualities(scores, train, held_out)) == [n for n in CRITERIA if n != "shown"]
    for name, by in CRITERIA.items():
        values = quality_of_users(scores, train, held_out, by, others)
        assert found[name] == [values.mean(), values.std() / np.sqrt(len(values))]
    assert make("mf").criterion == DEFAULT
    assert len({value for value, _ in found.values()}) == len(CRITERIA)


def test_a_trained_method_chooses_its_epoch_by_the_criterion_it_is_given(problem):
    _, train, held_out = problem
    brief = make("mf", dim=4, epochs=3, refit=False, quality_window=1)
    for name in ("popular", "wtd", "catalogue", "shown"):
        side = Side(passed_over=impressions(train)) if name == "shown" else None
        model = replace(brief, criterion=name).fit(train, held_out, side=side)
        best = model.facts["best_epoch"]
        assert model.facts["held_out"][best - 1] == model.facts["criteria"][name][0]


def test_among_shown_items_every_held_out_click_counts_alike(problem):
    scores, train, held_out = problem
    others = passed_over(impressions(train), train, held_out)
    gains = []
    for user, item in zip(held_out.users, held_out.items, strict=True):
        rivals = others.items[others.users == user]
        if len(rivals) == 0:
            continue
        row, hashed = scores(np.array([user]))[0], tie_break(np.full(30, user), np.arange(30))
        above = (row > row[item]) | ((row == row[item]) & (hashed < hashed[item]))
        share, others_drawn = above[rivals].mean(), 9
        chances = [
            math.comb(others_drawn, j) * share**j * (1 - share) ** (others_drawn - j)
            for j in range(3)
        ]
        gains.append(sum(c / np.log2(j + 2) for j, c in enumerate(chances)))
    found = quality_of_users(scores, train, held_out, CRITERIA["shown"], others)
    assert found.mean() == pytest.approx(np.mean(gains))
    assert len(gains) < len(held_out)  # some users were shown nothing else
    assert len(found) < len(gains)  # some have several


def test_pooled_clicks_count_by_their_weights_whoever_made_them(problem):
    scores, train, held_out = problem
    by = Criterion("", exponent=1.5, pooled=True)
    ranking = rank_catalogue(scores, wanted(held_out), train, exponent=1.5)
    each = replace(  # every click as a user of its own
        ranking,
        start=np.arange(len(held_out) + 1),
        n_candidates=ranking.n_candidates[ranking.users],
    )
    gains = metrics.snips_dcg_of_few(each, 3, candidates=10)
    found = quality_of_users(scores, train, held_out, by)
    assert found.mean() == pytest.approx(np.average(gains, weights=ranking.weights))
    usual = quality_of_users(scores, train, held_out, replace(by, pooled=False))
    assert abs(found.mean() - usual.mean()) > 0.01


def test_the_criterion_shown_needs_impressions_and_one_process(problem, monkeypatch):
    _, train, held_out = problem
    brief = make("mf", dim=4, epochs=1, criterion="shown")
    with pytest.raises(InputError, match=r"shown needs impressions: .* \(--shown below\)"):
        brief.fit(train, held_out)
    with pytest.raises(InputError, match="mf cannot use passed_over with these settings"):
        make("mf").fit(train, held_out, side=Side(passed_over=impressions(train)))
    with pytest.raises(InputError, match="no criterion 'populr'; did you mean 'popular'"):
        make("mf", criterion="populr")
    monkeypatch.setattr(trained, "several", lambda: True)
    with pytest.raises(InputError, match="workers cannot choose by what was shown: give another"):
        brief.check_workers()


def test_held_out_clicks_prefer_relevance_to_the_chance_of_a_click_among_shown_items_alone():
    seed = 0
    made = world(400, 100, popularity_bias=1.0, relevance_bias=0.0, seed=seed)
    train, held_out = made.clicks(seed).hold_out(fraction=0.2, seed=0)
    others = passed_over(made.disliked(seed), train, held_out)
    liked, clicked = (
        qualities(scores, train, held_out, others)
        for scores in (made.relevance, lambda users: np.multiply(*made.truth(users)))
    )
    assert clicked["plain"][0] > liked["plain"][0] + 0.05
    assert liked["shown"][0] > clicked["shown"][0] + 0.05


def test_a_criterion_dissents_only_beyond_the_standard_error_of_the_chosen():
    rated = {
        "a": {"uniform": [0.5, 0.01], "popular": [0.40, 0.02]},
        "b": {"uniform": [0.4, 0.01], "popular": [0.41, 0.02]},
    }
    assert dissent(rated, "a") == {}
    rated["b"]["popular"][0] = 0.43
    assert dissent(rated, "a") == {"popular": "b"}
    assert dissent(rated, "b") == {"uniform": "a"}
