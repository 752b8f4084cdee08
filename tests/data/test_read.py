"""The log reader: what comes in comes back out, and what is wrong is said in one sentence."""

import csv
import datetime
import functools
import gzip
import io
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import example, given, settings
from hypothesis import strategies as st

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.judged import read_ids, read_judged
from unexposed.data.labelled import Judgements
from unexposed.data.log import read_log
from unexposed.errors import InputError

packed = functools.partial(gzip.compress, mtime=0)  # the same bytes on every run

# Ada clicked x twice and y once, Bob y: the log whose answer is known.
LOG = {"user": ["bob", "ada", "ada", "ada"], "item": ["y", "x", "y", "x"]}
CSV = "user,item\nbob,y\nada,x\nada,y\nada,x\n"


def quiet(_: str) -> None:
    pass


def pairs(clicks: Clicks) -> dict[tuple[Any, Any], int]:
    """Raw user and item → count."""
    return {
        (clicks.user_ids.values[u], clicks.item_ids.values[i]): int(n)
        for u, i, n in zip(clicks.users, clicks.items, clicks.counts, strict=True)
    }


def ids(of: Ids) -> list[Any]:
    return of.values.tolist()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(content: str | bytes, name: str = "clicks.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def refusal(source: Any, *, read: Any = read_log, **settings: Any) -> str:
    """The refusal of a source: one printable line that names the source."""
    with pytest.raises(InputError) as caught:
        read(source, **({} if read is read_ids else {"say": quiet}), **settings)
    sentence = str(caught.value)
    assert sentence.isprintable()
    is_path = isinstance(source, str | Path)
    names = [Path(source).name] if is_path else ["the frame", "the matrix"]
    assert any(name in sentence for name in names)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return sentence


# The doors


def parquet_bytes(columns: dict[str, list[Any]]) -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame(columns).write_parquet(buffer)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("clicks.csv", CSV.encode()),
        ("clicks.CSV", CSV.encode()),
        ("clicks", CSV.encode()),
        ("clicks.tsv", CSV.replace(",", "\t").encode()),
        ("clicks.tab", CSV.replace(",", "\t").encode()),
        ("clicks.csv.gz", packed(CSV.encode())),
        ("clicks.parquet", parquet_bytes(LOG)),
        ("crlf.csv", CSV.replace("\n", "\r\n").encode()),
        ("no newline at the end.csv", CSV.rstrip().encode()),
        ("byte order mark.csv", b"\xef\xbb\xbf" + CSV.encode()),
        ("blank lines.csv", b"\n\r\n" + CSV.replace("\n", "\n\n").encode() + b"\r\n\n"),
        ("a pattern [x] * ?.csv", CSV.encode()),
        ("two members.csv.gz", packed(CSV[:20].encode()) + packed(CSV[20:].encode())),
        ("not packed.csv.gz", CSV.encode()),
    ],
)
def test_every_kind_of_file_gives_the_same_clicks(write, name, content):
    for path in (write(content, name), str(write(content, name))):
        clicks = read_log(path, say=quiet)
        assert pairs(clicks) == {("bob", "y"): 1, ("ada", "x"): 2, ("ada", "y"): 1}
        assert ids(clicks.user_ids) == ["ada", "bob"]
        assert ids(clicks.item_ids) == ["x", "y"]


@pytest.mark.parametrize(
    "frame",
    [
        pl.DataFrame(LOG),
        pl.LazyFrame(LOG),
        pl.DataFrame(LOG, schema={"user": pl.Categorical, "item": pl.Enum(["y", "z", "x"])}),
        pd.DataFrame(LOG),
        pd.DataFrame(LOG, dtype="category", index=[7, 7, 8, 9]),
        pa.table(LOG),
        LOG,
        {name: np.array(column) for name, column in LOG.items()},
        {name: pd.Series(column) for name, column in LOG.items()},
        {name: pa.array(column) for name, column in LOG.items()},
    ],
    ids=lambda frame: type(frame).__module__ + "." + type(frame).__name__,
)
def test_every_kind_of_frame_gives_the_same_clicks(frame):
    clicks = read_log(frame, say=quiet)
    assert pairs(clicks) == {("bob", "y"): 1, ("ada", "x"): 2, ("ada", "y"): 1}
    assert ids(clicks.user_ids) == ["ada", "bob"]


