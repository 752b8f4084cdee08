"""Every committed study is one that an experiment names, made as its file says."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import timing  # noqa: F401
import trend  # noqa: F401
import world_inputs  # noqa: F401
from unexposed import settings as checks
from unexposed.errors import InputError
from unexposed.experiments import spec, studies
from unexposed.experiments.task import inputs_of
from unexposed.methods import make
from unexposed.tuning import search
from unexposed.tuning.search import space
from unexposed.tuning.study import best_settings

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FILES = sorted(EXPERIMENTS.glob("*/*.toml"))
PLANS = {
    plan.path: plan
    for path in FILES
    for cell in spec.cells(path)
    for plan in studies.plans(cell.read(tuned=False), cell.results)
}
COMMITTED = sorted(EXPERIMENTS.glob("*/results/tuning/*.json"))


def test_every_committed_study_matches_the_plan_of_its_experiment():
    for path in COMMITTED:
        study, plan = json.loads(path.read_text(encoding="utf-8")), PLANS[path]
        kept = plan.kept()
        fixed = (*plan.held, *kept)
        own = space(plan.method) | plan.search
        assert study["searched"] == {k: list(v) for k, v in own.items() if k not in fixed}, path
        assert study["splits"] == plan.splits, path
        assert len(study["trials"]) >= plan.trials, path
        values = checks.values(replace(plan.method, **kept))
        assert kept.items() <= study["best"]["settings"].items(), path
        # engines agree, and trials are never refitted
        held = {k: v for k, v in study["held"].items() if k not in ("engine", "refit")}
        assert held == {k: values[k] for k in held}, path
        make(plan.method.name, **best_settings(path, method=plan.method.name))


def test_results_beside_the_experiments_are_of_their_cells():
    cells = [cell for path in FILES for cell in spec.cells(path)]
    names = {cell.results / f"{cell.name}.json" for cell in cells}
    names.add(EXPERIMENTS / "variance" / "results" / "variance.json")
    assert set(EXPERIMENTS.glob("*/results/*.json")) == names


# What an arm keeps, and what its trials are given

KEEPING = """
kind = "compare"
criterion = "popular"
[data]
simulate = { users = 40, items = 20 }
[settings]
epochs = 2
[methods.mf]
study = "tuning/mf.json"
[methods.umf]
study = "tuning/umf.json"
settings = { negatives = 3 }
[methods.ease]
[methods.ubo]
study = "tuning/ubo.json"
guide = "disliked:0.5"
settings = { exposure_model = "items" }
[tune]
trials = 2
[tune.arms.umf]
keeps = "mf"
"""


def keeping(folder: Path, text: str = KEEPING) -> dict[str, studies.Plan]:
    (folder / "small.toml").write_text(text)
    (cell,) = spec.cells(folder / "small.toml")
    return {plan.arm.label: plan for plan in studies.plans(cell.read(tuned=False), cell.results)}


def test_an_arm_keeps_the_best_settings_of_another_and_searches_only_what_it_adds(tmp_path):
    pytest.importorskip("optuna")
    best = {"dim": 5, "learning_rate": 0.0123, "weight_decay": 0.2, "negatives": 7, "pairs": "all"}
    (tmp_path / "results" / "tuning").mkdir(parents=True)
    made = {"method": "mf", "best": {"settings": best}}
    (tmp_path / "results" / "tuning" / "mf.json").write_text(json.dumps(made))
    study = studies.make(keeping(tmp_path)["umf"])
    kept = {k: v for k, v in best.items() if k != "negatives"}  # the arm has its own
    assert kept.items() <= study["held"].items()
    assert study["held"]["negatives"] == 3
    assert not set(best) & set(study["searched"])
    assert "popularity_exponent" in study["searched"]
    # whoever reads the study gets what was kept, too
    found = best_settings(tmp_path / "results" / "tuning" / "umf.json", method="umf")
    assert found == kept | {k: found[k] for k in study["searched"]}
    (cell,) = spec.cells(tmp_path / "small.toml")
    assert cell.read(tuned=["umf"]).arms["umf"].method.dim == 5


@pytest.mark.parametrize(
    ("keeps", "said"),
    [
        ("fm", r"small.toml, \[tune\]: no arm 'fm'; did you mean 'mf'"),
        ("ease", r"small.toml, \[tune\]: the arm 'ease' names no study"),
    ],
)
def test_what_cannot_be_kept_is_refused(keeps, said, tmp_path):
    with pytest.raises(InputError, match=said):
        keeping(tmp_path, KEEPING.replace('keeps = "mf"', f'keeps = "{keeps}"'))


def test_a_study_to_keep_that_is_not_made_yet_is_refused(tmp_path):
    with pytest.raises(InputError, match="the study .*mf.json is not here"):
        studies.make(keeping(tmp_path)["umf"])


def test_trials_of_an_arm_with_a_guide_learn_from_it(tmp_path, monkeypatch):
    plan, given = keeping(tmp_path)["ubo"], []
    monkeypatch.setattr(search, "tune", lambda *_, **named: given.append(named) or {})
    studies.make(plan)
    data = studies.open_data(plan.experiment.data, plan.experiment.protocol)
    expected = inputs_of(plan.arm, data, 0).validation
    found = given[0]["side"].validation
    np.testing.assert_array_equal(found.keys(20), expected.keys(20))
    assert given[0]["by"] == "popular"


# The choices that a file gives for a setting

CHOICES = """
[tune.search]
dim = [3, 4]
popularity_exponent = [0.0, 0.5]
[tune.arms.mf.search]
dim = [5]
initial_scale = [0.02]
"""


def test_choices_replace_the_space_of_settings_that_a_method_searches(tmp_path):
    plans = keeping(tmp_path, KEEPING + CHOICES)
    assert plans["umf"].search == {"dim": [3, 4], "popularity_exponent": [0.0, 0.5]}
    assert plans["mf"].search == {"dim": [5], "initial_scale": [0.02]}  # an arm may add one
    pytest.importorskip("optuna")
    study = studies.make(plans["mf"])
    assert study["searched"]["dim"] == [64, 5]  # the first trial takes the method's own
    assert study["searched"]["initial_scale"] == [0.01, 0.02]
    assert study["searched"]["learning_rate"] == list(space(plans["mf"].method)["learning_rate"])
    assert {trial["settings"]["dim"] for trial in study["trials"]} <= {64, 5}


@pytest.mark.parametrize(
    ("choices", "said"),
    [
        ("dimm = [3]", r"small.toml, \[tune\]: search: no arm searches 'dimm'; did you mean 'dim'"),
        ("initial_scale = [0.1]", r"\[tune\]: search: no arm searches 'initial_scale'"),
        ("dim = 3", r"\[tune\]: search.dim must be a list of choices, got 3"),
        ("dim = [3, 0]", r"\[tune\]: search: mf's setting dim must be at least 1, got 0"),
    ],
)
def test_choices_that_no_method_takes_are_refused(choices, said, tmp_path):
    with pytest.raises(InputError, match=said):
        keeping(tmp_path, f"{KEEPING}[tune.search]\n{choices}\n")


def test_a_study_comes_after_the_studies_that_it_builds_on(tmp_path):
    """`tune FILE` made the study of `ubo` from an older one of `ubo-frozen`, named after it."""
    text = KEEPING + '[tune.arms.mf]\nkeeps = "ubo"\n'
    plans = keeping(tmp_path, text).values()
    assert [plan.arm.label for plan in plans] == ["mf", "umf", "ubo"]
    assert [plan.arm.label for plan in studies.in_turn([*plans, *plans])] == ["ubo", "mf", "umf"]
    mf, umf, ubo = plans  # umf keeps mf, which keeps ubo
    assert [plan.arm.label for plan in studies.in_turn([umf, mf, ubo])] == ["ubo", "mf", "umf"]
