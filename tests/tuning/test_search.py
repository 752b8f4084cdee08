"""Tuning: what it sees, what it keeps, what it refuses."""

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from command import unexposed
from ctrl_c import interrupted_at
from unexposed import settings as checks
from unexposed.data.clicks import Clicks, Judgements
from unexposed.data.datasets import RatingData
from unexposed.data.ids import Ids
from unexposed.data.simulate import world
from unexposed.data.write import click_table, write_table
from unexposed.errors import InputError
from unexposed.methods import METHODS, make
from unexposed.methods.trained import TrainedMethod
from unexposed.tuning.search import best_settings, quality, space, tune

optuna = pytest.importorskip("optuna")
SMALL = {"epochs": 3, "dim": 4, "engine": "reference"}


@pytest.fixture(scope="module")
def clicks():
    return world(40, 20, seed=0).clicks(seed=0)


def study(clicks, folder, method=None, **given):
    given = {"trials": 3, "name": "study", **given}
    return tune(clicks, method or make("mf", **SMALL), folder=folder, **given)


TRAINED = [name for name, cls in METHODS.items() if issubclass(cls, TrainedMethod)]


@pytest.mark.parametrize("name", TRAINED)
def test_every_trained_method_says_where_to_look_and_its_defaults_lie_there(name):
    searched = space(make(name))
    assert "weight_decay" in searched or "regularisation" in searched
    for setting, where in searched.items():
        default = checks.default(METHODS[name], setting)
        if isinstance(where, list):
            assert default in where
        else:
            assert where[0] <= default <= where[1]
        for value in where:  # the ends are allowed values
            make(name, **{setting: value})


def test_the_study_is_of_the_best_trial_and_starts_at_the_given_settings(clicks, tmp_path):
    document = study(clicks, tmp_path)
    assert json.loads((tmp_path / "study.json").read_text()) == document
    complete = [t for t in document["trials"] if t["state"] == "complete"]
    assert len(document["trials"]) == 3
    assert document["best"]["value"] == max(t["value"] for t in complete)
    given = make("mf", **SMALL)
    assert document["trials"][0]["settings"] == {k: getattr(given, k) for k in space(given)}
    best = document["best"]["settings"]
    train, held_out = clicks.hold_out(fraction=0.1, seed=0)
    model = make("mf", **SMALL | best).fit(train, held_out, seed=0)
    assert quality(model) == pytest.approx(document["best"]["value"])


def test_a_study_can_begin_with_what_another_found(clicks, tmp_path):
    given = {"weight_decay": 3e-5, "popularity_exponent": 0.3}  # of which mf has the first
    document = study(clicks, tmp_path, start=given)
    assert document["trials"][1]["settings"]["weight_decay"] == 3e-5
    assert document["trials"][1]["settings"]["negatives"] == make("mf").negatives
    assert best_settings(tmp_path / "study.json") == document["best"]["settings"]
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(InputError, match=r"other\.json is no study"):
        best_settings(tmp_path / "other.json")


def test_the_same_seed_gives_the_same_trials_and_another_gives_others(clicks, tmp_path):
    def tried(name, seed):
        found = study(clicks, tmp_path, name=name, seed=seed)
        return [(t["settings"], t["value"]) for t in found["trials"]]

    assert tried("a", 0) == tried("b", 0)
    assert tried("a", 0)[1:] != tried("c", 1)[1:]


def test_a_seed_beyond_64_bits_is_a_seed(clicks, tmp_path):
    assert study(clicks, tmp_path, trials=1, seed=10**23)["trials"]


def test_a_study_goes_on_where_it_stopped(clicks, tmp_path):
    first = study(clicks, tmp_path, trials=2)
    again = study(clicks, tmp_path, trials=4)
    assert again["trials"][:2] == first["trials"]
    assert len(again["trials"]) == 4
    assert study(clicks, tmp_path, trials=4) == again


