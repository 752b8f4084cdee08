"""Splits by time, later clicks as judgements, and logged propensities, from the command line."""

import json
from pathlib import Path

import numpy as np
import pytest

from unexposed.data.log import read_log
from unexposed.data.split import split
from unexposed.methods import load, make

FIT = "fit log.csv --out model --set epochs=3"


@pytest.fixture
def timed(here):
    """The log with the time of each click; return its clicks."""
    head, *rows = Path("log.csv").read_text().splitlines()
    order = np.random.default_rng(0).permutation(len(rows))
    timed = [f"{row},{1_700_000_000 + 86_400 * at}" for row, at in zip(rows, order, strict=True)]
    Path("log.csv").write_text("\n".join([f"{head},time", *timed]))
    return read_log("log.csv")


def test_fit_chooses_the_epoch_on_the_clicks_that_the_split_holds_out(done, timed):
    _, err = done(f"{FIT} --split time:0.7")
    train, held_out = split(timed, "time:0.7")
    assert f"time:0.7: {len(train)} clicks to train on, {len(held_out)} held out" in err
    model = load("model")
    expected = make("mf", epochs=3).fit(train, held_out, seed=0)
    assert model.facts["held_out"] == expected.facts["held_out"]
    _, err = done(f"{FIT} --resume")
    assert "the split was time:0.7 and is now random:0.1" in err
    assert "holds this training, finished" in done(f"{FIT} --split random:0.1 --resume")[1]


def test_held_out_clicks_judge_a_comparison_without_a_judged_file(done, timed):
    words = "compare --train log.csv --methods popularity,mf --set epochs=2 --seeds 1 --json"
    out, err = done(f"{words} --split time:0.6")
    document = json.loads(out)
    earlier, later = split(timed, "time:0.6")
    users = np.unique(later.users)
    assert (document["protocol"], document["users"]) == ("catalogue", len(users))
    said = f"{len(earlier)} clicks to learn from; {len(later)} judge, by {len(users)} users"
    assert said in err
    assert (
        done(f"{words} --split random:0.2")[0].partition("seconds")[0]
        == (done(words)[0].partition("seconds")[0])
    )


def test_a_split_beside_judged_pairs_chooses_the_epoch_alone(done, timed):
    words = "compare --train log.csv --judged judged.csv --methods mf --set epochs=2 --seeds 1"
    every = [json.loads(done(f"{words} --json {more}")[0]) for more in ("", "--split last")]
    assert every[0]["users"] == every[1]["users"] == 11
    assert every[0]["results"][0]["criteria"] != every[1]["results"][0]["criteria"]


def test_rows_without_a_relevance_column_are_later_clicks_in_the_catalogue(run, done):
    done("fit log.csv --out model --method popularity")
    model = load("model")
    unclicked = np.argwhere(model.clicks.matrix().toarray() == 0)
    rows = [f"{model.user_ids.values[u]},{model.item_ids.values[i]}" for u, i in unclicked]
    Path("later.csv").write_text("\n".join(["user,item", *rows]))
    Path("ones.csv").write_text("\n".join(["user,item,relevance", *(f"{row},1" for row in rows)]))
    words = "evaluate model --json --judged"
    out, err = done(f"{words} later.csv")
    assert "--protocol" not in err  # no other protocol would take them
    assert out == done(f"{words} ones.csv")[0]
    code, _, err = run("evaluate model --judged later.csv --protocol judged")
    assert code == 2
    assert "clicks alone can judge only in the whole catalogue (--protocol catalogue)" in err


def test_off_policy_prints_estimates_errors_and_the_effective_sample(run, done):
    done("fit log.csv --out model --method popularity")
    code, _, err = run("evaluate model --judged log.csv --protocol off_policy")
    assert code == 2
    assert "(--propensity)" in err
    clicked = np.random.default_rng(1).integers(2, size=(12, 7))
    rows = [f"u{u},i{i},{clicked[u, i]},0.14" for u in range(12) for i in range(7)]
    Path("shown.csv").write_text("\n".join(["user,item,clicked,propensity", *rows]))
    words = "evaluate model --judged shown.csv --protocol off_policy"
    out, _ = done(words)
    for part in ("ips", "snips", "clipped_ips", "effective sample", "mean weight", "±", "top 3"):
        assert part in out
    document = json.loads(done(f"{words} --json")[0])
    assert document["metrics"]["snips@3"]["se"] > 0
    assert document["weights"]["3"]["effective_sample"] > 0


REFUSED = {
    "compare --train log.csv --split time:0.8 --methods popularity": "the log has no times: name",
    "compare --train log.csv --split random:0.2 --methods mf --protocol judged": "clicks alone",
    "compare --train log.csv --judged judged.csv --methods mf --protocol off_policy": "evaluate",
    "compare --methods mf": "either --dataset NAME, or --train LOG",
    "fit log.csv --out out --split week": "no split 'week'",
    "tune --train log.csv --methods mf --out out --split time:0.8": "the log has no times",
    "tune some.toml --split last": "says what is tuned",
}


@pytest.mark.parametrize("line", REFUSED)
def test_a_split_that_cannot_be_made_ends_in_one_sentence(run, line):
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert REFUSED[line] in err.splitlines()[-1]
