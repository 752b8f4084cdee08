"""A result says which code made it, and claims nothing of code it is not part of."""

import subprocess
from pathlib import Path

import pytest

from unexposed.experiments import provenance


def git(folder: Path, *words: str) -> str:
    author = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    done = subprocess.run(
        ["git", "-C", str(folder), *author, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with one commit, and a function that says what code at a place in it is."""
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")

    def commit(package: str) -> str | None:
        (tmp_path / package).mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(provenance, "__file__", str(tmp_path / package / "provenance.py"))
        provenance.commit.cache_clear()
        return provenance.commit()

    yield tmp_path, commit
    provenance.commit.cache_clear()


def test_the_commit_is_that_of_the_checkout_and_changes_are_told(checkout):
    folder, commit = checkout
    head = git(folder, "rev-parse", "HEAD")
    assert commit("src/unexposed") == head
    (folder / "results.jsonl").write_text("what a run writes changes no code")
    assert commit("src/unexposed") == head
    (folder / "src" / "unexposed" / "new.py").write_text("")
    assert commit("src/unexposed") == f"{head}+changes"


def test_code_installed_into_another_repository_does_not_take_its_commit(checkout):
    _, commit = checkout
    assert commit(".venv/lib/site-packages/unexposed") is None


def test_without_git_the_commit_is_not_known(checkout, monkeypatch):
    _, commit = checkout
    monkeypatch.setenv("PATH", "")
    assert commit("src/unexposed") is None


def test_versions_are_of_what_moves_numbers():
    found = provenance.versions()
    assert list(found) == ["unexposed", "python", "numpy", "torch", "numba"]
    assert all(found.values())


def test_the_machine_of_a_run_without_a_card_is_the_processor():
    assert provenance.machine("cpu") == provenance.machine(None) != ""
