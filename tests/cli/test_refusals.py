"""A user's mistake ends in exit code 2, one sentence that names it, and no new file."""

from pathlib import Path

import pytest

from command import LOG
from unexposed.data.log import read_log
from unexposed.methods import make


@pytest.fixture
def refused(run, here):
    def refused(line: str) -> str:
        before = set(here.rglob("*"))
        code, out, err = run(line)
        assert (code, out) == (2, ""), err
        assert "Traceback" not in err
        assert set(here.rglob("*")) == before
        last = err.strip().splitlines()[-1]
        assert last.startswith("error: ")
        return last

    return refused


LOGS = {  # what a file holds, further options, and the words of the refusal
    "no header": ("u1,i1,5.0\nu2,i2,3.0\n", "", "first line seems to be a row"),
    "wrong delimiter": (LOG.replace(",", ";"), "", "delimiter"),
    "missing column": (LOG.replace("user,", "customer,"), "--user custmer", "custmer customer"),
    "one item": ("user,item\na,x\nb,x\n", "", "item"),
}


@pytest.mark.parametrize("case", LOGS)
def test_a_log_that_cannot_be_learned_from_is_refused(refused, case):
    content, more, words = LOGS[case]
    Path("bad.csv").write_text(content)
    sentence = refused(f"fit bad.csv --method popularity --out out {more}")
    assert all(word in sentence for word in ["bad.csv", *words.split()])


JUDGED = {
    "x,y,1\nz,y,0\n": "bad.csv",  # strangers only
    "u1,i1,3\nu2,i1,0\n": "relevance",
    "u1,i1,1\nu2,i1,1\n": "nobody",  # with a relevant and an irrelevant item
}


@pytest.mark.parametrize("rows", JUDGED)
def test_judged_pairs_that_cannot_evaluate_anybody_are_refused(refused, rows):
    Path("bad.csv").write_text("user,item,relevance\n" + rows)
    line = "compare --train log.csv --judged bad.csv --methods popularity --protocol judged"
    assert JUDGED[rows] in refused(line)


HUGE = 10**23
LINES = {
    "fit log.csv --method bpp --out out": "did you mean 'bpr'",
    "fit log.csv --method mf,bpr --out out": "one method",
    "fit log.csv --out out --set epoch=3": "did you mean 'epochs'",
    f"fit log.csv --out out --seed {HUGE}": "seed must be",
    f"fit log.csv --out out --set dim={HUGE}": "dim must be",
    f"simulate --out w --users {HUGE}": "n_users must be",
    "compare --train log.csv --judged judged.csv --methods mf --protocol ubo": "protocol 'ubo'",
    "compare --dataset coats --methods mf": "'coat'",
    "compare --dataset yahoo_r3 --methods mf --data-dir .": "webscope",
    "compare --dataset coat --methods mf --data-dir nowhere": "nowhere does not exist",
    "recommend log.csv": "there is no model log.csv.safetensors",
    "recommend model -k 99 --out taken.csv": "k must be between 1 and 7 items, got 99",
    "recommend model --out out.xlsx": ".csv",
    "recommend model --users ids.txt": "none of the users in ids.txt",
    "recommend model --users ids.txt --new-clicks log.csv": "--users or --new-clicks",
    "recommend model -k 2 --users ids.txt --unknown refuse": "never trained on user 'x'",
    "recommend model --unknown guess": "guess",
    "recommend model -k 2 --allow ids.txt": "none of the 2 items to allow",
    "recommend model -k 2 --minimum-exposure 0.5": "popularity has no exposure model",
    "recommend model --new-clicks new.csv": "none of these users has a click",
    "recommend model --title name": "--titles gives: give both",
    "recommend model --titles new.csv --title user": "new.csv names no item of the model",
    "simulate --out world --dataset ml_100k --generator siato": "did you mean 'saito'",
    "simulate --out world --attention 0.3": "add --impressions",
    "simulate --out world --impressions --attention 0": "attention must lie in",
    "similar model --item i1": "has no item vectors",
}


@pytest.mark.parametrize("line", LINES)
def test_impossible_options_are_refused(refused, line):
    make("popularity").fit(read_log("log.csv")).save("model")
    Path("ids.txt").write_text("x\ny\n")
    Path("new.csv").write_text("user,item\na,x\n")
    Path("taken.csv").write_text("precious")
    assert LINES[line] in refused(line)
    assert Path("taken.csv").read_text() == "precious"


DATA = "[data]\nsimulate = { users = 30, items = 20 }\n"
EXPERIMENT = f"kind = 'compare'\nseeds = 1\n{DATA}[methods.popularity]\n"
ARM = "[methods.popularity]"
SPECS = {  # what replaces what in the file → words of the refusal
    ("1", "1 2"): ["small.toml", "line 2"],
    ("seeds", "seed"): ["small.toml", "'seed'; did you mean 'seeds'?"],
    (DATA, "[data]\ndataset = 'yahoo_r3'\n"): ["yahoo_r3", "webscope"],
    (ARM, "[methods.bpp]"): ["small.toml, bpp", "did you mean 'bpr'"],
    (ARM, "[methods.ubo]\nstudy = 'tuning/ubo.json'"): [
        "results/tuning/ubo.json",
        "unexposed tune small.toml --only ubo",
    ],
}


@pytest.mark.parametrize("change", SPECS, ids=[" → ".join(change) for change in SPECS])
def test_an_experiment_file_that_cannot_be_run_is_refused(refused, change):
    Path("small.toml").write_text(EXPERIMENT.replace(*change, 1))
    sentence = refused("run small.toml --data-dir .")
    assert all(word in sentence for word in SPECS[change])


def test_an_experiment_without_a_file_an_arm_or_a_place_for_results_is_refused(refused):
    assert "small.toml" in refused("run small.toml")
    Path("small.toml").write_text(EXPERIMENT)
    assert "small has no arm 'mf'" in refused("run small.toml --only mf")
    assert "log.csv" in refused("run small.toml --out log.csv")