def test_a_sparse_matrix_holds_counts_or_ratings_over_its_full_shape():
    matrix = sp.coo_array(([2, 1, 0, 1], ([0, 0, 1, 2], [1, 1, 0, 0])), shape=(3, 3))
    clicks = read_log(matrix)
    assert pairs(clicks) == {(0, 1): 3, (2, 0): 1}  # repeats add up, an explicit zero is no click
    assert ids(clicks.user_ids) == ids(clicks.item_ids) == [0, 1, 2]
    assert pairs(read_log(matrix, threshold=3)) == {(0, 1): 1}
    assert matrix.nnz == 4  # the caller's matrix is left alone


def test_reading_needs_neither_pandas_nor_pyarrow_nor_torch():
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['pandas', 'pyarrow', 'torch']))\n"  # import raises
        "from unexposed.data.log import read_log\n"
        f"read_log({LOG!r})"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Ids


DAYS = [datetime.date(2024, 1, 1), datetime.date(2024, 2, 1)]


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
        (["1_000", "1e3"], ["1_000", "1e3"]),
    ],
)
def test_text_ids_become_integers_only_if_nothing_is_lost(write, texts, expected):
    path = write("user,item\n" + "".join(f"{text},{n}\n" for n, text in enumerate(texts)))
    clicks = read_log(path, say=quiet)
    assert ids(clicks.user_ids) == expected
    assert clicks.user_ids.are_integers == isinstance(expected[0], int)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (["7", "10"], ["10", "7"]),  # strings of a frame stay strings
        ([np.int16(3), 2], [2, 3]),
        ([(2, "a"), (3, "a"), (1, "b")], [(1, "b"), (2, "a"), (3, "a")]),
        ([("b",), 7, "a"], [("b",), 7, "a"]),  # cannot be compared: in order of appearance
        ([2**70, 5], [5, 2**70]),
        ([b"b", b"a"], [b"a", b"b"]),
        (["\ud800", "a"], ["a", "\ud800"]),  # a lone surrogate cannot be encoded as UTF-8
    ],
)
def test_raw_ids_of_any_hashable_type_come_back(raw, expected):
    objects = np.fromiter(raw, dtype=object, count=len(raw))
    columns = {"user": raw, "item": list(range(len(raw)))}
    for source in (columns, pd.DataFrame({**columns, "user": pd.Series(objects, dtype=object)})):
        clicks = read_log(source, say=quiet)
        assert ids(clicks.user_ids) == expected
        assert pairs(clicks) == {(r, n): 1 for n, r in enumerate(raw)}


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pl.Series([2.5, 1.0]), [1.0, 2.5]),
        (pl.Series([True, False]), [False, True]),
        (pl.Series([2**64 - 1, 1], dtype=pl.UInt64), [1, 2**64 - 1]),
        (pl.Series(["b", "a"], dtype=pl.Enum(["b", "a"])), ["a", "b"]),
        (pl.Series(DAYS[::-1]), DAYS),
        (pd.array([2, 1], dtype="Int64"), [1, 2]),
        (pd.Categorical([2, 1]), [1, 2]),
        (np.array([2, 1], dtype=np.uint16), [1, 2]),
    ],
    ids=lambda part: str(getattr(part, "dtype", "")),
)
def test_typed_ids_come_back(tmp_path, column, expected):
    sources: list[Any] = [{"user": column, "item": [1, 2]}]
    if isinstance(column, pl.Series):
        sources.append(tmp_path / "typed.parquet")
        pl.DataFrame(sources[0]).write_parquet(sources[1])
    else:
        sources.append(pd.DataFrame(sources[0]))
    for source in sources:
        clicks = read_log(source, say=quiet)
        assert ids(clicks.user_ids) == expected
        assert clicks.user_ids.are_integers == (expected == [1, 2])


