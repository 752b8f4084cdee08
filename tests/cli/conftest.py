"""The command in a folder of its own, with a log and judged pairs."""

from pathlib import Path

import pytest

from command import JUDGED, LOG, ended


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNEXPOSED_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    Path("log.csv").write_text(LOG)
    Path("judged.csv").write_text(JUDGED)
    return tmp_path


@pytest.fixture
def run(here, capsys):
    """Run a command line in this process: exit code, standard output, standard error."""

    def run(line: str, *words: str) -> tuple[int, str, str]:
        return ended(*line.split(), *words), *capsys.readouterr()

    return run


@pytest.fixture
def done(run):
    """Run a command line that must succeed: standard output, standard error."""

    def done(line: str, *words: str) -> tuple[str, str]:
        code, out, err = run(line, *words)
        assert code == 0, err
        return out, err

    return done
