"""Every committed study matches its command in `experiments/tune.sh`."""

import json
import subprocess
from argparse import ArgumentParser
from pathlib import Path

import pytest

from unexposed import settings as checks
from unexposed.evaluation.compare import parse_methods
from unexposed.tuning.search import space

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FOLDER = EXPERIMENTS / "results" / "tuning"


def asked(dataset):
    """Settings, search space and splits of every study that the script makes."""
    script = ["sh", str(EXPERIMENTS / "tune.sh"), dataset, "studies"]
    done = subprocess.run(
        [*script, "--workers", "2"],
        env={"UNEXPOSED": "echo", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    parser = ArgumentParser()
    for name in ("--dataset", "--out", "--methods", "--start-from"):
        parser.add_argument(name)
    for name in ("--trials", "--splits", "--workers"):
        parser.add_argument(name, type=int, default=1)
    parser.add_argument("--set", action="append", default=[])
    found = {}
    for line in done.stdout.splitlines():
        given = parser.parse_args(line.removeprefix("tune ").split())
        assert given.workers == 2
        assert given.trials == 40
        [(label, method)] = parse_methods(given.methods, given.set).items()
        fixed = {text.split("=")[0] for text in [*given.set, *label.split(":")[1:]]}
        searched = {k: list(v) for k, v in space(method).items() if k not in fixed}
        name = f"{dataset}_{label.replace(':', '-').replace('=', '-')}.json"
        if given.start_from:
            assert Path(given.start_from).name in found  # made before it is needed
        found[name] = (checks.values(method), searched, given.splits)
    return found


@pytest.mark.parametrize("dataset", ["coat", "yahoo_r3"])
def test_every_study_matches_its_command(dataset):
    studies = {path.name: json.loads(path.read_text()) for path in FOLDER.glob(f"{dataset}_*.json")}
    commands = asked(dataset)
    assert set(commands) == set(studies)
    for name, (values, searched, splits) in commands.items():
        study = studies[name]
        assert study["searched"] == searched, name
        assert study["splits"] == splits, name
        assert len(study["trials"]) >= 40, name
        # engines agree, and trials are never refitted
        held = {k: v for k, v in study["held"].items() if k not in ("engine", "refit")}
        assert held == {k: values[k] for k in held}, name


def test_a_data_set_without_studies_is_refused():
    script = ["sh", str(EXPERIMENTS / "tune.sh"), "netflix", "studies"]
    done = subprocess.run(script, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: no studies of netflix; known: coat and")