# Columns and ratings


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        ("user,item", "user = user, item = item"),
        ("userId,movieId", "user = userId, item = movieId"),
        ("Customer ID,Product-ID", "user = Customer ID, item = Product-ID"),
        ("sku,visitor_id", "user = visitor_id, item = sku"),
        ("reviewerID,asin", "user = reviewerID, item = asin"),
        ("uid,user_id,user,item", "user = user, item = item"),
        ("User,user,item", "user = user, item = item"),
        ("user_id,userId,item", "user = user_id, item = item"),
    ],
)
def test_columns_are_recognised_by_name(write, header, taken):
    said: list[str] = []
    n = header.count(",") + 1
    path = write(f"{header}\n{','.join('1' * n)}\n{','.join('2' * n)}\n")
    read_log(path, say=said.append)
    assert said == [f"{path}: {taken}; every row is a click; 2 rows: 2 clicks"]


@pytest.mark.parametrize(
    ("source", "user", "item"),
    [
        ({"user": [1, 2], "item": [1, 2], "buyer": [7, 8], "thing": ["a", "b"]}, "buyer", "thing"),
        (pl.DataFrame({"^.*$": [7, 8], "*": ["a", "b"], "c": [5, 6]}), "^.*$", "*"),
        (pd.DataFrame([[7, "a"], [8, "b"]]), "0", "1"),
    ],
    ids=["other names", "names like patterns", "names that are numbers"],
)
def test_columns_can_be_given(source, user, item):
    assert pairs(read_log(source, user=user, item=item, say=quiet)) == {(7, "a"): 1, (8, "b"): 1}


RATED = "customer,sku,stars\nada,x,5\nbob,y,4\nbob,x,3.9\ncy,z,0\n"


def test_a_click_is_a_rating_of_at_least_the_threshold(write):
    said: list[str] = []
    path = write(RATED)
    assert pairs(read_log(path, say=said.append)) == {("ada", "x"): 1, ("bob", "y"): 1}
    assert said == [
        f"{path}: user = customer, item = sku, rating = stars; a click is stars ≥ 4; "
        "4 rows: 2 clicks, 2 dropped; threshold 4 is assumed: give threshold= (--threshold)"
    ]
    clicks = read_log(path, threshold=4.5, say=quiet)
    assert pairs(clicks) == {("ada", "x"): 1}
    assert ids(clicks.user_ids) == ["ada", "bob", "cy"]  # also those without a click
    assert ids(clicks.item_ids) == ["x", "y", "z"]
    assert len(read_log(path, threshold=0, say=quiet)) == 4


@pytest.mark.parametrize(
    "ratings",
    [
        [5, "4.1", " 3 "],
        pd.array([5, 4.1, 3], dtype="Float64"),
        np.array([5, 4.1, 3], dtype=np.float32),  # whose 4.1 is below 4.1 in double precision
        pl.Series(["5", "4.1", "3"], dtype=pl.Categorical),
        pl.Series(["5", "4.1", "3"]).cast(pl.Decimal(5, 1)),
    ],
    ids=str,
)
def test_ratings_may_be_of_any_type_that_reads_as_a_number(ratings):
    source = {"user": ["a", "b", "c"], "item": ["x", "y", "z"], "rating": ratings}
    clicks = read_log(source, threshold=4.1, say=quiet)
    assert pairs(clicks) == {("a", "x"): 1, ("b", "y"): 1}


@pytest.mark.parametrize("delimiter", [";", "|", "\t", r"\t", " "])
def test_any_delimiter_can_be_given(write, delimiter):
    path = write(CSV.replace(",", delimiter.replace(r"\t", "\t")))
    assert len(read_log(path, delimiter=delimiter, say=quiet)) == 3


@pytest.mark.parametrize(
    "text",
    [
        "user,item,,\na,x,,\nb,y,,\n",
        "user,item,note,time\na,x,n,1\nb,y\n",
        ",".join(["user", "item", *(f"c{n}" for n in range(9_000))]) + "\na,x\nb,y\n",
        "user,item\nb,y\n" + "a" * ((1 << 20) - 15) + "é,x\n",  # a character across two blocks
    ],
    ids=["columns without a name", "short rows", "many columns", "long"],
)
def test_odd_but_sound_files_are_read(write, text):
    assert len(read_log(write(text), say=quiet)) == 2


# Refusals


