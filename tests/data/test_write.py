"""Tables that come in parts, written as one file or not at all."""

import os
import subprocess

import numpy as np
import polars as pl
import pytest

from ctrl_c import interrupted
from unexposed.data.worlds.simulate import world
from unexposed.data.worlds.write import write_world
from unexposed.data.write import write_table, write_tables
from unexposed.errors import InputError

WATCHED = ("write.py", "files.py", "pathlib.py")
PARTS = [
    pl.DataFrame({"user": [f"ü{n}", "b,c"], "rank": [n, n + 1], "score": [n / 4, 2.5]})
    for n in range(12)
]


def read(path):
    if path.suffix == ".parquet":
        return pl.read_parquet(path)
    return pl.read_csv(path, separator="\t" if path.suffix == ".tsv" else ",")


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet"])
def test_parts_become_one_file_in_their_order(ending, tmp_path):
    path = tmp_path / "deep" / f"table.{ending}"
    assert write_tables(iter(PARTS), path) == 24
    assert read(path).equals(pl.concat(PARTS))
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_error_half_way_leaves_the_old_file_and_nothing_else(ending, tmp_path):
    def parts():
        yield from PARTS
        raise InputError("enough")

    path = tmp_path / f"table.{ending}"
    path.write_text("precious")
    with pytest.raises(InputError):
        write_tables(parts(), path)
    assert path.read_text() == "precious"
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a file left open
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_ctrl_c_after_any_call_leaves_one_file_and_nothing_else(ending, tmp_path):
    path = tmp_path / f"table.{ending}"
    for number in range(10_000):
        path.write_text("precious")
        was_whole = interrupted(lambda: write_tables(PARTS[:2], path), after=number, files=WATCHED)
        assert [p.name for p in tmp_path.iterdir()] == [path.name]
        if path.read_bytes() != b"precious":
            assert read(path).equals(pl.concat(PARTS[:2]))
        if was_whole:
            break
    assert was_whole
    assert number > 20


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 200 KB; skipped where none may be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(disk)]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk is not allowed here")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(ending, small_disk):
    table = pl.DataFrame({"x": np.random.default_rng(0).random(100_000)})
    path = small_disk / f"x.{ending}"
    with pytest.raises(InputError, match="cannot write .*: .*No space left on device"):
        write_tables([table, table], path)
    assert list(small_disk.iterdir()) == []


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_link_stays_a_link_and_a_pipe_is_written_to(ending, tmp_path):
    (tmp_path / "real").mkdir()
    link, pipe = tmp_path / f"link.{ending}", tmp_path / f"pipe.{ending}"
    real = tmp_path / "real" / f"table.{ending}"
    link.symlink_to(real)
    write_tables(PARTS, link)
    assert link.is_symlink()
    assert read(real).equals(pl.concat(PARTS))
    os.mkfifo(pipe)
    reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
    write_tables(PARTS, pipe)
    assert reader.communicate()[0] == real.read_bytes()
    assert pipe.is_fifo()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_ids_of_several_kinds_are_written_as_text(ending, tmp_path):
    users = pl.Series([1, "a", (2, "b")], dtype=pl.Object)
    write_table(
        pl.DataFrame({"user": users, "rank": [1, 2, 3]}), path := tmp_path / f"ids.{ending}"
    )
    assert read(path)["user"].to_list() == ["1", "a", "(2, 'b')"]


def test_a_world_replaces_a_world_and_no_other_file(tmp_path):
    (tmp_path / "notes.txt").write_text("of mine")
    write_world(world(30, 20, seed=0), tmp_path / "world", seed=0)
    write_world(other := world(31, 20, seed=1), tmp_path / "world", seed=0)
    assert len(pl.read_parquet(tmp_path / "world" / "truth.parquet")) == 31 * 20
    (tmp_path / "judged.csv").write_text("of mine")
    with pytest.raises(InputError, match="judged.csv is not what `simulate` left there; remove it"):
        write_world(other, tmp_path, seed=0)
    assert (tmp_path / "judged.csv").read_text() == "of mine"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a file left open
def test_a_world_that_was_interrupted_at_any_call_can_be_written_again(tmp_path):
    write_world(world(30, 25, seed=0), tmp_path, seed=0)
    for number in range(0, 10_000, 9):
        other = world(30, 25, seed=number + 1)
        traffic = 0.1 * (number % 2)  # the file of traffic comes and goes
        was_whole = interrupted(
            lambda w=other, t=traffic: write_world(w, tmp_path, seed=0, traffic=t),
            after=number,
            files=WATCHED,
        )
        write_world(other, tmp_path, seed=0)
        if was_whole:
            break
    assert was_whole
    assert number > 20
