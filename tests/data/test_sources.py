"""Every source of a log gives the same clicks, bit for bit, or one sentence that refuses it."""

import gzip
import io
import json
import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.judged import read_judged, read_pairs
from unexposed.data.log import read_log
from unexposed.errors import InputError

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


def log(source: Any, **given: Any) -> Clicks:
    return read_log(source, say=lambda _: None, **given)


def refusal(source: Any, **given: Any) -> str:
    with pytest.raises(InputError) as caught:
        log(source, **given)
    assert str(caught.value).isprintable()
    return str(caught.value)


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
    "pandas": LOG.to_pandas,
    "arrow": LOG.to_arrow,
    "arrow, batches": lambda: pa.RecordBatchReader.from_batches(
        LOG.to_arrow().schema, LOG.to_arrow().to_batches(max_chunksize=17)
    ),
    "mapping": lambda: LOG.to_dict(as_series=False),
}


@pytest.mark.parametrize("name", FRAMES)
def test_every_kind_of_frame(expected, name):
    assert_same(log(FRAMES[name]()), expected)


def test_a_relation_of_duckdb(expected, tmp_path):
    duckdb = pytest.importorskip("duckdb")
    LOG.write_parquet(tmp_path / "log.parquet")
    relation = duckdb.sql(f"SELECT * FROM '{tmp_path}/log.parquet'")
    assert_same(log(relation), expected)


def test_a_relation_of_an_older_duckdb(expected):
    class Relation:
        def fetch_arrow_table(self) -> pa.Table:
            return LOG.to_arrow()

    assert_same(log(Relation()), expected)


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


def test_ids_of_text_parts_are_integers_only_if_they_are_in_all_parts(tmp_path):
    (tmp_path / "a.csv").write_text("user,item\n7,1\n8,1\n")
    (tmp_path / "b.csv").write_text("user,item\n007,2\n8,1\n")
    found = log(tmp_path)
    assert found.user_ids.values.tolist() == ["007", "7", "8"]
    assert found.item_ids.values.tolist() == [1, 2]
    assert found.counts.tolist() == [1, 1, 2]


def test_parquet_parts_with_ids_of_two_kinds_are_refused(tmp_path):
    pl.DataFrame({"user": [1, 2], "item": [1, 2]}).write_parquet(tmp_path / "a.parquet")
    pl.DataFrame({"user": ["1", "2"], "item": [1, 2]}).write_parquet(tmp_path / "b.parquet")
    said = refusal(tmp_path)
    assert "column 'user' holds integers in" in said
    assert "write it alike in all parts" in said


def test_a_part_without_rows_changes_nothing(tmp_path):
    pl.DataFrame({"user": [1, 2], "item": [1, 2]}).write_parquet(tmp_path / "a.parquet")
    empty = pl.DataFrame({"user": [], "item": []}, schema={"user": pl.String, "item": pl.Null})
    empty.write_parquet(tmp_path / "b.parquet")
    assert log(tmp_path).user_ids.values.tolist() == [1, 2]


def test_a_damaged_part_is_refused_by_its_name_and_one_process_tries_all(tmp_path, monkeypatch):
    from unexposed.data import parquet

    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(
        parquet.subprocess, "Popen", lambda *a, **k: started.append(a) or popen(*a, **k)
    )
    for n, part in enumerate(PARTS):
        part.write_parquet(tmp_path / f"{n}.parquet", compression="uncompressed")
    log(tmp_path)
    assert len(started) == 1
    whole = (tmp_path / "3.parquet").read_bytes()
    (tmp_path / "3.parquet").write_bytes(whole[:-30])
    assert f"{tmp_path / '3.parquet'} cannot be read" in refusal(tmp_path)


def test_what_is_no_log_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "no*.csv finds no file; relative paths start at" in refusal("no*.csv")
    (tmp_path / "a.csv").write_text("user,item\n1,2\n")
    (tmp_path / "b.parquet").write_bytes(parquet_bytes())
    assert "files of several kinds (b.parquet and a.csv)" in refusal(tmp_path)
    assert "standard input is empty" in refusal(piped(monkeypatch, b""))
    assert "standard input, line 3: the id" in refusal(piped(monkeypatch, b"user,item\n1,2\n3,\n"))
    assert "query= (--query) asks a database" in refusal("a.csv", query="SELECT 1")


def test_judged_pairs_and_candidates_come_from_folders_too(tmp_path):
    (tmp_path / "a.csv").write_text("user,item,label\n7,x,1\n8,y,0\n")
    (tmp_path / "b.csv").write_text("user,item,label\n7,y,2\n")
    trained = log({"user": [7, 8], "item": ["x", "y"]})
    assert len(read_pairs(tmp_path, say=lambda _: None)) == 3
    with pytest.raises(InputError, match=re.escape(f"{tmp_path / 'b.csv'}, line 2: the label '2'")):
        read_judged(tmp_path, trained, say=lambda _: None)


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
