"""Users folded in: as training would have them, and without touching anybody else."""

import numpy as np
import pytest
import torch

from small import QUICK, make_with
from unexposed import fold_in_kernel as kernel
from unexposed.data import Clicks, Ids
from unexposed.engine import Objective, Optimiser
from unexposed.engine.adam import RowAdam
from unexposed.engine.cpu import LOSS_CODES
from unexposed.errors import InputError
from unexposed.fold_in import SEED, solve
from unexposed.losses import LOSSES, pairwise
from unexposed.methods import METHODS, make
from unexposed.progress import Silent
from unexposed.recommender import Side
from unexposed.rules import Rules
from unexposed.simulate import world

FOLDS = sorted(set(METHODS) - {"cjmf"})
PERSONAL = sorted(set(FOLDS) - {"random", "popularity"})


def quick(name, **settings):
    return make_with(name, QUICK | settings)


def pairs(rows, items, user_ids, item_ids):
    return Clicks.from_pairs(
        np.array(rows), np.array(items), user_ids=Ids.of(user_ids), item_ids=Ids.of(item_ids)
    )


# The vector itself ----------------------------------------------------------------------------

N_ITEMS, DIM = 9, 4
CLICKED = pairs([0, 0, 0, 1], [1, 4, 7, 2], range(2), range(N_ITEMS))


def oracle(items, exposure, loss, *, negatives, weight, n_batches, batch_size, epochs, rates):
    """Autograd and RowAdam on the samples that the kernel draws, the items held still."""
    out = torch.zeros(CLICKED.n_users, DIM, dtype=torch.float64)
    items, shown = torch.tensor(items, dtype=torch.float64), torch.tensor(exposure)
    for user in range(CLICKED.n_users):
        clicked = CLICKED.items[CLICKED.users == user]
        clicked_by = np.full(N_ITEMS, -1, dtype=np.int32)
        clicked_by[clicked] = user
        code = LOSS_CODES[loss]
        n = kernel.sample_count(len(clicked), N_ITEMS, negatives, code)
        table = out[user : user + 1].clone()
        adam = RowAdam(table, learning_rate=rates[0], weight_decay=rates[1])
        bits = np.uint64(SEED)
        for _ in range(epochs):
            samples = np.empty((3, n), dtype=np.int64)
            bits = kernel.draw(
                samples, clicked, clicked_by, user, negatives, code, n_batches, np.uint64(bits)
            )
            for batch in np.unique(samples[2]):
                item, other = torch.from_numpy(samples[:2, samples[2] == batch])
                vector = table.clone().requires_grad_()
                if loss == "pairwise":
                    value = pairwise((vector * (items[item] - items[other])).sum(1)).sum()
                else:
                    click = other.double()
                    cost = LOSSES[loss].value((vector * items[item]).sum(1), click, shown[item])
                    value = (torch.where(click > 0, 1.0, weight[user]) * cost).sum()
                (gradient,) = torch.autograd.grad(value / batch_size, vector)
                adam.step(torch.tensor([0]), gradient)
        out[user] = table[0]
    return out.numpy()


