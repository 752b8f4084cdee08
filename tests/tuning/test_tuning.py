"""Tuning sees clicks alone, resumes where it stopped, and refuses what does not fit."""

import contextlib
import errno
import json
import logging
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.context import SpawnProcess
from typing import ClassVar

import numpy as np
import pytest

from ctrl_c import interrupted_at
from unexposed import settings as checks
from unexposed.data.clicks import Clicks
from unexposed.data.datasets import RatingData
from unexposed.data.ids import Ids
from unexposed.data.worlds.simulate import world
from unexposed.data.write import click_table, write_table
from unexposed.errors import InputError
from unexposed.methods import METHODS, make
from unexposed.model.recommender import Recommender
from unexposed.progress import Silent
from unexposed.ranking.held_out import CRITERIA, DEFAULT, held_out_quality
from unexposed.settings import setting
from unexposed.tuning import search, trial
from unexposed.tuning.search import space, tune
from unexposed.tuning.study import best_settings
from unexposed.tuning.trial import judged

optuna = pytest.importorskip("optuna")
SMALL = {"epochs": 3, "dim": 4, "engine": "reference"}


@pytest.fixture(scope="module")
def clicks():
    return world(40, 20, seed=0).clicks(seed=0)


def stored(journal):
    backend = optuna.storages.journal.JournalFileBackend(str(journal))
    return optuna.load_study(study_name="study", storage=optuna.storages.JournalStorage(backend))


def study(clicks, folder, method=None, **given):
    given = {"trials": 3, "name": "study", **given}
    return tune(clicks, method or make("mf", **SMALL), folder=folder, **given)


TUNED = [name for name in METHODS if space(make(name))]


@pytest.mark.parametrize("name", TUNED)
def test_defaults_lie_in_the_search_space_and_its_ends_are_allowed(name):
    for key, where in space(make(name)).items():
        default = checks.default(METHODS[name], key)
        if isinstance(where, list):
            assert default in where
        else:
            assert where[0] <= default <= where[1]
        for value in where:
            make(name, **{key: value})


@dataclass(frozen=True)
class Power(Recommender):
    """Score = clicks^exponent, in closed form: a method without epochs."""

    name: ClassVar[str] = "power"
    exponent: float = setting(1.0, "of an item's clicks", low=-2, search=[-1.0, 1.0])

    def train(self, given):
        counts = given.clicks.union(
            given.held_out
        ).item_counts  # has no epoch to choose, so it uses all
        return {"worth": (1.0 + counts).astype(np.float32) ** self.exponent}, {}

    def scores(self, parameters, users, clicks):
        return np.broadcast_to(parameters["worth"], (len(users), len(parameters["worth"])))


def test_a_method_without_epochs_is_trained_once_and_judged_on_clicks_it_never_saw(
    clicks, tmp_path, monkeypatch
):
    monkeypatch.setitem(METHODS, "power", Power)
    document = study(clicks, tmp_path, make("power"))
    assert document["criterion"] == DEFAULT
    train, held_out = clicks.hold_out(fraction=0.1, seed=0)

    def value(exponent):
        row = (1.0 + train.item_counts).astype(np.float32) ** exponent
        scores = lambda u: np.tile(row, (len(u), 1))  # noqa: E731
        return held_out_quality(scores, train, held_out, CRITERIA[DEFAULT])

    for each in document["trials"]:
        assert each["state"] == "complete"
        assert each["value"] == pytest.approx(value(each["settings"]["exponent"]))
    best = document["best"]
    assert (best["settings"], best["epochs"]) == ({"exponent": max(1.0, -1.0, key=value)}, None)


def test_a_trial_is_worth_the_quality_that_chose_its_epoch(clicks):
    train, held_out = clicks.hold_out(fraction=0.2, seed=0)
    for epoch_by, window in (("held_out", 3), ("validation", 1)):
        method = make("ubo", **(SMALL | {"epochs": 8, "quality_window": 3, "epoch_by": epoch_by}))
        model, value = judged(method, train, held_out, seed=0, progress=Silent())
        values, end = model.facts["held_out"], model.facts["best_epoch"]
        assert value == np.mean(values[max(0, end - window) : end])
        means = [np.mean(values[max(0, n - window) : n]) for n in range(1, 9)]
        assert value == pytest.approx(max(means))


def test_the_same_seed_gives_the_same_trials_and_another_gives_others(clicks, tmp_path):
    def tried(name, seed):
        found = study(clicks, tmp_path, name=name, seed=seed)
        return [(t["settings"], t["value"]) for t in found["trials"]]

    assert tried("a", 0) == tried("b", 0)
    assert tried("a", 0)[1:] != tried("c", 10**23)[1:]  # a seed may exceed 64 bits


