"""The doctor finds what is broken, names the cure, and is not itself brought down by it."""

import importlib
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from command import ended, python
from unexposed.cli import doctor
from unexposed.cli.doctor import Check
from unexposed.data.datasets import DATASETS
from unexposed.engine import cuda
from unexposed.engine.cpu.engine import CpuEngine


@pytest.fixture(autouse=True)
def no_data(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("UNEXPOSED_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def findings(data_dir: Path | None = None) -> dict[str, Check]:
    return {check.name: check for check in doctor.examine(data_dir)}


def fail(error: Exception):
    def raise_it(*_: object, **__: object) -> None:
        raise error

    return raise_it


def test_a_sound_installation_is_healthy_and_tests_its_kernels():
    found = findings()
    assert doctor.healthy(list(found.values())), found
    assert found["numpy"].found == np.__version__
    assert "agrees with the reference" in found["self-test cpu"].found
    assert cuda.available() or found["GPU"].found == "none: training runs on the CPU"
    assert {"extra tune", "extra report", "extra export"} <= set(found)
    assert not {"pytest", "ruff", "extra test", "extra lint"} & set(found)
    assert (found["coat"].state, found["coat"].cure) == ("note", DATASETS["coat"].absent)


def test_a_missing_extra_is_worth_a_note_with_its_install(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "jinja2" else find(name)
    )
    cure = "pip install '.[report]' in the checkout of unexposed"
    check = findings()["extra report"]
    assert check == Check("extra report", "note", "jinja2 not here", cure)
    assert doctor.healthy([check])


def test_a_package_that_does_not_import_is_broken_and_hides_no_other(monkeypatch):
    really = importlib.import_module
    broken = fail(ImportError("libopenblas.so: cannot open\nsecond line"))
    monkeypatch.setattr(
        importlib, "import_module", lambda name: broken() if name == "scipy" else really(name)
    )
    checks = findings()
    assert checks["scipy"].found == "ImportError: libopenblas.so: cannot open"
    assert checks["scipy"].cure == "pip install --upgrade --force-reinstall scipy"
    assert checks["torch"].state == checks["self-test cpu"].state == "ok"


@pytest.mark.parametrize("change", [lambda table: table + 0.01, lambda table: table * np.nan])
def test_an_engine_that_computes_something_else_or_raises_is_broken(monkeypatch, change):
    right = CpuEngine.parameters
    monkeypatch.setattr(
        CpuEngine, "parameters", lambda self: {k: change(v) for k, v in right(self).items()}
    )
    check = findings()["self-test cpu"]
    assert check.state == "broken"
    assert "differs from the reference by" in check.found
    assert "--engine reference" in check.cure
    monkeypatch.setattr(CpuEngine, "epoch", fail(RuntimeError("LLVM ERROR: out of memory")))
    assert findings()["self-test"].found == "RuntimeError: LLVM ERROR: out of memory"


def test_a_cache_that_cannot_be_written_and_a_gpu_that_torch_does_not_find_are_noted(monkeypatch):
    denied = fail(PermissionError(13, "Permission denied"))
    monkeypatch.setattr(doctor.tempfile, "NamedTemporaryFile", denied)
    monkeypatch.setattr(cuda, "available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(doctor.shutil, "which", lambda name: "/usr/bin/nvidia-smi")
    found = findings()
    assert found["kernel cache"].state == found["GPU"].state == "note"
    assert "NUMBA_CACHE_DIR" in found["kernel cache"].cure
    assert "finds no GPU, though nvidia-smi is here" in found["GPU"].found


def test_damaged_data_sets_are_told_from_sound_ones(tmp_path, monkeypatch):
    folder = tmp_path / "data" / "coat"
    folder.mkdir(parents=True)
    (folder / "train.ascii").write_text("1 2 3")
    check = findings(tmp_path / "data")["coat"]
    assert check.state == "broken"
    assert "train.ascii is not the original" in check.found
    for name in list(DATASETS["coat"].files):
        monkeypatch.setitem(DATASETS["coat"].files, name, None)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("anything")
    assert findings(tmp_path / "data")["coat"].state == "ok"


def test_the_command_prints_cures_and_ends_with_1_if_something_is_broken(
    monkeypatch, capsys, tmp_path
):
    assert ended("doctor") == 0
    assert "\nok      self-test cpu" in capsys.readouterr().out
    monkeypatch.setenv("UNEXPOSED_DATA", str(tmp_path / "nowhere"))
    assert ended("doctor") == 1
    out = capsys.readouterr().out
    (broken,) = [line for line in out.splitlines() if line.startswith("broken")]
    assert "data folder" in broken
    assert "nowhere does not exist" in broken
    assert "→ make it, or set $UNEXPOSED_DATA" in out
    assert ended("doctor", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["healthy"] is False
    assert document["checks"][-1]["state"] == "broken"


def test_the_doctor_works_where_torch_cannot_be_imported():
    code = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['unexposed', 'doctor']\n"
        "from unexposed.cli import main\nmain()"
    )
    done = python("-c", code)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("broken  torch") for line in lines)
    assert any(line.startswith("ok      numpy") for line in lines)
