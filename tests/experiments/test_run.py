"""A run resumes where it stopped, and gives the same values again."""

import copy
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from command import ended
from ctrl_c import interrupted_at
from unexposed.errors import InputError
from unexposed.evaluation.compare import compare
from unexposed.experiments import data as experiment_data
from unexposed.experiments import results
from unexposed.experiments import run as running
from unexposed.experiments import spec as experiments
from unexposed.experiments.compare import KINDS, from_lines
from unexposed.experiments.compare import document as comparison_of
from unexposed.experiments.results import Results
from unexposed.experiments.task import Arm, Experiment, Kind, Task
from unexposed.methods import make
from unexposed.progress import Silent

TEXT = """
kind = "compare"
title = "A small one"
also = ["judged"]
seeds = 2
[data]
simulate = { users = 60, items = 30, seed = 3 }
[settings]
epochs = 3
dim = 4
[methods.random]
[methods.mf]
[methods.ubo]
"""


@pytest.fixture
def place(tmp_path) -> Results:
    return Results(tmp_path / "results", "small")


@pytest.fixture
def small(tmp_path) -> Experiment:
    (tmp_path / "small.toml").write_text(TEXT)
    return experiments.read(tmp_path / "small.toml")


@pytest.fixture
def counted(monkeypatch) -> list[tuple[str, int]]:
    """Replace the kind by one that trains nothing and lists its tasks."""
    seen: list[tuple[str, int]] = []

    def body(task: Task) -> dict[str, object]:
        seen.append((task.arm.label, task.seed))
        return {"figure": 0.5}

    monkeypatch.setitem(KINDS, "compare", Kind(body))
    return seen


def failing(error: type[BaseException], at: object, **body: object) -> Kind:
    """A kind that raises at an arm, or at an arm and seed."""

    def run(task: Task) -> dict[str, object]:
        if at in (task.arm.label, (task.arm.label, task.seed)):
            raise error("the loss was not finite")
        return body

    return Kind(run)


def run(experiment: Experiment, place: Results, **options) -> list[results.Line]:
    return running.run(experiment, place, progress=Silent(), **options)


def pairs(lines: list[results.Line]) -> list[tuple[str, int]]:
    return [running.pair_of(line) for line in lines]


def test_a_result_from_before_the_generators_is_of_a_converged_world(small):
    world = {"semi_synthetic": "ml_100k", "power": 1}
    asked = {
        name: replace(small, data=experiment_data.checked({**world, "generator": name}, ""))
        for name in ("converged", "saito")
    }
    old = asked["converged"].identity(small.arms["mf"])
    old["data"] = {key: value for key, value in old["data"].items() if key != "generator"}
    assert running.is_current(asked["converged"], old)
    assert not running.is_current(asked["saito"], old)


ALL = [(arm, seed) for arm in ("random", "mf", "ubo") for seed in (0, 1)]


def test_a_fresh_run_gives_identical_values_and_the_table_of_compare(small, place):
    first = run(small, place)
    again = run(small, place, fresh=True)
    assert [line["protocols"] for line in again] == [line["protocols"] for line in first]
    assert pairs(place.read()) == ALL
    data = experiment_data.open_data(small.data, small.protocol)
    methods = {label: arm.method for label, arm in small.arms.items()}
    for by in (small.protocol, *small.also):
        asked = compare(data.split, methods, by=by, seeds=2, progress=Silent()).document()
        found = from_lines(small, first, by=by).document()
        for document in (asked, found):
            for row in document["results"]:
                assert row.pop("seconds") >= 0
                row.pop("criteria", None)  # `compare` warns by them, a table does not hold them
        assert found == asked


