"""`fit`, `update` and `evaluate` say whether the model is better than the popular list."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from terminal import shown
from unexposed.data.log import read_log
from unexposed.evaluation.protocols import PROTOCOLS
from unexposed.methods import load, make
from unexposed.progress import Silent

UNTRAINED = "--method mf --set epochs=1 --set learning_rate=1e-9"


def rows(liked: np.ndarray) -> str:
    users, items = np.nonzero(liked)
    return "user,item\n" + "".join(f"u{u},i{i}\n" for u, i in zip(users, items, strict=True))


@pytest.fixture
def shop(here):
    """A log of two tastes, in halves of the catalogue; others by the item alone."""
    chance = np.random.default_rng(0).random((100, 40))
    same_half = np.arange(100)[:, None] % 2 == np.arange(40) % 2
    Path("tastes.csv").write_text(rows(chance < 0.4 * same_half))
    Path("later.csv").write_text(rows((chance >= 0.4) & (chance < 0.6) & same_half))
    popular = 0.9 * 0.8 ** np.arange(40)
    Path("popular.csv").write_text(rows(chance < popular))
    Path("newer.csv").write_text(rows(1 - chance < popular))
    return here


def test_fit_and_update_warn_of_a_model_that_loses(shop, done):
    for line in (
        f"fit popular.csv {UNTRAINED} --out model",
        "update model newer.csv --out newer --epochs 1",
    ):
        _, err = done(line)
        assert re.search(r"^warning: on held-out clicks mf is below popularity", err, flags=re.M)
        assert "production" in err


def test_evaluate_shows_popularity_beside_the_model(shop, done):
    done("fit tastes.csv --method ease --out model")
    seen = shown("evaluate model --judged later.csv --protocol catalogue", width=60)
    assert seen.code == 0, seen.text
    said = " ".join(seen.text.split())
    verdict = said.index("on judged pairs (catalogue) ease is above popularity: ndcg@10 ")
    table = said[said.index("ease mean") :]
    assert verdict < said.index("ease mean")
    words = {"popularity", "difference", "finding", "head", "tail"}
    assert {*PROTOCOLS["catalogue"].metrics, *words} <= {*table.split()}
    findings = [word for word in table.split() if word in ("above", "below", "chance")]
    assert findings == ["above"] * 3 + ["chance", "above", "chance"]  # 50 places hold everything
    assert all(len(line) <= 60 for line in seen.lines)  # no word is broken at the edge


def test_evaluate_gives_the_verdict_as_json_and_warns_of_a_loss(shop, done):
    done(f"fit popular.csv {UNTRAINED} --out model")
    Path("judged.csv").write_text("user,item\n" + "".join(f"u{u},i1\n" for u in range(100)))
    out, _ = done("evaluate model --judged judged.csv --protocol catalogue --json")
    document = json.loads(out)
    found = document["beside"]["popularity"]["ndcg@10"]
    assert found["mean"] == document["metrics"]["ndcg@10"]["mean"]
    assert found["difference"] == pytest.approx(found["mean"] - found["popularity"])
    assert (found["finding"], found["p_value"] < 0.05) == ("below", True)
    assert document["verdict"].startswith("warning: on judged pairs (catalogue) mf is below")
    _, err = done("evaluate model --judged judged.csv --protocol catalogue")
    assert document["verdict"] in err


def test_fit_stands_a_method_beside_mf_on_the_same_clicks_and_evaluate_trains_none(shop, done):
    _, err = done("fit tastes.csv --method umf --set epochs=5 --set dim=6 --out model")
    assert re.search(r"^(warning: )?on held-out clicks umf is .* mf: ", err, flags=re.M)
    facts = load("model").facts["verdict"]
    blind = make("mf", epochs=5, dim=6, refit=False)
    train, held_out = read_log("tastes.csv").hold_out(fraction=0.1, seed=0)
    mf = blind.fit(train, held_out, progress=Silent())
    alone = mf.facts["verdict"]["popularity"]
    for reading in ("clicks", "weighed"):
        assert facts["mf"][reading]["mf"] == pytest.approx(alone[reading]["mean"])
        assert facts["mf"][reading]["mean"] == facts["popularity"][reading]["mean"]
    out, _ = done("evaluate model --judged later.csv --json")
    assert list(json.loads(out)["beside"]) == ["popularity"]
