"""Every committed study is one that an experiment names, made as its file says."""

import json
from pathlib import Path

import pytest

from unexposed import settings as checks
from unexposed.experiments import spec, studies
from unexposed.methods import make
from unexposed.report.experiments import files
from unexposed.tuning.search import best_settings, space

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FILES = [path for path in files(EXPERIMENTS) if spec.is_experiment(path)]
PLANS = {
    plan.path: plan
    for path in FILES
    for cell in spec.cells(path)
    for plan in studies.plans(cell.read(tuned=False), cell.results)
}
COMMITTED = sorted(EXPERIMENTS.glob("*/results/tuning/*.json"))


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.stem)
def test_a_committed_study_matches_the_plan_of_its_experiment(path):
    study, plan = json.loads(path.read_text(encoding="utf-8")), PLANS[path]
    searched = {k: list(v) for k, v in space(plan.method).items() if k not in plan.held}
    assert study["searched"] == searched
    assert study["splits"] == plan.splits
    assert len(study["trials"]) >= plan.trials
    values = checks.values(plan.method)
    # engines agree, and trials are never refitted
    held = {k: v for k, v in study["held"].items() if k not in ("engine", "refit")}
    assert held == {k: values[k] for k in held}
    make(plan.method.name, **best_settings(path, method=plan.method.name))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_cell_of_a_shipped_experiment_is_sound_and_named_by_its_folder(path):
    for cell in spec.cells(path):
        experiment = cell.read(tuned=False)
        assert experiment.name == cell.name
        for arm in experiment.arms.values():
            assert "{" not in (arm.study or "")
    assert path.parent.parent == EXPERIMENTS
    assert (path.parent / "README.md").read_text(encoding="utf-8").count("\n") <= 20


def test_results_beside_the_experiments_are_of_their_cells():
    names = {cell.results / f"{cell.name}.jsonl" for path in FILES for cell in spec.cells(path)}
    assert set(EXPERIMENTS.glob("**/*.jsonl")) <= names
