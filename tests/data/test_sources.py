"""Every source of a log gives the same clicks, bit for bit, or one sentence that refuses it."""

import datetime
import gzip
import io
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp

from reading import log, pairs, refusal
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids

N, PER_PART = 240, 50
RNG = np.random.default_rng(5)
LOG = pl.DataFrame(
    {
        "user_id": RNG.integers(-3, 30, N),
        "item_id": [f"é{n}" for n in RNG.integers(0, 40, N)],
        "clicked": RNG.integers(0, 2, N),
        "plays": RNG.integers(1, 9, N),
        "ts": RNG.integers(1_700_000_000, 1_700_900_000, N),
        "pscore": RNG.integers(1, 64, N) / 64,  # exact in every format
        "note": ["a,b"] * N,
    }
)
PARTS = [LOG[n : n + PER_PART] for n in range(0, N, PER_PART)]


def assert_same_ids(one: Ids, other: Ids) -> None:
    assert one.values.dtype == other.values.dtype
    assert one.values.tolist() == other.values.tolist()


def assert_same(one: Clicks, other: Clicks) -> None:
    """Ids, pairs, counts, times and impressions are the same bits."""
    assert_same_ids(one.user_ids, other.user_ids)
    assert_same_ids(one.item_ids, other.item_ids)
    for name in ("users", "items", "counts", "times"):
        a, b = getattr(one, name), getattr(other, name)
        assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes())
    assert one.shown is not None
    assert other.shown is not None
    for name in ("users", "items", "shown", "clicked", "propensity"):
        a, b = getattr(one.shown, name), getattr(other.shown, name)
        assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes())
    read, same = one.read, other.read
    assert read is not None
    assert same is not None
    assert (read.columns, read.rule, read.rows) == (same.columns, same.rule, same.rows)


@pytest.fixture(scope="module")
def expected() -> Clicks:
    return log(LOG)


def piped(monkeypatch: pytest.MonkeyPatch, content: bytes) -> str:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    return "-"


def csv_bytes(**given: Any) -> bytes:
    return LOG.write_csv(**given).encode()


def parquet_bytes() -> bytes:
    stream = io.BytesIO()
    LOG.write_parquet(stream)
    return stream.getvalue()


def json_lines() -> bytes:
    return "".join(json.dumps(row) + "\n" for row in LOG.to_dicts()).encode()


FILES = {
    "log.csv": csv_bytes,
    "log.tsv": lambda: csv_bytes(separator="\t"),
    "log.csv.gz": lambda: gzip.compress(csv_bytes()),
    "log.parquet": parquet_bytes,
    "log.jsonl": json_lines,
    "log.NDJSON": json_lines,
    "log.ndjson.gz": lambda: gzip.compress(json_lines()),
}


@pytest.mark.parametrize("name", FILES)
def test_every_kind_of_file_and_the_same_through_a_pipe(tmp_path, monkeypatch, expected, name):
    (tmp_path / name).write_bytes(FILES[name]())
    assert_same(log(tmp_path / name), expected)
    more = {"delimiter": "\t"} if name.endswith("tsv") else {}
    through = log(piped(monkeypatch, FILES[name]()), **more)
    assert_same(through, expected)
    assert str(through.read).startswith("standard input: ")


@pytest.mark.parametrize("suffix", ["parquet", "csv", "jsonl"])
def test_a_folder_or_pattern_of_parts_is_the_log_in_the_order_of_their_names(
    tmp_path, expected, suffix
):
    for n, part in enumerate(PARTS):
        path = tmp_path / f"part-{n:03}.{suffix}"
        write = {"parquet": part.write_parquet, "csv": part.write_csv, "jsonl": part.write_ndjson}
        write[suffix](path)
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".part-000.crc").write_text("?")
    for source in (tmp_path, f"{tmp_path}/*.{suffix}", tmp_path / "part-[0-9]*"):
        found = log(source)
        assert_same(found, expected)
        assert str(found.read).startswith(f"{source}: ")


