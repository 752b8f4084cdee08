"""A run goes on where it stopped, and gives the same figures again."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ctrl_c import interrupted_at
from unexposed import cli
from unexposed.errors import InputError
from unexposed.evaluation.compare import compare
from unexposed.experiments import data as experiment_data
from unexposed.experiments import results
from unexposed.experiments import run as running
from unexposed.experiments import spec as experiments
from unexposed.experiments.kinds import KINDS
from unexposed.experiments.kinds.compare import from_lines
from unexposed.experiments.task import Arm, Experiment, Task
from unexposed.methods import make
from unexposed.model.recommender import Recommender
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
def place(tmp_path) -> Path:
    return tmp_path / "results" / "small.jsonl"


@pytest.fixture
def small(tmp_path) -> Experiment:
    (tmp_path / "small.toml").write_text(TEXT)
    return experiments.read(tmp_path / "small.toml")


@pytest.fixture
def counted(monkeypatch) -> list[tuple[str, int]]:
    """A kind that trains nothing and notes every task it is given."""
    seen: list[tuple[str, int]] = []

    def body(task: Task) -> dict[str, object]:
        seen.append((task.arm, task.seed))
        return {"figure": 0.5}

    monkeypatch.setitem(KINDS, "compare", body)
    return seen


def run(experiment: Experiment, place: Path, **options) -> list[results.Line]:
    return running.run(experiment, place, progress=Silent(), **options)


def pairs(lines: list[results.Line]) -> list[tuple[str, int]]:
    return [running.pair_of(line) for line in lines]


ALL = [(arm, seed) for arm in ("random", "mf", "ubo") for seed in (0, 1)]


def test_a_fresh_run_gives_identical_values_and_the_table_of_compare(small, place):
    first = run(small, place)
    again = run(small, place, fresh=True)
    assert [line["protocols"] for line in again] == [line["protocols"] for line in first]
    assert pairs(results.read_lines(place)) == ALL
    data = experiment_data.open_data(small.data, small.protocol)
    methods = {label: arm.method for label, arm in small.arms.items()}
    for by in (small.protocol, *small.also):
        asked = compare(data.split, methods, by=by, seeds=2, progress=Silent()).document()
        found = from_lines(small, first, by=by).document()
        for document in (asked, found):
            for row in document["results"]:
                assert row.pop("seconds") >= 0
        assert found == asked


def test_a_line_says_what_was_asked_what_came_out_and_where(small, place):
    line = run(small, place)[-1]
    ubo = small.arms["ubo"].method
    assert (line["experiment"], line["kind"], line["arm"], line["method"], line["seed"]) == (
        "small",
        "compare",
        "ubo",
        "ubo",
        1,
    )
    assert line["settings"]["epochs"] == 3
    assert set(line["settings"]) == set(experiments.checks.known(type(ubo)))
    assert line["data"] == {"simulate": {"users": 60, "items": 30, "seed": 3}}
    assert line["protocol"] == "ubo-ijcai22"
    assert list(line["protocols"]) == ["ubo-ijcai22", "judged"]
    stored = line["protocols"]["ubo-ijcai22"]
    assert len(results.unpack(stored["values"]["dcg@3"])) == stored["users"]
    assert set(line["by_popularity"]) == {"head", "middle", "tail"}
    assert 0 < line["recommended"]["coverage"] <= 1
    assert 1 <= line["facts"]["best_epoch"] <= line["facts"]["epochs_run"] <= 3
    assert line["facts"]["best_value"] > 0
    assert line["engine"] in ("cpu", "cuda")
    assert line["seconds"] > 0
    assert set(line["versions"]) == {"unexposed", "python", "numpy", "torch", "numba"}
    assert line["machine"]
    assert line["finished"].endswith("+00:00")
    assert json.loads(place.read_text().splitlines()[-1]) == line


def test_what_is_finished_is_not_run_again_and_what_is_torn_is(small, place, counted):
    run(small, place)
    assert counted == ALL
    text = place.read_bytes()
    place.write_bytes(text[:-9])  # killed within the last line
    counted.clear()
    said: list[str] = []
    lines = run(small, place, say=said.append)
    assert counted == [("ubo", 1)]
    assert pairs(lines) == pairs(results.read_lines(place)) == ALL
    assert "within a line" in said[0]
    assert said[1] == "small: 5 of 6 runs are finished already"


def with_arm(small: Experiment, label: str, **settings) -> Experiment:
    return replace(small, arms={**small.arms, label: Arm(label, make(label, **settings))})


CHANGES = {
    "a setting": (lambda e: with_arm(e, "mf", epochs=3, dim=5), [("mf", 0), ("mf", 1)]),
    "the data": (lambda e: replace(e, data={"simulate": {**e.data["simulate"], "seed": 9}}), ALL),
    "the protocol": (lambda e: replace(e, protocol=e.also[0], also=()), ALL),
    "another protocol": (lambda e: replace(e, also=()), ALL),
    "an option": (lambda e: replace(e, options={"steps": 3}), ALL),
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
def test_only_what_has_changed_is_run_again_and_replaces_the_old(small, place, counted, change):
    run(small, place)
    counted.clear()
    edit, expected = CHANGES[change]
    changed = edit(small)
    run(changed, place)
    assert counted == expected
    stored = results.read_lines(place)
    assert sorted(pairs(stored)) == sorted({*ALL, *expected})
    assert all(running.is_current(changed, line) for line in stored)


def test_a_setting_that_came_later_says_what_trainings_did_without_it(small, place, counted):
    small = experiments.with_settings(small, {"refit": False})
    run(small, place)
    lines = results.read_lines(place)
    for line in lines:
        line["settings"].pop("refit", None)
    results.write_lines(place, lines)
    counted.clear()
    run(small, place)
    assert counted == []
    run(experiments.with_settings(small, {"refit": True}), place)
    assert counted == [pair for pair in ALL if pair[0] != "random"]


def test_only_some_arms_leave_the_others_lines_alone(small, place, counted):
    run(small, place, only=["ubo", "random"])
    assert counted == [("random", 0), ("random", 1), ("ubo", 0), ("ubo", 1)]
    changed = with_arm(small, "ubo", epochs=9)
    lines = run(changed, place, only=["mf"])
    assert pairs(lines) == [("mf", 0), ("mf", 1)]
    assert pairs(results.read_lines(place)) == ALL


def test_fewer_seeds_keep_the_lines_of_the_others(small, place, counted):
    run(small, place)
    lines = run(replace(small, seeds=1), place)
    assert pairs(lines) == [("random", 0), ("mf", 0), ("ubo", 0)]
    assert pairs(results.read_lines(place)) == ALL


def test_an_arm_that_is_gone_leaves_the_file(small, place, counted):
    run(small, place)
    fewer = replace(small, arms={"mf": small.arms["mf"]})
    run(fewer, place)
    assert pairs(results.read_lines(place)) == [("mf", 0), ("mf", 1)]


def test_an_arm_that_is_gone_stays_while_only_a_part_is_run(small, place, counted):
    run(small, place)
    fewer = replace(small, arms={label: small.arms[label] for label in ("mf", "ubo")})
    run(fewer, place, only=["mf"])
    assert sorted(pairs(results.read_lines(place))) == sorted(ALL)


def test_fresh_runs_everything_again_and_leaves_one_line_for_each(small, place, counted):
    run(small, place)
    run(small, place, fresh=True)
    assert counted == ALL + ALL
    assert pairs(results.read_lines(place)) == ALL


@pytest.mark.parametrize("fresh", [False, True])
def test_a_damaged_line_is_named_and_no_other_line_is_lost(small, place, counted, fresh):
    run(small, place)
    whole = place.read_text()
    place.write_text(damaged := whole.replace('"arm":"mf"', '"arm":', 1))
    with pytest.raises(InputError, match="line 3 is damaged; remove that line, and its run"):
        run(small, place, fresh=fresh, only=["random"])
    assert place.read_text() == damaged


def test_a_fresh_run_of_one_arm_leaves_the_others_as_they_are(small, place, counted):
    run(small, place)
    before = place.read_text().splitlines()
    counted.clear()
    run(replace(small, seeds=1), place, fresh=True, only=["mf"])
    assert counted == [("mf", 0)]
    assert pairs(results.read_lines(place)) == ALL
    after = place.read_text().splitlines()
    assert [*after[:2], *after[3:]] == [*before[:2], *before[3:]]


def test_an_interrupted_fresh_run_mixes_no_lines_and_goes_on(small, place, counted, monkeypatch):
    run(small, place)
    before = place.read_bytes()
    counting = KINDS["compare"]

    def body(task: Task) -> dict[str, object]:
        if task.arm == "ubo":
            raise KeyboardInterrupt
        return {**counting(task), "figure": 0.25}

    monkeypatch.setitem(KINDS, "compare", body)
    with pytest.raises(KeyboardInterrupt):
        run(small, place, fresh=True)
    assert place.read_bytes() == before
    said: list[str] = []
    run(small, place, say=said.append)
    assert "small.jsonl.fresh holds a fresh run that was cut short: it would go on" in said[0]
    monkeypatch.setitem(KINDS, "compare", counting)
    counted.clear()
    run(small, place, fresh=True)
    assert counted == [("ubo", 0), ("ubo", 1)]
    assert [line["figure"] for line in results.read_lines(place)] == [0.25] * 4 + [0.5] * 2
    assert [path.name for path in place.parent.iterdir()] == ["small.jsonl"]


def test_a_run_that_fails_is_told_of_and_the_others_go_on(small, place, monkeypatch):
    def body(task: Task) -> dict[str, object]:
        if (task.arm, task.seed) == ("mf", 0):
            raise InputError("the loss was not finite")
        return {}

    monkeypatch.setitem(KINDS, "compare", body)
    said: list[str] = []
    with pytest.raises(InputError, match="1 of 6 runs failed; mf, seed 0: the loss was not finite"):
        run(small, place, say=said.append)
    assert said == ["error: mf, seed 0: the loss was not finite"]
    assert pairs(results.read_lines(place)) == [pair for pair in ALL if pair != ("mf", 0)]


def test_an_interrupted_run_keeps_what_was_finished(small, place, monkeypatch):
    def body(task: Task) -> dict[str, object]:
        if task.arm == "ubo":
            raise KeyboardInterrupt
        return {}

    monkeypatch.setitem(KINDS, "compare", body)
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        run(small, place, say=said.append)
    assert pairs(results.read_lines(place)) == ALL[:4]
    assert said == ["small: 2 of 6 runs are left for the next time"]


def test_two_processes_give_the_values_of_one(small, place, tmp_path, monkeypatch):
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    alone = run(small, place)
    together = run(small, tmp_path / "together.jsonl", workers=2)
    assert [line["protocols"] for line in together] == [line["protocols"] for line in alone]
    assert pairs(results.read_lines(tmp_path / "together.jsonl")) == ALL
    assert "MKL_NUM_THREADS" not in os.environ  # it was for the processes alone


def test_results_of_other_users_are_not_paired(small, place):
    lines = run(replace(small, also=()), place)
    lines[-1]["protocols"]["ubo-ijcai22"]["who"] = "somebody else"
    with pytest.raises(InputError, match="ubo, seed 1 evaluated other users"):
        from_lines(small, lines)


@pytest.mark.parametrize("spoil", ["values", "who", "users"])
def test_a_line_without_its_values_is_named(small, place, spoil):
    lines = run(small, place, only=["random"])
    del lines[1]["protocols"]["ubo-ijcai22"][spoil]
    with pytest.raises(InputError, match="results of random are damaged.*--only random"):
        from_lines(small, lines)


def command(monkeypatch, capsys, *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["unexposed", "run", *words])
    with pytest.raises(SystemExit) as end:
        cli.main()
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def test_the_command_prints_the_table_and_leaves_results_beside_the_file(
    small, place, tmp_path, monkeypatch, capsys
):
    file = str(tmp_path / "small.toml")
    code, out, err = command(monkeypatch, capsys, file)
    assert code == 0, err
    assert "A small one" in out
    rows = [line.split()[0] for line in out.splitlines() if "±" in line and "mean" not in line]
    assert rows == ["random", "mf", "ubo"]
    assert pairs(results.read_lines(place)) == ALL
    code, out, err = command(monkeypatch, capsys, file, "--json")
    assert code == 0
    assert "6 of 6 runs are finished already" in err
    asked = from_lines(small, results.read_lines(place)).document()
    assert json.loads(out) == asked


def test_several_files_make_one_document_and_what_is_no_experiment_is_left_out(
    small, tmp_path, monkeypatch, capsys, counted
):
    del counted[:]
    monkeypatch.setitem(KINDS, "timing", lambda task: {"figure": 0.25})
    (tmp_path / "paper.toml").write_text("[coat]\nmf = 3\n")
    (tmp_path / "speed.toml").write_text(
        TEXT.replace("compare", "timing").replace('also = ["judged"]', "")
    )
    files = [str(tmp_path / name) for name in ("paper.toml", "speed.toml", "absent.toml")]
    code, _, err = command(monkeypatch, capsys, *files)
    assert code == 2
    assert "absent.toml" in err
    code, out, err = command(monkeypatch, capsys, *files[:2], str(tmp_path / "small.toml"))
    assert code == 2  # the counted kind gives no values to compare
    assert f"left out {files[0]}" in err
    assert "small.toml: small: the results of random are damaged" in err
    assert ".250" in out
    code, out, _ = command(monkeypatch, capsys, *files[:2], "--json")
    assert code == 0
    assert json.loads(out)["kind"] == "timing"


def test_a_miniature_never_touches_the_results(small, place, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, out, err = command(monkeypatch, capsys, "small.toml", "--miniature", "--only", "random")
    assert code == 0, err
    assert "(miniature)" in out
    assert not place.exists()
    assert len(results.read_lines(Path("miniature/small.jsonl"))) == 2


def test_ctrl_c_keeps_finished_lines_and_exits_with_130(tmp_path):
    text = TEXT.replace("epochs = 3", "epochs = 1000000\npatience = 0")
    (tmp_path / "small.toml").write_text(text.replace("[methods.random]", "[methods.popularity]"))
    child = subprocess.Popen(
        [sys.executable, "-m", "unexposed", "run", "small.toml"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in child.stderr:
        if "mf, seed 0" in line and "epoch" in line:
            break
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert "Traceback" not in err
    assert "4 of 6 runs are left for the next time" in err
    lines = results.read_lines(tmp_path / "results" / "small.jsonl")
    assert pairs(lines) == [("popularity", 0), ("popularity", 1)]


@pytest.mark.parametrize(
    ("said", "kept"),
    [("runs in 2 processes", []), ("(2 of 6)", [("popularity", 0), ("popularity", 1)])],
    ids=["while workers start", "while they work"],
)
def test_ctrl_c_ends_workers_without_a_traceback_and_keeps_finished_lines(said, kept, tmp_path):
    text = TEXT.replace("epochs = 3", "epochs = 1000000\npatience = 0")
    (tmp_path / "small.toml").write_text(text.replace("[methods.random]", "[methods.popularity]"))
    code, err = interrupted_at("run small.toml --workers 2", said, tmp_path)
    assert code == 130, err
    assert "Traceback" not in err
    assert f"{6 - len(kept)} of 6 runs are left for the next time" in err
    lines = results.read_lines(tmp_path / "results" / "small.jsonl")
    assert sorted(pairs(lines)) == kept


def test_nothing_is_trained_on_judgements(small, monkeypatch):
    seen = []
    mf = small.arms["mf"].method
    fit = Recommender.fit

    def spy(self, clicks, held_out=None, **rest):
        seen.append((clicks, held_out))
        return fit(self, clicks, held_out, **rest)

    monkeypatch.setattr(Recommender, "fit", spy)
    data = experiment_data.open_data(small.data, small.protocol)
    KINDS["compare"](Task(small, "mf", mf, 1, data))
    ((clicks, held_out),) = seen
    split = data.split(1)
    np.testing.assert_array_equal(clicks.keys, split.train.keys)
    np.testing.assert_array_equal(held_out.keys, split.held_out.keys)


def test_a_fault_in_one_process_loses_nothing_of_the_others(small, place, monkeypatch):
    class Pool:
        """Does at once what it is given, and fails at one of them."""

        def __init__(self, *args, **kwargs):
            running._shared = small, kwargs["initargs"][1]

        def submit(self, work, pair):
            future = Future()
            if pair == ("mf", 0):
                future.set_exception(RuntimeError("a fault of ours"))
            else:
                future.set_result(work(pair))
            return future

        def shutdown(self, **kwargs):
            pass

    monkeypatch.setattr(running, "ProcessPoolExecutor", Pool)
    with pytest.raises(RuntimeError, match="a fault of ours"):
        run(small, place, workers=2)
    kept = {(line["arm"], line["seed"]) for line in results.read_lines(place)}
    assert len(kept) == 5
    assert ("mf", 0) not in kept


def test_experiments_run_where_polars_is_not_installed(small, tmp_path):
    code = (
        "import sys; sys.modules['polars'] = None\n"
        "from unexposed import progress\n"
        "from unexposed.experiments import run as running, spec as experiment\n"
        "from pathlib import Path\n"
        "asked = experiment.read(Path('small.toml'))\n"
        "assert len(running.run(asked, Path('out.jsonl'), progress=progress.Silent())) == 6\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
