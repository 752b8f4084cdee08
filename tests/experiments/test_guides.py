"""Guides hold what their names say, and nothing that would tell an answer."""

import numpy as np
import pytest

from unexposed.data.pairs import pair_keys
from unexposed.data.worlds import simulate
from unexposed.data.worlds.simulate import World, world
from unexposed.errors import InputError
from unexposed.evaluation.protocols import protocol
from unexposed.experiments import guides
from unexposed.experiments.data import Data, open_data

BY = protocol("ubo-ijcai22")


@pytest.fixture(scope="module")
def made() -> World:
    return world(200, 50, exposure_rate=0.3, relevance_rate=0.4, seed=1)


def keys(guide, n_items: int) -> set[int]:
    return set(guide.keys(n_items).tolist())


def test_what_was_shown_is_what_the_log_drew_and_liked_what_was_clicked(made):
    guide = guides.of_world(made, "disliked", seed=4)
    shown = np.concatenate([shown for shown, _ in made.draws(4)])
    users, items = np.nonzero(shown)
    assert keys(guide, 50) == set(pair_keys(users, items, 50).tolist())
    assert len(guide) == shown.sum()
    liked = guide.keys(50)[guide.relevant]
    assert set(liked.tolist()) == set(made.clicks(4).keys.tolist())


def test_traffic_is_drawn_by_lot_from_all_pairs_and_tells_what_users_think(made):
    guide = guides.of_world(made, "traffic:0.3", seed=4)
    n_pairs = made.n_users * made.n_items
    assert len(guide) == pytest.approx(0.3 * n_pairs, abs=4 * np.sqrt(n_pairs * 0.3 * 0.7))
    everyone = np.arange(made.n_users)
    exposure, relevance = (
        t.astype(np.float64)[guide.users, guide.items] for t in made.truth(everyone)
    )
    # a pair is as likely to be here however likely it was shown
    assert exposure.mean() == pytest.approx(made.exposure(everyone).mean(), abs=0.02)
    z = (guide.relevant - relevance) / np.sqrt(relevance * (1 - relevance))
    assert abs(z.mean()) < 4 / np.sqrt(len(z))
    clicked = made.clicks(4).contain(guide.users, guide.items)
    assert clicked.any()
    assert guide.relevant[clicked].all()


@pytest.mark.parametrize("name", guides.SAID)
def test_a_share_is_a_part_drawn_by_the_seed_whatever_the_blocks(name, made, monkeypatch):
    whole, part = (guides.of_world(made, f"{name}{share}", seed=2) for share in ("", ":0.25"))
    assert keys(part, 50) < keys(whole, 50)
    assert len(part) == pytest.approx(0.25 * len(whole), abs=4 * np.sqrt(len(whole) * 0.25 * 0.75))
    monkeypatch.setattr(simulate, "_PAIRS_AT_ONCE", 7 * 50)
    again = guides.of_world(made, f"{name}:0.25", seed=2)
    np.testing.assert_array_equal(again.keys(50), part.keys(50))
    np.testing.assert_array_equal(again.relevant, part.relevant)
    assert keys(guides.of_world(made, f"{name}:0.25", seed=3), 50) != keys(part, 50)


def test_a_guide_tells_nothing_of_fresh_labels(made):
    # the guide of everything knows R of the log; fresh labels agree with it as if by chance
    guide = guides.of_world(made, "traffic", seed=0)
    told = guide.relevant.reshape(made.n_users, made.n_items)
    for fresh in (False, True):
        judged = made.split(seed=0, fresh=fresh).judged
        same = (told[judged.users, judged.items] == judged.relevant).mean()
        assert (same == 1) == (not fresh)
    chance = made.relevance(np.arange(made.n_users))[judged.users, judged.items]
    by_chance = (chance**2 + (1 - chance) ** 2).mean()
    assert same == pytest.approx(by_chance, abs=4 * 0.5 / np.sqrt(len(judged)))


# Ratings


def ratings_of(made: World) -> Data:
    """The pairs shown by a world, as a data set of ratings would have them."""
    clicks, judged = made.clicks(0), made.split(seed=0).judged
    guide = guides.of_world(made, "disliked", seed=0)
    below = guide.users[~guide.relevant], guide.items[~guide.relevant]
    return Data(clicks, judged, held_out=0.2, disliked=below)


def test_a_guide_of_ratings_holds_training_clicks_and_dislikes_but_no_held_out_click(made):
    data = ratings_of(made)
    for seed in (0, 1):
        guide = data.side(None, "disliked", seed=seed).validation
        split = data.split(seed)
        assert set(guide.keys(50)[guide.relevant].tolist()) == set(split.train.keys.tolist())
        assert not np.isin(guide.keys(50), split.held_out.keys).any()
        disliked = pair_keys(*data.disliked, 50)
        assert sorted(guide.keys(50)[~guide.relevant]) == sorted(disliked)
    part = data.side(None, "disliked:0.5", seed=1).validation
    assert keys(part, 50) < keys(guide, 50)
    assert 0.4 < len(part) / len(guide) < 0.6


def test_random_traffic_cannot_be_had_from_ratings(made):
    with pytest.raises(InputError, match="guide = 'traffic:0.1' needs a world: name semi_synth"):
        ratings_of(made).side(None, "traffic:0.1")


def test_a_world_gives_the_guide_of_its_own_log_and_an_oracle_beside_it():
    table = {"simulate": {"users": 40, "items": 20, "seed": 3}}
    data = open_data(table, BY)
    side = data.side("item_means", "disliked", seed=1)
    found = side.validation
    assert set(found.keys(20)[found.relevant].tolist()) == set(data.clicks.keys.tolist())
    assert side.exposure.shape == (20,)
    nothing = data.side(None)
    assert nothing.exposure is None
    assert nothing.validation is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trafic", "no guide 'trafic'; did you mean 'traffic'"),
        ("", "no guide ''"),
        *(
            (f"traffic:{share}", "must lie in .0, 1., as in 'traffic:0.1'")
            for share in ("0", "-1", "1.5", "nan", "x", "0.1:2")
        ),
    ],
)
def test_an_unknown_guide_or_a_share_that_makes_no_sense_is_refused(text, said):
    with pytest.raises(InputError, match=said) as refused:
        guides.parse(text)
    assert "\n" not in str(refused.value)
