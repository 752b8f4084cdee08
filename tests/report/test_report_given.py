"""Rows that are given more than clicks, and worlds of several questions."""

import pytest

from report_world import write
from unexposed.experiments.results import Results
from unexposed.report.experiments import document
from unexposed.report.sections import sections

HEAD = 'kind = "compare"\nseeds = 2\n'
WORLD = '[data]\nsemi_synthetic = "ml_100k"\ngenerator = "saito"\npower = 1\n'
TRUTH = 'also = ["true-relevance"]\n'
GUIDED = '[methods.guided]\nmethod = "ubo"\nguide = "traffic:0.1"\n'


def rows(about) -> dict:
    return {row["method"]: row for row in about["found"]["comparison"]["results"]}


def test_a_row_with_a_guide_is_named_and_neither_best_nor_tested(tmp_path):
    coat = HEAD + '[data]\ndataset = "coat"\n[methods.mf]\n[methods.random]\n'
    write(tmp_path, "coat", coat + GUIDED.replace("traffic:0.1", "disliked"))
    (about,) = document(tmp_path)["experiments"]
    found = rows(about)
    assert found["guided"]["given"] == "given dislikes"
    assert found["guided"]["metrics"]["dcg@3"]["mean"] > found["mf"]["metrics"]["dcg@3"]["mean"]
    assert not found["guided"]["metrics"]["dcg@3"]["best"]
    assert found["mf"]["metrics"]["dcg@3"]["best"]
    assert "p_holm" not in found["guided"]["metrics"]["dcg@3"]
    table = sections(document(tmp_path))[0].tables[0]
    last = [cell.text for cell in table.rows[-1]]
    assert (table.rows[-1][0].aside, last[-2:]) == ("given dislikes", ["–", "–"])
    assert any("do not compete" in note for note in table.notes)


@pytest.fixture
def worlds(tmp_path):
    for question, arms in {
        "worlds": "[methods.mf]\n",
        "exposure": "[methods.mf]\n" + GUIDED,
    }.items():
        write(tmp_path / question, question, HEAD + TRUTH + WORLD + arms)
    return tmp_path


def test_each_question_about_a_world_has_a_table_of_its_own(worlds):
    section = next(s for s in sections(document(worlds)) if s.name == "worlds")
    sizes = {table.name: len(table.rows) for table in section.tables}
    assert sizes == {"powers-exposure-ml_100k-saito": 2, "powers-worlds-ml_100k-saito": 1}


def test_a_table_of_worlds_is_by_true_relevance(worlds):
    section = next(s for s in sections(document(worlds)) if s.name == "worlds")
    table = next(t for t in section.tables if "worlds" in t.name)
    found = [
        line["protocols"]["true-relevance"]["means"]["dcg@3"]
        for line in Results(worlds / "worlds/results", "worlds").read()
    ]
    assert table.rows[0][1].text.startswith(f"{sum(found) / 2:.3f}"[1:])
    assert "`true-relevance`" in table.notes[0]
