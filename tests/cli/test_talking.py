"""What a command prints is text, and JSON is JSON, whatever a file says."""

import csv
import json

import numpy as np
import pytest

from command import ended
from unexposed import tensors
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.methods import make
from unexposed.progress import Silent


@pytest.fixture
def model(small_world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make("wmf", epochs=1, dim=3).fit(small_world.clicks(0), progress=Silent()).save("model")
    return tmp_path / "model.safetensors"


def rewrite(model, arrays=None, **changed):
    """Change parts of a saved model, as somebody who knows the format."""
    stored = tensors.read_file(model)
    held = {name: array.copy() for name, array in stored.arrays.items()}
    tensors.write_file(model, stored.document | changed, held | (arrays or {}))


ESCAPE = "\x1b]0;owned\x07[bold]"


@pytest.mark.parametrize(
    "said", [{"written_by": ESCAPE}, {"method": ESCAPE}, {"facts": {ESCAPE: ESCAPE}}]
)
def test_no_escape_sequence_in_a_file_reaches_the_terminal(said, model, capfd):
    rewrite(model, **said)
    assert ended("doctor", "model") == (2 if "method" in said else 0)
    out, err = capfd.readouterr()
    assert "owned" in out + err
    assert (out + err).replace("\n", "").isprintable()


def test_spreadsheet_safe_output_holds_no_formula(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    items = ["=1+1", "+a", "-b", "@c", "plain", '"=quoted']
    pairs = np.repeat(np.arange(3), 6), np.tile(np.arange(6), 3)
    ids = {"user_ids": Ids.of(["=u", "v", "-w"]), "item_ids": Ids.of(items)}
    clicks = Clicks.from_pairs(*pairs, **ids)
    make("wmf", epochs=1, dim=2).fit(clicks, progress=Silent()).save("model")
    recommend = "recommend model -k 6 --show-clicked --spreadsheet-safe"
    for words in (recommend, "similar model --item plain -k 5 --spreadsheet-safe"):
        capfd.readouterr()
        assert ended(*words.split()) == 0
        rows = list(csv.DictReader(capfd.readouterr().out.splitlines()))
        found = {row["item"] for row in rows} | {row.get("user", "v") for row in rows}
        assert found <= {"'=1+1", "'+a", "'-b", "'@c", "plain", '"=quoted', "'=u", "v", "'-w"}
        assert len(found) > 5
    assert ended(*recommend.split(), "--out", "lists.parquet") == 2
    assert "is for CSV and TSV" in capfd.readouterr().err


def test_a_number_that_is_not_finite_is_null_in_json(model, capfd):
    rewrite(model, facts={"note": float("nan")})
    assert ended("doctor", "model", "--json") == 0
    assert '"note": null' in capfd.readouterr().out
    rewrite(model, {"parameters.item_factors": np.full((60, 3), np.nan, np.float32)})
    assert ended("similar", "model", "--item", "3", "-k", "2", "--json") == 0
    found = json.loads(capfd.readouterr().out, parse_constant=pytest.fail)
    assert [row["similarity"] for row in found] == [None, None]
