"""Delimited text is read as Python's csv module reads it, or refused with its line."""

import csv
import functools
import gzip
import io
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from reading import CSV, pairs, quiet, refusal
from unexposed.data.log import read_log
from unexposed.errors import InputError

packed = functools.partial(gzip.compress, mtime=0)  # the same bytes on every run


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(content: str | bytes, name: str = "clicks.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("clicks.CSV", CSV),
        ("clicks", CSV),
        ("clicks.tab", CSV.replace(",", "\t")),
        ("crlf.csv", CSV.replace("\n", "\r\n")),
        ("no newline at the end.csv", CSV.rstrip()),
        ("byte order mark.csv", "\ufeff" + CSV),
        ("blank lines.csv", "\n\r\n" + CSV.replace("\n", "\n\n") + "\r\n\n"),
        ("a pattern [x] * ?.csv", CSV),
        ("two members.csv.gz", packed(CSV[:20].encode()) + packed(CSV[20:].encode())),
        ("not packed.csv.gz", CSV),
        ("without names.csv", "user,item,,\nbob,y,,\nada,x,,\nada,y,,\nada,x,,\n"),
        ("short rows.csv", CSV.replace("item\n", "item,note\n")),
        ("wide.csv", CSV.replace("\n", "," + ",".join(f"c{n}" for n in range(9_000)) + "\n", 1)),
    ],
)
def test_every_usual_form_gives_the_same_clicks(write, name, content):
    clicks = read_log(write(content, name), say=quiet)
    assert pairs(clicks) == {("bob", "y"): 1, ("ada", "x"): 2, ("ada", "y"): 1}
    assert clicks.user_ids.values.tolist() == ["ada", "bob"]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["10", "9", "-1", "0"], [-1, 0, 9, 10]),
        (["7", "007"], ["007", "7"]),
        (["7", "+7"], ["+7", "7"]),
        (["1", " 1"], [" 1", "1"]),
        (["1", "9223372036854775807"], [1, 9223372036854775807]),
        (["1", "9223372036854775808"], ["1", "9223372036854775808"]),
        (["é", "z", "Z", "𝒵", "ｚ"], ["Z", "z", "é", "ｚ", "𝒵"]),
        (["NA", "null", "nan", "None"], ["NA", "None", "nan", "null"]),
    ],
)
def test_text_ids_become_integers_only_if_nothing_is_lost(write, texts, expected):
    path = write("user,item\n" + "".join(f"{text},{n}\n" for n, text in enumerate(texts)))
    clicks = read_log(path, say=quiet)
    assert clicks.user_ids.values.tolist() == expected
    assert clicks.user_ids.are_integers == isinstance(expected[0], int)


LONG = "x" * 1_000_000
REFUSED: dict[str, list[str | bytes]] = {
    "only blank lines: write a header": ["\n\n\r\n"],
    "no rows": ["user,item", "user,item,rating\r\n\r\n"],
    "delimiter=';' (--delimiter ';')": [CSV.replace(",", ";")],
    "did you mean 'usr'?): name it with user= (--user)": ["usr,item\n1,2\n"],
    "no user column in its header": ["1,5\n2,7\n"],
    "two columns named 'user': rename one": ["user,user,item\n1,2,3\n"],
    "fewer than two items, which leaves nothing to learn: check that item= (--item)": [
        "user,item\na,x\nb,x\n"
    ],
    "line 3: the id in column 'user' is missing; fill it in": ["user,item\na,x\n,y\n"],
    "line 3: the id in column 'item' is missing; fill it in": [
        f"user,item\na,x\nb{end}\n" for end in ("", ",", ',""')
    ],
    "line 4: the id in column 'item' is missing; fill it in": [
        "user,item\r\na,x\r\n\r\nb,\r\n",
        '"the\nuser",item,user\n1,2,3\n1,,3\n',
    ],
    "line 4: the rating 'x' is not a number": ['user,item,rating\na,x,5\n\n"b\n",y,x\n'],
    "line 2: byte 0x00": [b"user,item\na,\0\n"],
    "line 3: byte 0xc3": [b"user,item\na,x\nb,\xc3"],
    "line 300002: byte 0xff": [b"user,item\n" + b"a,x\n" * 300_000 + b"b,\xff\n"],
    "is not UTF-8 text; save the file as that": [CSV.encode("utf-16")],
    "line 3: 4 fields, where the header has 3; quote a field": ["title,user,item\n\na,b,1,2\n"],
    "line 2: 4 fields, where the header has 3; quote a field": ['user,item,title\n"1\n",2,x,y\n'],
    "line 3: the quotes do not match": [
        *(f"user,item\nz,w\n{row}\nb,y\n" for row in ('"a,x', '"a"b,x', '5" disk,x', 'a,"x')),
        # polars would join these rows or fields
        'user,item,of\nz,y,x\n"a,b",11,tv 40"\n7,a,tv 40"\n9,b,c\n',
        'user,item,of\nz,y,x\n"33",tv 40","33"\n"33","","33"\n"z",tv 40",a\n',
        f'user,item\nz,y\n"{LONG}"b,x\n',
    ],
    "line 3: a carriage return stands alone; end lines in a newline": [
        f"user,item\nz,y\n{row}\n"  # polars drops some of these and keeps others
        for row in ("a\rb,x", "a\r,x", "\ra,x", "a,x\r\r")
    ],
    "end lines with a newline": [CSV.replace("\n", "\r")],
    "has 1,000,002 columns, 10,000 at most": [
        ",".join(["user", "item", *(f"c{n}" for n in range(1_000_000))]) + "\na,b\n"
    ],
}