def test_folders_may_name_columns(tmp_path, expected):
    """Users, the type of whose ids is told by all parts together, and times."""
    rows = LOG.with_row_index("at").with_columns(
        day=pl.from_epoch(pl.lit(1_700_000_000) + pl.col("at") * 3600).dt.strftime("%Y-%m-%d")
    )
    for (user, day), part in rows.group_by("user_id", "day", maintain_order=True):
        folder = tmp_path / f"user_id={user}" / f"day={day}"
        folder.mkdir(parents=True)
        part.drop("user_id", "day").write_parquet(folder / "part.parquet")
    found = log(tmp_path, time="day")
    assert_same_ids(found.user_ids, expected.user_ids)
    assert found.users.tobytes() == expected.users.tobytes()
    assert found.counts.tobytes() == expected.counts.tobytes()
    assert "day is in dates, 2023-11-14 … 2023-11-24" in str(found.read)


FRAMES = {
    "polars": lambda: LOG,
    "polars, lazy": LOG.lazy,
    "polars, categories": lambda: LOG.with_columns(pl.col("item_id").cast(pl.Categorical)),
    "pandas": LOG.to_pandas,
    "pandas, categories": lambda: LOG.to_pandas().astype({"item_id": "category"}),
    "arrow": LOG.to_arrow,
    "arrow, batches": lambda: pa.RecordBatchReader.from_batches(
        LOG.to_arrow().schema, LOG.to_arrow().to_batches(max_chunksize=17)
    ),
    "mapping of lists": lambda: LOG.to_dict(as_series=False),
    "mapping of numpy": lambda: {name: LOG[name].to_numpy() for name in LOG.columns},
    "mapping of pandas": lambda: {name: pd.Series(LOG[name].to_list()) for name in LOG.columns},
    "mapping of arrow": lambda: {name: LOG[name].to_arrow() for name in LOG.columns},
}


@pytest.mark.parametrize("name", FRAMES)
def test_every_kind_of_frame(expected, name):
    assert_same(log(FRAMES[name]()), expected)


def test_a_relation_of_duckdb(expected, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    LOG.write_parquet(tmp_path / "log.parquet")
    relation = duckdb.sql(f"SELECT * FROM '{tmp_path}/log.parquet'")
    assert_same(log(relation), expected)


def test_a_sparse_matrix_holds_counts_or_ratings_over_its_full_shape():
    matrix = sp.coo_array(([2, 1, 0, 1], ([0, 0, 1, 2], [1, 1, 0, 0])), shape=(3, 3))
    clicks = log(matrix)
    assert pairs(clicks) == {(0, 1): 3, (2, 0): 1}  # repeats add up, an explicit zero is no click
    assert clicks.user_ids.values.tolist() == clicks.item_ids.values.tolist() == [0, 1, 2]
    assert pairs(log(matrix, threshold=3)) == {(0, 1): 1}
    assert matrix.nnz == 4  # the caller's matrix is left alone


def test_reading_needs_neither_pandas_nor_pyarrow_nor_torch():
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['pandas', 'pyarrow', 'torch']))\n"  # import raises
        "from unexposed.data.log import read_log\n"
        "read_log({'user': [1, 2], 'item': ['a', 'b']})"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Ids

