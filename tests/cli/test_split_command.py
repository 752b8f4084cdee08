"""Splits by time from the command line, later clicks as judgements, and logged propensities."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from unexposed.data import log
from unexposed.data.labelled import Impressions
from unexposed.data.split import split
from unexposed.methods import load, make


@pytest.fixture
def timed(here, monkeypatch):
    """Reading a log gives its clicks times; return these clicks."""
    plain = log.read_log

    def read_log(*given, **more):
        clicks = plain(*given, **more)
        times = np.random.default_rng(0).permutation(len(clicks)) * 86_400
        return replace(clicks, times=times)

    monkeypatch.setattr(log, "read_log", read_log)
    return read_log("log.csv")


FIT = "fit log.csv --out model --set epochs=3"


def test_fit_chooses_the_epoch_on_the_clicks_that_the_split_holds_out(done, timed):
    _, err = done(f"{FIT} --split time:0.7")
    train, held_out = split(timed, "time:0.7")
    assert f"time:0.7: {len(train)} clicks to train on, {len(held_out)} held out" in err
    model = load("model")
    expected = make("mf", epochs=3).fit(train, held_out, seed=0)
    assert model.facts["held_out"] == expected.facts["held_out"]
    assert model.facts["split"] == "time:0.7"
    assert len(model.clicks) == len(timed)


def test_resume_knows_which_split_made_a_finished_model(done, timed):
    done(f"{FIT} --split last")
    assert "holds this training, finished" in done(f"{FIT} --split last --resume")[1]
    _, err = done(f"{FIT} --resume")
    assert "the split was last and is now random:0.1" in err
    assert "holds this training, finished" in done(f"{FIT} --split random:0.1 --resume")[1]


def test_later_clicks_judge_a_comparison_without_a_judged_file(done, timed):
    words = "compare --train log.csv --split time:0.6 --methods popularity,mf --set epochs=2"
    out, err = done(f"{words} --seeds 2 --json")
    document = json.loads(out)
    earlier, later = split(timed, "time:0.6")
    assert document["protocol"] == "catalogue"
    assert document["users"] == len(np.unique(later.users))
    assert f"{len(earlier)} clicks to learn from; {len(later)} later ones judge" in err
    assert [result["method"] for result in document["results"]] == ["popularity", "mf"]
    snips = json.loads(done(f"{words} --seeds 1 --json --protocol snips")[0])
    assert snips["protocol"] == "snips"


def test_a_split_beside_judged_pairs_chooses_the_epoch_alone(done, timed):
    words = "compare --train log.csv --judged judged.csv --methods mf --set epochs=2 --seeds 1"
    every = [json.loads(done(f"{words} --json {more}")[0]) for more in ("", "--split last")]
    assert every[0]["users"] == every[1]["users"] == 11
    assert every[0]["results"][0]["criteria"] != every[1]["results"][0]["criteria"]


def test_a_study_is_of_its_split(run, done, timed):
    words = "tune --train log.csv --methods ease --trials 1 --out study"
    done(f"{words} --split time:0.7")
    study = json.loads(Path("study/log_ease.json").read_text())
    _, held_out = split(timed, "time:0.7")
    assert study["split"][0] == "time:0.7"
    assert f"{len(held_out)} clicks" in study["split"][1]
    code, _, err = run(f"{words} --split last")
    assert (code, "whose split differ" in err) == (2, True)


def test_rows_without_a_relevance_column_are_later_clicks_in_the_catalogue(run, done):
    done("fit log.csv --out model --method popularity")
    model = load("model")
    unclicked = np.argwhere(model.clicks.matrix().toarray() == 0)
    rows = [f"{model.user_ids.values[u]},{model.item_ids.values[i]}" for u, i in unclicked]
    Path("later.csv").write_text("\n".join(["user,item", *rows]))
    Path("ones.csv").write_text("\n".join(["user,item,relevance", *(f"{row},1" for row in rows)]))
    words = "evaluate model --json --judged"
    out, err = done(f"{words} later.csv")
    assert "no relevance or rating: every row is a click, and relevant" in err
    assert "--protocol" not in err  # no other protocol would take them
    assert out == done(f"{words} ones.csv")[0]
    compared = "compare --train log.csv --methods popularity --seeds 1 --json --judged later.csv"
    assert json.loads(done(compared)[0])["protocol"] == "catalogue"
    code, _, err = run("evaluate model --judged later.csv --protocol judged")
    assert code == 2
    assert "clicks alone can judge only in the whole catalogue (--protocol catalogue)" in err


def test_a_judged_row_that_was_shown_and_not_clicked_is_not_relevant(done):
    done("fit log.csv --out model --method popularity")
    rows = Path("judged.csv").read_text()
    Path("shown.csv").write_text(rows.replace("relevance", "clicked"))
    words = "evaluate model --json --judged"
    assert done(f"{words} shown.csv")[0] == done(f"{words} judged.csv")[0]


def test_off_policy_prints_estimates_errors_and_the_effective_sample(run, done, here, monkeypatch):
    done("fit log.csv --out model --method popularity")
    plain = log.read_log

    def read_log(*given, **more):
        clicks = plain(*given, **more)
        rng = np.random.default_rng(1)
        users, items = (side.ravel() for side in np.indices((clicks.n_users, clicks.n_items)))
        shown = Impressions.from_pairs(
            users,
            items,
            clicked=rng.integers(2, size=len(users)),
            propensity=np.full(len(users), 1 / clicks.n_items),
            user_ids=clicks.user_ids,
            item_ids=clicks.item_ids,
        )
        return replace(clicks, shown=shown)

    code, _, err = run("evaluate model --judged log.csv --protocol off_policy")
    assert code == 2
    assert "name the column with --propensity" in err
    monkeypatch.setattr(log, "read_log", read_log)
    out, _ = done("evaluate model --judged log.csv --protocol off_policy")
    for words in ("ips", "snips", "clipped_ips", "effective sample", "mean weight", "±", "top 3"):
        assert words in out
    document = json.loads(done("evaluate model --judged log.csv --protocol off_policy --json")[0])
    assert document["metrics"]["snips@3"]["se"] > 0
    assert document["weights"]["3"]["effective_sample"] > 0


def test_a_model_with_exposure_is_evaluated_by_exposure_too(done):
    done("fit log.csv --out model --method umf --set epochs=2")
    out, _ = done("evaluate model --judged judged.csv")
    for name in ("seldom shown", "sometimes shown", "often shown"):
        assert name in out


REFUSED = {
    "compare --train log.csv --split time:0.8 --methods popularity": "the log has no times: name",
    "compare --train log.csv --split random:0.2 --methods mf --protocol judged": "clicks alone",
    "compare --train log.csv --judged judged.csv --methods mf --protocol off_policy": "evaluate",
    "compare --train log.csv --methods mf": "--split time:0.8 to judge by its later clicks",
    "fit log.csv --out out --split week": "no split 'week'",
    "tune --train log.csv --methods mf --out out --split time:0.8": "the log has no times",
    "tune some.toml --split last": "says what is tuned",
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_split_that_cannot_be_made_ends_in_one_sentence(run, line):
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert REFUSED[line] in err.splitlines()[-1]
