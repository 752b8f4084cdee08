"""Whatever a model folder or a checkpoint claims, a command ends well or with one sentence.

The changes carry valid checksums, as a forger's would. To try more of them:
UNEXPOSED_FUZZ=10000 python -m pytest -n 0 tests/model/test_fuzz_folders.py
"""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attack_folders import forge_array, forge_document
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
    "update model log.csv --out other --force",
    "evaluate model --judged judged.csv --json",
    "report model --json",
    "export model --to other --format npy",
    "doctor model --json",
]
RESUME = f"fit log.csv --method METHOD {SET} --out fitted --resume"


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


def prepared(seed: int, whole: Path, folder: str, what: str, to: str) -> None:
    """Copy a folder here, and forge a value of its document or of its arrays."""
    for name in os.listdir("."):
        shutil.rmtree(name) if os.path.isdir(name) else os.unlink(name)
    for name in ("log.csv", "judged.csv"):
        shutil.copy(whole / name, name)
    shutil.copytree(whole / folder, to)
    about, arrays = taken_apart(Path(to), what)
    rng = np.random.default_rng(seed)
    forge_document(about, rng) if rng.integers(2) else forge_array(arrays, rng)
    put_together(Path(to), about, arrays, what)


METHODS = st.sampled_from(["mf", "expomf"])
SEEDS = st.integers(0, 2**32)


@fuzz
@given(method=METHODS, seed=SEEDS, words=st.sampled_from(COMMANDS))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of damaged numbers
def test_a_forged_model_ends_a_command_well_or_with_one_sentence(
    here, whole, capfd, method, seed, words
):
    prepared(seed, whole, method, "model", "model")
    check(words, capfd)


@fuzz
@given(method=METHODS, seed=SEEDS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_forged_checkpoint_ends_a_training_well_or_with_one_sentence(
    here, whole, capfd, method, seed
):
    prepared(seed, whole, f"{method}.checkpoint", "checkpoint", "fitted.checkpoint")
    check(RESUME.replace("METHOD", method), capfd)
