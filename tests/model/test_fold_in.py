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
from unexposed.model import fold_in_kernel as kernel
from unexposed.model.fold_in import SEED, solve
from unexposed.progress import Silent
from unexposed.sampling.chances import EVEN
from unexposed.sampling.samples import Drawing, Samples
from unexposed.training.side import Side

LEARNING = [name for name in FOLDING if name in PERSONAL]


def pairs(rows, items, user_ids, item_ids):
    return Clicks.from_pairs(
        np.array(rows), np.array(items), user_ids=Ids.of(user_ids), item_ids=Ids.of(item_ids)
    )


# The kernel

N_ITEMS, DIM = 9, 4
CLICKED = pairs([0, 0, 0, 1], [1, 4, 7, 2], range(2), range(N_ITEMS))
TRAINED_ON = pairs(  # item i has i clicks, so that popularity differs
    [u for i in range(N_ITEMS) for u in range(i)],
    [i for i in range(N_ITEMS) for _ in range(i)],
    range(N_ITEMS),
    range(N_ITEMS),
)
BATCH_SIZE, N_BATCHES, EPOCHS = 4, 3, 6


def drawn_for(user, clicked, drawing, *, n_items, law=EVEN, seed=0, n_batches=1):
    """Epoch after epoch as the kernel draws it: the items of each click, and its batch."""
    every = drawing.every_pair
    clicked = np.array(clicked, dtype=np.int32)
    avoided = clicked[:0] if drawing.source == "catalogue" and not every else clicked
    clicked_by, room = np.full(n_items, -1, dtype=np.int32), np.zeros(n_items, dtype=np.int32)
    clicked_by[avoided] = user
    listed = room[: kernel.list_unclicked(room, clicked_by, user, avoided, every, law)]
    sums = kernel.add_up(np.zeros(n_items), listed, law)
    start = kernel.starts(len(clicked), n_items - len(avoided), drawing.negatives, every)
    bits = np.uint64(seed)
    while True:
        items, batch = np.full(start[-1], -1, dtype=np.int32), np.full(len(clicked), -1)
        bits = kernel.draw(items, start, clicked, listed, sums, clicked_by, user, every, law, bits)
        bits = np.uint64(kernel.spread(batch, n_batches, np.uint64(bits)))
        yield np.split(items, start[1:-1]), batch


def trained(user, items, exposure, loss, drawing, optimiser, relevance):
    """The user's vector after training, its clicks spread and drawn for as the kernel does.

    Clicks of a second user fill up the batches; the items are put back after every step.
    """
    clicked = CLICKED.items[CLICKED.users == user]
    law, known = drawing.law(TRAINED_ON), {"n_items": N_ITEMS, "seed": SEED}
    epochs = drawn_for(user, clicked, drawing, law=law, n_batches=N_BATCHES, **known)
    parameters = relevance.new_users({}, 2) | {"item_factors": items}
    given = {"exposure": exposure, "relevance": relevance, "dtype": torch.float64}
    engine = ReferenceEngine(Objective(loss), optimiser, parameters, **given)
    weight = drawing.weight(CLICKED, law)[user]
    for of_click, batch in itertools.islice(epochs, EPOCHS):
        for number in range(N_BATCHES):
            own = [of_click[c] for c in np.flatnonzero(batch == number)]
            filled = own + [np.array([0, 3], dtype=np.int32)] * (BATCH_SIZE - len(own))
            engine.step(
                Samples(
                    (np.arange(BATCH_SIZE) >= len(own)).astype(np.int32),
                    np.cumsum([0, *map(len, filled)]),
                    np.concatenate(filled),
                    np.full(BATCH_SIZE, weight),
                    drawing.item_weight(law),
                )
            )
            engine.state()["item_factors"][:] = items
    return engine.parameters()["user_factors"][0]


BIASES = {"low_variance": "both", "inverse_propensity_pairwise": "item"}


@pytest.mark.parametrize("loss", LOSS_CODES)
@pytest.mark.parametrize(
    "drawing",
    [
        Drawing(2),
        Drawing(2, "unbiased"),
        Drawing(2, every_pair=True, source="catalogue"),  # nothing is drawn
        Drawing(2, source="catalogue"),
        Drawing(2, "unbiased", exponent=0.5),
    ],
    ids=["unclicked", "unbiased", "every pair", "catalogue", "unbiased by popularity"],
)
def test_a_vector_is_what_training_learns_with_the_items_fixed(loss, drawing):
    rng = np.random.default_rng(0)
    relevance = DotProduct(DIM, 1.0, BIASES.get(loss, "none"), start=-3.0)
    items = relevance.initial(1, N_ITEMS, rng)["item_factors"]
    exposure, optimiser = rng.uniform(0.2, 0.9, N_ITEMS), Optimiser(0.05, 0.1)
    given = {"exposure": exposure, "drawing": drawing, "law": drawing.law(TRAINED_ON)}
    given |= {"n_clicks": BATCH_SIZE * N_BATCHES, "batch_size": BATCH_SIZE, "epochs": EPOCHS}
    found, *others = (
        solve(
            {"item_factors": items},
            CLICKED,
            loss,
            optimiser,
            relevance=relevance,
            threads=threads,
            **given,
        )["user_factors"]
        for threads in (1, 2, 3)
    )
    assert all(other.tobytes() == found.tobytes() for other in others)
    assert np.abs(found[:, :DIM]).max() > 0.1  # far from the start
    for user, vector in enumerate(found):
        expected = trained(user, items, exposure, loss, drawing, optimiser, relevance)
        np.testing.assert_allclose(vector, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("clicked", [[1, 4], [0, 1, 4, 6, 7, 8]])  # by rejection, from a list
@pytest.mark.parametrize("exponent", [0.0, 0.5])
def test_items_are_drawn_by_their_popularity_in_the_training(exponent, clicked):
    law = Drawing(3, exponent=exponent).law(TRAINED_ON)
    epochs = drawn_for(3, clicked, Drawing(3), n_items=9, law=law)
    found = [of_click[0][1:] for of_click, _ in itertools.islice(epochs, 2000)]
    counts = np.bincount(np.concatenate(found), minlength=9)
    expected = np.maximum(TRAINED_ON.item_counts, 1) ** exponent
    expected[clicked] = 0
    np.testing.assert_allclose(counts / 6000, expected / expected.sum(), atol=0.033)  # 5 sd


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


def test_clicks_on_unknown_items_are_ignored_unless_there_are_no_others(fitted):
    log = pairs([0, 1, 1], [0, 0, 1], ["ghost", "odd"], ["unheard of", "item 3"])
    model = fitted.fold_in(log)
    assert model.user_ids.index(["ghost", "odd"]).tolist() == [-1, len(fitted.user_ids)]
    with pytest.raises(InputError, match="none of these users has a click on an item"):
        fitted.fold_in(log.pick(np.array([True, False, False])))
    with pytest.raises(InputError, match="knows none of the 1 clicked items"):
        fitted.recommend_for(["unheard of"])


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