DAYS = [datetime.date(2024, 1, 1), datetime.date(2024, 2, 1)]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (["7", "10"], ["10", "7"]),  # strings of a frame stay strings
        ([np.int16(3), 2], [2, 3]),
        ([(2, "a"), (3, "a"), (1, "b")], [(1, "b"), (2, "a"), (3, "a")]),
        ([("b",), 7, "a"], [("b",), 7, "a"]),  # cannot be compared: in order of appearance
        ([2**70, 5], [5, 2**70]),
        (["\ud800", "a"], ["a", "\ud800"]),  # a lone surrogate cannot be encoded as UTF-8
        (pl.Series([2.5, 1.0]), [1.0, 2.5]),
        (pl.Series([True, False]), [False, True]),
        (pl.Series([2**64 - 1, 1], dtype=pl.UInt64), [1, 2**64 - 1]),
        (pl.Series(["b", "a"], dtype=pl.Enum(["b", "a"])), ["a", "b"]),
        (pl.Series(DAYS[::-1]), DAYS),
        (pd.array([2, 1], dtype="Int64"), [1, 2]),
        (pd.Categorical([2, 1]), [1, 2]),
        (np.array([2, 1], dtype=np.uint16), [1, 2]),
    ],
    ids=str,
)
def test_raw_ids_of_any_hashable_type_come_back(tmp_path, raw, expected):
    columns = {"user": raw, "item": list(range(len(raw)))}
    sources: list[Any] = [columns]
    if isinstance(raw, pl.Series):
        sources.append(tmp_path / "typed.parquet")
        pl.DataFrame(columns).write_parquet(sources[1])
    elif isinstance(raw, list):
        objects = np.fromiter(raw, dtype=object, count=len(raw))
        sources.append(pd.DataFrame({**columns, "user": pd.Series(objects, dtype=object)}))
    for source in sources:
        clicks = log(source)
        assert clicks.user_ids.values.tolist() == expected
        assert clicks.user_ids.are_integers == all(type(one) is int for one in expected) or (
            max(map(abs, expected)) > 2**63
        )
        assert pairs(clicks) == {(r, n): 1 for n, r in enumerate(raw)}


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
FRAMES_REFUSED = [
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
    (sp.csr_array([[0, 2.5], [1, 0]]), "give threshold="),
    (sp.csr_array([[0, 2**40], [1, 0]]), "give threshold="),
    (sp.csr_array((3, 3)), "no click"),
    (sp.csr_array([[1, 2]]), "fewer than two users"),
    (sp.csr_array([[1j, 0], [0, 1]]), "real numbers"),
    (sp.csr_array([[0, 1.0], [np.nan, 0]]), "holds nan in row 1, column 0"),
    *((source, "give a path, a frame, a mapping") for source in (None, [1, 2], b"clicks.csv")),
]


@pytest.mark.parametrize(("source", "told"), FRAMES_REFUSED, ids=lambda part: str(part)[:30])
def test_a_bad_frame_or_matrix_is_refused_with_its_row(source, told):
    assert told in refusal(source)


# Parts that do not fit together


@pytest.mark.parametrize(
    ("second", "told"),
    [
        ({"user": [1, 2]}, "b.csv has no column 'item', which "),
        ({"user": [1, None], "item": [3, 4]}, "b.csv, line 3: the id in column 'user' is missing"),
    ],
)
def test_a_bad_part_is_refused_by_its_name(tmp_path, second, told):
    (tmp_path / "a.csv").write_text("user,item\n1,2\n2,3\n")
    pl.DataFrame(second).write_csv(tmp_path / "b.csv")
    assert told in refusal(tmp_path)


def test_what_is_no_log_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "no such file" in refusal(tmp_path / "clicks.csv")
    assert "folder without Parquet, CSV, TSV or JSON lines" in refusal(tmp_path)
    assert "not a regular file" in refusal("/dev/null")
    for path, told in (("a\0b", "no such file"), ("a" * 300, "File name too long")):
        assert told in refusal(path)
    (tmp_path / "nothing.csv").touch()
    assert "nothing.csv is empty" in refusal("nothing.csv")
    Path("nothing.csv").unlink()
    for content in (parquet_bytes()[:-1], b"PAR1", b"user,item"):
        (tmp_path / "bad.parquet").write_bytes(content)
        assert "may be damaged" in refusal(tmp_path / "bad.parquet")
    Path("bad.parquet").unlink()
    for delimiter in ("", ",,", '"', "\n", "é"):
        assert "must be one ASCII character" in refusal("a.csv", delimiter=delimiter)
    assert "no*.csv finds no file; relative paths start at" in refusal("no*.csv")
    (tmp_path / "a.csv").write_text("user,item\n1,2\n")
    (tmp_path / "b.parquet").write_bytes(parquet_bytes())
    assert "files of several kinds (b.parquet and a.csv)" in refusal(tmp_path)
    assert "standard input is empty" in refusal(piped(monkeypatch, b""))
    assert "standard input, line 3: the id" in refusal(piped(monkeypatch, b"user,item\n1,2\n3,\n"))
    assert "query= (--query) asks a database" in refusal("a.csv", query="SELECT 1")


