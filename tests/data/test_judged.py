"""Judged pairs, lists of ids and titles, matched to the ids of a log."""

import datetime
import re
from pathlib import Path
from typing import Any

import pytest
import scipy.sparse as sp

from reading import log, quiet
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.judged import read_ids, read_judged, read_pairs, read_titles
from unexposed.data.labelled import Judgements
from unexposed.errors import InputError, LogWarning

DAYS = [datetime.date(2024, 1, 1), datetime.date(2024, 2, 1)]


@pytest.fixture
def trained() -> Clicks:
    """Training on users 1, 2, 10 and items a, b, 007."""
    return log({"user": [10, 2, 1], "item": ["b", "a", "007"]})


def judged(judgements: Judgements) -> dict[tuple[Any, Any], bool]:
    """Raw user and item → relevance."""
    return {
        (judgements.user_ids.values[u], judgements.item_ids.values[i]): bool(r)
        for u, i, r in zip(judgements.users, judgements.items, judgements.relevant, strict=True)
    }


FIRST = {(10, "a"): True, (2, "b"): False}
BOTH = "user,item,rating,label\n10,a,5,0\n2,b,1,1\n"
RATED_PAIRS = "user,item,rating\n10,a,4\n2,b,3\n"


@pytest.mark.parametrize(
    ("text", "threshold", "expected", "rule"),
    [
        ("item,user,relevance\na,10,1\nb,2,0\n", None, FIRST, "relevance = 1"),
        ("item,user,Relevant\na,10,TRUE\nb,2, false\n", None, FIRST, "Relevant = 1"),
        (RATED_PAIRS, None, FIRST, "rating ≥ 4"),
        (RATED_PAIRS, 3, dict.fromkeys(FIRST, True), "rating ≥ 3"),
        (BOTH, None, {(10, "a"): False, (2, "b"): True}, "label = 1"),
        (BOTH, 4, FIRST, "rating ≥ 4"),
        ("user,item,label\n10,a,1\n2,b,0\n", 3, FIRST, "label = 1"),
    ],
)
def test_relevance_goes_before_a_rating_unless_a_threshold_is_given(
    tmp_path, trained, text, threshold, expected, rule
):
    path, said = tmp_path / "judged.csv", list[str]()
    path.write_text(text)
    judgements = read_judged(path, trained, threshold=threshold, say=said.append)
    assert judged(judgements) == expected
    assert judgements.user_ids is trained.user_ids
    assert said == [f"{path}: user = user, item = item, relevant is {rule}"]


def test_unknown_users_and_items_are_left_out_and_counted(trained):
    users, items = [10, 99, 99, 98, 2, 2, 2], ["a", "a", "b", "z", "z", "y", "7"]
    said: list[str] = []
    source = {"user": users, "item": items, "label": [1, 1, 0, 1, 1, 0, 1]}
    assert judged(read_judged(source, trained, say=said.append)) == {(10, "a"): True}
    left_out = "the frame: left out 6 of 7 judged pairs: 2 unknown users, 3 unknown items"
    assert said[1:] == [left_out]
    with pytest.raises(InputError, match="left out 1 of 1 judged pairs.*of the training log"):
        read_judged({"user": [99], "item": ["a"], "label": [1]}, trained, say=quiet)


@pytest.mark.parametrize(
    ("raw", "texts"),
    [
        ([1, 2], ["1", "2"]),
        (["007", "7"], ["007", "7"]),
        ([1.5, True], ["1.5", "True"]),
        (DAYS, ["2024-01-01", "2024-02-01"]),
    ],
)
def test_ids_of_any_type_are_found_by_how_they_print(raw, texts):
    trained = log({"user": raw, "item": raw})
    source = {"user": [texts[0]], "item": [texts[1]], "label": [True]}
    assert judged(read_judged(source, trained, say=quiet)) == {(raw[0], raw[1]): True}


