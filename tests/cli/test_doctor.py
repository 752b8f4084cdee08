"""The doctor finds what is broken, names the cure, and is not itself brought down by it."""

import importlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from command import ended
from unexposed.cli import doctor
from unexposed.cli.doctor import Check
from unexposed.data.datasets import DATASETS
from unexposed.engine import cuda
from unexposed.engine.cpu.engine import CpuEngine


@pytest.fixture(autouse=True)
def no_data(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("UNEXPOSED_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def findings(data_dir: Path | None = None) -> list[Check]:
    return list(doctor.examine(data_dir))


def named(name: str, data_dir: Path | None = None) -> Check:
    (check,) = [check for check in findings(data_dir) if check.name == name]
    return check


def test_a_sound_installation_is_healthy_and_tests_its_kernels():
    checks = findings()
    assert doctor.healthy(checks), checks
    found = {check.name: check for check in checks}
    assert found["numpy"].found == np.__version__
    assert "agrees with the reference" in found["self-test cpu"].found
    assert {"extra tune", "extra report", "extra export"} <= set(found)
    assert not {"pytest", "ruff", "extra test", "extra lint"} & set(found)


def test_a_missing_extra_is_worth_a_note_with_its_install(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "jinja2" else find(name)
    )
    check = named("extra report")
    assert (check.state, check.cure) == (
        "note",
        "pip install '.[report]' in the checkout of unexposed",
    )
    assert check.found == "jinja2 not here"
    assert doctor.healthy([check])


def test_a_package_that_does_not_import_is_broken_and_hides_no_other(monkeypatch):
    really = importlib.import_module

    def fail(name: str):
        if name == "scipy":
            raise ImportError("libopenblas.so: cannot open\nsecond line")
        return really(name)

    monkeypatch.setattr(importlib, "import_module", fail)
    checks = {check.name: check for check in findings()}
    assert checks["scipy"].found == "ImportError: libopenblas.so: cannot open"
    assert checks["scipy"].cure == "pip install --upgrade --force-reinstall scipy"
    assert checks["torch"].state == "ok"
    assert checks["self-test cpu"].state == "ok"


def test_an_engine_that_computes_something_else_is_broken(monkeypatch):
    right = CpuEngine.parameters

    def wrong(self):
        return {name: table + 0.01 for name, table in right(self).items()}

    monkeypatch.setattr(CpuEngine, "parameters", wrong)
    check = named("self-test cpu")
    assert check.state == "broken"
    assert "differs from the reference by" in check.found
    assert "--engine reference" in check.cure


def test_an_engine_that_gives_nan_or_raises_is_broken(monkeypatch):
    right = CpuEngine.parameters
    monkeypatch.setattr(
        CpuEngine, "parameters", lambda self: {k: v * np.nan for k, v in right(self).items()}
    )
    assert named("self-test cpu").state == "broken"

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("LLVM ERROR: out of memory")

    monkeypatch.setattr(CpuEngine, "epoch", fail)
    assert named("self-test").found == "RuntimeError: LLVM ERROR: out of memory"


def test_a_kernel_cache_that_cannot_be_written_is_noted(monkeypatch):
    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor.tempfile, "NamedTemporaryFile", denied)
    checks = [check for check in findings() if check.name == "kernel cache"]
    assert {check.state for check in checks} == {"note"}
    assert all("NUMBA_CACHE_DIR" in check.cure for check in checks)


def test_a_card_is_shown_or_its_absence_explained(monkeypatch):
    assert cuda.available() or named("GPU").found == "none: training runs on the CPU"
    monkeypatch.setattr(cuda, "available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    check = named("GPU")
    assert check.state == "note"
    assert "finds no GPU, though nvidia-smi is here" in check.found


def test_data_sets_that_are_absent_damaged_or_sound_are_told_apart(tmp_path, monkeypatch):
    assert named("coat").state == "note"
    assert named("coat").cure == DATASETS["coat"].absent
    folder = tmp_path / "data" / "coat"
    folder.mkdir(parents=True)
    (folder / "train.ascii").write_text("1 2 3")
    check = named("coat", tmp_path / "data")
    assert check.state == "broken"
    assert "train.ascii is not the original" in check.found
    monkeypatch.setitem(DATASETS["coat"].files, "train.ascii", None)
    for name in list(DATASETS["coat"].files):
        monkeypatch.setitem(DATASETS["coat"].files, name, None)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("anything")
    assert named("coat", tmp_path / "data").state == "ok"


def test_a_data_folder_that_does_not_exist_is_broken(tmp_path, monkeypatch):
    monkeypatch.setenv("UNEXPOSED_DATA", str(tmp_path / "nowhere"))
    check = named("data folder")
    assert check.state == "broken"
    assert "nowhere does not exist" in check.found


def run(capsys, *words: str) -> tuple[int, str]:
    return ended("doctor", *words), capsys.readouterr().out


def test_the_command_prints_cures_and_ends_with_1_if_something_is_broken(
    monkeypatch, capsys, tmp_path
):
    code, out = run(capsys)
    assert code == 0
    assert any(line.startswith("ok      self-test cpu") for line in out.splitlines())
    code, out = run(capsys, "--data-dir", str(tmp_path / "nowhere"))
    assert code == 1
    (broken,) = [line for line in out.splitlines() if line.startswith("broken")]
    assert "data folder" in broken
    assert "→ make it, or set $UNEXPOSED_DATA" in out


def test_json_is_one_document(monkeypatch, capsys, tmp_path):
    code, out = run(capsys, "--data-dir", str(tmp_path / "nowhere"), "--json")
    document = json.loads(out)
    assert code == 1
    assert document["healthy"] is False
    last = document["checks"][-1]
    assert (last["name"], last["state"]) == ("data folder", "broken")


def test_the_doctor_comes_even_where_torch_cannot_be_imported():
    code = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['unexposed', 'doctor']\n"
        "from unexposed.cli import main\nmain()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("broken  torch") for line in lines)
    assert any(line.startswith("ok      numpy") for line in lines)
