"""The command as a person uses it: what it prints, where, and how it refuses."""

import csv
import gzip
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from command import ended
from unexposed import cli
from unexposed.data.clicks import Clicks
from unexposed.methods import METHODS

LOG = "user,item\n" + "".join(f"u{u},i{(u * k) % 7}\n" for u in range(12) for k in (1, 2, 3))
JUDGED = "user,item,relevance\n" + "".join(
    f"u{u},i{i},{int((u + i) % 3 == 0)}\n" for u in range(12) for i in range(7)
)


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_text(LOG)
    Path("judged.csv").write_text(JUDGED)
    return tmp_path


@pytest.fixture
def run(here, capsys):
    """Runs the command in this process; gives exit code, standard output and error."""

    def run(*words: str) -> tuple[int, str, str]:
        code = ended(*words)
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_fit_recommend_and_evaluate_on_a_csv(run, here):
    code, out, err = run("fit", "log.csv", "--out", "model", "--set", "epochs=3")
    assert code == 0, err
    assert out == ""
    assert "user = user, item = item" in err
    assert "saved to model" in err
    code, _, err = run("recommend", "model", "-k", "2", "--out", "recs.parquet")
    assert code == 0, err
    table = pl.read_parquet("recs.parquet")
    assert table.columns[:4] == ["user", "item", "rank", "score"]
    assert set(table["user"]) <= {f"u{u}" for u in range(12)}
    code, out, err = run("evaluate", "model", "--judged", "judged.csv")
    assert code == 0, err
    assert "dcg@3" in out
    assert "head" in out


def test_recommend_for_listed_users_prints_csv(run, here):
    run("fit", "log.csv", "--method", "popularity", "--out", "model")
    Path("ids.txt").write_text("u3\n\nu1\nnobody\n")
    code, out, err = run("recommend", "model", "--users", "ids.txt", "-k", "1")
    assert code == 0
    assert [line.split(",")[0] for line in out.splitlines()] == ["user", "u3", "u1"]
    assert "left out 1 user the model never saw, first 'nobody'" in err


def test_integer_ids_from_a_file_are_found(run, here):
    Path("numbers.csv").write_text(
        LOG.replace("u", "").replace("i", "").replace("ser,tem", "user,item")
    )
    run("fit", "numbers.csv", "--method", "popularity", "--out", "model")
    Path("ids.txt").write_text("3\n")
    code, out, _ = run("recommend", "model", "--users", "ids.txt", "-k", "1")
    assert code == 0
    assert out.splitlines()[1].startswith("3,")


HOSTILE = [
    *["a,b", 'say "hi"', "two\nlines", "carriage\rreturn", "<script>alert(1)</script>", "&amp;"],
    *["\U0001f600", "\u202eשלום", " spaces ", "\ttab", "007", "1e3", "NULL", "nan", "-", "=1+1"],
    *["\ufeffmark", "e\u0301", "\u00e9", "\u2028", "'; DROP TABLE users; --", "[bold]x[/bold]"],
    "x" * 1_000_000,
]