@pytest.mark.parametrize("told", REFUSED)
def test_a_bad_text_is_refused_with_its_line_and_the_cure(write, told, monkeypatch):
    if "columns, 10,000 at most" in told:
        monkeypatch.setattr(pl, "scan_csv", lambda *_, **__: pytest.fail("polars was given it"))
    for text in REFUSED[told]:
        content = text if isinstance(text, bytes) else text.encode()
        assert told in refusal(write(content))
        if len(content) < 1000:
            assert told in refusal(write(packed(content), "clicks.csv.gz"))


def test_a_changed_or_missing_byte_of_a_gzip_file_is_noticed(write):
    whole = packed(CSV.encode())
    for at in range(10, len(whole)):  # after the header, where every bit counts
        flipped = whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :]
        refusal(write(flipped, "clicks.csv.gz"))
        assert "may be damaged" in refusal(write(whole[:at], "clicks.csv.gz"))


# Any text at all


def read_by_the_csv_module(content: bytes, columns: list[str], delimiter: str = ",") -> Any:
    """How often each row of these columns comes, or None where the module finds the file invalid.

    A field may be empty or missing only where it is not asked for, and there may be none too many
    but empty ones.
    """
    try:
        text = io.StringIO(content.decode("utf-8-sig"), newline="")
        rows = [row for row in csv.reader(text, delimiter=delimiter, strict=True) if row]
    except (UnicodeDecodeError, csv.Error):
        return None
    if b"\0" in content or not rows or any(rows[0].count(name) != 1 for name in columns):
        return None
    header, places = rows[0], [rows[0].index(name) for name in columns]
    taken = [[row[at] if at < len(row) else "" for at in places] for row in rows[1:]]
    too_long = any(any(row[len(header) :]) for row in rows)
    return None if too_long or any("" in row for row in taken) else Counter(map(tuple, taken))


def check_by_the_csv_module(path: Path, content: bytes, delimiter: str = ",") -> str | None:
    """Check that the clicks of a file are those of the csv module, or return the refusal."""
    path.write_bytes(packed(content) if path.name.endswith("gz") else content)
    try:
        clicks = read_log(path, say=quiet)
    except InputError as error:
        return str(error)
    found = {(str(user), str(item)): n for (user, item), n in pairs(clicks).items()}
    assert found == read_by_the_csv_module(content, ["user", "item"], delimiter)
    return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


LINE_ENDS_OF_OTHERS = ["\u2028", "\x85", "\x0b", "\x0c", "\x1c"]  # to str.splitlines, not to CSV
QUOTED = ['"', '""', '"a"', '","', '\n"', '",', "'", "\\", 'tv 40"', 'tv "50', 'a "b" c', '"33",']
PLAIN = [*"ab78,,\n;|\t #é<>", "\r", "\r\n", ",,", "😀", "שלום", "\ufeff", "user", "item"]
PIECES = st.sampled_from([*LINE_ENDS_OF_OTHERS, *QUOTED, *PLAIN, "\nu,i\n", "x" * 200])
ROWS = st.lists(PIECES, max_size=14).map("".join)
ODD_BYTES = st.lists(st.sampled_from([*b'1a,\n"\r \0\xff\xc3\xa9\x1f\x8b']), max_size=30).map(bytes)


@settings(max_examples=600)
@given(
    body=ROWS.map(str.encode) | ODD_BYTES,
    start=st.sampled_from(["", "\ufeff"]),
    header=st.sampled_from(["user,item\n", "user,item\r\n", "user,item,title\n"]),
)
@example(body=b'"33",a,tv 40"\n' * 2, start="", header="user,item,title\n")
def test_any_text_is_refused_or_read_as_the_csv_module_reads_it(folder, body, start, header):
    content = f"{start}{header}z,y\n".encode() + body
    refused = check_by_the_csv_module(folder / "any.csv", content)
    assert refused is None or refused.isprintable()


AWKWARD = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=5
) | st.sampled_from([" ", "NA", "nan", '""', "0", "007", "=1+1", "#c", "\ufeff", 'a,"\n'])


@settings(max_examples=200)
@given(
    rows=st.lists(st.tuples(AWKWARD, AWKWARD), min_size=3, max_size=6),
    edits=st.lists(
        st.tuples(st.floats(0, 0.999), st.binary(max_size=2), st.integers(0, 2)), max_size=3
    ),
    name=st.sampled_from(["edited.csv", "edited.tsv", "edited.csv.gz"]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
)
def test_a_valid_file_is_read_and_one_with_bytes_changed_is_refused_or_read_as_it_stands(
    folder, rows, edits, name, quoting
):
    delimiter = "\t" if "tsv" in name else ","
    stream = io.StringIO(newline="")
    csv.writer(stream, delimiter=delimiter, quoting=quoting).writerows([("user", "item"), *rows])
    content = bytearray(stream.getvalue().encode())
    for where, new, removed in edits:
        at = int(where * len(content))
        content[at : at + removed] = new
    refused = check_by_the_csv_module(folder / name, bytes(content), delimiter)
    several = all(len(set(side)) > 1 for side in zip(*rows, strict=True))
    assert edits or not several or refused is None
