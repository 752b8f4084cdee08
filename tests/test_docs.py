"""The tables in the README and the docs match the committed results."""

import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).parents[1]
_spec = importlib.util.spec_from_file_location("tables", ROOT / "experiments" / "write_tables.py")
tables = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tables)


def test_every_table_in_the_docs_matches_the_committed_results():
    stale = []
    for name, (
        page,
        table,
    ) in tables.TABLES.items():  # in one test: they share what is slow to read
        text = (ROOT / page).read_text(encoding="utf-8")
        stale += [name] if tables.filled(text, name, table()) != text else []
    assert not stale, "run: python experiments/write_tables.py"


def test_every_json_result_can_be_parsed():
    for path in (ROOT / "experiments").glob("**/results/**/*.json"):
        json.loads(path.read_text(encoding="utf-8"))
