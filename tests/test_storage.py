import json
import os
from pathlib import Path

import numpy as np
import pytest

from unexposed.data import Clicks, Ids
from unexposed.errors import InputError
from unexposed.methods import make
from unexposed.progress import Silent
from unexposed.recommender import Model
from unexposed.storage import load


def model_of(users: Ids, items: Ids, name: str = "popularity") -> Model:
    n = min(len(users), len(items))
    clicks = Clicks.from_pairs(np.arange(n), np.arange(n), user_ids=users, item_ids=items)
    return make(name).fit(clicks, progress=Silent())


@pytest.fixture
def model() -> Model:
    return model_of(Ids.of(["a", "b", "c"]), Ids.of([5, 7, 9]))


@pytest.mark.parametrize(
    "raw",
    [
        [3, -1, 2**60],
        ["plain", 'comma, "quote"', "new\nline", "<b>ünïcode</b> \U0001f600", ""],
        ["x" * 1_000_000, "lone surrogate \udc80"],
        [1.5, "text", ("pair", 2), None, True],
    ],
)
def test_raw_ids_survive_saving(raw, tmp_path):
    model_of(Ids.of(raw), Ids.of(raw)).save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.user_ids.values.tolist() == raw
    assert [type(r) for r in again.item_ids.values.tolist()] == [type(r) for r in raw]


def test_ids_that_json_cannot_hold_are_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(InputError, match="ids of type frozenset cannot be saved"):
        model_of(Ids.of([frozenset({1}), "b"]), Ids.of([1, 2])).save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_saving_over_a_model_replaces_it_and_leaves_nothing_else(model, tmp_path):
    place = tmp_path / "model"
    model.save(place)
    model_of(Ids.of(["z", "y"]), Ids.of([1, 2])).save(place)
    assert load(place).user_ids.values.tolist() == ["z", "y"]
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_is_no_model_is_never_overwritten(model, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="is no model folder; choose another place"):
        model.save(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="is no model folder"):
        model.save(tmp_path / "file")


def test_a_failure_half_way_leaves_the_old_model_intact(model, tmp_path, monkeypatch):
    place = tmp_path / "model"
    model.save(place)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(InputError, match="cannot write a model to .*No space left"):
        model_of(Ids.of(["z", "y"]), Ids.of([1, 2])).save(place)
    monkeypatch.undo()
    assert load(place).user_ids.values.tolist() == ["a", "b", "c"]
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_the_folder_holds_no_pickle_and_says_what_it_is(model, tmp_path):
    model.save(tmp_path / "model")
    assert sorted(os.listdir(tmp_path / "model")) == ["arrays.safetensors", "model.json"]
    about = json.loads((tmp_path / "model" / "model.json").read_text())
    assert about["method"] == "popularity"
    assert about["version"] == 1


def damaged(place: Path, how: str) -> None:
    about = place / "model.json"
    arrays = place / "arrays.safetensors"
    match how:
        case "no json":
            about.unlink()
        case "broken json":
            about.write_text("{")
        case "foreign json":
            about.write_text('{"format": "other", "version": 1}')
        case "newer":
            about.write_text(about.read_text().replace('"version": 1', '"version": 99'))
        case "unknown method":
            about.write_text(about.read_text().replace('"popularity"', '"magic"'))
        case "no arrays":
            arrays.unlink()
        case "short arrays":
            arrays.write_bytes(arrays.read_bytes()[:-9])


@pytest.mark.parametrize(
    ("how", "complaint"),
    [
        ("no json", "is no model folder"),
        ("broken json", "is damaged"),
        ("foreign json", "is not from unexposed"),
        ("newer", "newer unexposed"),
        ("unknown method", "is damaged"),
        ("no arrays", "is damaged"),
        ("short arrays", "is damaged"),
    ],
)
def test_a_damaged_foreign_or_newer_folder_is_refused_in_one_sentence(
    model, tmp_path, how, complaint
):
    model.save(tmp_path / "model")
    damaged(tmp_path / "model", how)
    with pytest.raises(InputError, match=complaint) as refused:
        load(tmp_path / "model")
    assert "\n" not in str(refused.value)
    assert str(tmp_path / "model") in str(refused.value)