def test_a_line_holds_settings_data_results_and_provenance(small, place):
    line = run(small, place, only=["ubo"])[-1]
    assert (line["experiment"], line["arm"], line["seed"]) == ("small", "ubo", 1)
    assert line.items() >= small.identity(small.arms["ubo"]).items()
    stored = line["protocols"]["ubo-ijcai22"]
    assert len(stored["values"]["dcg@3"]) == stored["users"]
    assert stored["means"]["dcg@3"] == np.mean(stored["values"]["dcg@3"])
    assert set(line["by_popularity"]) == {"head", "middle", "tail"}
    assert 0 < line["recommended"]["coverage"] <= 1
    assert 1 <= line["facts"]["best_epoch"] <= line["facts"]["epochs_run"] <= 3
    assert line["facts"]["best_value"] > 0
    assert line["engine"] in ("cpu", "cuda")
    assert line["seconds"] > 0
    assert list(line["versions"]) == ["unexposed", "python", "numpy", "torch", "numba"]
    assert line["machine"]
    assert line["finished"].endswith("+00:00")


def test_finished_runs_are_skipped_and_a_torn_one_is_repeated(small, place, counted, monkeypatch):
    counting = KINDS["compare"]
    monkeypatch.setitem(KINDS, "compare", failing(KeyboardInterrupt, ("ubo", 1), figure=0.5))
    with pytest.raises(KeyboardInterrupt):
        run(small, place)
    assert pairs(place.read()) == ALL[:-1]
    place.journal.write_bytes(place.journal.read_bytes() + b'{"arm": "ubo", "se')  # killed
    monkeypatch.setitem(KINDS, "compare", counting)
    said: list[str] = []
    lines = run(small, place, say=said.append)
    assert counted == [("ubo", 1)]
    assert pairs(lines) == pairs(place.read()) == ALL
    assert "within a line" in said[0]
    assert said[1] == "small: 5 of 6 runs are finished already"
    assert not place.journal.exists()


def with_arm(small: Experiment, label: str, **settings) -> Experiment:
    return replace(small, arms={**small.arms, label: Arm(label, make(label, **settings))})


CHANGES = {
    "a setting": (lambda e: with_arm(e, "mf", epochs=3, dim=5), [("mf", 0), ("mf", 1)]),
    "the data": (lambda e: replace(e, data={"simulate": {**e.data["simulate"], "seed": 9}}), ALL),
    "the protocol": (lambda e: replace(e, protocol=e.also[0], also=()), ALL),
    "another protocol": (lambda e: replace(e, also=()), ALL),
    "the number of seeds": (
        lambda e: replace(e, seeds=3),
        [("random", 2), ("mf", 2), ("ubo", 2)],
    ),
    "the engine": (
        lambda e: with_arm(e, "mf", epochs=3, dim=4, engine="reference"),
        [],
    ),
    "the title": (lambda e: replace(e, title="Another"), []),
}


@pytest.mark.parametrize("change", CHANGES)
def test_only_changed_runs_are_repeated_and_replace_the_old(small, place, counted, change):
    run(small, place)
    counted.clear()
    edit, expected = CHANGES[change]
    changed = edit(small)
    run(changed, place)
    assert counted == expected
    stored = place.read()
    assert sorted(pairs(stored)) == sorted({*ALL, *expected})
    assert all(running.is_current(changed, line) for line in stored)


def test_a_setting_added_later_has_the_value_that_older_results_used(small, place, counted):
    small = experiments.with_settings(small, {"refit": False})
    run(small, place)
    lines = place.read()
    for line in lines:
        line["settings"].pop("refit", None)
    place.write(lines, {})
    counted.clear()
    run(small, place)
    assert counted == []
    run(experiments.with_settings(small, {"refit": True}), place)
    assert counted == [pair for pair in ALL if pair[0] != "random"]


def test_lines_of_other_arms_and_seeds_stay_and_of_removed_arms_go(small, place, counted):
    run(small, place, only=["ubo", "random"])
    assert counted == [("random", 0), ("random", 1), ("ubo", 0), ("ubo", 1)]
    changed = with_arm(small, "ubo", epochs=9)
    assert pairs(run(changed, place, only=["mf"])) == [("mf", 0), ("mf", 1)]
    assert pairs(place.read()) == ALL
    assert pairs(run(replace(small, seeds=1), place)) == [("random", 0), ("mf", 0), ("ubo", 0)]
    assert pairs(place.read()) == ALL
    fewer = replace(small, arms={label: small.arms[label] for label in ("mf", "ubo")})
    run(fewer, place, only=["mf"])  # only a whole run removes an arm
    assert sorted(pairs(place.read())) == sorted(ALL)
    run(fewer, place)
    assert pairs(place.read()) == ALL[2:]


