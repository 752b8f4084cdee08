"""Commands from a log to a judgement: what they print, and where."""

import json
import os

import polars as pl
import pytest

from command import python
from terminal import shown
from unexposed import cli
from unexposed.data.datasets import DATASETS
from unexposed.evaluation.protocols import PROTOCOLS
from unexposed.methods import METHODS
from unexposed.ranking.metrics import METRICS


def test_fit_recommend_and_evaluate_on_a_csv(done):
    out, err = done("fit log.csv --out model --set epochs=3")
    assert out == ""
    assert "user = user, item = item" in err
    assert "saved to model.safetensors" in err
    done("recommend model -k 2 --out recs.parquet")
    table = pl.read_parquet("recs.parquet")
    assert table.columns[:4] == ["user", "item", "rank", "score"]
    assert set(table["user"]) <= {f"u{u}" for u in range(12)}
    out, err = done("evaluate model --judged judged.csv")
    assert "ndcg@10" in out
    assert "by protocol catalogue" in err  # the file has irrelevant pairs, too
    assert "--protocol judged" in err
    assert "head" in out


COMPARE = "compare --train log.csv --judged judged.csv"


def test_compare_prints_exactly_one_json_document(done):
    words = "--methods random,mf,bpr --seeds 2 --set epochs=2 --set bpr.dim=7 --json"
    document = json.loads(done(f"{COMPARE} {words}")[0])
    assert (document["protocol"], document["seeds"], document["users"]) == ("catalogue", 2, 11)
    assert [r["method"] for r in document["results"]] == ["random", "mf", "bpr"]
    mf, bpr = document["results"][1:]
    assert (mf["settings"]["epochs"], bpr["settings"]["dim"]) == (2, 7)
    assert list(mf["metrics"]) == list(PROTOCOLS["catalogue"].metrics)
    for metric in mf["metrics"].values():
        low, high = metric["ci95"]
        assert low <= metric["mean"] <= high
        assert metric["sd"] >= 0
    assert mf["seconds"] > 0


def test_datasets_shows_what_each_holds_and_its_terms(done):
    rows = json.loads(done("datasets --json --data-dir .")[0])
    assert [row["name"] for row in rows] == list(DATASETS)
    lines = done("datasets")[0].splitlines()
    assert any("terms" in line for line in lines)
    (bandit,) = (line for line in lines if line.split()[:2] == ["open_bandit", "–"])
    assert bandit.split() == ["open_bandit", "–", "●", "●", "●", "–"]


@pytest.mark.data
def test_compare_on_coat_evaluates_237_users(done, data_dir):
    out, _ = done(
        f"compare --dataset coat --methods popularity --seeds 1 --json --data-dir {data_dir}"
    )
    document = json.loads(out)
    assert (document["protocol"], document["users"]) == ("ubo-ijcai22", 237)


REGISTRIES = {"methods": METHODS, "protocols": PROTOCOLS, "metrics": METRICS}


@pytest.mark.parametrize("command", REGISTRIES)
def test_what_there_is_is_listed_one_line_each(done, command):
    lines = done(command)[0].splitlines()
    assert [line.split()[0] for line in lines] == list(REGISTRIES[command])
    rows = json.loads(done(f"{command} --json")[0])
    assert [row["name"] for row in rows] == list(REGISTRIES[command])
    assert max(map(len, shown(command, width=60).lines)) <= 60


def test_simulate_writes_a_log_judgements_impressions_traffic_and_the_truth(done):
    done("simulate --out world --users 60 --items 40 --impressions --traffic 0.1 --attention 1")
    names = ["clicks.csv", "impressions.csv", "judged.csv", "traffic.csv", "truth.parquet"]
    assert sorted(os.listdir("world")) == [*names, "world.json"]
    truth, rows = pl.read_parquet("world/truth.parquet"), pl.read_csv("world/impressions.csv")
    assert len(truth) == 2400
    assert rows["clicked"].sum() == len(pl.read_csv("world/clicks.csv"))
    # with full attention, propensity and exposure are the same
    both = rows.join(truth, on=["user", "item"])
    assert (both["propensity"] - both["exposure"]).abs().max() < 1e-4
    files = "--train world/clicks.csv --judged world/judged.csv"
    done(f"compare {files} --methods popularity --seeds 1 --json")


def test_every_command_is_in_the_help(done):
    out, _ = done("--help")
    assert all(command.__name__ in out for command in cli.COMMANDS)


def test_help_and_version_do_not_wait_for_torch():
    code = (
        "import sys; import unexposed.cli as c; sys.argv = ['unexposed', '--version']\n"
        "try: c.main()\nexcept SystemExit: pass\n"
        "assert not {'numpy', 'polars', 'torch', 'numba', 'matplotlib'} & set(sys.modules)"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("unexposed ")
