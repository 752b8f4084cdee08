"""The notebook in docs/ runs from top to bottom, and every cell shows something short."""

import ast
import json
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebook.ipynb"


def cells() -> list[dict]:
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]


def run(source: str, namespace: dict) -> object:
    """Run a cell; the value of its last expression, as a notebook shows it."""
    *before, last = ast.parse(source).body
    assert isinstance(last, ast.Expr), "a cell ends with something to look at"
    exec(compile(ast.Module(before, []), NOTEBOOK.name, "exec"), namespace)
    return eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), namespace)


def test_every_cell_of_the_notebook_runs_and_shows_a_card(tmp_path, monkeypatch):
    pytest.importorskip("optuna")
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for cell in cells():
        if cell["cell_type"] == "code":
            shown = run("".join(cell["source"]), namespace)
            assert len(shown._repr_html_()) < 12_000
            assert "array(" not in repr(shown)
    assert Path("model.html").stat().st_size > 10_000
    assert Path("model.safetensors").is_file()


def test_the_notebook_is_kept_without_outputs():
    assert all(not cell["outputs"] for cell in cells() if cell["cell_type"] == "code")
