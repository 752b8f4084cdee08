"""Files of features and of random traffic, from the command line to the lists."""

import csv
import json
from pathlib import Path

import pytest

from unexposed.methods import load

ITEMS = "sku,colour,price\n" + "".join(f"i{i},{'rb'[i % 2]},{i % 3}\n" for i in range(9))
USERS = "user,side,age\n" + "".join(f"u{u},{'lr'[u % 2]},{20 + u}\n" for u in range(12))
FILES = {
    "items.csv": ITEMS,
    "users.csv": USERS,
    "new.csv": "user,item\na,i1\na,i2\nb,i1\nb,i2\n",
    "new_users.csv": "user,side,age\na,l,20\nb,r,31\n",
    "random.csv": "user,item,relevance\n"
    + "".join(f"u{u},i{i},{int(i % 2 == 0)}\n" for u in range(12) for i in (0, 3, 4, 5)),
}
QUICK = "--set epochs=2 --set dim=4"


@pytest.fixture(autouse=True)
def files(here):
    for name, text in FILES.items():
        Path(name).write_text(text)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_items_of_the_file_without_a_click_are_recommended(done):
    _, err = done(f"fit log.csv --method mf --item-features items.csv --out model {QUICK}")
    assert "items.csv: item = sku, colour categories (2), price a number" in err
    assert "items.csv: 2 items without a click join the catalogue" in err
    out, _ = done("recommend model -k 9 --show-clicked")
    assert {row["item"] for row in rows(out)} == {f"i{i}" for i in range(9)}


def test_an_update_needs_the_features_of_all_items_and_says_which_have_none(done, run):
    done(f"fit log.csv --method mf --item-features items.csv --out model {QUICK}")
    code, _, err = run("update model new.csv --out again")
    assert code == 2
    assert "--item-features" in err
    Path("more.csv").write_text(ITEMS.replace("i0,r,0\n", "") + "i9,r,1\n")
    _, err = done("update model new.csv --item-features more.csv --out again --epochs 1")
    assert "1 of 9 items are not in it" in err
    assert load("again").item_ids.values.tolist()[-1] == "i9"


def test_compare_and_tune_give_features_to_the_methods_that_use_them(done):
    line = "compare --train log.csv --judged judged.csv --methods popularity,mf --seeds 1 --json"
    out, err = done(f"{line} --item-features items.csv --set epochs=5 --set learning_rate=0.1")
    assert "popularity cannot use item_features, and learn from clicks alone" in err
    without, _ = done(f"{line} --set epochs=5 --set learning_rate=0.1")
    one, other = (json.loads(text)["results"][1]["metrics"] for text in (out, without))
    assert one != other
    done("tune --train log.csv --methods mf --trials 1 --item-features items.csv --out tuned")
    assert '"item_features"' in Path("tuned/log_mf.json").read_text()


def test_fit_and_compare_learn_from_traffic_that_does_not_judge(run, done):
    _, err = done(f"fit log.csv --method mf --out model --traffic random.csv {QUICK}")
    assert "random.csv: user = user, item = item, relevant is relevance = 1" in err
    assert load("model").facts["traffic"] == 48
    words = f"compare --train log.csv --methods mf,popularity --seeds 1 {QUICK} --json"
    code, _, err = run(f"{words} --judged judged.csv --traffic random.csv")
    assert code == 2
    assert "the random traffic and the judged pairs share 48 pairs" in err
    traffic = {line.rsplit(",", 1)[0] for line in FILES["random.csv"].splitlines()[1:]}
    judged = Path("judged.csv").read_text().splitlines()
    rest = [line for line in judged if line.rsplit(",", 1)[0] not in traffic]
    Path("judged.csv").write_text("\n".join(rest) + "\n")
    out, err = done(f"{words} --judged judged.csv --traffic random.csv")
    assert len(json.loads(out)["results"]) == 2
    assert "popularity cannot use traffic, and learn from clicks alone" in err


def test_tune_by_traffic_judges_trials_by_it(run, done):
    pytest.importorskip("optuna")
    words = f"tune --train log.csv --methods mf,ease --out studies --trials 1 {QUICK}"
    out, err = done(f"{words} --traffic random.csv --criterion traffic --json")
    assert [study["method"] for study in json.loads(out)] == ["mf", "ease"]
    assert "mf: quality on random traffic" in err


REFUSED = {
    "fit log.csv --method popularity --item-features items.csv --out out": "popularity cannot use",
    "fit log.csv --method mf --item-features users.csv --out out": "has no column of item",
    "compare --dataset coat --methods mf --item-features items.csv": "belong to --train",
    "recommend model --user-features users.csv": "give their --new-clicks",
    "tune --train log.csv --methods mf --out out --criterion traffic": "needs --traffic FILE",
}


@pytest.mark.parametrize("line", REFUSED)
def test_features_and_traffic_that_have_no_use_are_refused(run, line):
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert REFUSED[line] in err.splitlines()[-1]
    assert not Path("out").exists()