# JSON lines


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("{", "line 3 is not JSON ("),
        ("[" * 100_000, "line 3 is not JSON ("),
        ("[1, 2]", "line 3 holds no object"),
        ('{"user": 1}', "line 3: the id in column 'item' is missing"),
        ('{"user": 1, "item": [1]}', "line 3: the list in column 'item' cannot be an id"),
        ('{"user": 1, "item": "\xff"}', "line 3: byte 0xff"),
    ],
    ids=["open", "deep", "list", "missing", "list id", "bytes"],
)
def test_a_bad_line_of_json_is_refused(tmp_path, line, told):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"user": 1, "item": 2}\n\n' + line.encode("latin-1") + b"\n")
    assert told in refusal(path)


def test_json_ids_of_any_type_come_back(tmp_path):
    path = tmp_path / "log.jsonl"
    rows = [(7, "a"), ("7", "b"), (2**70, "\ud800")]
    path.write_text("".join(json.dumps({"user": u, "item": i}) + "\n" for u, i in rows))
    found = log(path)
    assert found.user_ids.values.tolist() == [7, "7", 2**70]
    assert found.item_ids.values.tolist() == ["a", "b", "\ud800"]


# Databases


def sqlite(path: Path) -> None:
    LOG.write_csv(path.with_suffix(".csv"))
    with sqlite3.connect(path) as database:
        database.execute(
            "CREATE TABLE log (user_id INTEGER, item_id TEXT, clicked INTEGER, plays INTEGER, "
            "ts INTEGER, pscore REAL, note TEXT)"
        )
        database.executemany("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?)", LOG.rows())
    database.close()


def test_a_query_of_sqlite(tmp_path, monkeypatch, expected):
    pytest.importorskip("adbc_driver_sqlite")
    monkeypatch.chdir(tmp_path)
    sqlite(tmp_path / "a shop?.db")
    for address in ("sqlite:///a shop?.db", f"sqlite:///{tmp_path}/a shop?.db"):
        found = log(address, query="SELECT * FROM log ORDER BY rowid")
        assert_same(found, expected)
    for query, told in (
        ("SELECT * FROM logs", "no such table: logs"),
        ("SELECT user_id FROM log", "has no item column"),
        ("DELETE FROM log", "readonly"),
    ):
        assert told in refusal("sqlite:///a shop?.db", query=query)
    assert "give query= (--query)" in refusal("sqlite:///a shop?.db")
    assert "no such file" in refusal("sqlite:///other.db", query="SELECT 1")
    assert not Path("other.db").exists()


def test_an_unknown_database_and_a_missing_driver_are_refused(monkeypatch):
    assert "no driver for 'mysql'" in refusal("mysql://me:secret@host/shop", query="SELECT 1")
    assert "secret" not in refusal("mysql://me:secret@host/shop", query="SELECT 1")
    monkeypatch.setitem(sys.modules, "adbc_driver_postgresql", None)
    said = refusal("postgresql://me:secret@host/shop", query="SELECT 1")
    assert said == (
        "this needs adbc_driver_postgresql: pip install '.[sql]' in the checkout of unexposed"
    )