def test_a_path_that_cannot_be_read_is_refused(write, tmp_path, monkeypatch):
    assert "no such file" in refusal(tmp_path / "clicks.csv")
    assert "folder without Parquet, CSV, TSV or JSON lines" in refusal(tmp_path)
    assert "not a regular file" in refusal("/dev/null")
    with pytest.raises(InputError, match="no such file"):
        read_log("a\0b")
    with pytest.raises(InputError, match="File name too long"):
        read_log("a" * 300)

    def denied(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    path = write(CSV)
    monkeypatch.setattr(Path, "open", denied)  # a mode would not keep root out
    assert "permission" in refusal(path)


WIDE = ",".join(["user", "item", *(f"c{n}" for n in range(1_000_000))]) + "\na,b\n"
LONG = "x" * 1_000_000
REFUSED: dict[str, list[str | bytes]] = {
    "only blank lines: write a header": ["\n\n\r\n"],
    "no rows": ["user,item", "user,item,rating\r\n\r\n"],
    "delimiter=';' (--delimiter ';')": [CSV.replace(",", ";")],
    "delimiter='\\t' (--delimiter '\\t')": [CSV.replace(",", "\t")],
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
    "line 5: the id in column 'item' is missing; fill it in": [
        "\n\nuser,item\na,x\nb,\n",
        'user,item\n"a\n\nb",x\nb,\n',
    ],
    "line 2: byte 0x00": [b"user,item\na,\0\n"],
    "line 3: byte 0xc3": [b"user,item\na,x\nb,\xc3"],
    "line 300002: byte 0xff": [b"user,item\n" + b"a,x\n" * 300_000 + b"b,\xff\n"],
    "is not UTF-8 text; save the file as that": [CSV.encode("utf-16")],
    "name it .parquet if it is Parquet": [parquet_bytes(LOG)],
    "line 3: 4 fields, where the header has 3; quote a field": ["title,user,item\n\na,b,1,2\n"],
    "line 2: 4 fields, where the header has 3; quote a field": ['user,item,title\n"1\n",2,x,y\n'],
    "line 3: the quotes do not match": [
        *(f"user,item\nz,w\n{row}\nb,y\n" for row in ('"a,x', '"a"b,x', '5" disk,x', 'a,"x')),
        *(f"user,item\nz,w\nb,{field}\n" for field in ('"a" ', '"" ""', '"a""')),
        # polars would join these rows or fields
        'user,item,of\nz,y,x\n"a,b",11,tv 40"\n7,a,tv 40"\n9,b,c\n',
        'user,item,of\nz,y,x\n"33",tv 40","33"\n"33","","33"\n"z",tv 40",a\n',
        'user,item,of\nz,y,x\n"33",tv "50,tv "50\n',
        f'user,item\nz,y\n"{LONG}"b,x\n',
    ],
    "line 3: a carriage return stands alone; end lines in a newline": [
        f"user,item\nz,y\n{row}\n"  # polars drops some of these and keeps others
        for row in ("a\rb,x", "a\r,x", "\ra,x", "a,x\r\r")
    ],
    "end lines with a newline": [CSV.replace("\n", "\r")],
    "has 1,000,002 columns, 10,000 at most": [WIDE],
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


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"item": "itme"}, "did you mean 'item'?"),
        ({"rating": "rating"}, "rating= (--rating)"),
        ({"user": "user", "item": "user"}, "give two columns"),
        ({"rating": "user"}, "user= and rating= both name 'user'"),
        ({"rating": "count", "threshold": 6}, "count ≥ 6, and none is; lower threshold="),
        *(
            ({"delimiter": delimiter}, "must be one ASCII character")
            for delimiter in ("", ",,", '"', "\n", "é")
        ),
        *(
            ({"threshold": threshold}, "threshold must be a finite number of at least 0")
            for threshold in (float("nan"), float("inf"), -1)
        ),
        ({"threshold": 3}, "rating= (--rating)"),
    ],
)
def test_settings_that_do_not_fit_are_refused(write, settings, told):
    with pytest.raises(InputError, match=re.escape(told)):
        read_log(write("user,item,count\na,1,5\nb,2,4\n"), say=quiet, **settings)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        *((value, f"'{value}' is not a number; correct it") for value in ("4,5", "", "true")),
        ("x" * 100, f"'{'x' * 39}…' is not a number"),
        ("\x1b[31m", "'\\x1b[31m' is not a number"),
        *(
            (value, f"'{value}' is not a finite number of at least 0")
            for value in ("nan", "-inf", "-1", "1e999")
        ),
    ],
)
def test_a_bad_rating_is_refused_with_its_line(write, value, told):
    sentence = refusal(write(f'user,item,rating\na,x,5\n\n"b\n",y,"{value}"\n'))
    assert f"line 4: the rating {told}" in sentence


