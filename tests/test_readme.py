"""What the README shows works as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def toured(tmp_path_factory) -> Path:
    """A folder in which the tour of the command was walked."""
    folder = tmp_path_factory.mktemp("readme")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for line in "".join(blocks("console")).splitlines():
        done = subprocess.run(
            line.removeprefix("$ "),
            shell=True,
            cwd=folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stderr}"
    return folder


def test_the_tour_of_the_command_runs_and_leaves_what_it_says(toured):
    assert {"shop", "model", "recommended.csv"} <= set(os.listdir(toured))


def test_the_python_example_runs(toured, monkeypatch, capsys):
    (example,) = blocks("python")
    assert len(example.strip().splitlines()) <= 12
    monkeypatch.chdir(toured)
    exec(example, {})
    assert "dcg@3" in capsys.readouterr().out


def test_every_method_is_in_the_table():
    from unexposed.methods import METHODS

    for name in METHODS:
        assert re.search(rf"^\|.*`{name}`.*\|", README, flags=re.MULTILINE), name


def test_every_page_that_is_named_exists():
    for page in re.findall(r"`(docs/[\w.]+)`", README):
        assert (ROOT / page).is_file(), page
