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
from unexposed.data.read import read_log
from unexposed.methods import load, make
from unexposed.progress import Lines, Tick

LOG = "user,item\n" + "".join(f"u{n % 40},i{n * n % 31}\n" for n in range(900))
FIT = "fit log.csv --method wmf --set epochs=3 --set dim=4 --out model"


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_text(LOG)
    return tmp_path


@pytest.fixture
def no_reader() -> Iterator[TextIO]:
    """A stream whose reader has gone."""
    read, write = os.pipe()
    os.close(read)
    stream = open(write, "w")  # noqa: SIM115
    yield stream
    with suppress(OSError):
        stream.close()


@pytest.fixture
def full() -> Iterator[TextIO]:
    """A stream to a full disk."""
    if not Path("/dev/full").exists():
        pytest.skip("this system has no device that is always full")
    stream = open("/dev/full", "w")  # noqa: SIM115
    yield stream
    with suppress(OSError):
        stream.close()


@pytest.mark.parametrize("stream", ["full", "no_reader"])
def test_a_training_ends_well_though_nobody_hears_of_it(here, stream, request, monkeypatch):
    monkeypatch.setattr(sys, "stderr", request.getfixturevalue(stream))
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
        (None, 2, "error: cannot write to standard output: it is closed\n"),
        ("no_reader", 141, ""),
    ],
)
@pytest.mark.parametrize("command", ["recommend model -k 5", "doctor model --json"])
def test_a_result_that_cannot_be_written_is_one_sentence(
    here, stream, code, said, command, request, monkeypatch, capfd
):
    make("popularity").fit(read_log("log.csv", say=print)).save("model")
    capfd.readouterr()
    broken = stream and request.getfixturevalue(stream)
    monkeypatch.setattr(sys, "stdout", broken)
    assert ended(*command.split()) == code
    assert capfd.readouterr() == ("", said)


def test_progress_goes_on_without_its_stream(no_reader):
    with Lines(no_reader, seconds=0) as told:
        told.note("about to begin")
        told(Tick("mf", 1, 2, 0.5, None, 1))