MISSING = [
    ["a", None],
    ["a", ""],
    [1.5, float("nan")],
    [(1,), None],
    pd.Series([(1,), pd.NA], dtype=object),
    pd.array([1, None], dtype="Int64"),
    pd.to_datetime(["2024-01-01", None]),
    pd.Categorical(["a", None]),
]


FRAMES = [
    *(
        (source, "the frame, row 1: the id in column")
        for column in MISSING
        for source in ({"user": column, "item": [1, 2]}, pd.DataFrame({"u": [1, 2], "i": column}))
    ),
    ({"user": [], "item": []}, "no rows"),
    ({"a": [1], "b": [2]}, "there is 'a', 'b'"),
    (pd.DataFrame([[1, 2, 3]], columns=["user", "user", "item"]), "two columns named 'user'"),
    ({"user": [1, 2], "item": [1]}, "differ in length"),
    ({"user": [1, 2], "item": [3, [4]]}, "row 1: the list in column 'item'"),
    (pl.DataFrame({"user": [1, 2], "item": [[3], [4]]}), "list"),
    *(
        ({"user": [1, 2], "item": [1, 2], "rating": [5, value]}, "the frame, row 1: the rating")
        for value in (None, "x", float("nan"), -1.0, DAYS[0])
    ),
    (sp.csr_array([[0, 2.5], [1, 0]]), "give threshold="),
    (sp.csr_array([[0, 2**40], [1, 0]]), "give threshold="),
    (sp.csr_array((3, 3)), "no click"),
    (sp.csr_array([[1, 2]]), "fewer than two users"),
    (sp.csr_array([[1j, 0], [0, 1]]), "real numbers"),
    *(
        (sp.csr_array([[0, 1.0], [value, 0]]), f"holds {value} in row 1, column 0")
        for value in (-1.0, np.nan)
    ),
]


@pytest.mark.parametrize(("source", "told"), FRAMES, ids=lambda part: str(part)[:30])
def test_a_bad_frame_or_matrix_is_refused_with_its_row(source, told):
    assert told in refusal(source)


@pytest.mark.parametrize("source", [None, [1, 2], b"clicks.csv"])
def test_a_source_without_columns_is_refused(source):
    with pytest.raises(InputError, match="give a path, a frame, a mapping of columns"):
        read_log(source)


def test_control_characters_in_names_are_escaped(write, caplog):
    with pytest.raises(InputError, match=re.escape("a\\n\\x1b[31m.csv has no rows")):
        read_log(write("user,item\n", "a\n\x1b[31m.csv"), say=quiet)
    with caplog.at_level("INFO", logger="unexposed"):  # which hears it without say=
        read_log({"u\nv": [1, 2], "item": [1, 2]}, user="u\nv")
    (said,) = caplog.messages
    assert said.startswith("the frame: user = u\\nv, item = item; every row is a click")


PARQUET, PACKED = parquet_bytes(LOG), packed(CSV.encode())


@pytest.mark.parametrize(
    ("name", "contents", "told"),
    [
        ("clicks.csv", [b""], "is empty"),
        ("clicks.parquet", [b""], "is empty"),
        ("clicks.parquet", [PARQUET[:-1], b"PAR1", CSV.encode()], "may be damaged"),
        ("clicks.csv.gz", [PACKED[:-1], PACKED[:12], PACKED + b"more"], "may be damaged"),
        (
            "clicks.parquet",
            [parquet_bytes({"user": ["a", "b"], "item": [1, None]})],
            "row 1: the id in column 'item'",
        ),
    ],
)
def test_a_bad_file_is_refused(write, name, contents, told):
    for content in contents:
        assert told in refusal(write(content, name))


