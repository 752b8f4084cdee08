"""Folded-in users get the vectors training would give them, and nobody else changes."""

import itertools

import numpy as np
import pytest
import torch

from small import FOLDING, METHODS, PERSONAL, quick
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.worlds.simulate import world
from unexposed.engine.cpu.formulas import LOSS_CODES
from unexposed.engine.objective import Objective, Optimiser
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.maths.relevance import DotProduct
from unexposed.model.fold_in import SEED, solve
from unexposed.progress import Silent
from unexposed.sampling.draw import EVEN
from unexposed.sampling.samples import Drawing, Samples, samples_alone
from unexposed.training.side import Side

LEARNING = [name for name in FOLDING if name in PERSONAL]


def pairs(rows, items, user_ids, item_ids):
    return Clicks.from_pairs(
        np.array(rows), np.array(items), user_ids=Ids.of(user_ids), item_ids=Ids.of(item_ids)
    )


# Samples of new users, and what they teach

N_ITEMS, DIM = 9, 4
CLICKED = pairs([0, 0, 0, 1], [1, 4, 7, 2], range(2), range(N_ITEMS))
TRAINED_ON = pairs(  # item i has i clicks, so that popularity differs
    [u for i in range(N_ITEMS) for u in range(i)],
    [i for i in range(N_ITEMS) for _ in range(i)],
    range(N_ITEMS),
    range(N_ITEMS),
)
TIMES = {"epochs": 6, "batch_size": 4}
OPTIMISER = Optimiser(0.05, 0.2)
DRAWINGS = {
    "unclicked": Drawing(2),
    "unbiased": Drawing(2, "unbiased"),
    "every pair": Drawing(2, every_pair=True, source="catalogue"),  # nothing is drawn
    "catalogue": Drawing(2, source="catalogue"),
    "unbiased by popularity": Drawing(2, "unbiased", exponent=0.5),
}


def problem(biases="none"):
    rng, relevance = np.random.default_rng(0), DotProduct(DIM, 1.0, biases, start=-3.0)
    items = relevance.initial(1, N_ITEMS, rng)["item_factors"]
    return relevance, {"item_factors": items}, rng.uniform(0.2, 0.9, N_ITEMS)


def solved(loss="low_variance", drawing=DRAWINGS["unclicked"], biases="none", **options):
    relevance, tables, exposure = problem(biases)
    given = {"drawing": drawing, "law": drawing.law(TRAINED_ON), "relevance": relevance}
    options = {"n_clicks": 12, "exposure": exposure, **TIMES, **given, **options}
    return solve(tables, CLICKED, loss, OPTIMISER, **options)["user_factors"]


def drawn(clicks, drawing, *, epochs, law=EVEN, steps=1):
    samples, batches = samples_alone(
        clicks, drawing, law, epochs=epochs, steps=steps, batch_size=1, seed=3
    )
    return samples.pairs(), samples, batches


@pytest.mark.parametrize("drawing", DRAWINGS.values(), ids=DRAWINGS)
@pytest.mark.parametrize("loss", LOSS_CODES)
def test_a_vector_is_what_the_reference_engine_learns_with_the_items_held(loss, drawing):
    biases = "item" if "pairwise" in loss else "both"
    relevance, tables, exposure = problem(biases)
    given = {"exposure": exposure, "relevance": relevance, "dtype": torch.float64, "held": True}
    start = tables | relevance.new_users({}, 2)
    engine = ReferenceEngine(Objective(loss), OPTIMISER, start, **given)
    law = drawing.law(TRAINED_ON)
    engine.learn(*samples_alone(CLICKED, drawing, law, steps=3, seed=SEED, **TIMES))
    learned = engine.parameters()
    np.testing.assert_array_equal(learned["item_factors"], tables["item_factors"])
    found = solved(loss, drawing, biases)
    assert np.abs(found - start["user_factors"]).max() > 0.2  # far from the start
    np.testing.assert_allclose(found, learned["user_factors"], rtol=1e-3, atol=1e-5)


