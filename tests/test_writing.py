"""Tables that come in parts, written as one file or not at all."""

import polars as pl
import pytest

from unexposed.errors import InputError
from unexposed.writing import write_table, write_tables

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


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_ids_of_several_kinds_are_written_as_text(ending, tmp_path):
    table = pl.DataFrame(
        {"user": pl.Series([1, "a", (2, "b")], dtype=pl.Object), "rank": [1, 2, 3]}
    )
    for path in (tmp_path / f"one.{ending}", tmp_path / f"two.{ending}"):
        (write_table if path.stem == "one" else lambda t, p: write_tables([t], p))(table, path)
        assert read(path)["user"].to_list() == ["1", "a", "(2, 'b')"]
