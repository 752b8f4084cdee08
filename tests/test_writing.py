"""Tables that come in parts, written as one file or not at all."""

import polars as pl
import pytest

from ctrl_c import interrupted
from unexposed.errors import InputError
from unexposed.simulate import world
from unexposed.writing import write_table, write_tables, write_world

WATCHED = ("writing.py", "pathlib.py")
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
@pytest.mark.parametrize("error", [KeyboardInterrupt, InputError])
def test_an_end_half_way_leaves_the_old_file_and_nothing_else(ending, error, tmp_path):
    def parts():
        yield from PARTS
        raise error("enough")

    path = tmp_path / f"table.{ending}"
    path.write_text("precious")
    with pytest.raises(error):
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


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_ids_of_several_kinds_are_written_as_text(ending, tmp_path):
    table = pl.DataFrame(
        {"user": pl.Series([1, "a", (2, "b")], dtype=pl.Object), "rank": [1, 2, 3]}
    )
    for path in (tmp_path / f"one.{ending}", tmp_path / f"two.{ending}"):
        (write_table if path.stem == "one" else lambda t, p: write_tables([t], p))(table, path)
        assert read(path)["user"].to_list() == ["1", "a", "(2, 'b')"]


@pytest.mark.parametrize("name", ["clicks.csv", "judged.csv", "truth.parquet", "world.json"])
def test_a_world_replaces_a_world_and_no_other_file(name, tmp_path):
    (tmp_path / "notes.txt").write_text("of mine")
    write_world(world(30, 20, seed=0), tmp_path, seed=0)
    write_world(other := world(31, 20, seed=1), tmp_path, seed=0)
    assert len(pl.read_parquet(tmp_path / "truth.parquet")) == 31 * 20
    (tmp_path / name).write_text("a log of mine")
    with pytest.raises(InputError, match=f"{name} is not what `simulate` left there; remove it"):
        write_world(other, tmp_path, seed=0)
    assert (tmp_path / name).read_text() == "a log of mine"
