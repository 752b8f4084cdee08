"""`--traffic` of `fit`, `compare` and `tune`."""

import json
from pathlib import Path

import pytest

from unexposed.methods import load

TRAFFIC = "user,item,relevance\n" + "".join(
    f"u{u},i{i},{int(i % 2 == 0)}\n" for u in range(12) for i in (0, 3, 4, 5)
)
SMALL = "--set epochs=2 --set dim=4"


@pytest.fixture
def random_csv(here):
    Path("random.csv").write_text(TRAFFIC)


def test_fit_learns_from_traffic_and_the_model_knows_how_much(random_csv, done):
    _, err = done(f"fit log.csv --method mf --out model --traffic random.csv {SMALL}")
    assert "random.csv: user = user, item = item, relevant is relevance = 1" in err
    assert load("model").facts["traffic"] == 48
    _, err = done(f"fit log.csv --method mf --out model --traffic random.csv --resume {SMALL}")
    assert "it was given more than a log" in err


def test_compare_refuses_traffic_that_judges_and_takes_other_traffic(random_csv, run, done):
    words = f"compare --train log.csv --judged judged.csv --methods mf,popularity --seeds 1 {SMALL}"
    code, _, err = run(f"{words} --traffic random.csv")
    assert code == 2
    assert "the random traffic and the judged pairs share 48 pairs" in err
    judged = Path("judged.csv").read_text().splitlines()
    told = {line.rsplit(",", 1)[0] for line in TRAFFIC.splitlines()[1:]}
    rest = [line for line in judged if line.rsplit(",", 1)[0] not in told]
    Path("judged.csv").write_text("\n".join(rest) + "\n")
    out, err = done(f"{words} --traffic random.csv --json")
    assert len(json.loads(out)["results"]) == 2
    assert "popularity cannot use traffic, and learn from clicks alone" in err


def test_tune_by_traffic_judges_trials_by_it(random_csv, run, done):
    pytest.importorskip("optuna")
    words = f"tune --train log.csv --methods mf,ease --out studies --trials 1 {SMALL}"
    out, err = done(f"{words} --traffic random.csv --criterion traffic --json")
    found, _ = json.loads(out)
    assert found["criterion"] == "traffic"
    assert "mf: quality on random traffic" in err
    code, _, err = run(f"{words} --criterion traffic")
    assert code == 2
    assert "--criterion traffic needs --traffic FILE" in err
