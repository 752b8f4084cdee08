"""What a person sees at a terminal of any width, and what goes into files and pipes."""

import json
from pathlib import Path

import numpy as np
import pytest

from terminal import Seen, shown, typed
from unexposed.cli import doctor, tables
from unexposed.data.log import read_log
from unexposed.evaluation.compare import Comparison, Result
from unexposed.evaluation.protocols import PROTOCOLS
from unexposed.methods import make
from unexposed.progress import Silent

COMPARE = "compare --train log.csv --judged judged.csv --seeds 2 --methods"
EXPERIMENT = """
kind = "compare"
seeds = 2
protocol = "judged"
also = ["true-relevance"]
[data]
simulate = { users = 40, items = 20 }
[methods.popularity]
[methods.random]
"""


@pytest.fixture
def model(here):
    make("umf", epochs=5).fit(read_log("log.csv"), progress=Silent()).save("model")


def words(seen: Seen, width: int) -> set[str]:
    """The words on the terminal, where nothing but a sentence is wider than it."""
    assert seen.code == 0, seen.text
    wide = [line for line in seen.lines if len(line) > width]
    assert all(line.startswith(("log.csv: ", "judged.csv: ")) for line in wide)
    return set(seen.text.split())


# Tables


LONG = "popularity,mf:dim=2:epochs=1:negatives=3:learning_rate=0.0123:engine=cpu"
TABLES = {
    f"{COMPARE} random,popularity --protocol catalogue": {
        *PROTOCOLS["catalogue"].metrics,
        "random",
    },
    f"{COMPARE} {LONG}": {*PROTOCOLS["catalogue"].metrics},
    "evaluate model --judged judged.csv --protocol judged": {
        *(*PROTOCOLS["judged"].metrics, "head", "middle", "tail", "seldom", "difference"),
    },
    "run small.toml": {*PROTOCOLS["judged"].metrics, "dcg@3", "true-relevance:"},
    "datasets": {"coat", "terms", "sha256"},
}


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("line", TABLES)
def test_every_figure_of_a_table_can_be_read(model, line, width):
    Path("small.toml").write_text(EXPERIMENT)
    assert TABLES[line] <= words(shown(line, width=width), width)


def test_an_oracle_is_neither_the_best_nor_tested():
    by = PROTOCOLS["ubo-ijcai22"]

    def of(label: str, value: float) -> Result:
        values = {metric: np.full((2, 30), value) for metric in by.metrics}
        return Result(label, make("random"), values, 0.0)

    results = [of("mf", 0.2), of("seer", 0.9), of("bpr", 0.4)]
    comparison = Comparison(by, 30, 2, results, given={"seer": "oracle"})
    table = tables.document_table(comparison.document())
    labels, first = (list(table.columns[at].cells) for at in (0, 1))
    assert labels == ["mf", "seer (oracle)", "bpr"]
    assert [("bold" in cell, "†" in cell) for cell in first] == [
        (False, True),
        (False, False),
        (True, False),
    ]
    assert "p_holm" not in comparison.document()["results"][1]["metrics"]["dcg@1"]


# Lists


def test_redirected_recommendations_are_in_the_file_and_not_on_the_terminal(model):
    Path("newer.csv").write_text("user,item\nnew,i1\nnew,i2\n")
    seen = typed("unexposed recommend model -k 3 --new-clicks newer.csv > lists.csv")
    assert seen.code == 0, seen.text
    header, *rows = Path("lists.csv").read_text().splitlines()
    assert header.startswith("user,item,rank,score")
    assert len(rows) == 3
    assert "user,item,rank" not in seen.text


def test_a_pipe_shows_its_rows_and_ends_quietly_where_the_reader_has_gone(model):
    seen = typed("unexposed recommend model -k 3 | head -n 2", width=60)
    header, row = [line for line in seen.lines if line]
    assert header.startswith("user,item,rank,score")
    assert row.startswith("u0,")
    seen = typed("unexposed recommend model -k 3 | true")
    assert (seen.code, seen.text) == (141, "")


TITLES = "item,title\ni1,The First Film\ni3,[red]Third\x1b[31m Film (1990)\ni5,The Last\n"


@pytest.mark.parametrize("width", [60, 80])
def test_a_person_reads_a_table_with_titles_for_the_users_that_are_named(model, width):
    Path("names.csv").write_text(TITLES)
    line = "recommend model -k 7 --show-clicked --users u3,u1 --titles names.csv"
    seen = shown(line, width=width)
    assert seen.code == 0, seen.text
    heads, *rows = [line.split() for line in seen.lines if line and "names.csv" not in line]
    assert heads == ["user", "item", "title", "rank", "relevance", "exposure"]
    assert [row[0] for row in rows if row[0].startswith("u")] == ["u3", "u1"]
    assert max(map(len, seen.lines)) <= width
    assert "The First Film" in seen.text
    assert r"[red]Third\x1b[31m" in seen.text  # neither markup nor an escape


def test_similar_items_are_found_by_title_and_read_as_a_table(done, run, model):
    Path("names.csv").write_text(TITLES)
    for text in ("The First Film", "FIRST"):
        seen = shown(f"similar model --item '{text}' -k 2 --titles names.csv", width=60)
        assert "The First Film is item i1" in seen.text
        assert seen.lines[2].split() == ["item", "title", "rank", "similarity"]
    by_id = done("similar model --item i1 -k 2 --titles names.csv")[0]
    assert done("similar model --titles names.csv -k 2 --item", "first")[0] == by_id
    code, _, err = run("similar model --item film --titles names.csv")
    assert code == 2
    assert "2 titles hold 'film' ('The First Film' is i1," in err
    assert "no title holds it" in run("similar model --item nowhere --titles names.csv")[2]


# Messages


def test_messages_break_between_words_and_commands_not_at_all(here, monkeypatch):
    seen = shown("fit log.csv --method popularity --out popular", width=60)
    assert seen.code == 0, seen.text
    assert max(map(len, seen.lines)) <= 60
    assert "unexposed recommend popular -k 10 --out recommendations.csv" in seen.lines
    long = doctor.Check("extra", "note", "here and there " * 8, "a cure " * 8)
    monkeypatch.setattr(doctor, "examine", lambda _: iter([long]))
    first, *others = [line for line in shown("doctor", width=60).lines if line]
    assert first.startswith("note    extra         here and there")
    assert all(line.startswith(" " * 22) and len(line) <= 60 for line in others)


def test_json_has_null_for_what_is_not_finite_and_a_file_sends_no_escapes(capsys):
    from unexposed.cli import talking

    talking.print_json({"note": float("nan"), "all": [float("inf"), 1]})
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found == {"note": None, "all": [None, 1]}
    tables.console().print(tables.key_value_table({"said": "\x1b]0;owned\x07[bold]"}))
    assert capsys.readouterr().out.strip() == r"said  \x1b]0;owned\x07[bold]"
