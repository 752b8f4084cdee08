"""The tables of the README and the docs are those of the committed results."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("tables", ROOT / "experiments" / "write_tables.py")
tables = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tables)


@pytest.mark.parametrize("name", tables.TABLES)
def test_a_table_in_the_docs_is_what_the_results_give(name):
    page, table = tables.TABLES[name]
    text = (ROOT / page).read_text(encoding="utf-8")
    assert tables.filled(text, name, table()) == text, "run: python experiments/write_tables.py"


def test_every_result_is_json():
    for path in (ROOT / "experiments" / "results").glob("*.json"):
        json.loads(path.read_text(encoding="utf-8"))
