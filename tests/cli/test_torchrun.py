"""`fit`, `recommend` and `evaluate` under torchrun."""

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch.distributed as dist
from polars.testing import assert_frame_equal

from command import JUDGED, LOG, ended
from unexposed.methods import load, mf

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo"),
]

FIT = "--method ubo --set epochs=2 --set dim=4 --set negatives=2".split()
ALL = """
import json, sys
from unexposed.cli import app
from unexposed.cli.launched import with_other_workers
with with_other_workers():
    for words in json.loads(sys.argv[1]):
        app(words, standalone_mode=False)
"""
ASTRAY = """
import os, time
from unexposed import cli
say_error = cli.say_error
def say_late(sentence):  # torchrun must not end this rank before
    time.sleep(2)
    say_error(sentence)
if os.environ["RANK"] == "1":
    os.chdir("elsewhere")
    cli.say_error = say_late
cli.main()
"""


def torchrun(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    launcher = "-m torch.distributed.run --standalone --nproc-per-node 2".split()
    whole = [sys.executable, *launcher, *words]
    return subprocess.run(whole, capture_output=True, text=True, check=False, cwd=cwd, timeout=240)


def written(folder: Path) -> Path:
    """The log as a folder of Parquet files, and judged pairs."""
    folder.mkdir()
    log = pl.read_csv(LOG.encode())
    for n in range(3):
        log[n::3].write_parquet(folder / f"{n}.parquet")
    (folder.parent / "judged.csv").write_text(JUDGED)
    return folder


def test_torchrun_goes_from_a_folder_to_lists_and_metrics_as_one_process_does(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(mf, "SECONDS", 0)  # ranks have no mf beside the model
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "log")
    (tmp_path / "all.py").write_text(ALL)
    fit = ["fit", "log", *FIT, "--engine", "reference", "--out", "{}/model", "--resume"]
    commands = [
        [*fit, "--checkpoint-every", "0"],
        ["recommend", "{}/model", "-k", "3", "--out", "{}/lists/"],
        ["evaluate", "{}/model", "--judged", "judged.csv", "--json"],
        fit,
    ]
    for place in ("one", "several"):
        Path(place).mkdir()
    found = torchrun("all.py", json.dumps(commands).replace("{}", "several"), cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert found.stderr.count("saved to several/model") == 1  # rank 0 alone talks
    assert "12 users in several/lists" in found.stderr
    assert found.stderr.count("several/model holds this training, finished") == 1
    left = {name for name in os.listdir("several") if not name.startswith("model-")}
    assert left == {"lists", "model.safetensors"}  # no checkpoint
    for words in commands:
        assert ended(*(word.replace("{}", "one") for word in words)) == 0
    one, several = load("one/model"), load("several/model", verify=True)
    assert several.facts["workers"] == 2
    assert several.facts["best_epoch"] == one.facts["best_epoch"]
    for name, table in one.parameters.items():
        np.testing.assert_allclose(several.parameters[name], table, rtol=0, atol=1e-5)
    for name in os.listdir("one/lists"):
        lists = (pl.read_parquet(f"{place}/lists/{name}") for place in ("one", "several"))
        assert_frame_equal(next(lists), next(lists), abs_tol=1e-5)
    assert len(os.listdir("several/lists")) == 64
    document = json.loads(capsys.readouterr().out)
    assert_alike(json.loads(found.stdout), document)
    # the model of two ranks, opened in one process
    assert ended("evaluate", "several/model", "--judged", "judged.csv", "--json") == 0
    assert_alike(json.loads(capsys.readouterr().out), document)


def assert_alike(one: Any, other: Any) -> None:
    """Documents with the same words, and numbers that agree to float32."""
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        one, other = list(one.values()), list(other.values())
    if isinstance(one, list):
        for pair in zip(one, other, strict=True):
            assert_alike(*pair)
    else:
        assert one == (pytest.approx(other, abs=1e-5) if isinstance(other, float) else other)


def test_a_rank_that_cannot_read_the_log_ends_the_command_with_its_sentence(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    written(tmp_path / "log")
    (tmp_path / "astray.py").write_text(ASTRAY)
    found = torchrun("astray.py", "fit", "log", *FIT, "--out", "model", cwd=tmp_path)
    assert found.returncode != 0
    (sentence,) = [line for line in found.stderr.splitlines() if line.startswith("error:")]
    assert sentence.startswith("error: worker 1: log: no such file")
    assert not (tmp_path / "model.safetensors").exists()


def test_a_command_for_one_process_is_refused_under_torchrun(monkeypatch, capsys):
    monkeypatch.setattr("unexposed.cli.with_other_workers", nullcontext)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert ended("similar", "model") == 2
    sentence = "error: similar runs in one process: fit, recommend and evaluate are for torchrun\n"
    assert capsys.readouterr().err == sentence


@pytest.mark.parametrize(
    ("words", "code"), [("fit --methd ubo", 2), ("fit --help", 0), ("fit log --out", 2)]
)
def test_rank_0_alone_shows_help_and_what_is_wrong_with_the_words(words, code, monkeypatch, capsys):
    monkeypatch.setattr("unexposed.cli.with_other_workers", nullcontext)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, silent in (("0", False), ("1", True)):
        monkeypatch.setenv("RANK", rank)
        assert ended(*words.split()) == code
        shown = capsys.readouterr()
        assert (shown.out + shown.err == "") is silent