def test_a_changed_or_missing_byte_of_a_gzip_file_is_noticed(write):
    for at in range(10, len(PACKED)):  # after the header, where every bit counts
        flipped = PACKED[:at] + bytes([PACKED[at] ^ 0x55]) + PACKED[at + 1 :]
        refusal(write(flipped, "clicks.csv.gz"))
        refusal(write(PACKED[:at], "clicks.csv.gz"))


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


LINE_ENDS_OF_OTHERS = ["\u2028", "\x85", "\x0b", "\x0c", "\x1c"]  # to str.splitlines, not to CSV
QUOTED = ['"', '""', '"a"', '","', '\n"', '",', "'", "\\", 'tv 40"', 'tv "50', 'a "b" c', '"33",']
PLAIN = [*"ab78,,\n;|\t #é<>", "\r", "\r\n", ",,", "😀", "שלום", "\ufeff", "user", "item"]
pieces = st.sampled_from([*LINE_ENDS_OF_OTHERS, *QUOTED, *PLAIN, "\nu,i\n", "x" * 200])
rows_of_text = st.lists(pieces, max_size=14).map("".join)


odd_bytes = st.lists(st.sampled_from([*b'1a,\n"\r \0\xff\xc3\xa9\x1f\x8b']), max_size=30).map(bytes)


def check_by_the_csv_module(path: Path, content: bytes, delimiter: str = ",") -> str | None:
    """Check that the clicks of a file are those of the csv module, or return the refusal."""
    try:
        clicks = read_log(path, say=quiet)
    except InputError as error:
        return str(error)
    found = {(str(user), str(item)): n for (user, item), n in pairs(clicks).items()}
    assert found == read_by_the_csv_module(content, ["user", "item"], delimiter)
    return None


@settings(max_examples=600)
@given(
    body=rows_of_text.map(str.encode) | odd_bytes,
    start=st.sampled_from(["", "\ufeff"]),
    header=st.sampled_from(["user,item\n", "user,item\r\n", "user,item,title\n"]),
)
@example(body=b'"33",a,tv 40"\n' * 2, start="", header="user,item,title\n")
def test_any_text_is_refused_or_read_as_the_csv_module_reads_it(folder, body, start, header):
    content = f"{start}{header}z,y\n".encode() + body
    (folder / "any.csv").write_bytes(content)
    refused = check_by_the_csv_module(folder / "any.csv", content)
    assert refused is None or refused.isprintable()


awkward = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=5
) | st.sampled_from(
    [" ", "NA", "null", "nan", '""', "<b>x</b>", "0", "007", "=1+1", "#c", "\ufeff", 'a,"\n']
)


@settings(max_examples=200)
@given(
    rows=st.lists(st.tuples(awkward, awkward), min_size=3, max_size=6),
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
    (folder / name).write_bytes(packed(bytes(content)) if name.endswith("gz") else content)
    refused = check_by_the_csv_module(folder / name, bytes(content), delimiter)
    several = all(len(set(side)) > 1 for side in zip(*rows, strict=True))
    assert edits or not several or refused is None


def test_a_large_file_with_quoted_line_ends_and_long_ids_comes_back(folder):
    long = ["x" * 1_000_000, 'é"' * 500_000, "a\n" * 500_000]
    rows = [(f"{n}\n{n % 7}", '"\r\n,' + str(n % 11)) for n in range(60_000)]
    rows += [(text, text) for text in long]
    with (folder / "large.csv").open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([("user", "item"), *rows])
    assert pairs(read_log(folder / "large.csv", say=quiet)) == Counter(rows)
    assert csv.field_size_limit() == 131072  # the caller's csv module is left alone


# Judgements


@pytest.fixture
def trained() -> Clicks:
    """Training on users 1, 2, 10 and items a, b, 007."""
    return read_log({"user": [10, 2, 1], "item": ["b", "a", "007"]}, say=quiet)


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
        *(
            (f"item,user,{column}\na,10,{yes}\nb,2,{no}\n", None, FIRST, f"{column} = 1")
            for column, yes, no in (
                ("relevance", "1", "0"),
                ("Relevant", "TRUE", " false"),
                ("label", "1.0", "0.0"),
            )
        ),
        (RATED_PAIRS, None, FIRST, "rating ≥ 4"),
        (RATED_PAIRS, 3, dict.fromkeys(FIRST, True), "rating ≥ 3"),
        (BOTH, None, {(10, "a"): False, (2, "b"): True}, "label = 1"),
        (BOTH, 4, FIRST, "rating ≥ 4"),
        ("user,item,label\n10,a,1\n2,b,0\n", 3, FIRST, "label = 1"),
    ],
)
def test_relevance_goes_before_a_rating_unless_a_threshold_is_given(
    write, trained, text, threshold, expected, rule
):
    path, said = write(text, "judged.csv"), list[str]()
    judgements = read_judged(path, trained, threshold=threshold, say=said.append)
    assert judged(judgements) == expected
    assert judgements.user_ids is trained.user_ids
    assert said == [f"{path}: user = user, item = item, relevant is {rule}"]


