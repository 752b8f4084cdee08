"""A damaged Parquet file is refused with one sentence, though polars would abort or panic at it."""

import io
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from command import ended
from unexposed.data import parquet
from unexposed.data.clicks import Clicks
from unexposed.data.log import read_log
from unexposed.errors import InputError

N = 500
COLUMNS = {"user": [f"u{n % 7}" for n in range(N)], "item": list(range(N))}
COUNT = bytes([0xE8, 0x07])  # N as a page header holds it: zigzag, seven bits a byte


def by_arrow(**options: object) -> bytes:
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
    "polars, small pages": by_polars(data_page_size=64, statistics="full"),
    "arrow": by_arrow(),
    "arrow, second version": by_arrow(data_page_version="2.0", compression="zstd"),
    "arrow, with an index": by_arrow(write_page_index=True, write_page_checksum=True),
}


def negative_counts(whole: bytes) -> list[bytes]:
    """The file with each count of N values in turn made negative, by its last bit."""
    places = [at for at in range(len(whole) - 8) if whole[at:].startswith(COUNT)]
    return [whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in places]


def aborting() -> bytes:
    """A file that ends polars with signal 6."""
    return negative_counts(WHOLE["polars, no compression"])[0]


def outcome(path: Path) -> Clicks | str:
    try:
        return read_log(path, say=lambda _: None)
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("name", WHOLE)
def test_sound_files_of_every_make_are_read(name, tmp_path):
    path = tmp_path / "clicks.parquet"
    path.write_bytes(WHOLE[name])
    assert len(read_log(path, say=lambda _: None)) == N


@pytest.mark.parametrize("name", ["polars, no compression", "arrow"])
def test_a_negative_count_is_refused_and_the_process_lives(name, tmp_path, capfd):
    path = tmp_path / "clicks.parquet"
    outcomes = []
    for damaged in negative_counts(WHOLE[name]):
        path.write_bytes(damaged)
        outcomes.append(outcome(path))
    aborts = [o for o in outcomes if isinstance(o, str) and "polars gives up on it" in o]
    assert aborts
    assert all("clicks.parquet cannot be read (polars gives up on it)" in o for o in aborts)
    assert capfd.readouterr() == ("", "")


def test_a_command_refuses_it_with_one_sentence_and_leaves_nothing(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    Path("bad.parquet").write_bytes(aborting())
    assert ended(*"fit bad.parquet --method popularity --out other".split()) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("error: bad.parquet cannot be read (polars gives up")
    assert "panicked" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["bad.parquet"]


def test_the_trial_has_a_limit_on_time(tmp_path, monkeypatch):
    (tmp_path / "bad.parquet").write_bytes(aborting())
    monkeypatch.setattr(parquet, "SECONDS", 0)
    monkeypatch.setattr(parquet, "BYTES_A_SECOND", 1e15)
    assert "it takes more than 0 s" in str(outcome(tmp_path / "bad.parquet"))