def test_a_kind_can_run_all_arms_of_a_seed_before_the_next(small, place, counted, monkeypatch):
    monkeypatch.setitem(KINDS, "compare", replace(KINDS["compare"], by_seed=True))
    run(small, place)
    assert counted == sorted(ALL, key=lambda pair: pair[1])
    assert pairs(place.read()) == ALL


@pytest.mark.parametrize("fresh", [False, True])
def test_a_damaged_file_is_named_and_left_as_it_is(small, place, counted, fresh):
    run(small, place)
    place.file.write_text(damaged := place.file.read_text().replace('"seed"', "seed", 1))
    with pytest.raises(InputError, match="small.json is damaged"):
        run(small, place, fresh=fresh, only=["random"])
    assert place.file.read_text() == damaged


def test_a_fresh_run_of_one_arm_leaves_the_others_as_they_are(small, place, counted):
    run(small, place)
    before = place.read()
    counted.clear()
    run(replace(small, seeds=1), place, fresh=True, only=["mf"])
    assert counted == [("mf", 0)]
    after = place.read()
    assert pairs(after) == ALL
    assert [*after[:2], *after[3:]] == [*before[:2], *before[3:]]


def test_an_interrupted_fresh_run_leaves_the_old_results_and_resumes(
    small, place, counted, monkeypatch
):
    run(small, place)
    before, counting = place.file.read_bytes(), KINDS["compare"]
    monkeypatch.setitem(KINDS, "compare", failing(KeyboardInterrupt, "ubo", figure=0.25))
    with pytest.raises(KeyboardInterrupt):
        run(small, place, fresh=True)
    assert place.file.read_bytes() == before
    said: list[str] = []
    run(small, place, say=said.append)
    assert "small.fresh.jsonl holds a fresh run that was interrupted: --fresh would" in said[0]
    monkeypatch.setitem(KINDS, "compare", counting)
    counted.clear()
    run(small, place, fresh=True)
    assert counted == [("ubo", 0), ("ubo", 1)]
    assert [line["figure"] for line in place.read()] == [0.25] * 4 + [0.5] * 2
    assert [path.name for path in place.file.parent.iterdir()] == ["small.json"]


def test_a_failed_run_is_reported_and_the_others_continue(small, place, monkeypatch):
    monkeypatch.setitem(KINDS, "compare", failing(InputError, ("mf", 0)))
    said: list[str] = []
    with pytest.raises(InputError, match="1 of 6 runs failed; mf, seed 0: the loss was not finite"):
        run(small, place, say=said.append)
    assert said == ["error: mf, seed 0: the loss was not finite"]
    assert pairs(place.read()) == [pair for pair in ALL if pair != ("mf", 0)]


def test_two_processes_give_the_values_of_one(small, place, tmp_path, monkeypatch):
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    alone = run(small, place, only=["mf"])
    together = run(small, Results(tmp_path, "together"), only=["mf"], workers=2)
    assert [line["protocols"] for line in together] == [line["protocols"] for line in alone]
    assert pairs(Results(tmp_path, "together").read()) == [("mf", 0), ("mf", 1)]
    assert "MKL_NUM_THREADS" not in os.environ  # set only for the processes


def test_stored_results_that_cannot_be_compared_are_named(small, place):
    lines = run(small, place, only=["random", "mf"])
    lines[-1]["protocols"]["ubo-ijcai22"]["who"] = "somebody else"
    with pytest.raises(InputError, match="mf, seed 1 evaluated other users"):
        from_lines(small, lines)
    for spoil in ("who", "users"):
        broken = copy.deepcopy(lines)
        del broken[1]["protocols"]["ubo-ijcai22"][spoil]
        with pytest.raises(InputError, match="results of random are damaged.*--only random"):
            from_lines(small, broken)


