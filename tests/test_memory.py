"""A log that does not fit into memory is refused with one sentence."""

import gzip
from itertools import chain, repeat
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from command import python, unexposed
from unexposed import memory
from unexposed.data.read import read_log
from unexposed.errors import InputError
from unexposed.files import arrays
from unexposed.methods import load, make

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.skipif(
    not hasattr(resource, "RLIMIT_AS") or not Path("/proc/self/statm").exists(),
    reason="addresses are limited and counted otherwise here",
)
GIB = 1 << 30
FIT = "fit log.csv --method popularity --out model".split()


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def lean_log(path: str, rows: int) -> None:
    Path(path).write_text("u,i\n" + "1,1\n1,2\n2,2\n2,1\n" * (rows // 4))


def wide_log(path: str, rows: int) -> None:
    rng = np.random.default_rng(0)
    users, items = rng.integers(rows // 10, size=rows), rng.integers(1000, size=rows)
    table = pl.DataFrame({"user": users, "item": items}).with_columns(
        pl.format("https://shop.example/item/{}", "item").alias("item")
    )
    (table.write_csv if path.endswith("csv") else table.write_parquet)(path)


def test_a_log_beyond_the_limit_is_refused_and_nothing_is_left_behind(here):
    """polars would end the process with signal 6."""
    lean_log("log.csv", 40_000_000)
    done = unexposed(*FIT, limit=memory.LEAST_ADDRESSES)
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: log.csv: reading 40,000,001 lines takes about ")
    assert "`ulimit -v` leaves" in last
    assert "raise that limit, or save the log as Parquet" in last
    assert [path.name for path in here.iterdir()] == ["log.csv"]


@pytest.mark.skipif(torch.version.cuda is not None, reason="the libraries of a GPU need more")
def test_a_small_log_is_trained_and_served_within_the_limit_that_is_asked_for(here):
    lean_log("log.csv", 200)
    for words in (
        "fit log.csv --method ubo --out model --set epochs=2",
        "recommend model -k 1 --show-clicked --out lists.parquet",
        "report model --out page.html",
    ):
        done = unexposed(*words.split(), limit=2 * memory.LEAST_ADDRESSES)
        assert done.returncode == 0, done.stderr
    assert pl.read_parquet("lists.parquet")["user"].to_list() == [1, 2]


def test_a_limit_below_what_the_packages_need_is_named(here):
    done = unexposed(*FIT, limit=GIB)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("error: `ulimit -v` allows 1.0 GiB of addresses, which is less than")
    assert unexposed("--version", limit=GIB).returncode == 0


READ = """
import resource, sys
from pathlib import Path
from unexposed import memory
from unexposed.data import delimited, read as reading
path = Path(sys.argv[1])
reading.read_log("small.csv", say=lambda _: None)
needed = delimited.check_text(path).bytes_taken(2)
spare = memory.RESERVE + memory.THREAD_ADDRESSES + (16 << 20)
limit = memory._addresses_used() + needed + spare
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(len(reading.read_log(path, say=lambda _: None)))
"""


def test_what_passes_the_check_is_read_within_what_was_left(here):
    lean_log("small.csv", 8)
    wide_log("log.csv", 2_000_000)
    done = python("-c", READ, "log.csv")
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 1_900_000


def left(monkeypatch, *sizes: int) -> None:
    """So much is left at the first question, and at the next ones."""
    told = chain(sizes, repeat(sizes[-1]))
    monkeypatch.setattr(memory, "_left", lambda: [(next(told), "here are", "ask for more")])


@pytest.mark.parametrize("name", ["log.csv", "log.csv.gz", "log.parquet"])
def test_what_reading_takes_grows_with_the_rows_of_any_file(here, monkeypatch, name):
    left(monkeypatch, memory.RESERVE + (10 << 20))
    plain = name.removesuffix(".gz")

    def read(rows: int) -> int:
        wide_log(plain, rows)
        if plain != name:
            Path(name).write_bytes(gzip.compress(Path(plain).read_bytes(), 1))
        return len(read_log(name, say=print))

    assert read(1_000) > 900
    with pytest.raises(InputError, match=f"{name}: reading 1,000,00. .* here are 138 MiB; ask"):
        read(1_000_000)


def test_ids_that_are_all_different_are_counted_before_they_are_held(here, monkeypatch):
    users, items = [f"visitor {n}" for n in range(200_000)], np.arange(200_000) % 7
    pl.DataFrame({"user": users, "item": items}).write_parquet("log.parquet")
    left(monkeypatch, GIB, GIB, 30 << 20)
    with pytest.raises(InputError, match="holding 200,000 ids of column 'user' takes about"):
        read_log("log.parquet", say=print)


def test_a_model_that_cannot_be_mapped_is_not_called_damaged(here, monkeypatch):
    lean_log("log.csv", 8)
    make("popularity").fit(read_log("log.csv", say=print)).save("model")

    def full(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(arrays.mmap, "mmap", full)
    with pytest.raises(InputError, match="Cannot allocate memory; raise `ulimit -v`"):
        load("model")


def test_a_container_leaves_its_limit_less_what_it_cannot_give_back(tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text("1000000000\n")
    (tmp_path / "memory.current").write_text("900000000\n")
    (tmp_path / "memory.stat").write_text("anon 100\nactive_file 50000000\ninactive_file 1000\n")
    monkeypatch.setattr(memory, "_cgroup", lambda: tmp_path)
    found = {where: n for n, where, _ in memory._left()}
    assert found["this container has"] == 150_001_000
    (tmp_path / "memory.max").write_text("max\n")
    assert "this container has" not in {where for _, where, _ in memory._left()}


def test_only_a_lack_of_memory_is_called_one(monkeypatch):
    assert memory.is_out(MemoryError())
    assert memory.is_out(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    assert not memory.is_out(RuntimeError("the shapes differ"))
    monkeypatch.setattr(memory, "_address_limit", lambda: memory._addresses_used() + 1000)
    assert memory.is_out(SystemError("error return without exception set"))
    assert "raise that limit" in memory.used_up(SystemError("odd"))
