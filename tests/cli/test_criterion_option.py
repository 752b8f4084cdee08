"""The option `--criterion`, and what commands say where criteria disagree."""

import json
from pathlib import Path

import pytest

from unexposed.data.worlds.simulate import world
from unexposed.data.write import click_table, write_table
from unexposed.methods import load
from unexposed.ranking import held_out


@pytest.fixture
def log(here):
    write_table(click_table(world(120, 30, seed=0).clicks(seed=0)), Path("shop.csv"))


def test_a_criterion_sets_what_chooses_the_epoch_unless_it_is_assigned(log, done, run):
    done("fit shop.csv --out model --criterion wtd --set epochs=1")
    method = load("model").method
    assert method.criterion == "wtd"
    done("fit shop.csv --out other --criterion wtd --set epochs=1 --set criterion=plain")
    assert load("other").method.criterion == "plain"
    code, _, err = run("fit shop.csv --out model --criterion wdt")
    assert code == 2
    assert "no criterion 'wdt'; did you mean 'wtd'" in err


@pytest.fixture
def stars(here):
    """A log of ratings: five stars are clicks, two stars were seen and not liked."""
    made = world(60, 30, exposure_rate=0.4, relevance_rate=0.4, seed=0)
    liked, seen = made.clicks(0), made.disliked(0)
    rows = [f"{u},{i},5" for u, i in zip(liked.users, liked.items, strict=True)]
    rows += [f"{u},{i},2" for u, i in zip(seen.users, seen.items, strict=True)]
    Path("stars.csv").write_text("\n".join(["user,item,stars", *rows, ""]), encoding="utf-8")


def test_ratings_below_the_threshold_can_choose(stars, done, run):
    asked = "stars.csv --rating stars --threshold 4 --criterion shown"
    code, _, err = run(f"fit {asked} --out model --set epochs=1")
    assert code == 2
    assert "needs impressions" in err
    assert "--shown below" in err
    assert not Path("model").exists()
    for method in ("mf", "wmf"):  # mf learns from impressions, too, and wmf from clicks alone
        done(f"fit {asked} --shown below --method {method} --out {method} --set epochs=2")
        facts = load(method).facts
        assert facts["held_out"][facts["best_epoch"] - 1] == facts["criteria"]["shown"][0]
    tuned = "--shown below --methods ease --trials 1 --out studies --json"
    (study,) = json.loads(done(f"tune --train {asked} {tuned}")[0])
    (trial,) = study["trials"]
    assert trial["value"] == trial["criteria"]["shown"][0]
    assert study["criterion"] == "shown"
    other = asked.replace("shown", "plain")
    (again,) = json.loads(done(f"tune --train {other} {tuned.replace('studies', 'plain')}")[0])
    assert again["best"]["value"] != study["best"]["value"]


def test_tune_judges_trials_by_every_criterion_and_says_when_they_disagree(log, done, monkeypatch):
    words = "tune --train shop.csv --methods ease,mf --trials 2 --set epochs=2 --out studies --json"
    out, _ = done(f"{words} --criterion popular")
    for document in json.loads(out):
        assert document["criterion"] == "popular"
        for trial in document["trials"]:
            assert set(trial["criteria"]) >= {"uniform", "popular", "wtd"}
    ease = json.loads(out)[0]
    for trial in ease["trials"]:  # has no epochs: its value is the criterion's
        assert trial["value"] == pytest.approx(trial["criteria"]["popular"][0])
    monkeypatch.setattr(held_out, "dissent", lambda rated, chosen: {"wtd": "1"})
    _, err = done(f"{words} --criterion popular")
    assert "ease: criteria disagree: `wtd` prefers trial 1 (" in err


TUNE = "tune --train shop.csv --methods ease --trials 1"
