"""Pages that claim what cannot be are refused before polars believes them."""

import io
import re
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from command import unexposed
from unexposed.data.clicks import Clicks
from unexposed.data.parquet import impossible_page
from unexposed.data.read import read_log
from unexposed.errors import InputError

N = 500
COLUMNS = {"user": [f"u{n % 7}" for n in range(N)], "item": list(range(N))}
NAMES = list(COLUMNS)


def written(**options: object) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table(COLUMNS), buffer, **options)
    return buffer.getvalue()


def by_polars(**options: object) -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame(COLUMNS).write_parquet(buffer, **options)
    return buffer.getvalue()


WHOLE = {
    "polars": by_polars(),
    "polars, no compression": by_polars(compression="uncompressed"),
    "polars, many groups": by_polars(row_group_size=40),
    "polars, small pages": by_polars(data_page_size=64, statistics="full"),
    "arrow": written(),
    "arrow, second version": written(data_page_version="2.0", compression="zstd"),
    "arrow, plain": written(use_dictionary=False, data_page_size=64, write_batch_size=8),
    "arrow, with an index": written(write_page_index=True, write_page_checksum=True),
}


@pytest.mark.parametrize("name", WHOLE)
def test_sound_files_of_every_make_have_no_fault(name, tmp_path):
    path = tmp_path / "clicks.parquet"
    path.write_bytes(WHOLE[name])
    assert impossible_page(path, NAMES) is None
    assert len(read_log(path, say=lambda _: None)) == N


def test_columns_with_nulls_and_lists_have_no_fault(tmp_path):
    frame = pl.DataFrame({"user": [[1, 2], [], None], "item": [None, 1, None]})
    frame.write_parquet(tmp_path / "nested.parquet")
    assert impossible_page(tmp_path / "nested.parquet", NAMES) is None


def test_a_file_without_rows_has_no_fault(tmp_path):
    path = tmp_path / "empty.parquet"
    for options in ({}, {"use_dictionary": False}, {"data_page_version": "2.0"}):
        pq.write_table(pa.table(COLUMNS).slice(0, 0), path, **options)
        assert impossible_page(path, NAMES) is None
        with pytest.raises(InputError, match="has no rows"):
            read_log(path, say=lambda _: None)


def test_a_footer_that_cannot_be_read_is_refused_whatever_polars_makes_of_it(tmp_path):
    """polars looks past a wrong type, and then believes the counts that follow it."""
    whole = bytearray(WHOLE["polars"])
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    assert whole[footer] == 0x15  # the first field, an integer
    whole[footer] = 0x1E  # of a type that does not exist
    path = tmp_path / "clicks.parquet"
    path.write_bytes(whole)
    assert impossible_page(path, NAMES) == "its footer makes no sense"


def counts(whole: bytes, count: bytes) -> list[int]:
    """Where a page header of N values keeps that number."""
    return [at for at in range(len(whole) - 8) if whole[at : at + len(count)] == count]


@pytest.mark.parametrize("name", ["polars, no compression", "arrow", "arrow, second version"])
def test_a_count_that_cannot_be_is_refused_and_the_process_lives(name, tmp_path):
    """Before this check, a negative count ended the process inside polars."""
    whole = WHOLE[name]
    count = bytes([0xE8, 0x07])  # zigzag: 500, seven bits a byte
    faults = set()
    for at in counts(whole, count):
        damaged = bytearray(whole)
        damaged[at] ^= 1  # the sign: −501
        path = tmp_path / "clicks.parquet"
        path.write_bytes(damaged)
        if fault := impossible_page(path, NAMES):
            faults.add(fault)
            with pytest.raises(InputError, match="clicks.parquet .*damaged"):
                read_log(path, say=lambda _: None)
    assert "a page of a column of 500 values claims -501" in faults


def test_reading_a_damaged_count_ends_in_a_sentence_of_the_command(tmp_path):
    whole = bytearray(by_polars(compression="uncompressed", statistics=False))
    at = counts(bytes(whole), bytes([0xE8, 0x07]))[0]  # in the first page header
    whole[at] ^= 1
    (tmp_path / "clicks.parquet").write_bytes(whole)
    words = ["fit", "clicks.parquet", "--method", "popularity", "--out", "model"]
    done = unexposed(*words, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: clicks.parquet is damaged (")


def test_a_page_that_ends_beyond_the_file_is_refused(tmp_path):
    path = tmp_path / "clicks.parquet"
    whole = WHOLE["polars, no compression"]
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    path.write_bytes(whole[: -footer - 3000] + whole[-footer:])  # the last page lacks 3000 bytes
    fault = impossible_page(path, NAMES)
    assert fault is not None
    assert re.fullmatch("a page claims [0-9]+ bytes where [0-9]+ are left", fault)


def test_a_footer_too_long_to_be_read_here_is_left_to_polars(tmp_path, monkeypatch):
    monkeypatch.setattr("unexposed.data.parquet.MOST_FOOTER", 10)
    (tmp_path / "clicks.parquet").write_bytes(WHOLE["arrow"])
    assert impossible_page(tmp_path / "clicks.parquet", NAMES) is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parquet")


@settings(max_examples=150)
@given(
    whole=st.sampled_from(sorted(WHOLE)),
    edits=st.lists(
        st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=4), st.integers(0, 4)),
        min_size=1,
        max_size=4,
    ),
)
def test_a_file_with_bytes_changed_is_read_or_refused(folder, whole, edits) -> None:
    content = bytearray(WHOLE[whole])
    for where, new, removed in edits:
        at = int(where * len(content))
        content[at : at + removed] = new
    (folder / "fuzzed.parquet").write_bytes(content or b"x")
    try:
        outcome: object = read_log(folder / "fuzzed.parquet", say=lambda _: None)
    except InputError as error:
        outcome = str(error)
    assert isinstance(outcome, Clicks) or str(outcome).isprintable()