@pytest.mark.parametrize("loss", LOSS_CODES)
@pytest.mark.parametrize("draws", ["sampled", "unbiased", "all"])
def test_a_vector_is_what_autograd_and_adam_make_of_the_same_samples(loss, draws):
    if loss == "pairwise" and draws != "sampled":
        pytest.skip("pairs of items are always drawn, without weights")
    rng = np.random.default_rng(0)
    items = rng.normal(0, 1, (N_ITEMS, DIM)).astype(np.float32)
    exposure = rng.uniform(0.2, 0.9, N_ITEMS)
    negatives = 0 if draws == "all" else 2
    weight = np.ones(2)
    if draws == "unbiased":  # unclicked items for each drawn one
        weight = np.array([6 / 6, 8 / 2])
    drawing = {"negatives": 2, "weighting": "none", "pairwise": loss == "pairwise"}
    found = solve(
        items,
        CLICKED,
        Objective(loss),
        Optimiser(0.05, 0.01),
        exposure=exposure,
        drawing=None
        if draws == "all"
        else drawing | {"weighting": draws.replace("sampled", "none")},
        n_samples=14,
        batch_size=4,
        epochs=6,
    )
    expected = oracle(
        items,
        exposure,
        loss,
        negatives=negatives,
        weight=weight,
        n_batches=4,
        batch_size=4,
        epochs=6,
        rates=(0.05, 0.01),
    )
    assert np.abs(expected).max() > 0.3  # it has come far from zero
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_drawn_items_are_unclicked_and_every_click_comes_once():
    clicked = np.array([1, 4], dtype=np.int32)
    clicked_by = np.full(5, -1, dtype=np.int32)
    clicked_by[clicked] = 3
    samples = np.empty((3, 8), dtype=np.int64)
    bits = np.uint64(0)
    drawn = []
    for _ in range(200):
        bits = np.uint64(kernel.draw(samples, clicked, clicked_by, 3, 3, 1, 6, bits))
        assert sorted(samples[0, samples[1] == 1]) == [1, 4]
        drawn += samples[0, samples[1] == 0].tolist()
        assert samples[2].min() >= 0
        assert samples[2].max() < 6
    counts = np.bincount(drawn, minlength=5)
    assert counts[[1, 4]].sum() == 0
    assert counts[[0, 2, 3]].min() > 0.8 * len(drawn) / 3


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_any_number_of_threads_gives_the_same_bits(threads):
    items = np.random.default_rng(0).normal(size=(N_ITEMS, DIM)).astype(np.float32)
    drawing = {"negatives": 2, "weighting": "none", "pairwise": False}
    found = [
        solve(
            items,
            CLICKED,
            Objective("low_variance"),
            Optimiser(0.05, 0.0),
            exposure=None,
            drawing=drawing,
            n_samples=100,
            batch_size=8,
            epochs=5,
            threads=t,
        )
        for t in (1, threads)
    ]
    assert found[0].tobytes() == found[1].tobytes()


# Models ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=PERSONAL)
def fitted(request, checkerboard):
    return quick(request.param).fit(checkerboard[0], progress=Silent())


NEWCOMERS = pairs([0, 0, 0, 1, 1], [0, 1, 2, 3, 4], ["even", "odd"], [
    "item 0", "item 6", "item 8", "item 3", "item 11",
])  # fmt: skip


def test_newcomers_to_the_checkerboard_get_items_of_their_colour(fitted):
    model = fitted.fold_in(NEWCOMERS)
    table = model.recommend(["even", "odd"], 5)
    colours = [int(item.split()[1]) % 2 for item in table["item"]]
    assert (np.array(colours) == [0] * 5 + [1] * 5).sum() >= 9  # by chance: five
    assert not set(table["item"]) & {"item 0", "item 6", "item 8", "item 3", "item 11"}


def test_folding_in_touches_nobody_else(fitted):
    model = fitted.fold_in(NEWCOMERS)
    assert len(model.user_ids) == len(fitted.user_ids) + 2
    for name, table in fitted.parameters.items():
        assert model.parameters[name][: len(table)].tobytes() == table.tobytes(), name
    users = fitted.user_ids.values.tolist()
    assert model.recommend(users, 4).equals(fitted.recommend(users, 4))
    assert len(model.clicks) == len(fitted.clicks) + 5


def test_a_newcomer_alone_is_the_same_as_among_others(fitted):
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


def test_a_known_user_is_learned_anew_from_all_its_clicks(fitted):
    before = fitted.clicks
    own = before.items[before.users == 3]
    other_colour = pairs([0], [0], ["user 3"], ["item 4"])
    model = fitted.fold_in(other_colour)
    assert len(model.user_ids) == len(fitted.user_ids)
    assert set(model.clicks.items[model.clicks.users == 3]) == {*own, 4}
    assert model.clicks.counts.sum() == before.counts.sum() + 1
    assert not np.array_equal(
        model.score(["user 3"], ["item 1"]), fitted.score(["user 3"], ["item 1"])
    )
    assert model.score(["user 5"], ["item 1"]) == fitted.score(["user 5"], ["item 1"])


