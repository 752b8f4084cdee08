"""The doctor finds what is broken, names the cure, and is not itself brought down by it."""

import importlib
import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from command import ended, python
from unexposed.cli import doctor
from unexposed.cli.doctor import Check
from unexposed.data.datasets import DATASETS
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


def test_a_sound_installation_is_healthy_and_what_is_missing_is_noted(monkeypatch):
    find, denied = importlib.util.find_spec, fail(PermissionError(13, "Permission denied"))
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "jinja2" else find(name)
    )
    monkeypatch.setattr(doctor.tempfile, "NamedTemporaryFile", denied)
    found = findings()
    assert not [check for check in found.values() if check.state == "broken"]
    assert found["numpy"].found == np.__version__
    assert "agrees with the reference" in found["self-test cpu"].found
    report, cache, coat = found["extra report"], found["kernel cache"], found["coat"]
    assert {report.state, cache.state, coat.state} == {"note"}
    assert (report.found, coat.cure) == ("jinja2 not here", DATASETS["coat"].absent)
    assert "NUMBA_CACHE_DIR" in cache.cure


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


def test_an_engine_that_computes_something_else_or_raises_is_broken(monkeypatch):
    right = CpuEngine.parameters
    monkeypatch.setattr(
        CpuEngine, "parameters", lambda self: {k: v + 0.01 for k, v in right(self).items()}
    )
    check = findings()["self-test cpu"]
    assert check.state == "broken"
    assert "differs from the reference by" in check.found
    assert "--engine reference" in check.cure
    monkeypatch.setattr(CpuEngine, "epoch", fail(RuntimeError("LLVM ERROR: out of memory")))
    assert findings()["self-test"].found == "RuntimeError: LLVM ERROR: out of memory"


def test_the_command_prints_cures_and_ends_with_1_if_something_is_broken(
    monkeypatch, capsys, tmp_path
):
    assert ended("doctor") == 0
    assert "\nok      self-test cpu" in capsys.readouterr().out
    folder = tmp_path / "coat"
    folder.mkdir()
    (folder / "train.ascii").write_text("1 2 3")
    assert ended("doctor", "--data-dir", str(tmp_path)) == 1
    out = capsys.readouterr().out
    (broken,) = [line for line in out.splitlines() if line.startswith("broken")]
    assert "train.ascii is not the original" in broken
    assert "→ restore that file" in out
    monkeypatch.setenv("UNEXPOSED_DATA", str(tmp_path / "nowhere"))
    assert ended("doctor", "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert document["healthy"] is False
    assert "nowhere does not exist" in document["checks"][-1]["found"]


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
