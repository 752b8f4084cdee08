"""The blocks of README and docs/ that are written from results."""

import pytest

from docs_tables.blocks import filled, section_block
from unexposed.errors import InputError
from unexposed.report.sections import Section
from unexposed.report.tables import Table, cells, markdown


def test_a_block_is_filled_once_and_only_between_its_marks():
    page = "a\n<!-- t -->\nold\n<!-- end of t -->\nb\n"
    assert filled(page, "t", "new") == "a\n<!-- t -->\nnew\n<!-- end of t -->\nb\n"
    assert filled(filled(page, "t", "new"), "t", "new") == filled(page, "t", "new")
    for wrong in ("no place", page + page):
        with pytest.raises(InputError, match="one place"):
            filled(wrong, "t", "new")


def test_a_block_without_results_names_the_command_and_with_them_shows_the_tables():
    lacking = {"name": "coat", "kind": "compare", "missing": ["x"], "problem": None}
    document = {"experiments": [lacking | {"command": "unexposed run coat.toml"}]}
    empty = section_block(document, [], "section-coat", kind="compare", files="coat")
    assert "`unexposed run coat.toml`" in empty
    table = Table("name", "Title", ["method"], [cells("mf")])
    section = Section("section-coat", "Coat", tables=[table])
    full = section_block(document, [section], "section-coat", kind="compare", files="coat")
    assert markdown(table) in full
    assert section_block(document, [], "cost", kind="timing") == "No results yet."
