"""The rooms of the package, as docs/architecture.md shows them; import-linter holds their order."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("draw_rooms", ROOT / "docs" / "draw_rooms.py")
drawing = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(drawing)

SOURCES = sorted(drawing.PACKAGE.rglob("*.py"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_no_function_outside_the_command_line_imports_from_the_package():
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    hidden = [
        f"{path} imports {name} in {node.name}"
        for path in SOURCES
        if path.relative_to(drawing.PACKAGE).parts[0] != "cli"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, functions)
        for name in drawing.imported(node)
        if name.partition(".")[0] == "unexposed"
    ]
    assert not hidden


def test_imports_are_found_everywhere_but_under_type_checking():
    source = """
import unexposed.files
from unexposed import errors
if TYPE_CHECKING:
    from unexposed.model.model import Model
else:
    from unexposed.data import ids
def late():
    from unexposed.maths import losses
"""
    assert list(drawing.imported(ast.parse(source))) == [
        "unexposed.files",
        "unexposed.errors",
        "unexposed.data.ids",
        "unexposed.maths.losses",
    ]


def test_the_committed_picture_and_tree_are_what_the_code_gives():
    page = drawing.PAGE.read_text(encoding="utf-8")
    picture = drawing.PICTURE.read_text(encoding="utf-8")
    assert picture == drawing.svg(drawing.edges()), "run: make docs"
    assert page == drawing.filled(page), "run: make docs"


def test_the_picture_leaves_out_only_imports_that_others_imply():
    graph = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set()}
    assert drawing.reduced(graph) == {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_source_file_named_in_a_page_exists(page):
    text = page.read_text(encoding="utf-8")
    named = re.findall(r"(?<![\w*/.-])(?:[\w-]+/)*\w+\.(?:py|toml|sh)\b", text)
    bases = ROOT, drawing.PACKAGE
    assert not [name for name in named if not any((base / name).is_file() for base in bases)]
