"""A message that cannot be written ends no work; a result that cannot be is one sentence."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import pytest

from command import ended
from unexposed.data.log import read_log
from unexposed.methods import load, make

LOG = "user,item\n" + "".join(f"u{n % 40},i{n * n % 31}\n" for n in range(900))
FIT = "fit log.csv --method wmf --set epochs=3 --set dim=4 --out model"


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_text(LOG)
    return tmp_path


@pytest.fixture
def streams() -> Iterator[dict[str, TextIO]]:
    """Streams that cannot be written: to a full disk, and without a reader."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no device that is always full")
    read, write = os.pipe()
    os.close(read)
    found = {"full": open("/dev/full", "w"), "no reader": open(write, "w")}  # noqa: SIM115
    yield found
    for stream in found.values():
        with suppress(OSError):
            stream.close()


@pytest.mark.parametrize("stream", ["full", "no reader"])
def test_a_training_ends_well_though_its_messages_are_lost(here, stream, streams, monkeypatch):
    monkeypatch.setattr(sys, "stderr", streams[stream])
    assert ended(*FIT.split()) == 0
    assert load("model").method.name == "wmf"


def test_a_training_ends_well_without_standard_error(here):
    ours = f"{shlex.quote(sys.executable)} -m unexposed {FIT}"
    assert subprocess.run(["sh", "-c", f"{ours} 2>&-"], check=False).returncode == 0
    assert load("model").method.name == "wmf"


@pytest.mark.parametrize(
    ("stream", "code", "said"),
    [
        ("full", 2, "error: cannot write to standard output: No space left on device\n"),
        ("closed", 2, "error: cannot write to standard output: it is closed\n"),
        ("no reader", 141, ""),
    ],
)
def test_a_result_that_cannot_be_written_is_one_sentence(
    here, stream, code, said, streams, monkeypatch, capfd
):
    make("popularity").fit(read_log("log.csv", say=print)).save("model")
    capfd.readouterr()
    monkeypatch.setattr(sys, "stdout", streams.get(stream))
    assert ended("recommend", "model", "-k", "5") == code
    assert capfd.readouterr() == ("", said)
