"""The tables of README and docs/: blocks of a page, and figures of the benchmarks."""

import pytest

from docs_tables import benchmarks
from docs_tables.blocks import filled, section_block
from unexposed.errors import InputError
from unexposed.report.sections import Section
from unexposed.report.tables import Table, cells, markdown


def test_a_figure_that_could_not_be_measured_is_absent_and_large_ones_have_no_fractions() -> None:
    rows = [
        {"what": "UBO / RelMF", "bar": "≤ 2.0", "median": 2.256, "least": 2.0, "greatest": 99.994},
        {"what": "RecBole's BPR", "bar": "", "median": None, "least": None, "greatest": None},
        {"what": "bytes", "bar": "", "median": 3588.4, "least": 100.0, "greatest": 12345.6},
    ]
    document = {
        "data": "Yahoo!R3",
        "clicks": 1000,
        "load_average": [0.52, 0, 0],
        "others_share": 0.25,
        "table": rows,
    }
    lines = markdown(benchmarks.cpu(document)).splitlines()
    assert "| UBO / RelMF | ≤ 2.0 | 2.26 | 2.00 | 99.99 |" in lines
    assert "| RecBole's BPR | – | absent | absent | absent |" in lines
    assert "| bytes | – | 3,588 | 100 | 12,346 |" in lines
    assert any("had 25% of the cores; load average 0.5" in line for line in lines)


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