@pytest.mark.parametrize("name", PERSONAL)
def test_folded_in_users_are_ranked_as_trained_ones(name):
    clicks = world(300, 60, seed=5).clicks(0)
    model = quick(name, epochs=25, learning_rate=0.01, regularisation=0.2).fit(
        clicks, progress=Silent()
    )
    last = clicks.users >= 250
    strangers = Clicks.from_pairs(
        clicks.users[last] - 250,
        clicks.items[last],
        user_ids=Ids.of(f"new {u}" for u in range(50)),
        item_ids=clicks.item_ids,
    )
    folded = model.fold_in(strangers)
    active = np.flatnonzero(strangers.user_counts >= 3)  # so that some were trained on
    there = folded.user_ids.index([f"new {u}" for u in active])
    one = model.method.scores(model.parameters, (active + 250).astype(np.int32))
    two = folded.method.scores(folded.parameters, there)
    correlation = [np.corrcoef(a, b)[0, 1] for a, b in zip(one, two, strict=True)]
    assert np.mean(correlation) > 0.8


def test_methods_without_user_parameters_take_anybody_in(checkerboard):
    for name in ("popularity", "random"):
        model = quick(name).fit(checkerboard[0], progress=Silent()).fold_in(NEWCOMERS)
        assert len(model.recommend(["even"], 3)) == 3


def test_a_method_that_cannot_says_so(checkerboard):
    model = make("cjmf", epochs=1, dim=3, n_models=2).fit(checkerboard[0], progress=Silent())
    with pytest.raises(InputError, match="cjmf cannot fold in users"):
        model.fold_in(NEWCOMERS)


def test_clicks_on_unknown_items_are_left_out_and_nothing_but_them_is_refused(fitted):
    log = pairs([0, 1, 1], [0, 0, 1], ["stranger", "odd"], ["unheard of", "item 3"])
    model = fitted.fold_in(log)
    assert model.user_ids.index(["stranger", "odd"]).tolist() == [-1, len(fitted.user_ids)]
    with pytest.raises(InputError, match="none of these users has a click on an item"):
        fitted.fold_in(log.pick(np.array([True, False, False])))
    with pytest.raises(InputError, match="knows none of the 1 clicked items"):
        fitted.recommend_for(["unheard of"])


def test_a_new_user_of_ubo_is_shown_what_the_mean_user_is(checkerboard):
    model = quick("ubo", epochs=5).fit(checkerboard[0], progress=Silent())
    folded = model.fold_in(NEWCOMERS)
    mean = model.parameters["exposure_user_factors"].mean(axis=0)
    np.testing.assert_allclose(folded.parameters["exposure_user_factors"][-1], mean, rtol=1e-6)


def test_a_given_table_of_exposures_goes_on_with_its_mean(checkerboard):
    clicks = checkerboard[0]
    table = np.random.default_rng(0).uniform(0.2, 1, (clicks.n_users, clicks.n_items))
    method = quick("umf", epochs=5)
    model = method.fit(clicks, side=Side(exposure=table), progress=Silent()).fold_in(NEWCOMERS)
    expected = table.mean(axis=0)[[2, 5]]
    np.testing.assert_allclose(
        model.exposure(["odd", "odd"], ["item 2", "item 5"]), expected, rtol=1e-5
    )


def test_popularity_is_that_of_all_users_when_one_is_served_alone(fitted):
    ranks = Rules(popularity_penalty=50.0)
    alone = fitted.recommend_for(["item 3"], 5, rules=ranks)["item"].to_list()
    among = fitted.fold_in(pairs([0], [0], ["odd"], ["item 3"])).recommend(["odd"], 5, rules=ranks)
    counts = fitted.clicks.item_counts[fitted.item_ids.index(alone)]
    assert list(counts) == sorted(counts)  # so strong a penalty leaves nothing but it
    assert among["item"].to_list()[0] == alone[0] or counts[0] == counts[1]
