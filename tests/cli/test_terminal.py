"""At a terminal: results go where the shell sends them, whatever the progress bar shows."""

from pathlib import Path

import pytest

from terminal import typed
from unexposed.data.read import read_log
from unexposed.methods import make
from unexposed.progress import Silent


@pytest.fixture
def model(here):
    make("umf", epochs=5).fit(read_log("log.csv"), progress=Silent()).save("model")


RECOMMEND = {  # what is typed → how many lines the file has
    "unexposed recommend model -k 3": 1 + 12 * 3,
    "unexposed recommend model -k 3 --users ids.txt": 1 + 2 * 3,
    "unexposed recommend model -k 3 --new-clicks newer.csv": 1 + 3,
}


@pytest.mark.parametrize("line", RECOMMEND)
def test_redirected_recommendations_are_in_the_file_and_not_on_the_terminal(model, line):
    Path("ids.txt").write_text("u1\nu3\n")
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
