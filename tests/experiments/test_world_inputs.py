"""Oracles are the world's exposure or a part of it; guides hold what their names say, no answer."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import world_inputs
from unexposed.data.pairs import pair_keys
from unexposed.data.worlds import simulate
from unexposed.data.worlds.simulate import World, world
from unexposed.errors import InputError
from unexposed.evaluation.protocols import protocol
from unexposed.experiments import run as running
from unexposed.experiments import spec
from unexposed.experiments.data import Data, open_data
from unexposed.experiments.results import Results
from unexposed.experiments.task import Experiment, inputs_of
from unexposed.progress import Silent

TEXT = """
kind = "compare"
seeds = 1
[data]
simulate = { users = 60, items = 30 }
[settings]
epochs = 2
dim = 4
[methods.mf]
[methods.umf]
[methods.umf-true]
method = "umf"
exposure = "true"
[methods.items]
method = "ubo"
exposure = "item_means"
settings = { exposure_model = "items", strategy = "frozen" }
[methods.guided]
method = "ubo"
guide = "disliked"
"""
N_ITEMS = 50


def read(folder: Path, text: str = TEXT) -> Experiment:
    (folder / "small.toml").write_text(text)
    return spec.read(folder / "small.toml")


@pytest.fixture(scope="module")
def made() -> World:
    return world(200, N_ITEMS, exposure_rate=0.3, relevance_rate=0.4, seed=1)


def correlation(of: World, table: np.ndarray) -> float:
    truth = of.exposure(np.arange(of.n_users))
    rows = np.broadcast_to(table, truth.shape)
    return float(np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(truth, rows, strict=True)]))


def test_item_means_are_the_same_for_everyone_and_user_level_differs_by_a_factor(made):
    truth = world_inputs.true(made)
    np.testing.assert_array_equal(truth, made.exposure(np.arange(200)))
    means, table = world_inputs.item_means(made), world_inputs.user_level(made)
    np.testing.assert_allclose(means, truth.mean(axis=0), rtol=1e-5)
    inside = (table < 1).all(axis=1)
    assert inside.any()
    np.testing.assert_allclose(table[inside].mean(axis=1), truth.mean(axis=1)[inside], rtol=1e-4)
    ratio = table[inside] / means
    np.testing.assert_allclose(ratio, ratio[:, :1].repeat(N_ITEMS, axis=1), rtol=1e-4)


@pytest.mark.parametrize("oracle", world_inputs.ORACLES.values())
def test_every_oracle_can_be_given_where_exposure_is_rarest(oracle, made):
    table = oracle(replace(made, exposure_power=60.0))
    assert ((table > 0) & (table <= 1)).all()


def test_arms_are_trained_with_what_they_name_which_is_part_of_their_identity(tmp_path):
    asked = read(tmp_path)
    lines = {li["arm"]: li for li in running.run(asked, Results(tmp_path, "o"), progress=Silent())}
    of = open_data(asked.data, asked.protocol).world
    pcc = {arm: line.get("exposure_correlation") for arm, line in lines.items()}
    assert pcc["mf"] is None
    assert pcc["umf"] < pcc["umf-true"] == pytest.approx(1, abs=1e-5)
    expected = correlation(of, world_inputs.item_means(of))
    assert pcc["items"] == pytest.approx(expected, abs=1e-4)
    titles = {"umf-true": "oracle", "items": "oracle", "guided": "given dislikes"}
    assert {name: arm.given for name, arm in asked.arms.items() if arm.given} == titles
    assert all(running.is_current(asked, line) for line in lines.values())
    for change, arm in (
        ('exposure = "true"', "umf-true"),
        ('exposure = "item_means"', "items"),
        ('guide = "disliked"', "guided"),
    ):
        other = read(tmp_path, TEXT.replace(change, ""))
        current = [name for name, line in lines.items() if running.is_current(other, line)]
        assert current == [name for name in lines if name != arm]


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ('"true"', '"ture"', "umf-true: no exposure 'ture'; did you mean 'true'"),
        ('method = "umf"', 'method = "mf"', "mf cannot be given an exposure; these can: .*umf"),
        ("simulate = { users = 60, items = 30 }", "dataset = 'coat'", "needs a world whose expo"),
        ('"disliked"', '"dislike"', "guided: no guide 'dislike'; did you mean"),
        ('"disliked"', '"traffic:2"', "the share of a guide must lie in"),
        ('method = "ubo"\nguide', 'method = "mf"\nguide', "mf cannot be given a guide; these can"),
    ],
)
def test_what_cannot_be_given_is_refused_in_one_sentence(tmp_path, old, new, complaint):
    with pytest.raises(InputError, match=f"small.toml, .*{complaint}") as refused:
        read(tmp_path, TEXT.replace(old, new))
    assert "\n" not in str(refused.value)


# Guides


def guide(of: World, text: str, *, log: int = 4):
    split = of.split(seed=log)
    return world_inputs.guide(Data(split.train, split.judged, 0.1, of, log), text, 0)


def keys(found) -> set[int]:
    return set(found.keys(N_ITEMS).tolist())


def test_what_was_shown_is_what_the_log_drew_and_liked_what_was_clicked(made):
    found = guide(made, "disliked")
    users, items = np.nonzero(np.concatenate([shown for shown, _ in made.draws(4)]))
    assert keys(found) == set(pair_keys(users, items, N_ITEMS).tolist())
    liked = found.keys(N_ITEMS)[found.relevant]
    assert set(liked.tolist()) == set(made.clicks(4).keys.tolist())


def test_traffic_is_drawn_by_lot_from_all_pairs_and_tells_what_users_think(made):
    found = guide(made, "traffic:0.3")
    n_pairs = made.n_users * made.n_items
    assert len(found) == pytest.approx(0.3 * n_pairs, abs=4 * np.sqrt(n_pairs * 0.3 * 0.7))
    everyone = np.arange(made.n_users)
    exposure, relevance = (
        t.astype(np.float64)[found.users, found.items] for t in made.truth(everyone)
    )
    # a pair is as likely to be here however likely it was shown
    assert exposure.mean() == pytest.approx(made.exposure(everyone).mean(), abs=0.02)
    z = (found.relevant - relevance) / np.sqrt(relevance * (1 - relevance))
    assert abs(z.mean()) < 4 / np.sqrt(len(z))


@pytest.mark.parametrize("name", world_inputs.GUIDES)
def test_a_share_is_a_part_drawn_by_the_seed_whatever_the_blocks(name, made, monkeypatch):
    whole, part = (guide(made, f"{name}{share}") for share in ("", ":0.25"))
    assert keys(part) < keys(whole)
    assert len(part) == pytest.approx(0.25 * len(whole), abs=4 * np.sqrt(len(whole) * 0.25 * 0.75))
    monkeypatch.setattr(simulate, "_PAIRS_AT_ONCE", 7 * N_ITEMS)
    assert keys(guide(made, f"{name}:0.25")) == keys(part)


def test_a_guide_tells_nothing_of_fresh_labels(made):
    # the guide of everything knows R of the log; fresh labels agree with it as if by chance
    told = guide(made, "traffic", log=0).relevant.reshape(made.n_users, made.n_items)
    for fresh in (False, True):
        judged = made.split(seed=0, fresh=fresh).judged
        same = (told[judged.users, judged.items] == judged.relevant).mean()
        assert (same == 1) == (not fresh)
    chance = made.relevance(np.arange(made.n_users))[judged.users, judged.items]
    by_chance = (chance**2 + (1 - chance) ** 2).mean()
    assert same == pytest.approx(by_chance, abs=4 * 0.5 / np.sqrt(len(judged)))


def test_a_guide_of_ratings_holds_training_clicks_and_dislikes_but_no_held_out_click(
    made, tmp_path
):
    shown = guide(made, "disliked", log=0)
    below = shown.users[~shown.relevant], shown.items[~shown.relevant]
    data = Data(made.clicks(0), made.split(seed=0).judged, held_out=0.2, disliked=below)
    arm = read(tmp_path).arms["guided"]
    for seed in (0, 1):
        found, split = inputs_of(arm, data, seed).validation, data.split(seed)
        assert set(found.keys(N_ITEMS)[found.relevant].tolist()) == set(split.train.keys.tolist())
        assert not np.isin(found.keys(N_ITEMS), split.held_out.keys).any()
        assert sorted(found.keys(N_ITEMS)[~found.relevant]) == sorted(pair_keys(*below, N_ITEMS))
    part = world_inputs.guide(data, "disliked:0.5", 1)
    assert keys(part) < keys(found)
    with pytest.raises(InputError, match="guide = 'traffic:0.1' needs a world: name semi_synth"):
        world_inputs.guide(data, "traffic:0.1", 0)


@pytest.mark.parametrize("share", ["0", "-1", "1.5", "nan", "x", "0.1:2"])
def test_a_share_that_makes_no_sense_is_refused(share):
    with pytest.raises(InputError, match="must lie in .0, 1., as in 'traffic:0.1'"):
        world_inputs.parse(f"traffic:{share}")


def test_a_world_that_is_not_known_has_no_truth():
    data = open_data({"simulate": {"users": 9, "items": 9, "seed": 0}}, protocol("ubo-ijcai22"))
    with pytest.raises(InputError, match="needs a world .* semi_synthetic"):
        replace(data, world=None).known_world("exposure = 'true'")
