"""Whatever a model folder or a checkpoint claims, a command ends well or with one sentence.

The changes carry valid checksums, as a forger's would. To try more of them:
UNEXPOSED_FUZZ=10000 python -m pytest -n 0 tests/model/test_fuzz_folders.py
"""

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from command import ended
from forging import put_together, taken_apart

EXAMPLES = int(os.environ.get("UNEXPOSED_FUZZ", "60"))
LOG = "user,item\n" + "".join(f"u{n % 12},{n * n % 11}\n" for n in range(140))
SET = "--set epochs=3 --set dim=4"
COMMANDS = [
    "recommend model -k 3",
    "recommend model -k 3 --new-clicks log.csv --unknown popular --popularity-penalty 1",
    "similar model --item 4 -k 2 --json",
    "similar model --user u3 -k 2",
    "update model log.csv --out other",
    "evaluate model --judged judged.csv --json",
    "report model --json",
    "export model --to other --format npy",
    "doctor model --json",
]
RESUME = f"fit log.csv --method METHOD {SET} --out fitted --resume"

odd = st.one_of(
    st.sampled_from([None, True, -1, 0, 1, 3, 2**31, -(2**63), 10**12, 10**30, math.nan, math.inf]),
    st.sampled_from(["", "\x1b[31m", "9", 1e300, -0.5, [], [[]], [None], {}, {"a": 1}, [1, "x"]]),
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A log, two models of it, and the checkpoint of a training on it for each."""
    here = tmp_path_factory.mktemp("whole")
    before = Path.cwd()
    os.chdir(here)
    try:
        Path("log.csv").write_text(LOG)
        rows = [f"{line},{n % 2}" for n, line in enumerate(LOG.splitlines()[1:])]
        Path("judged.csv").write_text("\n".join(["user,item,relevance", *rows]))
        for method in ("mf", "expomf"):
            words = f"fit log.csv --method {method} {SET} --out {method} --checkpoint-every 0"
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("unexposed.model.model.remove", lambda _: None)
                assert ended(*words.split()) == 0
    finally:
        os.chdir(before)
    return here


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path to every value of a document."""
    inside = value if isinstance(value, dict) else dict(enumerate(value[:2]))
    found = []
    for key, part in inside.items():
        found.append((*path, key))
        found += places(part, found[-1]) if isinstance(part, dict | list) else []
    return found


def change_document(data: st.DataObject, about: dict[str, Any]) -> None:
    *way, last = data.draw(st.sampled_from(places(about)))
    at: Any = about
    for key in way:
        at = at[key]
    if data.draw(st.booleans()):
        at[last] = data.draw(odd)
    else:
        del at[last]


def change_array(data: st.DataObject, arrays: dict[str, Any]) -> None:
    name = data.draw(st.sampled_from(sorted(arrays)))
    array = arrays[name]
    how = data.draw(st.sampled_from(["value", "bits", "length", "type", "shape", "gone"]))
    if how == "gone":
        del arrays[name]
    elif how == "length":
        arrays[name] = array[: data.draw(st.integers(0, len(array)))]
    elif how == "type":
        with np.errstate(invalid="ignore"):
            arrays[name] = array.astype(data.draw(st.sampled_from(["<f8", "<i8", "<u1", "<f2"])))
    elif how == "shape":
        arrays[name] = array.reshape(data.draw(st.sampled_from([(-1,), (1, -1), (-1, 1)])))
    elif array.size and how == "bits":
        array.reshape(-1).view(np.uint8)[data.draw(st.integers(0, array.nbytes - 1))] ^= 1 << (
            data.draw(st.integers(0, 7))
        )
    elif array.size:
        ends = [0, 1, -1, 5, 99]
        if array.dtype.kind != "f":
            ends += [np.iinfo(array.dtype).min, np.iinfo(array.dtype).max]
        else:
            ends += [np.nan, np.inf, 1e30]
        values = [v for v in ends if array.dtype.kind != "u" or v >= 0]
        array.reshape(-1)[data.draw(st.integers(0, array.size - 1))] = data.draw(
            st.sampled_from([v for v in values if abs(v) <= 255 or array.dtype != np.uint8])
        )


def check(words: str, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    code = ended(*words.split())
    out, err = capfd.readouterr()
    assert code in (0, 2), err
    assert "\x1b" not in out + err
    if code == 2:
        assert err.splitlines()[-1].startswith("error: ")
    elif "--json" in words:
        json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


fuzz = settings(
    max_examples=EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def prepared(data: st.DataObject, whole: Path, folder: str, what: str, to: str) -> None:
    for name in os.listdir("."):
        shutil.rmtree(name) if os.path.isdir(name) else os.unlink(name)
    for name in ("log.csv", "judged.csv"):
        shutil.copy(whole / name, name)
    shutil.copytree(whole / folder, to)
    about, arrays = taken_apart(Path(to), what)
    change = change_document if data.draw(st.booleans()) else change_array
    change(data, about if change is change_document else arrays)
    put_together(Path(to), about, arrays, what)


@fuzz
@given(data=st.data())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of damaged numbers
def test_a_forged_model_ends_a_command_well_or_in_one_sentence(here, whole, capfd, data):
    prepared(data, whole, data.draw(st.sampled_from(["mf", "expomf"])), "model", "model")
    check(data.draw(st.sampled_from(COMMANDS)), capfd)


@fuzz
@given(data=st.data())
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_forged_checkpoint_ends_a_training_well_or_in_one_sentence(here, whole, capfd, data):
    method = data.draw(st.sampled_from(["mf", "expomf"]))
    prepared(data, whole, f"{method}.checkpoint", "checkpoint", "fitted.checkpoint")
    check(RESUME.replace("METHOD", method), capfd)