def test_without_the_values_of_users_a_comparison_stands_while_its_means_do(small, place):
    run(small, place)
    asked = [comparison_of(small, place.read(), by=by) for by in (small.protocol, *small.also)]
    assert all("p_holm" in row["metrics"]["dcg@3"] for row in asked[0]["results"])
    place.values.unlink()
    run(small, place)  # trains nothing, and loses nothing
    known = place.document()["comparisons"]
    for made in asked:
        by = {p.name: p for p in (small.protocol, *small.also)}[made["protocol"]]
        assert comparison_of(small, place.read(), by=by, known=known) == made
    fewer = comparison_of(replace(small, seeds=1), place.read(), known=known)
    assert set(fewer["results"][0]["metrics"]["dcg@3"]) == {"mean", "sd"}


def test_the_command_prints_the_table_and_leaves_results_beside_the_file(small, place, capsys):
    file = str(place.file.parents[1] / "small.toml")
    assert ended("run", file) == 0
    out, _ = capsys.readouterr()
    assert "A small one" in out
    rows = [line.split()[0] for line in out.splitlines() if "±" in line and "mean" not in line]
    assert rows == ["random", "mf", "ubo"]
    assert pairs(place.read()) == ALL
    assert ended("run", file, "--json") == 0
    out, err = capsys.readouterr()
    assert "6 of 6 runs are finished already" in err
    assert json.loads(out) == from_lines(small, place.read()).document()


def test_several_files_make_one_document_and_files_without_an_experiment_are_left_out(
    small, tmp_path, monkeypatch, capsys, counted
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(KINDS, "timing", Kind(lambda task: {"figure": 0.25}))
    Path("paper.toml").write_text("[coat]\nmf = 3\n")
    Path("speed.toml").write_text(TEXT.replace("compare", "timing"))
    assert ended("run", "paper.toml", "absent.toml") == 2
    assert "absent.toml" in capsys.readouterr().err
    assert ended("run", "paper.toml", "speed.toml", "small.toml") == 2
    out, err = capsys.readouterr()
    assert "left out paper.toml" in err
    assert "small.toml: small: the results of random are damaged" in err  # counted, not trained
    assert ".250" in out
    assert ended("run", "paper.toml", "speed.toml", "--json") == 0
    assert json.loads(capsys.readouterr().out)["kind"] == "timing"


def test_a_miniature_never_touches_the_results(small, place, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert ended("run", "small.toml", "--miniature", "--only", "random") == 0
    assert "(miniature)" in capsys.readouterr().out
    assert not place.file.exists()
    assert len(Results(Path("miniature"), "small").read()) == 2


@pytest.mark.parametrize(
    ("workers", "said"), [(1, "epoch"), (2, "(2 of 6)")], ids=["in one process", "in two"]
)
def test_ctrl_c_exits_without_a_traceback_and_keeps_finished_lines(workers, said, tmp_path):
    text = TEXT.replace("epochs = 3", "epochs = 1000000\npatience = 0")
    (tmp_path / "small.toml").write_text(text.replace("[methods.random]", "[methods.popularity]"))
    code, err = interrupted_at(f"run small.toml --workers {workers}", said, tmp_path)
    assert code == 130, err
    assert "Traceback" not in err
    assert "4 of 6 runs are left for next time" in err
    lines = Results(tmp_path / "results", "small").read()
    assert sorted(pairs(lines)) == [("popularity", 0), ("popularity", 1)]


def test_a_result_names_the_commit_of_its_own_code_and_of_no_other_repository(
    tmp_path, monkeypatch
):
    def git(*words: str) -> str:
        author = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
        command = ["git", "-C", str(tmp_path), *author, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def commit(package: str) -> str | None:
        module = tmp_path / package / "experiments" / "run.py"
        module.parent.mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(running, "__file__", str(module))
        return running.commit.__wrapped__()

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    head = git("rev-parse", "HEAD")
    (tmp_path / "results.jsonl").write_text("not code")
    assert commit("src/unexposed") == head
    (tmp_path / "src" / "unexposed" / "new.py").write_text("")
    assert commit("src/unexposed") == f"{head}+changes"
    assert commit(".venv/lib/site-packages/unexposed") is None
    monkeypatch.setenv("PATH", "")
    assert commit("src/unexposed") is None
