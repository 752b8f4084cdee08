"""Item features as terms of the item vector: items without clicks are ranked by what they share."""

import numpy as np
import pytest

from small import COMPOSED, quick
from unexposed.data.clicks import Clicks
from unexposed.data.features import Features, with_items
from unexposed.data.read_features import read_features
from unexposed.errors import InputError
from unexposed.maths.relevance import ITEM_FEATURES
from unexposed.methods import load
from unexposed.model.fold_in import NewUsers, of_part, solve
from unexposed.model.model import Model
from unexposed.progress import Progress, Silent
from unexposed.training.side import Side

NEW = [f"new {n}" for n in range(6)]  # even ones for even users, odd ones for odd users
VARIANTS = [*COMPOSED, "mf with biases", "bpr with biases", "ubo with items"]


@pytest.fixture(scope="module")
def shop(checkerboard) -> tuple[Clicks, Features]:
    """The checkerboard with six items that nobody clicked; only the colour tells of them."""
    clicks, _ = checkerboard
    names = [*clicks.item_ids.values.tolist(), *NEW]
    colours = ["black" if int(name.split()[1]) % 2 else "white" for name in names]
    ages = np.random.default_rng(0).normal(size=len(names))
    features = read_features({"item": names, "colour": colours, "age": ages}, clicks, role="item")
    return with_items(clicks, features.ids), features


def fit(name: str, shop: tuple[Clicks, Features], progress: Progress | None = None, **settings):
    clicks, features = shop
    method = quick(name, **{"epochs": 25, "refit": False} | settings)
    side = Side(item_features=features)
    return method.fit(clicks, seed=0, side=side, progress=progress or Silent())


@pytest.fixture(scope="module")
def model(shop) -> Model:
    return fit("mf", shop)


@pytest.mark.parametrize("name", VARIANTS)
def test_every_composed_method_ranks_items_without_clicks_by_their_features(name, shop):
    fitted = fit(name, shop)
    assert fitted.facts["engine"] == "reference"
    users = fitted.user_ids.values.tolist()
    for at, user in enumerate(users):
        scores = fitted.score([user] * len(NEW), NEW)
        own, other = scores[at % 2 :: 2], scores[1 - at % 2 :: 2]
        assert own.min() > other.max(), user


def test_an_item_without_clicks_is_its_features_alone_however_often_it_was_drawn(shop, model):
    clicks, features = shop
    rows = features.of(clicks.item_ids)
    whole = rows @ model.parameters[ITEM_FEATURES]
    own = model.parameters["item_factors"] - whole
    new = clicks.item_counts == 0
    np.testing.assert_allclose(own[new], 0, atol=1e-6)
    assert np.abs(own[~new]).max() > 0.05


def test_a_saved_model_keeps_the_weights_and_the_encoding(shop, model, tmp_path):
    model.save(tmp_path / "model")
    again = load(tmp_path / "model", verify=True)
    assert again.encoding("item") == shop[1].encoding
    np.testing.assert_array_equal(again.parameters[ITEM_FEATURES], model.parameters[ITEM_FEATURES])
    users = model.user_ids.values.tolist()
    assert again.recommend(users, k=5).equals(model.recommend(users, k=5))
    with pytest.raises(InputError, match="trained without user features"):
        again.encoding("user")


def test_a_new_user_is_folded_in_without_learning_that_new_items_are_disliked(shop, model):
    one = Clicks.from_pairs([0, 0], [0, 2], user_ids=shop[0].user_ids, item_ids=shop[0].item_ids)
    one = of_part(one, slice(0, 1))
    given = {
        "exposure": None,
        "drawing": model.method.composition().drawing,
        "n_clicks": 300,
        "batch_size": 128,
        "epochs": 10,
        "relevance": model.method.composition().relevance,
    }
    parts = model.method.composition().loss, model.method.optimiser()
    items = model.parameters["item_factors"]

    def solved(table, **given):
        return solve({"item_factors": table}, one, *parts, **given)["user_factors"]

    new = shop[0].item_counts == 0
    others = np.where(new[:, None], 5, items)
    found = [solved(table, counted=~new, **given) for table in (items, others)]
    np.testing.assert_array_equal(found[0], found[1])
    free = [solved(table, **given) for table in (items, others)]
    assert np.abs(free[0] - free[1]).max() > 0.01
    new_user = NewUsers(one, shop[0], 10)
    rows = model.method.user_rows(model.parameters, new_user)["user_factors"]
    everyone = solved(items, counted=~new, **given | {"n_clicks": len(shop[0])})
    np.testing.assert_array_equal(rows, everyone)


def test_an_update_goes_on_from_the_weights_and_takes_new_items(shop, model):
    clicks, features = shop
    more = {"item": [*features.ids.values.tolist(), "newest"], "colour": ["white"] * 31}
    more["age"] = [0.0] * 31
    later = read_features(more, clicks, role="item", encoding=model.encoding("item"))
    newer = with_items(clicks.pick(slice(0, 2)), later.ids)
    updated = model.update(newer, epochs=1, side=Side(item_features=later), progress=Silent())
    before, after = (m.parameters[ITEM_FEATURES] for m in (model, updated))
    assert 0 < np.abs(after - before).max() < 0.2 < np.abs(before).max()
    tables = [m.parameters["item_factors"][: clicks.n_items] for m in (model, updated)]
    assert np.abs(tables[1] - tables[0]).max() < 0.2  # features are not added a second time
    assert updated.score(["user 0"], ["newest"]) > updated.score(["user 1"], ["newest"])


def test_an_update_without_the_features_or_with_others_is_refused(shop, model):
    clicks, features = shop
    with pytest.raises(InputError, match=r"item_features: give it again.*--item-features"):
        model.update(clicks)
    table = {"item": features.ids.values.tolist(), "size": np.arange(len(features.ids))}
    others = read_features(table, clicks, role="item")
    with pytest.raises(InputError, match="encoding=model.encoding"):
        model.update(clicks, side=Side(item_features=others))


class Notes(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


def test_the_reference_engine_is_taken_and_said_and_a_fast_one_refused(shop):
    notes = Notes()
    fit("mf", shop, notes, epochs=1)
    assert notes.said == ["features run on the reference engine, the slowest"]
    with pytest.raises(InputError, match="the cpu engine knows dot products only; use the ref"):
        fit("mf", shop, engine="cpu")
