"""Work that does not fit into memory ends in one sentence."""

from pathlib import Path

import pytest

from command import LOG, ended
from unexposed import memory, tensors
from unexposed.data.log import read_log
from unexposed.errors import InputError
from unexposed.methods import ease, load, make


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_text(LOG)
    return tmp_path


def test_work_that_takes_more_than_the_machine_has_left_is_refused(small_world, monkeypatch):
    assert memory.left() > 0
    monkeypatch.setattr(memory, "left", lambda: 1000)
    with pytest.raises(InputError, match="ease: items × items numbers takes about .* larger one"):
        make("ease").fit(small_world.clicks(0))


def test_a_command_that_runs_out_of_memory_ends_in_one_sentence(here, monkeypatch, capsys):
    def full(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 4 TiB")

    monkeypatch.setattr(ease, "item_weights", full)
    assert ended(*"fit log.csv --method ease --out model".split()) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: the memory of this machine is used up (Unable to allocate")


def test_only_a_lack_of_memory_is_called_one():
    assert memory.is_out(MemoryError())
    assert memory.is_out(RuntimeError("DefaultCPUAllocator: can't allocate memory"))
    assert not memory.is_out(RuntimeError("the shapes differ"))


def test_a_model_that_cannot_be_mapped_is_not_called_damaged(here, monkeypatch):
    make("popularity").fit(read_log("log.csv", say=print)).save("model")

    def full(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(tensors.mmap, "mmap", full)
    with pytest.raises(InputError, match="Cannot allocate memory; .* raise `ulimit -v`"):
        load("model")