@pytest.mark.parametrize("name", ["log.csv", "log.tsv", "log.csv.gz", "log.parquet"])
def test_hostile_ids_survive_from_log_to_recommendations_byte_for_byte(run, here, name):
    rows = [
        (user, HOSTILE[(at + k) % len(HOSTILE)]) for at, user in enumerate(HOSTILE) for k in (0, 1)
    ]
    table = pl.DataFrame(rows, schema=["user", "item"], orient="row")
    if name.endswith("parquet"):
        table.write_parquet(name)
    else:
        text = table.write_csv(separator="\t" if name.endswith("tsv") else ",").encode()
        Path(name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    code, _, err = run("fit", name, "--method", "popularity", "--out", "model")
    assert code == 0, err
    assert f"by {len(HOSTILE)} users on {len(HOSTILE)} items" in err
    found = []
    for out in ("recs.csv", "recs.tsv", "recs.parquet"):
        code, _, err = run("recommend", "model", "-k", "3", "--out", out)
        assert code == 0, err
        if out.endswith("parquet"):
            found.append(list(pl.read_parquet(out).select("user", "item").iter_rows()))
            continue
        with open(out, newline="", encoding="utf-8") as stream, unlimited_fields():
            lines = csv.DictReader(stream, delimiter="\t" if out.endswith("tsv") else ",")
            found.append([(line["user"], line["item"]) for line in lines])
    assert found[0] == found[1] == found[2]
    assert {user for user, _ in found[0]} == set(HOSTILE)
    assert {item for _, item in found[0]} <= set(HOSTILE)
    assert not set(found[0]) & set(rows)  # what was clicked is not recommended


@contextmanager
def unlimited_fields():
    before = csv.field_size_limit(2**31 - 1)
    yield
    csv.field_size_limit(before)


WIDE_IDS = {
    "unsigned": pl.Series([2**64 - 1 - n for n in range(5)], dtype=pl.UInt64),
    "128 bits": pl.Series([2**100 + n for n in range(5)], dtype=pl.Int128),
    "signed": pl.Series([-(2**63) + n for n in range(5)], dtype=pl.Int64),
    "floats": pl.Series([n + 0.5 for n in range(5)]),
}


@pytest.mark.parametrize("name", WIDE_IDS)
def test_numbers_of_every_width_come_back_as_they_were(run, here, name):
    pl.DataFrame({"user": WIDE_IDS[name], "item": list("xyzxy")}).write_parquet("log.parquet")
    code, _, err = run("fit", "log.parquet", "--method", "popularity", "--out", "model")
    assert code == 0, err
    for out in ("recs.parquet", "recs.csv"):
        code, _, err = run("recommend", "model", "-k", "1", "--out", out)
        assert code == 0, err
    assert pl.read_parquet("recs.parquet")["user"].dtype == WIDE_IDS[name].dtype
    expected = sorted(WIDE_IDS[name].to_list())
    assert sorted(pl.read_parquet("recs.parquet")["user"].to_list()) == expected
    with open("recs.csv", newline="") as stream:
        assert sorted(line["user"] for line in csv.DictReader(stream)) == sorted(map(str, expected))


def test_ids_of_several_types_are_printed_as_text(run, here):
    from unexposed.data.read import read_log
    from unexposed.methods import make

    source = {"user": [1, "a", ("b", 2)], "item": ["x", "y", "z"]}
    make("popularity").fit(read_log(source)).save("model")
    for out in ("recs.csv", "recs.parquet"):
        code, _, err = run("recommend", "model", "-k", "1", "--out", out)
        assert code == 0, err
    assert pl.read_parquet("recs.parquet")["user"].to_list() == ["1", "a", "('b', 2)"]
    code, out, _ = run("recommend", "model", "-k", "1")
    assert Path("recs.csv").read_text() == out


def test_ids_that_cannot_be_saved_are_refused_before_training(run, here):
    dates = [date(2024, 1, day) for day in (1, 2, 3)]
    pl.DataFrame({"user": dates, "item": ["x", "y", "z"]}).write_parquet("log.parquet")
    code, _, err = run("fit", "log.parquet", "--out", "model")
    assert code == 2
    assert "ids of type date cannot be saved; use text" in err
    assert "epoch" not in err


def test_output_is_utf8_in_any_locale(here):
    Path("log.csv").write_text("user,item\n\U0001f600,é\nb,y\n", encoding="utf-8")
    run = [sys.executable, "-m", "unexposed"]
    subprocess.run([*run, *"fit log.csv --method popularity --out model".split()], check=True)
    done = subprocess.run(
        [*run, *"recommend model -k 1".split()],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.decode("utf-8").splitlines()[1:]) == [
        "b,é,1,1.0",
        "\U0001f600,y,1,1.0",
    ]


def test_compare_prints_exactly_one_json_document(run):
    code, out, err = run(
        *"compare --train log.csv --judged judged.csv --methods random,mf,bpr --seeds 2".split(),
        *"--set epochs=2 --set bpr.dim=7 --json".split(),
    )
    assert code == 0, err
    document = json.loads(out)
    assert document["protocol"] == "ubo-ijcai22"
    assert document["seeds"] == 2
    assert document["users"] == 12
    assert [r["method"] for r in document["results"]] == ["random", "mf", "bpr"]
    mf, bpr = document["results"][1:]
    assert (mf["settings"]["epochs"], bpr["settings"]["dim"]) == (2, 7)
    assert list(mf["metrics"]) == ["dcg@1", "dcg@2", "dcg@3", "map@1", "map@2", "map@3"]
    for metric in mf["metrics"].values():
        low, high = metric["ci95"]
        assert low <= metric["mean"] <= high
        assert metric["sd"] >= 0
    assert mf["seconds"] > 0


def test_compare_prints_a_table_with_a_row_for_each_method(run):
    code, out, _ = run(
        *"compare --train log.csv --judged judged.csv --methods random,popularity --seeds 2".split()
    )
    assert code == 0
    rows = [line.split()[0] for line in out.splitlines() if "±" in line and "mean" not in line]
    assert rows == ["random", "popularity"]
    assert "12 users" in out


@pytest.mark.data
def test_compare_on_coat_evaluates_237_users(run, data_dir):
    code, out, err = run(
        *"compare --dataset coat --methods popularity --seeds 1 --json --data-dir".split(),
        str(data_dir.resolve()),
    )
    assert code == 0, err
    assert json.loads(out)["users"] == 237


def test_datasets_shows_every_one_with_its_terms(run):
    code, out, _ = run("datasets", "--json", "--data-dir", ".")
    assert code == 0
    assert [row["name"] for row in json.loads(out)] == [
        "coat",
        "yahoo_r3",
        "ml_100k",
        "amazon_cds",
    ]
    code, out, _ = run("datasets")
    assert code == 0
    assert "terms" in out


def test_simulate_writes_clicks_judgements_and_the_truth(run, here):
    code, _, err = run(*"simulate --out world --users 30 --items 20 --seed 1".split())
    assert code == 0, err
    assert sorted(os.listdir("world")) == [
        "clicks.csv",
        "judged.csv",
        "truth.parquet",
        "world.json",
    ]
    truth = pl.read_parquet("world/truth.parquet")
    assert len(truth) == 600
    assert truth["exposure"].is_between(0, 1).all()
    code, _, err = run(
        *"compare --train world/clicks.csv --judged world/judged.csv --methods popularity".split(),
        *"--seeds 1 --json".split(),
    )
    assert code == 0, err


def bad_file(name: str, content: str | bytes) -> str:
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return name


def truncated_parquet() -> str:
    pl.read_csv("log.csv").write_parquet("whole.parquet")
    return bad_file("cut.parquet", Path("whole.parquet").read_bytes()[:-20])


def model(name: str = "popularity") -> str:
    from unexposed.data.read import read_log
    from unexposed.methods import make

    make(name).fit(read_log("log.csv")).save("model")
    return "model"


HUGE = str(10**23)
DATA = "[data]\nsimulate = { users = 30, items = 20 }\n"
EXPERIMENT = f"kind = 'compare'\nseeds = 1\n{DATA}[methods.popularity]\n"


def experiment(old: str = "", new: str = "") -> str:
    assert old in EXPERIMENT
    return bad_file("small.toml", EXPERIMENT.replace(old, new, 1))


def damaged_results() -> str:
    os.mkdir("results")
    bad_file("results/small.jsonl", '{"arm":"popularity","seed":0}\n{"arm":"popu\n')
    return experiment()


FIT = "fit {} --method popularity --out out"
COMPARE = "compare --train log.csv --judged {} --methods popularity --seeds 1"
BAD = {
    "no such file": (FIT, lambda: "nothing.csv", ["nothing.csv"]),
    "empty file": (FIT, lambda: bad_file("bad.csv", ""), ["bad.csv", "empty"]),
    "header only": (FIT, lambda: bad_file("bad.csv", "user,item\n"), ["bad.csv"]),
    "wrong delimiter": (
        FIT,
        lambda: bad_file("bad.csv", LOG.replace(",", ";")),
        ["bad.csv", "delimiter"],
    ),
    "missing column": (
        FIT + " --user custmer",
        lambda: bad_file("bad.csv", LOG.replace("user,", "customer,")),
        ["bad.csv", "custmer", "customer"],
    ),
    "null id": (FIT, lambda: bad_file("bad.csv", LOG + ",i1\n"), ["bad.csv", "line 38"]),
    "rating no number": (
        FIT,
        lambda: bad_file("bad.csv", "user,item,rating\na,x,5\nb,y,good\n"),
        ["bad.csv", "line 3", "good"],
    ),
    "negative rating": (
        FIT,
        lambda: bad_file("bad.csv", "user,item,rating\na,x,5\nb,y,-2\n"),
        ["bad.csv", "line 3"],
    ),
    "infinite rating": (
        FIT,
        lambda: bad_file("bad.csv", "user,item,rating\na,x,inf\nb,y,5\n"),
        ["bad.csv", "line 2"],
    ),
    "nothing above the threshold": (
        FIT + " --threshold 9",
        lambda: bad_file("bad.csv", "user,item,rating\na,x,5\nb,y,4\n"),
        ["bad.csv", "9"],
    ),
    "one user": (FIT, lambda: bad_file("bad.csv", "user,item\na,x\na,y\n"), ["bad.csv", "user"]),
    "one item": (FIT, lambda: bad_file("bad.csv", "user,item\na,x\nb,x\n"), ["bad.csv", "item"]),
    "binary": (FIT, lambda: bad_file("bad.csv", bytes(range(256)) * 9), ["bad.csv"]),
    "gzip cut short": (
        FIT,
        lambda: bad_file("bad.csv.gz", gzip.compress(LOG.encode())[:-30]),
        ["bad.csv.gz"],
    ),
    "truncated parquet": (FIT, truncated_parquet, ["cut.parquet"]),
    "a directory": (FIT, lambda: os.mkdir("folder") or "folder", ["folder"]),
    "unknown method": ("fit log.csv --method {} --out out", lambda: "bpp", ["did you mean 'bpr'"]),
    "several methods": ("fit log.csv --method {} --out out", lambda: "mf,bpr", ["one method"]),
    "unknown setting": (
        "fit log.csv --method mf --out out --set {}",
        lambda: "epoch=3",
        ["did you mean 'epochs'"],
    ),
    "judged strangers only": (
        COMPARE,
        lambda: bad_file("bad.csv", "user,item,relevance\nx,y,1\nz,y,0\n"),
        ["bad.csv"],
    ),
    "judged relevance 3": (
        COMPARE,
        lambda: bad_file("bad.csv", "user,item,relevance\nu1,i1,3\nu2,i1,0\n"),
        ["bad.csv", "relevance"],
    ),
    "nobody to evaluate": (
        COMPARE,
        lambda: bad_file("bad.csv", "user,item,relevance\nu1,i1,1\nu2,i1,1\n"),
        ["nobody"],
    ),
    "unknown protocol": (
        "compare --train log.csv --judged judged.csv --methods mf --protocol {}",
        lambda: "ubo",
        ["protocol 'ubo'"],
    ),
    "unknown data set": ("compare --dataset {} --methods mf", lambda: "coats", ["'coat'"]),
    "absent data set": (
        "compare --dataset yahoo_r3 --methods mf --data-dir {}",
        lambda: ".",
        ["yahoo_r3", "webscope"],
    ),
    "absent data folder": (
        "compare --dataset coat --methods mf --data-dir {}",
        lambda: "nowhere",
        ["nowhere does not exist"],
    ),
    "half a source": ("compare --train {} --methods mf", lambda: "log.csv", ["--judged"]),
    "no model": ("recommend {}", lambda: "log.csv", ["is not a model folder"]),
    "k too large": ("recommend {} -k 99", model, ["k must be between 1 and 7 items, got 99"]),
    "odd output name": ("recommend {} --out out.xlsx", model, ["out.xlsx", ".csv"]),
    "users twice": (
        "recommend {} --users ids.txt --new-clicks log.csv",
        model,
        ["--users or --new-clicks"],
    ),
    "no allowed item": (
        "recommend model -k 2 --allow {}",
        lambda: model() and bad_file("ids.txt", "x\ny\n"),
        ["none of the 2 items to allow"],
    ),
    "exposure that is not modelled": (
        "recommend {} -k 2 --minimum-exposure 0.5",
        model,
        ["popularity has no exposure model"],
    ),
    "newer clicks on unknown items only": (
        "recommend model --new-clicks {}",
        lambda: model() and bad_file("new.csv", "user,item\na,x\n"),
        ["none of these users has a click"],
    ),
    "similar to nothing": ("similar {}", model, ["--item ID or --user ID"]),
    "names of users": ("similar {} --user u1 --titles log.csv", model, ["names items"]),
    "a column of names without a file": (
        "recommend {} --title name",
        model,
        ["--titles gives: give both"],
    ),
    "names of other items": (
        "recommend model --titles {}",
        lambda: model() and bad_file("names.csv", "item,title\nx,y\n"),
        ["names.csv names no item of the model"],
    ),
    "similar without vectors": ("similar {} --item i1", model, ["has no item vectors"]),
    "unknown users": (
        "recommend model --users {}",
        lambda: model() and bad_file("ids.txt", "x\ny\n"),
        ["ids.txt"],
    ),
    "experiment: no file": ("run {}", lambda: "small.toml", ["small.toml"]),
    "experiment: no TOML": (
        "run {}",
        lambda: bad_file("small.toml", "kind = 1 2"),
        ["small.toml", "line 1"],
    ),
    "experiment: a date": ("run {}", lambda: experiment("1", "2026-11-15"), ["small.toml", "date"]),
    "experiment: unknown key": (
        "run {}",
        lambda: experiment("seeds", "seed"),
        ["small.toml", "'seed'; did you mean 'seeds'?"],
    ),
    "experiment: unknown kind": (
        "run {}",
        lambda: experiment("compare", "comparison"),
        ["no kind 'comparison'; did you mean 'compare'?"],
    ),
    "experiment: no data": ("run {}", lambda: experiment(DATA), ["small.toml", "no 'data'"]),
    "experiment: two sources of data": (
        "run {}",
        lambda: experiment("[data]", "[data]\ndataset = 'coat'"),
        ["[data] must name one of dataset, semi_synthetic, simulate, got 2"],
    ),
    "experiment: unknown data set": (
        "run {}",
        lambda: experiment(DATA, "[data]\ndataset = 'coats'\n"),
        ["[data]", "'coat'"],
    ),
    "experiment: absent data set": (
        "run {} --data-dir .",
        lambda: experiment(DATA, "[data]\ndataset = 'yahoo_r3'\n"),
        ["yahoo_r3", "webscope"],
    ),
    "experiment: no power": (
        "run {}",
        lambda: experiment(DATA, "[data]\nsemi_synthetic = 'ml_100k'\npower = 0\n"),
        ["power must be above 0"],
    ),
    "experiment: wrong type": (
        "run {}",
        lambda: experiment("seeds = 1", "seeds = '1'"),
        ["small.toml: seeds must be a whole number, got '1'"],
    ),
    "experiment: no seeds": ("run {}", lambda: experiment("= 1", "= 0"), ["at least 1, got 0"]),
    "experiment: unknown protocol": (
        "run {}",
        lambda: experiment("seeds", "also = ['judge']\nseeds"),
        ["small.toml", "'judge'", "'judged'"],
    ),
    "experiment: no methods": (
        "run {}",
        lambda: experiment("[methods.popularity]"),
        ["small.toml", "[methods.mf]"],
    ),
    "experiment: unknown method": (
        "run {}",
        lambda: experiment("[methods.popularity]", "[methods.bpp]"),
        ["small.toml, bpp", "did you mean 'bpr'"],
    ),
    "experiment: unknown setting": (
        "run {}",
        lambda: experiment("[methods.popularity]", "[methods.mf]\nsettings = {epoch = 1}"),
        ["small.toml, mf", "did you mean 'epochs'"],
    ),
    "experiment: a setting nobody has": (
        "run {}",
        lambda: experiment("[methods.popularity]", "[settings]\nepoch = 1\n[methods.mf]"),
        ["small.toml", "did you mean 'epochs'"],
    ),
    "experiment: study missing": (
        "run {}",
        lambda: experiment("[methods.popularity]", "[methods.ubo]\nstudy = 'tuning/ubo.json'"),
        [
            "results/tuning/ubo.json",
            "unexposed tune --train LOG --methods ubo --out results/tuning",
        ],
    ),
    "experiment: unknown arm": ("run {} --only mf", experiment, ["small has no arm 'mf'"]),
    "experiment: damaged results": ("run {}", damaged_results, ["results/small.jsonl, line 2"]),
    "a seed beyond 64 bits": ("fit log.csv --out model --seed {}", lambda: HUGE, ["seed must be"]),
    "a dim beyond 64 bits": ("fit log.csv --out model --set dim={}", lambda: HUGE, ["dim must be"]),
    "users beyond 32 bits": ("simulate --out w --users {}", lambda: HUGE, ["n_users must be"]),
    "experiment: results in a file": ("run {} --out log.csv", experiment, ["log.csv"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_exit_code_2_one_sentence_and_no_file(run, here, monkeypatch, case):
    monkeypatch.delenv("UNEXPOSED_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    words, prepare, named = BAD[case]
    words = words.format(prepare()).split()
    before = set(here.rglob("*"))
    code, out, err = run(*words)
    assert code == 2, err
    assert out == ""
    last = err.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert "Traceback" not in err
    for word in named:
        assert word in last
    assert set(here.rglob("*")) == before


def test_strangers_among_the_judged_are_counted_not_fatal(run):
    Path("judged.csv").write_text(JUDGED + "stranger,i1,1\nu1,novelty,0\n")
    code, _, err = run(
        *"compare --train log.csv --judged judged.csv --methods mf".split(),
        *"--set epochs=1 --seeds 1".split(),
    )
    assert code == 0
    assert "left out 2 of 86 judged pairs" in err


def test_an_output_that_exists_is_never_half_written(run, here):
    model()
    Path("recs.csv").write_text("precious")
    code, _, _ = run("recommend", "model", "-k", "99", "--out", "recs.csv")
    assert code == 2
    assert Path("recs.csv").read_text() == "precious"


def test_a_place_that_is_no_model_is_refused_before_training(run, here):
    Path("taken").mkdir()
    Path("taken/notes.txt").write_text("mine")
    code, _, err = run("fit", "log.csv", "--out", "taken")
    assert code == 2
    assert "epoch" not in err


def test_help_names_every_command(run):
    code, out, _ = run("--help")
    assert code == 0
    for command in cli.app.registered_commands:
        assert command.callback.__name__ in out


def test_help_and_version_do_not_wait_for_torch():
    code = (
        "import sys; import unexposed.cli as c; sys.argv = ['unexposed', '--version']\n"
        "try: c.main()\nexcept SystemExit: pass\n"
        "assert not {'numpy', 'polars', 'torch', 'numba', 'matplotlib'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("unexposed ")


def test_ctrl_c_during_fit_keeps_the_best_model_so_far(here):
    rng = np.random.default_rng(0)
    pairs = rng.integers(300, size=(6000, 2))
    Path("big.csv").write_text("user,item\n" + "".join(f"{u},{i}\n" for u, i in pairs))
    words = "fit big.csv --method mf --out model --set epochs=100000 --set patience=0".split()
    child = subprocess.Popen(
        [sys.executable, "-m", "unexposed", *words], stderr=subprocess.PIPE, text=True
    )
    for line in child.stderr:
        if "epoch" in line:
            break
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    assert "(interrupted)" in err
    from unexposed.methods import load

    model = load("model", verify=True)
    assert isinstance(model.clicks, Clicks)
    assert 1 <= model.facts["best_epoch"] <= model.facts["epochs_run"] == len(model.facts["losses"])
    assert sorted(p.name for p in here.iterdir()) == ["big.csv", "judged.csv", "log.csv", "model"]


def test_resume_says_where_it_goes_on_what_is_not_there_and_what_differs(run, here, monkeypatch):
    from unexposed.model import save as storage

    words = "fit log.csv --out model --set epochs=4 --checkpoint-every 0".split()
    code, _, err = run(*words, "--resume")
    assert code == 0, err
    assert "model.checkpoint to resume from: training from the start" in err

    def full(*_: object) -> None:
        raise cli.InputError("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(storage, "save", full)
        code, _, err = run(*words)
    assert code == 2
    assert Path("model.checkpoint").is_dir()
    code, _, err = run(*words, "--resume", "--set", "dim=7")
    assert code == 2
    assert "dim was 64 and is now 7" in err.splitlines()[-1]
    code, _, err = run(*words, "--resume")
    assert code == 0, err
    assert "mf: resumed at epoch 4 of 4" in err
    assert "(all epochs done, resumed at epoch 4)" in err
    assert not Path("model.checkpoint").exists()


def saved_at() -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in Path("model").iterdir()}


@pytest.mark.parametrize("method", ["mf", "popularity", "ubo"])
def test_a_finished_training_is_not_resumed_but_said_to_be_finished(run, here, method):
    words = f"fit log.csv --out model --method {method}".split()
    words += ["--set", "epochs=2"] if method != "popularity" else []
    code, _, err = run(*words, "--resume")
    assert code == 0, err
    assert "model.checkpoint to resume from: training from the start" in err
    before = saved_at()
    code, out, err = run(*words, "--resume")
    assert (code, out) == (0, "")
    assert err.splitlines()[-1].startswith("model holds this training, finished; to train it again")
    assert saved_at() == before
    code, _, err = run(*words)
    assert code == 0, err
    assert saved_at() != before


OTHERS = {
    "--set dim=7": "dim was 64 and is now 7",
    "--seed 1": "the seed was 0 and is now 1",
    "--engine reference": "the engine was cpu and is now reference",
    "--method bpr": "the method was mf and is now bpr",
    "--threshold 1": "the log was 32 clicks",
}


@pytest.mark.parametrize("words", OTHERS)
def test_a_finished_training_of_other_things_gives_way_and_what_differs_is_said(run, here, words):
    fit = "fit log.csv --out model --set epochs=2".split()
    run(*fit)
    before = saved_at()
    if "threshold" in words:
        log = pl.read_csv("log.csv")
        log.with_columns(rating=pl.int_range(len(log)) % 3).write_csv("log.csv")
    code, _, err = run(*fit, *words.split(), "--resume")
    assert code == 0, err
    assert f"model holds another training: {OTHERS[words]}" in err
    assert saved_at() != before


def test_an_interrupted_a_damaged_and_an_updated_model_are_not_finished(run, here, monkeypatch):
    fit = "fit log.csv --out model --set epochs=2".split()
    from unexposed.methods import load
    from unexposed.model.save import save

    run(*fit)
    model = load("model")
    save(replace(model, facts=model.facts | {"ended": "interrupted"}), Path("model"))
    code, _, err = run(*fit, "--resume")
    assert code == 0, err
    assert "model holds another training: it was interrupted after epoch 2" in err
    Path("model/arrays.safetensors").write_bytes(b"x")
    code, _, err = run(*fit, "--resume")
    assert code == 0, err
    assert "model/arrays.safetensors is damaged" in err
    assert "training from the start" in err
    run(*"update model log.csv --out model --epochs 1".split())
    code, _, err = run(*fit, "--resume")
    assert code == 0, err
    assert "it was given more than a log" in err


def test_a_training_begun_anew_says_what_it_writes_over(run, here, monkeypatch):
    from unexposed.model import save as storage

    with monkeypatch.context() as broken:
        broken.setattr(storage, "save", lambda *_: sys.exit(3))
        run(*"fit log.csv --out model --set epochs=2 --checkpoint-every 0".split())
    code, _, err = run(*"fit log.csv --out model --set epochs=2".split())
    assert code == 0
    assert "writing over the unfinished training in" in err
    assert "resumed" not in err


def test_the_doctor_says_what_a_model_is_and_finds_a_changed_byte(run, here):
    run(*"fit log.csv --out model --set epochs=2 --set dim=7".split())
    code, out, err = run("doctor", "model")
    assert code == 0, err
    assert "item_factors = 7 × 7" in out
    assert "learning_rate = 0.001" in out
    assert not re.search(r"\.\d{8}", out)  # nobody reads sixteen digits
    assert "every checksum is right" in out
    code, out, _ = run("doctor", "model", "--json")
    document = json.loads(out)
    assert (document["users"], document["settings"]["dim"], document["format"]) == (12, 7, 3)
    arrays = bytearray(Path("model/arrays.safetensors").read_bytes())
    arrays[-1] ^= 1
    Path("model/arrays.safetensors").write_bytes(arrays)
    code, out, err = run("doctor", "model")
    assert (code, out) == (2, "")
    assert "model/arrays.safetensors is damaged" in err


def test_memory_that_runs_out_ends_in_one_sentence_with_the_cure(here):
    limit = 8 << 30  # of addresses; the interpreter with all it loads takes less than 2 GiB
    child = subprocess.run(
        [sys.executable, "-m", "unexposed", *"fit log.csv --out model --set dim=200000000".split()],
        env=os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.returncode == 2, child.stderr
    assert "Traceback" not in child.stderr
    assert "used up (Unable to allocate" in child.stderr.splitlines()[-1]
    assert "lower dim" in child.stderr.splitlines()[-1]
    assert not list(here.glob("model*"))


def test_eight_fits_at_once_into_folders_of_their_own_are_like_one_alone(here):
    words = "fit log.csv --method mf --set epochs=3 --checkpoint-every 0 --out".split()
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "unexposed", *words, f"model {n}"],
            env=os.environ | {"OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        for n in range(8)
    ]
    for child in children:
        _, err = child.communicate(timeout=300)
        assert child.returncode == 0, err
    assert len({(here / f"model {n}/arrays.safetensors").read_bytes() for n in range(8)}) == 1
    assert len(list(here.iterdir())) == 10


def test_every_method_can_be_compared_from_the_command_line(run):
    names = ",".join(METHODS)
    code, out, err = run(
        *"compare --train log.csv --judged judged.csv --seeds 1 --json --set epochs=1".split(),
        "--methods",
        names,
    )
    assert code == 0, err
    assert [r["method"] for r in json.loads(out)["results"]] == list(METHODS)


# Serving


@pytest.fixture
def umf(run, here):
    code, _, err = run(
        *"fit log.csv --method umf --out model --set epochs=5 --set initial_scale=0.5".split()
    )
    assert code == 0, err


def lines(text: str) -> list[list[str]]:
    return [line.split(",") for line in text.splitlines()]


def test_recommend_keeps_to_lists_of_items(run, umf):
    Path("some.txt").write_text("i1\ni2\nnovelty\n")
    code, out, err = run(*"recommend model -k 7 --show-clicked --allow some.txt".split())
    assert code == 0, err
    assert {row[1] for row in lines(out)[1:]} == {"i1", "i2"}
    assert "some.txt: the model never saw 1 of 3 items" in err
    code, out, _ = run(*"recommend model -k 7 --show-clicked --deny some.txt".split())
    assert code == 0
    assert {row[1] for row in lines(out)[1:]} == {"i0", "i3", "i4", "i5", "i6"}


def test_recommend_keeps_to_candidates_exposure_and_penalty(run, umf):
    Path("pairs.csv").write_text("rating,user,item\n1,u3,i4\n1,u3,i5\n2,u5,i1\n")
    Path("ids.txt").write_text("u3\nu5\nu7\n")
    base = "recommend model --users ids.txt -k 7 --show-clicked"
    code, out, err = run(*base.split(), "--candidates", "pairs.csv")
    assert code == 0, err
    pairs = {(row[0], row[1]) for row in lines(out)[1:]}
    assert pairs == {("u3", "i4"), ("u3", "i5"), ("u5", "i1")}
    _, out, _ = run(*base.split(), "--minimum-exposure", "0.9")
    header, *rows = lines(out)
    assert header == ["user", "item", "rank", "score", "relevance", "exposure"]
    assert rows
    assert all(float(row[5]) >= 0.9 for row in rows)
    _, out, _ = run(*base.split(), "--popularity-penalty", "100")
    clicks = pl.read_csv("log.csv").unique().group_by("item").len()
    counts = dict(clicks.iter_rows())
    ranked = [counts[row[1]] for row in lines(out)[1:8]]
    assert ranked == sorted(ranked)


def test_users_the_model_never_saw_get_what_is_asked_for_them(run, umf):
    Path("ids.txt").write_text("ghost\nu1\n")
    words = "recommend model --users ids.txt -k 2 --unknown".split()
    code, out, err = run(*words, "popular")
    assert code == 0
    assert [(row[0], row[-1]) for row in lines(out)[1:]] == [
        *[("ghost", "false")] * 2,
        *[("u1", "true")] * 2,
    ]
    assert "the popular list goes to 1 user the model never saw, first 'ghost'" in err
    code, out, err = run(*words, "refuse")
    assert (code, out) == (2, "")
    assert "never trained on user 'ghost'" in err
    code, out, _ = run(*words, "guess")
    assert (code, out) == (2, "")


def test_users_of_a_newer_log_are_folded_in(run, umf):
    Path("newer.csv").write_text("user,item\nnew,i1\nnew,i2\nu3,i5\nlost,novelty\n")
    code, out, err = run(*"recommend model --new-clicks newer.csv -k 3".split())
    assert code == 0, err
    rows = lines(out)[1:]
    assert [row[0] for row in rows if row[2] == "1"] == ["new", "u3"]
    assert not {row[1] for row in rows if row[0] == "new"} & {"i1", "i2"}
    assert "i5" not in {row[1] for row in rows if row[0] == "u3"}
    assert "left out 1 user the model never saw" in err
    code, out, err = run(
        *"recommend model --new-clicks newer.csv --unknown popular --out recs.parquet -k 3".split()
    )
    assert code == 0, err
    table = pl.read_parquet("recs.parquet")
    assert table.filter(~pl.col("known"))["user"].to_list() == ["lost"] * 3
    assert "recommendations for 3 users" in err


TITLES = "film;title\ni1;One, or the first\ni3;Three\nnovelty;none of ours\n"


def test_lists_and_similar_items_show_the_names_of_items(run, umf):
    Path("names.csv").write_text(TITLES)
    words = "--titles names.csv --delimiter ;".split()
    code, out, err = run(*"recommend model -k 7 --show-clicked".split(), *words)
    assert code == 0, err
    rows = list(csv.DictReader(out.splitlines()))
    assert list(rows[0])[:4] == ["user", "item", "title", "rank"]
    assert {row["item"]: row["title"] for row in rows} == {
        **{f"i{n}": "" for n in (0, 2, 4, 5, 6)},
        "i1": "One, or the first",
        "i3": "Three",
    }
    assert "names.csv: names of 2 of 7 items" in err
    code, _, err = run(*"recommend model -k 7 --show-clicked --out r.parquet".split(), *words)
    assert code == 0, err
    table = pl.read_parquet("r.parquet")
    assert set(table.filter(item="i3")["title"]) == {"Three"}
    Path("names.csv").write_text(TITLES.replace(";", "\t"))
    Path("names.csv").rename("names.tsv")
    code, out, err = run(*"similar model --item i3 -k 6 --titles names.tsv --json".split())
    assert code == 0, err
    assert {row["item"]: row["title"] for row in json.loads(out)}["i1"] == "One, or the first"


def test_the_delimiter_is_that_of_the_newer_log_where_there_is_one(run, umf):
    Path("names.csv").write_text(TITLES.replace(";", "|").replace(",", "").replace("|", ","))
    Path("newer.csv").write_text("user;item\nnew;i1\n")
    words = "recommend model --new-clicks newer.csv --delimiter ; --titles names.csv -k 2"
    code, out, err = run(*words.split())
    assert code == 0, err
    assert out.splitlines()[0].startswith("user,item,title,rank")


def test_similar_items_and_users_are_printed(run, umf):
    code, out, err = run(*"similar model --item i3 -k 2".split())
    assert code == 0, err
    assert [row[0] for row in lines(out)] == ["item", *(row[0] for row in lines(out)[1:])]
    assert len(lines(out)) == 3
    assert "i3" not in out
    code, out, _ = run(*"similar model --user u3 -k 2 --json".split())
    assert code == 0
    assert [row["rank"] for row in json.loads(out)] == [1, 2]


def test_update_writes_a_model_that_knows_the_newcomers(run, umf):
    Path("newer.csv").write_text("user,item\nnew,i1\nnew,novelty\nu3,i5\n")
    code, out, err = run(*"update model newer.csv --out model2 --epochs 2".split())
    assert code == 0, err
    assert out == ""
    assert "3 newer clicks, 1 new users and 1 new items" in err
    Path("ids.txt").write_text("new\n")
    code, out, _ = run(*"recommend model2 --users ids.txt -k 5".split())
    assert code == 0
    assert not {row[1] for row in lines(out)} & {"i1", "novelty"}


def test_ctrl_c_during_recommend_leaves_nothing_behind(here):
    from unexposed.data.ids import Ids
    from unexposed.methods import make
    from unexposed.progress import Silent

    n = 20_000
    clicks = Clicks.from_pairs(
        np.arange(n), np.arange(n), user_ids=Ids.range(n), item_ids=Ids.range(n)
    )
    make("popularity").fit(clicks, progress=Silent()).save("big")
    Path("recs.parquet").write_text("precious")
    before = sorted(os.listdir())
    child = subprocess.Popen(
        [sys.executable, "-m", "unexposed", *"recommend big --out recs.parquet".split()],
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while sorted(os.listdir()) == before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sorted(os.listdir()) != before  # it is being written
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert "Traceback" not in err
    assert sorted(os.listdir()) == before
    assert Path("recs.parquet").read_text() == "precious"