def test_a_study_resumes_where_it_stopped_and_a_finished_one_needs_no_journal(clicks, tmp_path):
    start = {"weight_decay": 3e-5, "popularity_exponent": 0.3}  # mf has only the first
    first = study(clicks, tmp_path, trials=2, start=start, fixed=("negatives",))
    usual = make("mf", **SMALL)
    searched = space(usual).keys() - {"negatives"}
    assert first["trials"][0]["settings"] == {k: getattr(usual, k) for k in searched}
    assert first["trials"][1]["settings"] == first["trials"][0]["settings"] | {"weight_decay": 3e-5}
    tmp = tmp_path / "plain"
    first, again = (study(clicks, tmp, trials=n) for n in (2, 4))
    best = max(again["trials"], key=lambda one: one["value"])
    assert best_settings(tmp / "study.json") == again["best"]["settings"] == best["settings"]
    assert again["trials"][:2] == first["trials"]
    assert len(again["trials"]) == 4
    (tmp / "study.journal").unlink()
    assert study(clicks, tmp, trials=4) == again
    with pytest.raises(InputError, match="holds 4 trials, and its journal is gone"):
        study(clicks, tmp, trials=5)


def no_space(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_one_sentence_and_costs_the_torn_line_alone(clicks, tmp_path, monkeypatch):
    first, calls = study(clicks, tmp_path, trials=2), iter(range(30))
    with monkeypatch.context() as patch:
        full = lambda _: no_space() if next(calls, None) is None else None  # noqa: E731
        patch.setattr(optuna.storages.journal._file.os, "fsync", full)
        with pytest.raises(InputError, match="study.journal: No space left on device; make room"):
            study(clicks, tmp_path, trials=50)
    journal = tmp_path / "study.journal"
    journal.write_text(journal.read_text() + '{"op_code":5,"worker')
    assert study(clicks, tmp_path, trials=8)["trials"][:2] == first["trials"]
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="study.journal: Not a directory"):
        study(clicks, tmp_path / "file" / "out")


# Several processes


@pytest.mark.slow
def test_several_processes_share_one_study_and_report_their_own_trials(clicks, tmp_path, capfd):
    document = study(clicks, tmp_path, trials=4, workers=2)
    assert 4 <= len(document["trials"]) <= 5
    said = [line for line in capfd.readouterr().err.splitlines() if "trial" in line]
    assert len(said) == len(document["trials"])
    assert any(re.search(r"trial \d of 4, .*, 0:\d\d:\d\d left$", line) for line in said)
    with ThreadPoolExecutor(2) as pool:  # two calls at once
        list(pool.map(lambda _: study(clicks, tmp_path, trials=12), range(2)))
    numbers = [trial["number"] for trial in study(clicks, tmp_path, trials=12)["trials"]]
    assert 12 <= len(numbers) == len(set(numbers)) <= 14


@pytest.mark.slow
def test_processes_end_with_a_killed_parent(tmp_path):
    code = (
        "from pathlib import Path\n"
        "from unexposed.methods import make\n"
        "from unexposed.data.worlds.simulate import world\n"
        "from unexposed.tuning.search import tune\n"
        "if __name__ == '__main__':\n"
        "    tune(world(40, 20, seed=0).clicks(seed=0), make('wmf', epochs=1, dim=2),\n"
        "         trials=10**6, folder=Path('.'), name='study', workers=2)\n"
    )
    (tmp_path / "main.py").write_text(code)
    words = [sys.executable, "main.py"]
    parent = subprocess.Popen(
        words, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert parent.stderr is not None
    try:
        assert "trial" in parent.stderr.readline()  # from a worker
        parent.kill()
        parent.communicate(timeout=240)  # returns when the last worker has closed standard error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)


@pytest.mark.slow
def test_ctrl_c_ends_processes_without_a_traceback_and_keeps_their_trials(tmp_path):
    write_table(click_table(world(40, 20, seed=0).clicks(seed=0)), tmp_path / "log.csv")
    command = "tune --methods wmf --train log.csv --set epochs=1 --set dim=2 --out . --workers 2"
    code, err = interrupted_at(f"{command} --trials 1000000", "trial 1 of", tmp_path)
    assert code == 130, err
    assert err.endswith("interrupted\n")
    assert "Traceback" not in err
    assert stored(tmp_path / "log_wmf.journal").best_value > 0


def test_processes_start_deaf_to_ctrl_c(clicks, tmp_path, monkeypatch):
    seen: list[bool] = []

    def start(_: SpawnProcess) -> None:
        seen.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))
        raise KeyboardInterrupt

    monkeypatch.setattr(SpawnProcess, "start", start)
    with pytest.raises(KeyboardInterrupt):
        study(clicks, tmp_path, workers=2)
    assert seen == [True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


# What is refused


def log(pairs, names="ab"):
    users, items = np.array(pairs).T
    item_ids = Ids.of(f"{name}{n}" for name in names for n in range(2))
    return Clicks.from_pairs(users, items, user_ids=Ids.range(4), item_ids=item_ids)


def all_but(*missing):
    return [(u, i) for u in range(4) for i in range(4) if (u, i) not in missing]


FIRST, SAME_SUMS = all_but((0, 0), (1, 1)), all_but((0, 1), (1, 0))


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"clicks": log(SAME_SUMS)}, "clicks"),
        ({"clicks": log(FIRST, names="ac")}, "clicks"),
        ({"method": make("mf", **SMALL | {"epochs": 4})}, "held"),
        ({"method": make("mf", **SMALL, criterion="wtd")}, "held"),
        ({"splits": 2}, "splits"),
        ({"method": make("ease")}, "method"),
    ],
)
def test_a_study_of_something_else_is_refused_by_name(tmp_path, change, differs):
    assert log(FIRST).keys.sum() == log(SAME_SUMS).keys.sum()
    study(log(FIRST), tmp_path, trials=1)
    with pytest.raises(InputError, match=f"holds a study whose {differs} differ"):
        study(**{"clicks": log(FIRST), "folder": tmp_path, "trials": 1} | change)