def test_a_trial_that_was_under_way_is_given_up_and_replaced(clicks, tmp_path):
    study(clicks, tmp_path, trials=1)
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.journal"))
    storage = optuna.storages.JournalStorage(backend)
    optuna.load_study(study_name="study", storage=storage).ask()  # as a killed worker leaves it
    states = [t["state"] for t in study(clicks, tmp_path, trials=2)["trials"]]
    assert states == ["complete", "fail", "complete"]


def test_a_torn_journal_loses_its_torn_end_alone(clicks, tmp_path):
    first = study(clicks, tmp_path, trials=2)
    journal = tmp_path / "study.journal"
    torn = '{"op_code":5,"worker'
    journal.write_text(journal.read_text() + torn + torn + "\n")
    said = []
    again = study(clicks, tmp_path, trials=3, say=said.append)
    assert again["trials"][:2] == first["trials"]
    assert f"its last {len(torn + torn) + 1} bytes are left out" in said[0]
    assert len(study(clicks, tmp_path, trials=4)["trials"]) == 4


def test_a_full_disk_ends_a_study_in_one_sentence_and_it_goes_on(clicks, tmp_path, monkeypatch):
    from unexposed.tuning import journal

    calls = iter(range(30))

    def fill(_):
        if next(calls, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(optuna.storages.journal._file.os, "fsync", fill)
        with pytest.raises(InputError, match="study.journal: No space left on device; make room"):
            study(clicks, tmp_path, trials=50)
    assert len(study(clicks, tmp_path, trials=8)["trials"]) >= 8
    assert journal.cut_back(tmp_path / "study.journal") == 0


def test_a_place_that_cannot_be_written_is_one_sentence(clicks, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="study.journal: Not a directory"):
        study(clicks, tmp_path / "file" / "out")


def test_the_lock_of_a_killed_process_holds_nobody_up(clicks, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    study(clicks, Path("out"), trials=1)
    os.symlink("out/study.journal", "out/study.journal.lock")  # as Optuna's own lock leaves it
    assert len(study(clicks, Path("out"), trials=2)["trials"]) == 2


def test_workers_end_with_a_killed_parent(tmp_path):
    code = (
        "from pathlib import Path\n"
        "from unexposed.methods import make\n"
        "from unexposed.data.simulate import world\n"
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
        assert "trial" in parent.stderr.readline()  # of a worker
        parent.kill()
        parent.communicate(timeout=30)  # ends when the last of them has closed standard error
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)


def test_ctrl_c_ends_workers_without_a_traceback_and_keeps_their_trials(tmp_path):
    write_table(click_table(world(40, 20, seed=0).clicks(seed=0)), tmp_path / "log.csv")
    tune = "tune --methods wmf --train log.csv --set epochs=1 --set dim=2 --out . --workers 2"
    code, err = interrupted_at(f"{tune} --trials 1000000", "trial", tmp_path)
    assert code == 130, err
    assert "Traceback" not in err
    assert unexposed(*tune.split(), "--trials", "1", cwd=tmp_path).returncode == 0
    assert not list(tmp_path.glob(".unexposed*"))
    assert json.loads((tmp_path / "log_wmf.json").read_text())["trials"]


def test_several_workers_share_one_study_and_tell_of_their_own_trials(clicks, tmp_path, capfd):
    document = study(clicks, tmp_path, trials=4, workers=2)
    assert 4 <= len(document["trials"]) <= 5
    assert document["best"]["value"] > 0
    told = [line for line in capfd.readouterr().err.splitlines() if "trial" in line]
    assert len(told) == len(document["trials"])
    assert not any("running" in line for line in told)


@pytest.mark.parametrize("change", ["clicks", "method", "splits"])
def test_a_study_of_something_else_is_refused_by_name(clicks, tmp_path, change):
    study(clicks, tmp_path, trials=1)
    other = {
        "clicks": {"clicks": world(40, 20, seed=1).clicks(seed=1)},
        "method": {"method": make("mf", **(SMALL | {"epochs": 4}))},
        "splits": {"splits": 2},
    }[change]
    with pytest.raises(InputError, match="holds a study whose (clicks|held|splits) differ"):
        study(**({"clicks": clicks, "folder": tmp_path, "trials": 1} | other))


def test_another_log_with_the_same_counts_and_sums_is_refused(tmp_path):
    def log(pairs, names="ab"):
        users, items = np.array(pairs).T
        ids = Ids.range(4), Ids.of(f"{name}{n}" for name in names for n in range(2))
        return Clicks.from_pairs(users, items, user_ids=ids[0], item_ids=ids[1])

    first = [(u, i) for u in range(4) for i in range(4) if (u, i) not in {(0, 0), (1, 1)}]
    other = [(u, i) for u in range(4) for i in range(4) if (u, i) not in {(0, 1), (1, 0)}]
    assert log(first).keys.sum() == log(other).keys.sum()
    study(log(first), tmp_path, trials=1)
    for changed in (log(other), log(first, names="ac")):
        with pytest.raises(InputError, match="holds a study whose clicks differ"):
            study(changed, tmp_path, trials=1)


def test_settings_that_are_fixed_stay_as_given(clicks, tmp_path):
    method = make("mf", **SMALL, negatives=7)
    document = study(clicks, tmp_path, method, fixed=("negatives",))
    assert set(document["searched"]) == set(space(method)) - {"negatives"}
    assert document["held"]["negatives"] == 7


def test_a_method_without_a_search_space_is_refused(clicks, tmp_path):
    with pytest.raises(InputError, match="popularity has no setting to tune"):
        study(clicks, tmp_path, make("popularity"))


def test_judgements_cannot_be_tuned_on(tmp_path):
    judged = world(40, 20, seed=0).split(seed=0).judged
    assert isinstance(judged, Judgements)
    with pytest.raises(InputError, match="tuning learns from Clicks alone, got Judgements"):
        study(judged, tmp_path)


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


def test_a_trial_behind_the_others_is_given_up_but_not_in_its_first_half(
    clicks, tmp_path, monkeypatch
):
    from unexposed.tuning import search as tuning

    monkeypatch.setattr(tuning, "STARTUP", 1)
    monkeypatch.setattr(tuning, "REPORTS", 1)
    said = []
    study(clicks, tmp_path, make("mf", **SMALL | {"epochs": 8}), trials=12, say=said.append)
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.journal"))
    trials = optuna.load_study(
        study_name="study", storage=optuna.storages.JournalStorage(backend)
    ).trials
    assert {t.state.name for t in trials} == {"COMPLETE", "PRUNED"}
    given_up = [t for t in trials if t.state.name == "PRUNED"]
    assert min(t.last_step for t in given_up) >= 4
    assert sum(", pruned, best" in line for line in said) == len(given_up)


def test_a_second_training_on_all_clicks_is_left_out_of_trials(clicks, tmp_path, monkeypatch):
    from unexposed.training import loop as training

    def trials(refit: bool) -> list[float]:
        method = make("mf", **SMALL, refit=refit)
        return [t["value"] for t in study(clicks, tmp_path / str(refit), method)["trials"]]

    monkeypatch.setattr(training, "refitted", None)
    assert trials(False) == trials(True)


def test_ctrl_c_during_a_trial_ends_the_study(clicks, tmp_path, monkeypatch):
    from unexposed.tuning import search as tuning

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "_value", interrupted)
    with pytest.raises(KeyboardInterrupt):
        study(clicks, tmp_path)
    assert not (tmp_path / "study.json").exists()


def test_a_disk_that_fills_at_the_end_of_a_trial_is_one_sentence(clicks, tmp_path, monkeypatch):
    def work(*_):
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        finally:
            raise AssertionError("Should not reach.")  # as Optuna does

    monkeypatch.setattr("unexposed.tuning.search._work", work)
    with pytest.raises(InputError, match="study.journal.*No space left on device"):
        study(clicks, tmp_path)
