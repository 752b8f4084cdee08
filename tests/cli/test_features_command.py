"""`--user-features` and `--item-features`: files of features from the command line to the lists."""

import csv
import json
from pathlib import Path

import pytest

from unexposed.methods import load

ITEMS = "sku,colour,price\n" + "".join(f"i{i},{'rb'[i % 2]},{i % 3}\n" for i in range(9))
USERS = "user,side,age\n" + "".join(f"u{u},{'lr'[u % 2]},{20 + u}\n" for u in range(12))
NEW_LOG = "user,item\na,i1\na,i2\nb,i1\nb,i2\n"
NEW_USERS = "user,side,age\na,l,20\nb,r,31\n"
QUICK = "--set epochs=2 --set dim=4"

FAST = "--set exposure_learning_rate=0.05"


@pytest.fixture(autouse=True)
def files(here):
    for name, text in {
        "items.csv": ITEMS,
        "users.csv": USERS,
        "new.csv": NEW_LOG,
        "new_users.csv": NEW_USERS,
    }.items():
        Path(name).write_text(text)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_items_of_the_file_without_a_click_are_recommended(done):
    _, err = done(f"fit log.csv --method mf --item-features items.csv --out model {QUICK}")
    assert "items.csv: item = sku, colour categories (2), price a number" in err
    assert "items.csv: 2 items without a click join the catalogue" in err
    assert "features run on the reference engine" in err
    out, _ = done("recommend model -k 9 --show-clicked")
    assert {row["item"] for row in rows(out)} == {f"i{i}" for i in range(9)}


def test_users_of_a_newer_log_have_an_exposure_of_their_own_from_their_features(done):
    done(f"fit log.csv --method ubo --user-features users.csv --out model {QUICK} {FAST}")
    own, err = done("recommend model --new-clicks new.csv --user-features new_users.csv -k 3")
    assert "new_users.csv: user = user, side categories (2), age a number" in err
    shared, _ = done("recommend model --new-clicks new.csv -k 3")

    def exposures(text: str) -> list[dict[str, str]]:
        return [
            {row["item"]: row["exposure"] for row in rows(text) if row["user"] == user}
            for user in ("a", "b")
        ]

    first, second = exposures(own)
    assert all(first[item] != second[item] for item in first.keys() & second.keys())
    first, second = exposures(shared)
    assert first == second  # the same clicks, the same mean exposure


def test_an_update_needs_the_features_of_all_users_and_items_and_says_who_has_none(done, run):
    done(f"fit log.csv --method mf --item-features items.csv --out model {QUICK}")
    code, _, err = run("update model new.csv --out again")
    assert code == 2
    assert "--item-features" in err
    Path("more.csv").write_text(ITEMS.replace("i0,r,0\n", "") + "i9,r,1\n")
    _, err = done("update model new.csv --item-features more.csv --out again --epochs 1")
    assert "1 of 9 items are not in it" in err
    assert "more.csv: 1 items without a click join the catalogue" in err
    assert load("again").item_ids.values.tolist()[-1] == "i9"


def test_compare_gives_features_to_the_methods_that_use_them_and_names_the_others(done):
    Path("known.csv").write_text(ITEMS.replace("i7,b,1\ni8,r,2\n", ""))  # no new item
    line = "compare --train log.csv --judged judged.csv --methods popularity,mf --seeds 1 --json"
    out, err = done(f"{line} --item-features known.csv --set epochs=5 --set learning_rate=0.1")
    assert "popularity cannot use item_features, and learn from clicks alone" in err
    without, _ = done(f"{line} --set epochs=5 --set learning_rate=0.1")
    one, other = ([r["metrics"] for r in json.loads(text)["results"]] for text in (out, without))
    for same, metric in ((True, 0), (False, 1)):
        means = [[m["mean"] for m in found[metric].values()] for found in (one, other)]
        assert (means[0] == means[1]) == same


def test_tune_searches_with_features(done):
    line = "tune --train log.csv --methods mf --trials 1 --set epochs=1"
    done(f"{line} --item-features items.csv --out tuned")
    assert '"item_features"' in Path("tuned/log_mf.json").read_text()


REFUSED = {
    "fit log.csv --method popularity --item-features items.csv --out out": "popularity cannot use",
    "fit log.csv --method mf --user-features users.csv --out out": "mf cannot use user_features",
    "fit log.csv --method mf --item-features users.csv --out out": "has no column of item",
    "compare --dataset coat --methods mf --item-features items.csv": "belong to --train",
    "recommend model --user-features users.csv": "give their --new-clicks",
}


@pytest.mark.parametrize("line", REFUSED)
def test_features_that_have_no_use_are_refused(run, line):
    code, out, err = run(line)
    assert (code, out) == (2, "")
    assert REFUSED[line] in err.splitlines()[-1]
    assert not Path("out").exists()