def test_unknown_users_and_items_are_left_out_and_counted(write, trained):
    rows = ["10,a,1", "99,a,1", "99,b,0", "98,z,1", "2,z,1", "2,y,0", "2,7,1"]
    path = write("user,item,label\n" + "\n".join(rows), "judged.csv")
    said: list[str] = []
    judgements = read_judged(path, trained, say=said.append)
    assert judged(judgements) == {(10, "a"): True}
    left_out = f"{path}: left out 6 of 7 judged pairs: 2 unknown users, 3 unknown items"
    assert said[1:] == [left_out]


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
    trained = read_log({"user": raw, "item": raw}, say=quiet)
    source = {"user": [texts[0]], "item": [texts[1]], "label": [True]}
    assert judged(read_judged(source, trained, say=quiet)) == {(raw[0], raw[1]): True}


@pytest.mark.parametrize(
    ("text", "settings", "told"),
    [
        *(
            (
                f"user,item,label\n10,a,1\n2,b,{value}\n",
                {},
                f"line 3: the label '{value}' is not 0 or 1; if it rates, give rating='label' "
                "(--rating) and a threshold",
            )
            for value in ("2", "0.5", "yes", "", "nan")
        ),
        ("user,item\n10,a\n", {}, "name it with relevance=, or a rating with rating= (--rating)"),
        (
            "user,item,label\n99,a,1\n10,z,1\n",
            {},
            "left out 2 of 2 judged pairs: 1 unknown users, 1 unknown items; "
            "judge users and items of the training log",
        ),
        (BOTH, {"relevance": "label", "threshold": 4}, "give one or the other"),
    ],
)
def test_bad_judgements_are_refused(write, trained, text, settings, told):
    with pytest.raises(InputError, match=re.escape(told)):
        read_judged(write(text, "judged.csv"), trained, say=quiet, **settings)


def test_a_matrix_of_judgements_keeps_its_explicit_zeros():
    trained = read_log(sp.csr_array([[1, 0], [0, 1]]))
    for values, threshold in (([1, 0], None), ([5, 3], 4)):
        matrix = sp.coo_array((values, ([0, 1], [1, 0])), shape=(2, 2))
        judgements = read_judged(matrix, trained, threshold=threshold, say=quiet)
        assert judged(judgements) == {(0, 1): True, (1, 0): False}


# Lists of ids


@pytest.mark.parametrize(
    ("text", "like", "expected"),
    [
        ("\ufeff10\r\n\n  \n2\n007\n-3", Ids.of([2, 10]), [10, 2, "007", -3]),
        ("10\n2\n", Ids.of(["a"]), ["10", "2"]),
        ("2024-01-01\na,b\n1.5\n", Ids.of([1.5, DAYS[0], "a,b"]), [DAYS[0], "a,b", 1.5]),
        # only look like integers
        *((text, Ids.of([1, 2]), [text]) for text in ("--5", "-", "9" * 5000, "٣", "1_0")),
    ],
)
def test_ids_are_read_one_a_line_with_the_types_of_the_known_ids(write, text, like, expected):
    assert read_ids(write(text, "users.txt"), like) == expected


@pytest.mark.parametrize(("text", "told"), [(" \n\n", "holds no ids"), ("1\n\0", "line 2: byte 0")])
def test_a_list_of_ids_is_refused_like_a_log(write, text, told):
    assert told in refusal(write(text, "users.txt"), read=read_ids, like_ids=Ids.of([1]))