def test_a_step_with_held_items_is_the_step_of_training_for_a_user():
    relevance, tables, exposure = problem()
    start = tables | {"user_factors": np.random.default_rng(1).normal(size=(2, DIM))}
    batch = Samples(
        np.array([0, 1], dtype=np.int32),
        np.array([0, 3, 5]),
        np.array([1, 0, 3, 2, 5], dtype=np.int32),
        np.ones(2, dtype=np.float32),
    )
    engines = [
        ReferenceEngine(
            *(Objective("low_variance"), OPTIMISER, start),
            **{"exposure": exposure, "relevance": relevance, "dtype": torch.float64, "held": held},
        )
        for held in (False, True)
    ]
    free, held = ((engine.step(batch), engine.parameters())[1] for engine in engines)
    np.testing.assert_array_equal(held["user_factors"], free["user_factors"])
    assert (free["item_factors"] != held["item_factors"]).any()


@pytest.mark.parametrize("clicked", [[1, 4], [0, 1, 4, 6, 7, 8]])  # few and most of nine
@pytest.mark.parametrize(
    ("source", "exponent"), [("unclicked", 0), ("unclicked", 0.5), ("catalogue", 0)]
)
def test_items_are_drawn_by_their_chance_and_every_click_comes_once(clicked, source, exponent):
    own = pairs([0] * len(clicked), clicked, range(1), range(N_ITEMS))
    law = Drawing(3, exponent=exponent).law(TRAINED_ON)
    found, samples, _ = drawn(own, Drawing(3, source=source), epochs=1000, law=law)
    assert (np.bincount(samples.items[samples.start[:-1]], minlength=9)[clicked] == 1000).all()
    counts = np.bincount(found.items[found.click == 0], minlength=9)
    expected = np.maximum(TRAINED_ON.item_counts, 1.0) ** exponent
    if source == "unclicked":
        expected[clicked] = 0
    np.testing.assert_allclose(counts / counts.sum(), expected / expected.sum(), atol=0.033)


def test_every_pair_deals_each_unclicked_item_once_and_evenly():
    own = pairs([0] * 3, [1, 4, 6], range(1), range(N_ITEMS))
    found, samples, batches = drawn(own, Drawing(5, every_pair=True), epochs=50)
    assert (np.diff(samples.start) == 3).all()
    for first, stop in itertools.pairwise(batches.bounds):  # an epoch each
        assert sorted(samples.items[samples.start[first] : samples.start[stop]]) == [*range(9)]
    assert set(found.items[found.click == 0]) == {0, 2, 3, 5, 7, 8}


@pytest.mark.parametrize("every_pair", [False, True])
def test_nothing_is_drawn_for_a_user_who_clicked_everything(every_pair):
    own = pairs([0] * 3, range(3), range(1), range(3))
    _, samples, _ = drawn(own, Drawing(2, every_pair=every_pair), epochs=1)
    assert sorted(samples.items) == [0, 1, 2]


def test_clicks_are_spread_evenly_over_the_steps():
    own = pairs([0] * 6000, range(6000), range(1), range(6001))
    _, _, batches = drawn(own, Drawing(1), epochs=2, steps=6)
    assert batches.before.tolist() == [*range(12)]
    np.testing.assert_allclose(np.diff(batches.bounds), 1000, atol=150)  # 5 sd


def test_a_training_smaller_than_a_batch_is_one_batch():
    one, other = (solved(n_clicks=10, batch_size=size) for size in (10, 1000))
    assert np.array_equal(one, other)


def test_other_users_and_threads_change_no_bit(monkeypatch):
    together = solved()
    monkeypatch.setattr("unexposed.model.fold_in.PAIRS", 1)  # one user at a time
    for threads in (1, 2):
        assert solved(threads=threads).tobytes() == together.tobytes()


# Models


@pytest.fixture(scope="module", params=LEARNING)
def fitted(request, checkerboard):
    # no refit: a second training may take another way in so few steps
    return quick(request.param, refit=False).fit(checkerboard[0], progress=Silent())


NEWCOMERS = pairs([0, 0, 0, 1, 1], [0, 1, 2, 3, 4], ["even", "odd"], [
    "item 0", "item 6", "item 8", "item 3", "item 11",
])  # fmt: skip


def test_new_users_of_the_checkerboard_get_items_of_their_colour(fitted):
    model = fitted.fold_in(NEWCOMERS)
    table = model.recommend(["even", "odd"], 5)
    colours = [int(item.split()[1]) % 2 for item in table["item"]]
    assert (np.array(colours) == [0] * 5 + [1] * 5).sum() >= 9  # by chance: five
    assert not set(table["item"]) & {"item 0", "item 6", "item 8", "item 3", "item 11"}


