"""Worker processes: Ctrl-C is for their parent."""

import signal
from multiprocessing.context import SpawnProcess

import pytest

from unexposed.data.worlds.simulate import world
from unexposed.experiments import results
from unexposed.experiments import run as running
from unexposed.experiments import spec as experiment
from unexposed.methods import make
from unexposed.progress import Silent
from unexposed.tuning.search import tune


def blocked() -> set[int]:
    return signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.fixture
def started(monkeypatch) -> list[bool]:
    """Whether each process that starts is deaf to Ctrl-C; none does more than start."""
    seen: list[bool] = []

    def start(_: SpawnProcess) -> None:
        seen.append(signal.SIGINT in blocked())
        raise KeyboardInterrupt

    monkeypatch.setattr(SpawnProcess, "start", start)
    return seen


def test_workers_of_a_run_and_of_a_study_start_deaf(started, tmp_path):
    (tmp_path / "small.toml").write_text(
        'kind = "compare"\nseeds = 2\n[data]\nsimulate = { users = 30, items = 20 }\n[methods.mf]\n'
    )
    small = experiment.read(tmp_path / "small.toml")
    with pytest.raises(KeyboardInterrupt):
        running.run(small, results.Results(tmp_path, "small"), progress=Silent(), workers=2)
    clicks = world(30, 20, seed=0).clicks(seed=0)
    with pytest.raises(KeyboardInterrupt):
        tune(clicks, make("mf"), trials=1, folder=tmp_path, name="study", workers=2)
    assert started == [True, True]
