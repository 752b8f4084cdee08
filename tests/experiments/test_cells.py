"""A matrix makes one experiment of every combination of its values, and studies for them."""

import json
from pathlib import Path

import pytest

import world_inputs
from command import ended
from unexposed.errors import InputError
from unexposed.experiments import results, studies
from unexposed.experiments import spec as experiments
from unexposed.experiments.spec import matrix as cells

TEXT = """
kind = "compare"
title = "Small worlds"
seeds = 1
[matrix]
"data.simulate.users" = [40, 50]
"settings.refit" = { held_out = false, all_clicks = true }
[data.simulate]
items = 20
[settings]
epochs = 2
dim = 4
[methods.popularity]
[methods.umf]
study = "tuning/{data.simulate.users}_umf.json"
[methods.umf-true]
method = "umf"
exposure = "true"
study = "tuning/{cell}_umf-true.json"
settings = { negatives = 3 }
[methods.umf-again]
method = "umf"
study = "tuning/{data.simulate.users}_umf.json"
[tune]
trials = 3
splits = 2
[tune.arms.umf-true]
splits = 1
start = "umf"
settings = { batch_size = 64 }
"""
NAMES = ["small-40-held_out", "small-40-all_clicks", "small-50-held_out", "small-50-all_clicks"]


@pytest.fixture
def file(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(TEXT)
    return Path("small.toml")


def invoked(line: str) -> int:
    return ended(*line.split())


# The cells


def test_a_cell_is_the_file_with_its_values_put_in(file):
    found = {cell.name: cell.read(tuned=False) for cell in experiments.cells(file)}
    assert list(found) == NAMES
    for name, experiment in found.items():
        _, users, refit = name.split("-")
        assert experiment.name == name
        assert experiment.title == f"Small worlds: {users}, {refit}"
        assert experiment.data == {"simulate": {"users": int(users), "items": 20, "seed": 0}}
        assert experiment.arms["umf"].method.refit == (refit == "all_clicks")
        assert experiment.arms["umf"].study == f"tuning/{users}_umf.json"
        assert experiment.arms["umf-true"].study == f"tuning/{name}_umf-true.json"


def test_a_title_may_say_where_the_values_go():
    document = {"title": "{a.b} of {cell}", "matrix": {"a.b": [0.5, True]}}
    made = cells(document, name="x", where="")
    assert {name: cell["title"] for name, cell in made.items()} == {
        "x-0.5": "0.5 of x-0.5",
        "x-true": "true of x-true",
    }
    assert [cell["a"] for cell in made.values()] == [{"b": 0.5}, {"b": True}]


def test_a_file_without_a_matrix_is_one_cell_named_after_it():
    document = {"title": "alone"}
    assert cells(document, name="x", where="") == {"x": document}


def test_cells_are_chosen_by_a_part_of_their_name(file):
    assert [c.name for c in experiments.cells(file, part="40-")] == NAMES[:2]
    assert [c.name for c in experiments.cells(file, part="40-all, 50-held")] == NAMES[1:3]
    with pytest.raises(InputError, match="no cell '60'; its cells: small-40-held_out, "):
        experiments.cells(file, part="60")
    with pytest.raises(InputError, match="holds 4 experiments"):
        experiments.read(file)


@pytest.mark.parametrize(
    ("matrix", "complaint"),
    [
        ({"seeds": []}, "must be a list of values"),
        ({"seeds": 3}, "must be a list of values"),
        ({"seeds": [[1]]}, "cannot name a file"),
        ({"title": ["a/b"]}, "cannot name a file"),
        ({"kind": ["compare"]}, "kind is both in"),
        ({"kind.x": [1]}, "kind is not a table"),
        ({"seeds": [1], "title": {"1-1": 1, "1": 2}, "protocol": {"1": 1, "1-1": 2}}, "two cells"),
    ],
)
def test_a_matrix_that_makes_no_sense_is_refused(matrix, complaint):
    with pytest.raises(InputError, match=rf"f\.toml.*{complaint}"):
        cells({"kind": "compare", "matrix": matrix}, name="x", where="f.toml")


def test_some_cells_may_differ_in_more_than_the_matrix():
    document = {
        "also": ["x"],
        "matrix": {"data.dataset": ["coat", "yahoo"], "seeds": [1, 2]},
        "cells": {
            "coat": {"tune.splits": 10, "also": []},
            "2": {"methods.mf.study": "{cell}.json"},
        },
    }
    made = cells(document, name="x", where="")
    assert [cell.get("tune") for cell in made.values()] == [{"splits": 10}] * 2 + [None] * 2
    assert [cell["also"] for cell in made.values()] == [[], [], ["x"], ["x"]]
    assert "methods" not in made["x-yahoo-1"]
    assert made["x-yahoo-2"]["methods"] == {"mf": {"study": "x-yahoo-2.json"}}
    assert "cells" not in made["x-coat-1"]
    document["cells"] = {"caot": {}}
    with pytest.raises(InputError, match="no value of the matrix is 'caot'; did you mean 'coat'"):
        cells(document, name="x", where="")
    del document["matrix"]
    with pytest.raises(InputError, match="needs a"):
        cells(document, name="x", where="")


# Running and reporting them


def test_cells_run_and_resume_each_in_a_file_of_its_own(file, capsys):
    Path("small.toml").write_text(TEXT.split("[tune]")[0].replace("study =", "#"))
    assert invoked("run small.toml --only popularity --cell held_out") == 0
    held_out = [
        f"{name}{end}" for name in NAMES if "held_out" in name for end in (".json", ".parquet")
    ]
    assert sorted(path.name for path in Path("results").iterdir()) == held_out
    written = Path("results", held_out[0]).read_bytes()
    assert invoked("run small.toml --only popularity") == 0
    assert Path("results", held_out[0]).read_bytes() == written
    assert "small-40-held_out: 1 of 1 runs are finished already" in capsys.readouterr().err
    for name in NAMES:
        (line,) = results.Results(Path("results"), name).read()
        assert (line["experiment"], line["arm"]) == (name, "popularity")
    assert invoked("run small.toml --only popularity --cell 40-held --fresh") == 0
    assert Path("results", held_out[0]).read_bytes() != written


def test_a_miniature_of_cells_needs_no_study(file):
    assert invoked("run small.toml --miniature --cell 40-held") == 0
    lines = results.Results(Path("miniature"), "small-40-held_out").read()
    assert {line["arm"] for line in lines} == {"popularity", "umf", "umf-true", "umf-again"}


def test_a_study_that_is_missing_names_the_command_that_makes_it(file, capsys):
    assert invoked("run small.toml --cell 50-held") == 2
    said = capsys.readouterr().err
    assert "unexposed tune small.toml --cell small-50-held_out --only umf" in said


def test_an_arm_runs_while_the_study_of_another_is_missing(file):
    assert invoked("run small.toml --cell 50-held --only popularity") == 0


def test_a_study_of_another_folder_is_made_there(file):
    text = TEXT.split("[tune]")[0].replace('"tuning/', '"../../other/results/tuning/')
    file.write_text(text)
    first = experiments.cells(file)[0]
    assert studies.plans(first.read(tuned=False), first.results) == []
    with pytest.raises(InputError, match="tune the experiment that it belongs to"):
        first.read()


# Tuning them


def test_each_study_of_a_file_is_planned_once_with_what_it_holds(file):
    cells = experiments.cells(file, part="40")
    read = {cell.name: cell.read(tuned=False) for cell in cells}
    plans = studies.in_turn(
        plan for one in cells for plan in studies.plans(read[one.name], one.results)
    )
    found = {plan.path.name: plan for plan in plans}
    assert list(found) == [
        "40_umf.json",  # shared by cells and arms
        "small-40-held_out_umf-true.json",
        "small-40-all_clicks_umf-true.json",
    ]
    umf, true, _ = plans
    common = ("epochs", "dim", "refit")
    assert (umf.arm.label, umf.held, umf.trials, umf.splits, umf.start) == (
        "umf",
        common,
        3,
        2,
        None,
    )
    own = ("negatives", "batch_size", "popularity_exponent", "popularity_floor")
    assert (true.held, true.trials, true.splits) == ((*common, *own), 3, 1)
    assert true.start == umf.path
    assert (true.arm.inputs["exposure"], true.method.batch_size, true.method.negatives) == (
        "true",
        64,
        3,
    )
    assert not any(plan.method.refit for plan in plans)
    first = cells[0]
    (one,) = studies.plans(read[first.name], first.results, only=["umf"], trials=7, splits=5)
    assert (one.trials, one.splits) == (7, 5)
    with pytest.raises(InputError, match="makes no study of 'umf-again'; did you mean"):
        studies.plans(read[first.name], first.results, only=["umf-again"])


def test_a_file_is_tuned_with_its_oracles_and_then_runs(file, monkeypatch, capsys):
    pytest.importorskip("optuna")
    monkeypatch.setitem(world_inputs.ORACLES, "true", spied := Spy(world_inputs.true))
    assert invoked("tune small.toml --cell 40-held --trials 2 --splits 1") == 0
    folder = Path("results/tuning")
    names = ["40_umf", "small-40-held_out_umf-true"]
    assert sorted(path.stem for path in folder.glob("*.json")) == names
    plain, true = (json.loads((folder / f"{name}.json").read_text()) for name in names)
    assert "given" not in plain
    assert list(true["given"]) == ["exposure"]
    assert spied.calls == 1
    assert {"popularity_exponent", "batch_size"} & set(true["searched"]) == set()
    assert true["held"]["batch_size"] == 64
    assert len(true["trials"]) == 2
    assert invoked("run small.toml --cell 40-held") == 0
    # a study that came without its journal is not made again
    for path in folder.glob("*.journal"):
        path.unlink()
    capsys.readouterr()
    assert invoked("tune small.toml --cell 40-held --trials 2 --splits 1 --only umf") == 0
    assert "40_umf.json is finished" in capsys.readouterr().err


class Spy:
    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *given):
        self.calls += 1
        return self.function(*given)


def test_a_study_of_another_exposure_is_not_resumed(file):
    pytest.importorskip("optuna")
    line = "tune small.toml --cell 40-held --trials 1 --splits 1 --only umf-true"
    Path("small.toml").write_text(TEXT.replace('start = "umf"\n', ""))
    assert invoked(line) == 0
    text = file.read_text().replace('exposure = "true"', 'exposure = "item_means"')
    file.write_text(text)
    assert invoked(line) == 2


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (("trials = 3", "trial = 3"), "no 'trial'; did you mean 'trials'"),
        (("arms.umf-true", "arms.umf-ture"), "no arm 'umf-ture'; did you mean 'umf-true'"),
        (("arms.umf-true", "arms.popularity"), "the arm 'popularity' names no study"),
        (('start = "umf"', 'start = "ufm"'), "no arm 'ufm'; did you mean 'umf'"),
    ],
)
def test_a_tune_table_that_does_not_fit_is_refused(file, change, complaint):
    file.write_text(TEXT.replace(*change))
    with pytest.raises(InputError, match=rf"small.toml.*\[tune\].*{complaint}"):
        experiments.cells(file)[0].read(tuned=False)