def test_folding_in_changes_no_other_user(fitted):
    model = fitted.fold_in(NEWCOMERS)
    assert len(model.user_ids) == len(fitted.user_ids) + 2
    for name, table in fitted.parameters.items():
        assert model.parameters[name][: len(table)].tobytes() == table.tobytes(), name
    users = fitted.user_ids.values.tolist()
    assert model.recommend(users, 4).equals(fitted.recommend(users, 4))
    assert len(model.clicks) == len(fitted.clicks) + 5


def test_a_new_user_gets_the_same_list_alone_and_among_others(fitted):
    both = fitted.fold_in(NEWCOMERS).recommend(["odd"], 4)
    alone = fitted.fold_in(pairs([0, 0], [0, 1], ["odd"], ["item 3", "item 11"])).recommend(
        ["odd"], 4
    )
    assert alone["item"].equals(both["item"])
    np.testing.assert_allclose(alone["score"], both["score"], rtol=1e-4, atol=1e-6)
    items = fitted.recommend_for(["item 3", "item 11", "unheard of"], 4)
    assert items.drop("score", "relevance", "exposure", strict=False).equals(
        alone.drop("user", "score", "relevance", "exposure", strict=False)
    )
    np.testing.assert_allclose(items["score"], alone["score"], rtol=1e-4, atol=1e-6)


def test_a_known_user_is_learned_again_from_all_clicks(fitted):
    before = fitted.clicks
    own = before.items[before.users == 3]
    other_colour = pairs([0], [0], ["user 3"], ["item 4"])
    model = fitted.fold_in(other_colour)
    assert len(model.user_ids) == len(fitted.user_ids)
    assert set(model.clicks.items[model.clicks.users == 3]) == {*own, 4}
    assert model.clicks.counts.sum() == before.counts.sum() + 1
    third, fifth = (model.user_ids.index([f"user {n}"]) for n in (3, 5))
    assert not np.array_equal(model.scores(third), fitted.scores(third))
    np.testing.assert_array_equal(model.scores(fifth), fitted.scores(fifth))


@pytest.mark.parametrize("name", LEARNING)
def test_folded_in_users_are_scored_like_trained_ones(name):
    clicks = world(300, 60, seed=5).clicks(0)
    model = quick(name, epochs=25, learning_rate=0.01, regularisation=0.2).fit(
        clicks, progress=Silent()
    )
    last = clicks.users >= 250
    newcomers = Clicks.from_pairs(
        clicks.users[last] - 250,
        clicks.items[last],
        user_ids=Ids.of(f"new {u}" for u in range(50)),
        item_ids=clicks.item_ids,
    )
    folded = model.fold_in(newcomers)
    active = np.flatnonzero(newcomers.user_counts >= 3)  # so that some were trained on
    there = folded.user_ids.index([f"new {u}" for u in active])
    one = model.scores((active + 250).astype(np.int32))
    two = folded.scores(there)
    correlation = [np.corrcoef(a, b)[0, 1] for a, b in zip(one, two, strict=True)]
    assert np.mean(correlation) > 0.8


@pytest.mark.parametrize("name", [name for name in METHODS if name not in LEARNING])
def test_other_methods_serve_new_users_or_refuse(name, checkerboard):
    model = quick(name, epochs=1).fit(checkerboard[0], progress=Silent())
    if name in FOLDING:
        assert len(model.fold_in(NEWCOMERS).recommend(["even"], 3)) == 3
    else:
        with pytest.raises(InputError, match=f"{name} cannot fold in users"):
            model.fold_in(NEWCOMERS)


def test_new_users_get_the_mean_exposure(checkerboard):
    ubo = quick("ubo", epochs=5).fit(checkerboard[0], progress=Silent())
    folded = ubo.fold_in(NEWCOMERS).parameters["exposure_user_factors"][-1]
    mean = ubo.parameters["exposure_user_factors"].mean(axis=0)
    np.testing.assert_allclose(folded, mean, rtol=1e-6)
    clicks = checkerboard[0]
    table = np.random.default_rng(0).uniform(0.2, 1, (clicks.n_users, clicks.n_items))
    method = quick("umf", epochs=5)
    model = method.fit(clicks, side=Side(exposure=table), progress=Silent()).fold_in(NEWCOMERS)
    expected = table.mean(axis=0)[[2, 5]]
    np.testing.assert_allclose(
        model.exposure(["odd", "odd"], ["item 2", "item 5"]), expected, rtol=1e-5
    )
