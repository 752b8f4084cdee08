"""`fit`, `update` and `doctor MODEL`: models that are saved, resumed, interrupted and damaged."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ctrl_c import interrupted_at
from terminal import shown
from unexposed.data.clicks import Clicks
from unexposed.methods import load
from unexposed.model import save as storage

FIT = "fit log.csv --out model --set epochs=2"


def saved_at() -> dict[str, int]:
    return {"model": Path("model.safetensors").stat().st_mtime_ns}


@pytest.fixture
def unsaved(run, monkeypatch):
    """Run a training that leaves its checkpoint and no model."""

    def fail(*_: object, **__: object) -> None:
        sys.exit(3)

    def unsaved(line: str) -> None:
        with monkeypatch.context() as broken:
            broken.setattr("unexposed.model.model.save", fail)
            code, _, err = run(f"{line} --checkpoint-every 0 --force")
        assert code == 3, err
        assert Path("model.checkpoint.safetensors").exists()

    return unsaved


def test_ctrl_c_keeps_the_best_model_so_far(here):
    rng = np.random.default_rng(0)
    pairs = rng.integers(300, size=(6000, 2))
    Path("big.csv").write_text("user,item\n" + "".join(f"{u},{i}\n" for u, i in pairs))
    words = "fit big.csv --method mf --out model --set epochs=100000 --set patience=0"
    code, err = interrupted_at(words, "epoch", here)
    assert code == 130, err
    assert "(interrupted)" in err
    assert err.endswith("interrupted\n")
    model = load("model", verify=True)
    assert isinstance(model.clicks, Clicks)
    assert 1 <= model.facts["best_epoch"] <= model.facts["epochs_run"] == len(model.facts["losses"])
    assert sorted(p.name for p in here.iterdir()) == [
        *("big.csv", "judged.csv", "log.csv", "model.safetensors")
    ]


def test_resume_says_where_it_resumes_what_is_missing_and_what_differs(run, done, unsaved):
    _, err = done(f"{FIT} --resume")
    assert "model.checkpoint.safetensors to resume from: training from the start" in err
    unsaved(FIT)
    code, _, err = run(f"{FIT} --resume --set dim=7")
    assert code == 2
    assert "dim was 64 and is now 7" in err.splitlines()[-1]
    _, err = done(f"{FIT} --resume")
    assert "mf: resumed at epoch 2 of 2" in err
    assert "(all epochs done, resumed at epoch 2)" in err
    assert not Path("model.checkpoint.safetensors").exists()


def test_resume_leaves_a_finished_training_alone_and_replaces_another(done):
    done(FIT)
    before = saved_at()
    out, err = done(f"{FIT} --resume")
    assert out == ""
    assert err.splitlines()[-1].startswith("model holds this training, finished; to train it again")
    assert saved_at() == before
    _, err = done(f"{FIT} --engine reference --resume")
    assert "model holds another training: the engine was auto and is now reference" in err
    assert saved_at() != before


@pytest.mark.parametrize("words", ["fit log.csv --method popularity", "update other log.csv"])
def test_a_model_is_replaced_only_where_someone_says_so(run, done, words):
    done("fit log.csv --method wmf --set epochs=1 --out model")
    done("fit log.csv --method wmf --set epochs=1 --seed 1 --out other")
    line, before = f"{words} --out model", saved_at()
    code, _, err = run(line)
    assert (code, err) == (
        2,
        "error: model holds a model: give --force to replace it, or another --out\n",
    )
    for answer in ("\n", "no\n", "\x04"):  # Ctrl-D: nothing is said
        seen = shown(line, answer=answer)
        assert "model holds a model. Replace it? [y/N]" in seen.text
        assert (seen.code, saved_at()) == (2, before)
        assert "model is kept" in seen.text
    assert shown(line, answer="y\n").code == 0
    assert (asked := saved_at()) != before
    done(f"{line} --force")
    assert saved_at() != asked


def test_an_interrupted_a_damaged_and_an_updated_model_are_not_finished(done):
    done(FIT)
    model = load("model")
    storage.save(replace(model, facts=model.facts | {"ended": "interrupted"}), Path("model"))
    _, err = done(f"{FIT} --resume")
    assert "model holds another training: it was interrupted after epoch 2" in err
    Path("model.safetensors").write_bytes(b"x")
    _, err = done(f"{FIT} --resume")
    assert "model.safetensors is damaged" in err
    assert "training from the start" in err
    done("update model log.csv --out model --epochs 1")
    assert "it was given more than a log" in done(f"{FIT} --resume")[1]


def test_the_doctor_describes_a_model_and_finds_a_changed_byte(run, done):
    done(f"{FIT} --set dim=7")
    out, _ = done("doctor model")
    assert "item_factors = 7 × 7" in out
    assert "learning_rate = 0.001" in out
    assert not re.search(r"\.\d{8}", out)  # nobody reads sixteen digits
    assert "every checksum is right" in out
    document = json.loads(done("doctor model --json")[0])
    assert (document["users"], document["settings"]["dim"], document["format"]) == (12, 7, 5)
    arrays = bytearray(Path("model.safetensors").read_bytes())
    arrays[-1] ^= 1
    Path("model.safetensors").write_bytes(arrays)
    code, out, err = run("doctor model")
    assert (code, out) == (2, "")
    assert "model.safetensors is damaged" in err