def test_a_method_without_a_search_space_and_judgements_are_refused(clicks, tmp_path):
    with pytest.raises(InputError, match="popularity has no setting to tune"):
        study(clicks, tmp_path, make("popularity"))
    with pytest.raises(InputError, match="tuning takes Clicks, got Judgements"):
        study(world(40, 20, seed=0).split(seed=0).judged, tmp_path)


@pytest.mark.data
def test_a_data_set_is_tuned_the_same_whatever_its_judgements_say(data_dir, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from unexposed.cli import app
    from unexposed.data import datasets

    whole = datasets.load("coat", data_dir=data_dir)
    assert whole.random is not None
    turned = replace(whole.random, values=6 - whole.random.values)

    def tuned(random, folder):
        data = RatingData(whole.logged, random=random)
        monkeypatch.setattr(datasets, "load", lambda *_, **__: data)
        command = "tune --dataset coat --methods wmf --trials 3 --set epochs=2 --out"
        result = CliRunner().invoke(app, [*command.split(), str(tmp_path / folder)])
        assert result.exit_code == 0, result.output
        document = json.loads((tmp_path / folder / "coat_wmf.json").read_text())
        return [(t["settings"], t["value"]) for t in document["trials"]]

    assert tuned(whole.random, "a") == tuned(turned, "b") == tuned(None, "c")


def test_a_trial_behind_the_others_is_pruned_but_not_in_its_first_half(
    clicks, tmp_path, monkeypatch
):
    monkeypatch.setattr("unexposed.tuning.study.STARTUP", 1)
    monkeypatch.setattr(trial, "REPORTS", 1)
    said = []
    study(clicks, tmp_path, make("mf", **SMALL | {"epochs": 8}), trials=12, say=said.append)
    trials = stored(tmp_path / "study.journal").trials
    assert {t.state.name for t in trials} == {"COMPLETE", "PRUNED"}
    pruned = [t for t in trials if t.state.name == "PRUNED"]
    assert min(t.last_step for t in pruned) >= 4
    assert sum(", pruned, best" in line for line in said) == len(pruned)


def test_ctrl_c_during_a_trial_ends_the_study(clicks, tmp_path, monkeypatch, caplog):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "worth", interrupted)
    monkeypatch.setattr(logging.getLogger("optuna"), "propagate", True)
    with pytest.raises(KeyboardInterrupt):
        study(clicks, tmp_path)
    assert not (tmp_path / "study.json").exists()
    assert not caplog.records  # Optuna would print the traceback


def test_few_held_out_clicks_are_said_to_choose_by_luck(clicks, tmp_path, monkeypatch):
    each, said = round(0.1 * len(clicks)), list[str]()
    monkeypatch.setattr(search, "FEW", 3 * each)
    study(clicks, tmp_path / "two", trials=1, splits=2, say=said.append)
    assert said[0].startswith(f"{2 * each} held-out clicks judge a trial")
    assert said[0].endswith(f"3 splits would make them {3 * each:,}")
    said.clear()
    study(clicks, tmp_path / "three", trials=1, splits=3, say=said.append)
    assert not any("luck" in line for line in said)
