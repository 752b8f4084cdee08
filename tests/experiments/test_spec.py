"""Experiment files are read and checked, and the miniature of every shipped one runs."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import timing  # noqa: F401
import trend  # noqa: F401
import world_inputs  # noqa: F401
from unexposed.data import datasets
from unexposed.data.clicks import Ratings
from unexposed.data.ids import Ids
from unexposed.data.worlds import simulate
from unexposed.data.worlds.semi_synthetic import GENERATORS
from unexposed.errors import InputError
from unexposed.evaluation.compare import refuse_shared
from unexposed.evaluation.protocols import protocol
from unexposed.experiments import data as experiment_data
from unexposed.experiments import results
from unexposed.experiments import run as running
from unexposed.experiments import spec as experiments
from unexposed.experiments.compare import KINDS, from_lines
from unexposed.experiments.task import Experiment, Kind, inputs_of
from unexposed.progress import Silent

FOLDER = Path(__file__).parents[2] / "experiments"
SHIPPED = sorted(FOLDER.glob("*/*.toml"))

TEXT = """
kind = "compare"
title = "A small one"
protocol = "ubo-ijcai22"
also = ["judged"]
seeds = 3
[data]
simulate = { users = 30 }
[settings]
epochs = 7
dim = 5
[methods.random]
[methods.ubo]
study = "tuning/ubo.json"
settings = { negatives = 4 }
[methods.ubo-frozen]
method = "ubo"
settings = { strategy = "frozen", epochs = 9 }
"""


BY = protocol("ubo-ijcai22")


def read(folder: Path, text: str) -> Experiment:
    (folder / "small.toml").write_text(text)
    return experiments.read(folder / "small.toml")


def write_study(folder: Path, study: object) -> None:
    (folder / "results" / "tuning").mkdir(parents=True, exist_ok=True)
    (folder / "results" / "tuning" / "ubo.json").write_text(json.dumps(study))


def test_a_file_names_data_protocols_arms_and_seeds(tmp_path):
    tuned = {"dim": 6, "negatives": 11, "weight_decay": 0.5}
    write_study(tmp_path, {"method": "ubo", "best": {"settings": tuned, "value": 1}})
    found = read(tmp_path, TEXT)
    assert (found.name, found.kind, found.title, found.seeds) == (
        "small",
        "compare",
        "A small one",
        3,
    )
    assert [by.name for by in (found.protocol, *found.also)] == ["ubo-ijcai22", "judged"]
    assert found.data == {"simulate": {"users": 30, "items": 200, "seed": 0}}
    assert list(found.arms) == ["random", "ubo", "ubo-frozen"]
    ubo, frozen = found.arms["ubo"], found.arms["ubo-frozen"]
    assert ubo.study == "tuning/ubo.json"
    # shared < study < the method's own
    assert (ubo.method.epochs, ubo.method.dim, ubo.method.negatives) == (7, 6, 4)
    assert ubo.method.weight_decay == 0.5
    assert (frozen.method.name, frozen.method.strategy, frozen.method.epochs) == (
        "ubo",
        "frozen",
        9,
    )


@pytest.mark.parametrize(
    ("study", "complaint"),
    [
        ({"method": "mf", "best": {"settings": {}}}, "is of mf, not of ubo"),
        ({"method": "ubo"}, "is not a study"),
        ([], "is not a study"),
        ({"method": "ubo", "best": {"settings": {"dims": 3}}}, "did you mean 'dim'"),
        ({"method": "ubo", "best": {"settings": {"dim": 0}}}, "dim must be at least 1"),
    ],
)
def test_a_study_that_does_not_fit_is_refused(tmp_path, study, complaint):
    write_study(tmp_path, study)
    with pytest.raises(InputError, match=f"small.toml, ubo: .*{complaint}"):
        read(tmp_path, TEXT)


def test_a_simulated_world_gives_one_log_and_only_the_held_out_clicks_change():
    table = experiment_data.checked({"simulate": {"users": 50, "items": 30, "seed": 4}}, "")
    data = experiment_data.open_data(table, BY)
    first, second = data.split(0), data.split(1)
    assert set(first.held_out.keys) != set(second.held_out.keys)
    for split in (first, second):
        np.testing.assert_array_equal(split.train.union(split.held_out).keys, data.clicks.keys)
        assert split.judged is data.judged
    assert data.world.n_users == 50
    drawn = simulate.world(50, 30, seed=4).clicks(4)
    np.testing.assert_array_equal(drawn.keys, data.clicks.keys)


def ratings_folder(folder: Path, monkeypatch) -> None:
    """Replace MovieLens by a few ratings."""
    rng = np.random.default_rng(0)
    pairs = np.argwhere(rng.random((40, 25)) < 0.4) + 1
    rows = [f"{u}\t{i}\t{rng.integers(1, 6)}\t0\n" for u, i in pairs]
    (folder / "ml-100k").mkdir()
    (folder / "ml-100k" / "u.data").write_text("".join(rows))
    (folder / "ml-100k" / "u.item").write_text("".join(f"{i}|title\n" for i in range(1, 26)))
    monkeypatch.setitem(
        datasets.DATASETS,
        "ml_100k",
        replace(datasets.DATASETS["ml_100k"], files={"u.data": None, "u.item": None}),
    )


@pytest.mark.parametrize("generator", GENERATORS)
def test_a_semi_synthetic_world_of_any_power_is_the_generators(tmp_path, monkeypatch, generator):
    ratings_folder(tmp_path, monkeypatch)
    experiment_data._semi_synthetic.cache_clear()
    for power in (0.5, 2):
        named = {"semi_synthetic": "ml_100k", "generator": generator, "power": power}
        table = experiment_data.checked(named, "")
        found = experiment_data.open_data(table, BY, tmp_path)
        ratings = datasets.load("ml_100k", data_dir=tmp_path).logged
        log = GENERATORS[generator](ratings, power=power, seed=0).clicks(0)
        np.testing.assert_array_equal(found.clicks.keys, log.keys)
    experiment_data._semi_synthetic.cache_clear()


def test_the_papers_cut_is_implied_where_the_paper_made_it():
    cut = {
        name: experiment_data.checked({"semi_synthetic": name}, "")["trim"]
        for name in ("ml_100k", "amazon_cds")
    }
    assert cut == {"ml_100k": False, "amazon_cds": True}
    assert not experiment_data.checked({"semi_synthetic": "amazon_cds", "trim": False}, "")["trim"]


def test_an_unknown_generator_is_refused_with_the_nearest():
    with pytest.raises(InputError, match="no generator 'siato'; did you mean 'saito'"):
        experiment_data.checked({"semi_synthetic": "ml_100k", "generator": "siato"}, "")


def test_a_miniature_changes_size_and_nothing_else(tmp_path):
    write_study(tmp_path, {"method": "ubo", "best": {"settings": {"negatives": 3}}})
    asked = read(tmp_path, TEXT)
    small = experiments.miniature(asked)
    assert small.seeds == 2
    assert "simulate" in small.data
    assert list(small.arms) == list(asked.arms)
    assert small.arms["ubo-frozen"].method.strategy == "frozen"
    assert {arm.method.epochs for arm in small.arms.values() if arm.label != "random"} == {2}
    assert experiments.miniature(asked) == small
    assert asked.seeds == 3


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_miniature_of_a_shipped_experiment_runs_once_and_is_complete(
    path, tmp_path, monkeypatch
):
    first = experiments.cells(path)[0]  # in the miniature all cells have the same data
    small = experiments.miniature(first.read(tuned=False))
    place = results.Results(tmp_path, small.name)
    lines = running.run(small, place, progress=Silent())
    pairs = [(arm, seed) for arm in small.arms for seed in range(2)]
    assert [running.pair_of(line) for line in lines] == pairs
    if small.kind == "compare":
        for by in (small.protocol, *small.also):
            comparison = from_lines(small, lines, by=by)
            assert [result.label for result in comparison.results] == list(small.arms)
            assert all(set(r.values) == set(by.metrics) for r in comparison.results)
    written = place.file.read_bytes()

    def never(_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setitem(KINDS, small.kind, Kind(never))
    again = running.run(small, place, progress=Silent())
    assert list(map(running.pair_of, again)) == pairs
    assert place.file.read_bytes() == written


def test_the_example_in_the_docs_is_an_experiment(tmp_path):
    page = (FOLDER.parent / "docs" / "experiments.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```toml\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    write_study(tmp_path, {"method": "ubo", "best": {"settings": {"dim": 20}}})
    example = example.replace("coat_ubo.json", "ubo.json")
    assert read(tmp_path, example).arms["ubo"].method.dim == 20


# Criteria, guides and the truth of a world


def test_a_criterion_sets_how_epochs_are_chosen_and_settings_of_the_file_win(tmp_path):
    write_study(tmp_path, {"method": "ubo", "best": {"settings": {}}})
    chosen = "criterion = 'catalogue'" + TEXT
    found = read(tmp_path, chosen)
    ubo = found.arms["ubo"].method
    assert (ubo.criterion, ubo.epochs) == ("catalogue", 7)
    assert found.criterion == "catalogue"
    own = read(tmp_path, chosen.replace("[settings]", "[settings]\ncriterion = 'plain'"))
    assert own.arms["ubo"].method.criterion == "plain"
    assert read(tmp_path, TEXT).arms["ubo"].method.criterion == "uniform"
    # a criterion is no setting that a method must have
    without_epochs = "criterion = 'popular'\nkind = 'compare'\n[data]\nsimulate = {}\n"
    assert read(tmp_path, without_epochs + "[methods.ease]\n").criterion == "popular"


WORLD = "kind = 'compare'\n[data]\nsimulate = { users = 40, items = 20 }\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"criterion = 'poplar'\n{WORLD}[methods.mf]\n", "no criterion 'poplar'; did you mean"),
        (f"{WORLD}[methods.mf]\ntraffic = 2\n", "traffic must lie in .0, 1., got 2"),
        (f"{WORLD}[methods.ease]\ntraffic = 0.1\n", "ease cannot use traffic"),
        (f"{WORLD}[methods.ease]\nimpressions = true\n", "impressions = true needs a world"),
        (
            "kind = 'compare'\n[data]\ndataset = 'coat'\n[methods.mf]\ntraffic = 0.1\n",
            "traffic needs a world in .data., or a data set with traffic = SHARE",
        ),
        (
            "also = ['true-relevance']\n"
            + WORLD.replace("simulate = { users = 40, items = 20 }", "dataset = 'coat'")
            + "[methods.mf]\n",
            "'true-relevance' needs a world in .data., and stands in also",
        ),
        (
            f"protocol = 'true-relevance'\n{WORLD}[methods.mf]\n",
            "'true-relevance' needs a world in .data., and stands in also",
        ),
    ],
)
def test_a_criterion_guide_or_truth_that_cannot_be_had_is_one_sentence(tmp_path, text, said):
    with pytest.raises(InputError, match=f"small.toml.*{said}") as refused:
        read(tmp_path, text)
    assert "\n" not in str(refused.value)


def test_a_guide_and_the_truth_reach_the_results_and_their_identity(tmp_path):
    text = (
        f"also = ['true-relevance']\nseeds = 1\n{WORLD}fresh = true\n[settings]\nepochs = 2\n"
        "[methods.plain]\nmethod = 'ubo'\nsettings = { exposure_model = 'items' }\n"
        "[methods.guided]\nmethod = 'ubo'\nguide = 'disliked'\n"
        "settings = { exposure_model = 'items' }\n"
    )
    found = read(tmp_path, text)
    lines = running.run(found, results.Results(tmp_path, "out"), progress=Silent())
    exposures = {line["arm"]: line["exposure_correlation"] for line in lines}
    assert exposures["plain"] != exposures["guided"]
    assert [line.get("guide") for line in lines] == [None, "disliked"]
    assert all(running.is_current(found, line) for line in lines)
    for change in (("'disliked'", "'disliked:0.5'"), ("fresh = true", "fresh = false")):
        other = read(tmp_path, text.replace(*change))
        assert not running.is_current(other, lines[1])
    data = experiment_data.open_data(found.data, found.protocol)
    by = from_lines(found, lines, by=found.also[0])
    assert by.users == np.count_nonzero(data.clicks.user_counts)
    for result in by.results:  # between the mean relevance of the least and of the most liked
        assert 0 < result.values["dcg@3"].mean() < 1 + 1 / np.log2(3) + 0.5


def test_the_traffic_of_an_arm_and_its_use_reach_the_results_and_their_identity(tmp_path):
    text = (
        f"seeds = 1\n{WORLD.replace('20', '60')}[settings]\nepochs = 2\n[methods.mf]\n"
        "[methods.more]\nmethod = 'mf'\ntraffic = 0.2\n"
        "[methods.guided]\nmethod = 'ubo'\ntraffic = 0.2\nsettings = { traffic_use = 'guide' }\n"
    )
    found = read(tmp_path, text)
    assert [arm.given for arm in found.arms.values()] == ["", *["given random traffic"] * 2]
    lines = running.run(found, results.Results(tmp_path, "out"), progress=Silent())
    assert [line.get("traffic") for line in lines] == [None, 0.2, 0.2]
    assert all(running.is_current(found, line) for line in lines)
    other = read(tmp_path, text.replace("0.2", "0.3"))
    assert [running.is_current(other, line) for line in lines] == [True, False, False]


def test_an_arm_is_given_the_impressions_of_the_world_where_it_says_so(tmp_path):
    text = (
        f"seeds = 1\n{WORLD.replace('20', '60')}[settings]\nepochs = 2\n[methods.umf]\n"
        "[methods.shown]\nmethod = 'umf'\nimpressions = true\n"
    )
    found = read(tmp_path, text)
    assert [arm.given for arm in found.arms.values()] == ["", "given impressions"]
    lines = running.run(found, results.Results(tmp_path, "out"), progress=Silent())
    data = experiment_data.open_data(found.data, found.protocol)
    shown = inputs_of(found.arms["shown"], data, 0).impressions
    assert shown.contain(data.clicks.users, data.clicks.items).all()
    assert lines[0]["facts"] != lines[1]["facts"]  # another exposure, so another loss
    other = read(tmp_path, text.replace("impressions = true", ""))
    assert [running.is_current(other, line) for line in lines] == [True, False]


def test_a_share_of_a_data_sets_judged_pairs_is_set_aside_as_traffic(monkeypatch):
    users, items = np.repeat(np.arange(20), 10), np.tile(np.arange(10), 20)
    stars = (1 + (users + items) % 5).astype(np.float32)
    ids = {"user_ids": Ids.range(20), "item_ids": Ids.range(10)}
    rated = Ratings(users.astype(np.int32), items.astype(np.int32), stars, **ids)
    monkeypatch.setattr(datasets, "load", lambda *_, **__: datasets.RatingData(rated, rated))
    whole, parted = (
        experiment_data.open_data({"dataset": "coat"} | more, BY) for more in ({}, {"traffic": 0.4})
    )

    def given(data, share: float):
        return experiment_data.INPUTS["traffic"].make(data, share, 0)["traffic"]

    traffic = given(parted, 1.0)
    assert len(traffic) + len(parted.judged) == len(whole.judged)
    assert 0 < len(given(parted, 0.5)) < len(traffic)
    refuse_shared(traffic, parted.judged)
    with pytest.raises(InputError, match="an arm with traffic needs a world"):
        given(whole, 0.5)


def test_fresh_labels_of_a_world_change_the_judgements_and_not_the_log():
    table = {"simulate": {"users": 50, "items": 30, "seed": 4}}
    stale, fresh = (
        experiment_data.open_data(experiment_data.checked(table | more, ""), BY)
        for more in ({}, {"fresh": True})
    )
    np.testing.assert_array_equal(stale.clicks.keys, fresh.clicks.keys)
    np.testing.assert_array_equal(stale.judged.items, fresh.judged.items)
    assert not np.array_equal(stale.judged.relevant, fresh.judged.relevant)
    with pytest.raises(InputError, match="no 'fresh'"):
        experiment_data.checked({"dataset": "coat", "fresh": True}, "[data]")


FEATURES = """
kind = "compare"
seeds = 1
[data]
dataset = "coat"
[methods.mf]
[methods.mf-items]
method = "mf"
item_features = true
[methods.ubo-both]
method = "ubo"
user_features = true
item_features = true
"""


def test_an_arm_has_the_features_it_asks_for_which_are_part_of_its_identity(tmp_path, monkeypatch):
    users, items = (column.ravel().astype(np.int32) for column in np.indices((20, 10)))
    stars = (1 + (users * 7 + items * 3) % 5).astype(np.float32)
    ratings = Ratings(users, items, stars, Ids.range(20), Ids.range(10))
    rows = (np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32) for n in (20, 10))
    coat = datasets.RatingData(ratings, ratings, *rows)
    monkeypatch.setattr(datasets, "load", lambda name, data_dir=None: coat)
    found = read(tmp_path, FEATURES)
    data = experiment_data.open_data(found.data, found.protocol)
    sides = {label: inputs_of(arm, data, 0) for label, arm in found.arms.items()}
    assert sides["mf"].given() == set()
    assert sides["mf-items"].given() == {"item_features"}
    np.testing.assert_array_equal(sides["ubo-both"].user_features, coat.user_features)
    np.testing.assert_array_equal(sides["ubo-both"].item_features, coat.item_features)
    assert "item_features" not in found.identity(found.arms["mf"])  # stored results still count
    assert found.identity(found.arms["mf-items"])["item_features"] is True
    assert found.arms["ubo-both"].given == "given user features and item features"
    assert all(arm.inputs == {} for arm in experiments.miniature(found).arms.values())


def test_features_that_a_method_or_the_data_does_not_have_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"mf-items: random cannot use item_features; these can"):
        read(tmp_path, FEATURES.replace('method = "mf"', 'method = "random"'))
    world = read(tmp_path, FEATURES.replace('dataset = "coat"', "simulate = { users = 30 }"))
    data = experiment_data.open_data(world.data, world.protocol)
    with pytest.raises(InputError, match="item_features = true needs a data set that has them"):
        inputs_of(world.arms["mf-items"], data, 0)
