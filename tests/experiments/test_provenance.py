"""A result names the commit of its own code, never the commit of another repository."""

import subprocess
from pathlib import Path

import pytest

import unexposed
from unexposed.experiments import provenance

MODULE = Path(provenance.__file__).relative_to(Path(unexposed.__file__).parent)


def git(folder: Path, *words: str) -> str:
    author = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    done = subprocess.run(
        ["git", "-C", str(folder), *author, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with one commit, and a function that says the commit of a package in it."""
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")

    def commit(package: str) -> str | None:
        (tmp_path / package).mkdir(parents=True, exist_ok=True)
        monkeypatch.setattr(provenance, "__file__", str(tmp_path / package / MODULE))
        provenance.commit.cache_clear()
        return provenance.commit()

    yield tmp_path, commit
    provenance.commit.cache_clear()


def test_the_commit_of_the_checkout_is_named_with_changes_to_its_code(checkout):
    folder, commit = checkout
    head = git(folder, "rev-parse", "HEAD")
    assert commit("src/unexposed") == head
    (folder / "results.jsonl").write_text("not code")
    assert commit("src/unexposed") == head
    (folder / "src" / "unexposed" / "new.py").write_text("")
    assert commit("src/unexposed") == f"{head}+changes"


def test_without_git_or_in_another_repository_the_commit_is_unknown(checkout, monkeypatch):
    _, commit = checkout
    assert commit(".venv/lib/site-packages/unexposed") is None
    monkeypatch.setenv("PATH", "")
    assert commit("src/unexposed") is None
