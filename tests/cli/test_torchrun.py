"""`fit` under torchrun."""

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist

from command import LOG, ended
from unexposed.methods import load

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo")

FIT = "--method ubo --set epochs=2 --set dim=4 --set negatives=2".split()
ASTRAY = """
import os
from unexposed.cli import main
if os.environ["RANK"] == "1":
    os.chdir("elsewhere")
main()
"""


def torchrun(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    launcher = "-m torch.distributed.run --standalone --nproc-per-node 2".split()
    whole = [sys.executable, *launcher, *words]
    return subprocess.run(whole, capture_output=True, text=True, check=False, cwd=cwd, timeout=60)


def test_torchrun_saves_the_model_of_one_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_text(LOG)
    found = torchrun("-m", "unexposed", "fit", "log.csv", *FIT, "--out", "several", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    assert found.stderr.count("saved to several") == 1  # rank 0 alone talks
    assert ended("fit", "log.csv", *FIT, "--engine", "reference", "--out", "one") == 0
    several, one = load("several"), load("one")
    assert several.facts["ranks"] == 2
    assert several.facts["best_epoch"] == one.facts["best_epoch"]
    for name, table in one.parameters.items():
        np.testing.assert_allclose(several.parameters[name], table, rtol=0, atol=1e-5)
    users = [f"u{n}" for n in range(12)]
    lists = (model.recommend(users, 3).select("user", "item") for model in (several, one))
    assert next(lists).equals(next(lists))


def test_a_rank_that_cannot_read_the_log_ends_the_command_with_its_sentence(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "log.csv").write_text(LOG)
    (tmp_path / "astray.py").write_text(ASTRAY)
    found = torchrun("astray.py", "fit", "log.csv", *FIT, "--out", "model", cwd=tmp_path)
    assert found.returncode != 0
    (sentence,) = [line for line in found.stderr.splitlines() if line.startswith("error:")]
    assert sentence.startswith("error: rank 1: log.csv: no such file")
    assert not (tmp_path / "model").exists()


def test_a_command_for_one_process_is_refused_under_torchrun(monkeypatch, capsys):
    monkeypatch.setattr("unexposed.cli.with_other_ranks", nullcontext)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "one")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    assert ended("recommend", "model") == 2
    sentence = "error: recommend runs in one process: only fit is for torchrun\n"
    assert capsys.readouterr().err == sentence
