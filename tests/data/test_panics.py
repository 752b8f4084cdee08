"""A damaged file is refused in our words alone: what polars prints of its panics is not seen."""

import io
import os
from contextlib import suppress
from pathlib import Path

import polars as pl
import pytest
from test_parquet import COLUMNS, WHOLE, N

from command import ended, unexposed
from unexposed.data.panics import without_panics
from unexposed.data.read import read_log
from unexposed.errors import InputError
from unexposed.methods import make

PANIC = "polars gives up on it"


def flipped(whole: bytes, at: int) -> bytes:
    damaged = bytearray(whole)
    damaged[at] ^= 1 << at % 8
    return bytes(damaged)


def outcome(path: Path) -> str:
    try:
        return f"read {len(read_log(path, say=lambda _: None))}"
    except InputError as error:
        return str(error)


@pytest.fixture(scope="module")
def panicking(tmp_path_factory) -> bytes:
    """The first file with one bit changed that polars panics at."""
    path = tmp_path_factory.mktemp("panic") / "log.parquet"
    buffer = io.BytesIO()
    table = pl.DataFrame({**COLUMNS, "rating": [n % 5 for n in range(N)]})
    table.write_parquet(buffer, data_page_size=64, statistics="full")
    whole = buffer.getvalue()
    for at in range(len(whole)):
        path.write_bytes(flipped(whole, at))
        if PANIC in outcome(path):
            return path.read_bytes()
    raise AssertionError("polars panics no more: this file of tests can go")


def test_one_bit_changed_anywhere_prints_nothing(tmp_path, capfd):
    path = tmp_path / "log.parquet"
    seen = set()
    for name, whole in WHOLE.items():
        for at in range(0, len(whole), 9 if name == "arrow, plain" else 97):
            path.write_bytes(flipped(whole, at))
            seen.add(outcome(path).partition("(")[2])
    assert any(PANIC in sentence for sentence in seen)
    assert capfd.readouterr() == ("", "")


COMMANDS = [
    "fit bad.parquet --method popularity --out other",
    "update model bad.parquet --out other",
    "recommend model --new-clicks bad.parquet",
    "recommend model --candidates bad.parquet",
    "evaluate model --judged bad.parquet",
    "compare --train bad.parquet --judged good.csv --methods popularity",
    "compare --train good.csv --judged bad.parquet --methods popularity",
    "tune --train bad.parquet --methods mf --out other",
    "report model --titles bad.parquet --title user --out other.html",
    "report model --judged bad.parquet --out other.html",
]


@pytest.fixture
def here(tmp_path, monkeypatch, panicking) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("bad.parquet").write_bytes(panicking)
    Path("whole.parquet").write_bytes(WHOLE["polars"])
    log = read_log("whole.parquet", say=lambda _: None)
    pl.read_parquet("whole.parquet").with_columns(rating=5).write_csv("good.csv")
    make("popularity").fit(log).save("model")
    return tmp_path


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_refuses_it_in_one_sentence(here, words, capfd):
    before = sorted(here.rglob("*"))
    code = ended(*words.split())
    out, err = capfd.readouterr()
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"error: bad.parquet cannot be read ({PANIC})")
    assert "panicked" not in err
    assert sorted(here.rglob("*")) == before


@pytest.mark.parametrize("damage", ["bit", "cut", "foreign", "empty"])
def test_a_process_of_its_own_shows_our_lines_only(here, damage, panicking):
    damaged = {"bit": panicking, "cut": panicking[:-99], "foreign": b"PAR1" + b"x" * 99 + b"PAR1"}
    Path("bad.parquet").write_bytes(damaged.get(damage, b""))
    done = unexposed(*COMMANDS[0].split())
    assert done.returncode == 2
    *before, last = done.stderr.splitlines()
    assert last.startswith("error: bad.parquet ")
    assert all(line.startswith("bad.parquet: user = user") for line in before)


def test_what_is_written_meanwhile_is_shown_where_all_goes_well(capfd):
    with without_panics():
        os.write(2, b"a warning\n")
        assert capfd.readouterr().err == ""
    assert capfd.readouterr().err == "a warning\n"


def test_standard_error_is_given_back_after_an_error(capfd):
    with suppress(InputError), without_panics():
        os.write(2, b"panicked")
        raise InputError("told")
    os.write(2, b"later")
    assert capfd.readouterr().err == "later"