@pytest.mark.parametrize(
    ("source", "settings", "told"),
    [
        *(
            (
                {"user": [10, 2], "item": ["a", "b"], "label": ["1", value]},
                {},
                f"row 1: the label '{value}' is not 0 or 1; if it rates, give rating='label' "
                "(--rating) and a threshold",
            )
            for value in ("2", "0.5", "yes", "")
        ),
        (
            {"user": [10], "item": ["a"]},
            {},
            "name it with relevance=, or a rating with rating= (--rating)",
        ),
        (
            {"user": [10], "item": ["a"], "label": [1]},
            {"relevance": "label", "threshold": 4},
            "give one or the other",
        ),
    ],
)
def test_bad_judgements_are_refused(trained, source, settings, told):
    with pytest.raises(InputError, match=re.escape(told)):
        read_judged(source, trained, say=quiet, **settings)


def test_an_assumed_threshold_is_warned_of(trained):
    source = {"user": [10, 2], "item": ["a", "b"], "rating": [5, 3]}
    with pytest.warns(LogWarning, match="relevant is rating ≥ 4, which is assumed"):
        read_judged(source, trained)


def test_a_matrix_of_judgements_keeps_its_explicit_zeros():
    trained = log(sp.csr_array([[1, 0], [0, 1]]))
    for values, threshold in (([1, 0], None), ([5, 3], 4)):
        matrix = sp.coo_array((values, ([0, 1], [1, 0])), shape=(2, 2))
        judgements = read_judged(matrix, trained, threshold=threshold, say=quiet)
        assert judged(judgements) == {(0, 1): True, (1, 0): False}


def test_judged_pairs_and_candidates_come_from_folders_too(tmp_path):
    (tmp_path / "a.csv").write_text("user,item,label\n7,x,1\n8,y,0\n")
    (tmp_path / "b.csv").write_text("user,item,label\n7,y,2\n")
    trained = log({"user": [7, 8], "item": ["x", "y"]})
    assert len(read_pairs(tmp_path, say=quiet)) == 3
    with pytest.raises(InputError, match=re.escape(f"{tmp_path / 'b.csv'}, line 2: the label '2'")):
        read_judged(tmp_path, trained, say=quiet)


def test_titles_go_by_id_and_a_file_of_other_items_is_refused(trained):
    titles = {"movie": ["b", "z", "007"], "name": ["Blue", "Zoo", None]}
    at = {raw: index for index, raw in enumerate(trained.item_ids.values)}
    assert read_titles(titles, trained) == {at["b"]: "Blue"}
    assert read_titles({"anything": ["b"], "title": ["Blue"]}, trained) == {at["b"]: "Blue"}
    with pytest.raises(InputError, match="names no item of the model"):
        read_titles({"item": ["z"], "title": ["Zoo"]}, trained)
    with pytest.raises(InputError, match="has no column of item ids"):
        read_titles({"one": ["b"], "two": ["c"], "title": ["Blue"]}, trained)


@pytest.mark.parametrize(
    ("text", "like", "expected"),
    [
        ("\ufeff10\r\n\n  \n2\n007\n-3", Ids.of([2, 10]), [10, 2, "007", -3]),
        ("10\n2\n", Ids.of(["a"]), ["10", "2"]),
        ("2024-01-01\na,b\n1.5\n", Ids.of([1.5, DAYS[0], "a,b"]), [DAYS[0], "a,b", 1.5]),
        # only look like integers
        *((text, Ids.of([1, 2]), [text]) for text in ("--5", "-", "9" * 5000, "٣", "1_0")),
        (" \n\n", Ids.of([1]), "users.txt holds no ids"),
        ("1\n\0", Ids.of([1]), "users.txt, line 2: byte 0"),
    ],
)
def test_ids_are_read_one_a_line_with_the_types_of_the_known_ids(tmp_path, text, like, expected):
    (path := Path(tmp_path / "users.txt")).write_text(text)
    if isinstance(expected, list):
        assert read_ids(path, like) == expected
        return
    with pytest.raises(InputError, match=expected):
        read_ids(path, like)
