"""The tables in the README and the docs match the committed results."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("tables", ROOT / "experiments" / "write_tables.py")
tables = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tables)


@pytest.mark.parametrize("name", tables.TABLES)
def test_every_table_in_the_docs_matches_the_committed_results(name):
    page, table = tables.TABLES[name]
    text = (ROOT / page).read_text(encoding="utf-8")
    assert tables.filled(text, name, table()) == text, "run: python experiments/write_tables.py"


def test_every_json_result_can_be_parsed():
    for path in (ROOT / "experiments").glob("**/results/**/*.json"):
        json.loads(path.read_text(encoding="utf-8"))
