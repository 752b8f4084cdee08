"""What a command prints is text, and JSON is JSON, whatever a file says."""

import json

import numpy as np
import pytest
from forging import forge

from command import ended
from unexposed.methods import make
from unexposed.progress import Silent


@pytest.fixture
def model(small_world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make("wmf", epochs=1, dim=3).fit(small_world.clicks(0), progress=Silent()).save("model")
    return tmp_path / "model"


ESCAPE = "\x1b]0;owned\x07[bold]"


@pytest.mark.parametrize(
    "said", [{"written_by": ESCAPE}, {"method": ESCAPE}, {"facts": {ESCAPE: ESCAPE}}]
)
def test_no_escape_sequence_in_a_file_reaches_the_terminal(said, model, capfd):
    forge(model, **said)
    assert ended("doctor", "model") == (2 if "method" in said else 0)
    out, err = capfd.readouterr()
    assert "owned" in out + err
    assert (out + err).replace("\n", "").isprintable()


def test_a_number_that_is_not_finite_is_null_in_json(model, capfd):
    about = json.loads((model / "model.json").read_text())
    forge(model, facts=about["facts"] | {"note": float("nan")})
    assert ended("doctor", "model", "--json") == 0
    assert '"note": null' in capfd.readouterr().out
    forge(model, {"parameters.item_factors": np.full((60, 3), np.nan, np.float32)})
    assert ended("similar", "model", "--item", "3", "-k", "2", "--json") == 0
    found = json.loads(capfd.readouterr().out, parse_constant=pytest.fail)
    assert [row["similarity"] for row in found] == [None, None]
