"""At a terminal: results go where the shell sends them, and people read tables."""

from pathlib import Path

import pytest

from terminal import shown, typed
from unexposed.cli import doctor, tables
from unexposed.data.log import read_log
from unexposed.methods import make
from unexposed.progress import Silent


@pytest.fixture
def model(here):
    make("umf", epochs=5).fit(read_log("log.csv"), progress=Silent()).save("model")


RECOMMEND = {  # what is typed → how many lines the file has
    "unexposed recommend model -k 3": 1 + 12 * 3,
    "unexposed recommend model -k 3 --new-clicks newer.csv": 1 + 3,
}


@pytest.mark.parametrize("line", RECOMMEND)
def test_redirected_recommendations_are_in_the_file_and_not_on_the_terminal(model, line):
    Path("newer.csv").write_text("user,item\nnew,i1\nnew,i2\n")
    seen = typed(f"{line} > lists.csv")
    assert seen.code == 0, seen.text
    header, *rows = Path("lists.csv").read_text().splitlines()
    assert header.startswith("user,item,rank,score")
    assert 1 + len(rows) == RECOMMEND[line]
    assert "user,item,rank" not in seen.text


def test_a_pipe_shows_its_rows_and_ends_quietly_where_the_reader_has_gone(model):
    seen = typed("unexposed recommend model -k 3 | head -n 2", width=60)
    header, row = [line for line in seen.lines if line]
    assert header.startswith("user,item,rank,score")
    assert row.startswith("u0,")
    seen = typed("unexposed recommend model -k 3 | true")
    assert (seen.code, seen.text) == (141, "")


def test_messages_break_between_words_and_commands_not_at_all(here):
    seen = shown("fit log.csv --method popularity --out popular", width=60)
    assert seen.code == 0, seen.text
    assert max(map(len, seen.lines)) <= 60
    assert "unexposed recommend popular -k 10 --out recommendations.csv" in seen.lines
    assert "popularity is the list that other methods are compared with" in " ".join(seen.lines)
    seen = shown("fit log.csv --method popularity --user nobody --out other", width=60)
    assert max(map(len, seen.lines)) <= 60


def test_findings_of_the_doctor_are_folded_under_their_names(monkeypatch):
    long = doctor.Check("extra", "note", "here and there " * 8, "a cure " * 8)
    monkeypatch.setattr(doctor, "examine", lambda _: iter([long]))
    first, *others = [line for line in shown("doctor", width=60).lines if line]
    assert first.startswith("note    extra         here and there")
    assert all(line.startswith(" " * 22) and len(line) <= 60 for line in others)


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


def test_users_are_named_by_their_ids_and_a_file_of_that_name_comes_first(done, run, model):
    out, _ = done("recommend model -k 1 --users", "u3, u1")
    assert [line.split(",")[0] for line in out.splitlines()] == ["user", "u3", "u1"]
    Path("u3").write_text("u5\n")
    assert done("recommend model -k 1 --users u3")[0].splitlines()[1].startswith("u5,")
    code, _, err = run("recommend model --users ghost,u99")
    assert code == 2
    assert "none of the users 'ghost,u99', and there is no file of that name" in err
    assert "names nobody" in run("recommend model --users ,")[2]
    Path("log.csv").write_text(Path("log.csv").read_text().replace("u", "").replace("ser", "user"))
    done("fit log.csv --method popularity --out numbers")
    assert done("recommend numbers -k 1 --users 7,3")[0].splitlines()[1].startswith("7,")


def test_a_terminal_shows_the_first_users_and_says_how_to_get_the_others(model, monkeypatch):
    monkeypatch.setattr(tables, "FIRST", 2)
    seen = shown("recommend model -k 1")
    assert "the first 2 of 12 users; name others with --users" in seen.text
    assert [line.split()[0] for line in seen.lines if line.startswith("u")][1:3] == ["u0", "u1"]
    assert "u2" not in seen.text
    seen = shown("recommend model -k 1 --users u1,u2,u3,u4")
    assert "first 2" not in seen.text
    assert "u4" in seen.text


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
