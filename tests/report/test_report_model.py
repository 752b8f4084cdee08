"""The page of a saved model."""

import json
import re
import sys

import numpy as np
import pytest

from command import ended
from unexposed.cards import number
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.judged import read_judged
from unexposed.data.write import judged_table, write_table
from unexposed.errors import InputError
from unexposed.evaluation.describe import describe, each_of_document
from unexposed.evaluation.protocols import PROTOCOLS, protocol
from unexposed.methods import METHODS, load, make
from unexposed.model.recommender import Recommender
from unexposed.report import page as report
from unexposed.report.figures import INK, draw
from unexposed.report.portrait import LONGEST, Names, never_shown, relevance_of
from unexposed.report.portrait import document as portrait
from unexposed.report.portrait import draw as draw_sample
from unexposed.report.tables import lead, shown, verdict_head
from unexposed.settings import known

SMALL = {"epochs": 2, "dim": 4, "n_models": 2}


def check_self_contained(page: str) -> None:
    """Assert that a page has no script, no handler, and no address outside itself."""
    assert "<script" not in page.lower()
    assert not re.search(r"\bon\w+=", re.sub(r">[^<]*<", "><", page))
    for address in re.findall(r'(?:href|src|xlink:href)="([^"]*)"', page):
        assert address.startswith("#")
    assert not re.search(r"https?:|@import|url\((?!#)", page)


def fitted(name, world):
    settings = {key: value for key, value in SMALL.items() if key in known(METHODS[name])}
    return make(name, **settings).fit(world.split(seed=0).train, seed=0)


def written(document, path):
    report.write(document, path)
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folder(small_world, tmp_path_factory):
    """A model and its judged pairs."""
    place = tmp_path_factory.mktemp("model")
    split = small_world.split(seed=0)
    make("ubo", epochs=4, dim=4).fit(split.train, split.held_out, seed=0).save(place / "model")
    write_table(judged_table(split.judged), place / "judged.csv")
    return place


@pytest.fixture(scope="module")
def model(folder):
    return load(folder / "model")


@pytest.fixture(scope="module")
def sample(model):
    return draw_sample(model)


@pytest.fixture(scope="module")
def document(folder):
    return report.document(folder / "model", judged=folder / "judged.csv")


@pytest.fixture(scope="module")
def page(document, folder):
    return written(document, folder / "page.html")


def test_the_share_never_shown_is_bayes_rule_on_every_sampled_pair(model, sample):
    users = model.user_ids.values[sample.pair_users].tolist()
    items = model.item_ids.values[sample.pair_items].tolist()
    m = model.exposure(users, items).astype(float)
    p = 1 / (1 + np.exp(-model.score(users, items).astype(float)))
    # P(not exposed and no click) over P(no click)
    bayes = (1 - m) / ((1 - m) + m * (1 - p))
    np.testing.assert_allclose(sample.unexposed, bayes, rtol=1e-4)
    assert not model.clicks.contain(sample.pair_users, sample.pair_items).any()


def test_a_posterior_exposure_is_not_conditioned_on_the_missing_click_again(small_world):
    for name in (name for name, kind in METHODS.items() if kind.posterior_exposure):
        exposure = np.array([0.2, 0.9])
        found = never_shown(fitted(name, small_world), np.array([0.5, 0.5]), exposure)
        np.testing.assert_allclose(found, 1 - exposure)


def test_the_sampled_lists_are_those_the_model_recommends(model, sample):
    lists, _ = model.top(sample.users, sample.lists.shape[1])
    np.testing.assert_array_equal(sample.lists, lists)


@pytest.mark.parametrize("name", [n for n, by in PROTOCOLS.items() if by.candidates != "logged"])
def test_the_judged_part_is_what_evaluate_says_under_any_protocol(folder, model, name):
    document = report.document(folder / "model", judged=folder / "judged.csv", by=name)
    expected = describe(model, read_judged(folder / "judged.csv", model), protocol(name))
    assert document["judged"] == expected
    headline = "dcg@3" if name == "ubo-ijcai22" else next(iter(expected["metrics"]))
    mean = number(expected["metrics"][headline]["mean"])
    assert lead(document)[-1].startswith(f"On judged items its {shown(headline)} is {mean} over ")


def test_a_user_in_detail_shows_its_own_clicks_and_scores(model, document):
    user = document["users"][0]
    raw = int(user["user"])
    clicked = set(model.item_ids.values[model.clicks.items[model.clicks.users == raw]].tolist())
    assert {int(row["item"]) for row in user["clicked"]} <= clicked
    best = model.recommend([raw], k=8)
    assert [int(row["item"]) for row in user["recommended"]] == best["item"].to_list()
    for column in ("score", "relevance", "exposure"):
        found = [row[column] for row in user["recommended"]]
        np.testing.assert_allclose(found, best[column].to_numpy(), rtol=1e-5)
    assert {int(row["like"]) for row in user["recommended"]} <= clicked


def test_the_page_leads_with_the_verdict_then_users_then_what_is_lifted(page):
    parts = re.findall(r'<section id="([^"]+)"', page)
    assert parts[:4] == ["verdict", "users", "lifted", "on-judged"]
    linked = re.findall(r'<a href="#([^"]+)"', page)
    assert linked == parts
    assert "Under this model" in page
    assert "were never shown" in page
    check_self_contained(page)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


ALIKE = {  # one method for each combination of what a page asks about
    (
        *(kind.scale, kind.exposure is Recommender.exposure),
        *(kind.fixed_exposure, "epochs" in known(kind)),
    ): name
    for name, kind in METHODS.items()
}


@pytest.mark.parametrize("name", ALIKE.values())
def test_every_method_gets_the_parts_that_make_sense(name, small_world, tmp_path):
    model = fitted(name, small_world)
    document = portrait(model, Names(model.user_ids, model.item_ids, {}))
    json.dumps(document, allow_nan=False)
    page = written(document, tmp_path / "page.html")
    assumed = model.has_exposure and model.method.fixed_exposure
    drawn = 'aria-label="Exposure under this model"' in page
    assert drawn == (model.has_exposure and not assumed)
    assert ("does not learn exposure" in page) == assumed
    assert ("were never shown (" in page) == ("were never shown" in page and not assumed)
    assert ("only order items" in page) == (model.method.scale == "order")
    assert (relevance_of(model, np.zeros(3)) is None) == (model.method.scale == "order")
    assert ('<figure id="training">' in page) == ("losses" in model.facts)
    assert "nan" not in re.sub(r"<[^>]*>", "", page).lower().split()


def beside(document, popularity, mf=()):
    """The document with these findings on held-out clicks and judged pairs, beside each rival."""

    def gain(rival, finding):
        difference = {"above": 0.1, "below": -0.1, "chance": 0.001}[finding]
        found = {"mean": 0.3 + difference, rival: 0.3, "difference": difference}
        return found | {"ci95": [-0.2, 0.2], "p_value": 0.01, "users": 50, "finding": finding}

    found = {
        rival: {
            "held_out": {"clicks": gain(rival, findings[0])},
            "judged": {"ndcg@3": gain(rival, findings[1])} if findings[1:] else {},
        }
        for rival, findings in (("popularity", popularity), ("mf", mf))
        if findings
    }
    said = {"beside": found, "warns": "below" in (*popularity, *mf), "says": []}
    return document | {"verdict": said}


BETTER = "Better than the popular list"
HEADLINES = [
    (["above"], [], BETTER),
    (["above", "above"], ["above", "above"], f"{BETTER} and than mf"),
    (["above", "chance"], [], f"{BETTER} by 1 of 2 readings"),
    (["above"], ["chance"], f"{BETTER}, but not clearly better than mf"),
    (["chance"], ["above"], "No sign that it is better than the popular list"),
    (["below"], ["above"], "Warning: it loses to the popular list"),
    (["above", "below"], [], "Warning: it loses to the popular list by 1 of 2 readings"),
    (["above"], ["below"], "Warning: it loses to mf"),
]


@pytest.mark.parametrize(("popular", "mf", "headline"), HEADLINES)
def test_the_headline_says_whether_to_go_into_production(document, popular, mf, headline):
    line, advice = verdict_head(beside(document, popular, mf))
    assert line == headline
    assert advice.startswith("Do not put it into production") == ("below" in popular)
    assert ("put mf into production" in advice) == (line == "Warning: it loses to mf")
    wins = set(popular) == {"above"} and "below" not in mf
    assert advice.startswith("A candidate for production") == wins


@pytest.mark.parametrize("finding", ["above", "below"])
def test_a_model_that_loses_has_a_warning_on_top(document, tmp_path, finding):
    page = written(beside(document, ["above"], [finding]), tmp_path / "page.html")
    top = page[page.index('<section id="verdict"') : page.index("<nav")]
    assert ('class="verdict warns"' in top) == (finding == "below")
    assert ("<h2>Warning: it loses to mf</h2>" in top) == (finding == "below")
    assert "held-out clicks: above" in top
    assert f"held-out clicks: {finding}" in top


def test_the_verdict_of_the_page_is_the_models_own_and_that_of_evaluate(model, document):
    said, judged = document["verdict"], document["judged"]
    (popular,) = said["beside"].values()  # evaluate trains no rival
    assert popular["held_out"] == model.facts["verdict"]["popularity"]
    assert popular["judged"]["ndcg@10"] == judged["beside"]["popularity"]["ndcg@10"]
    assert said["says"] == [str(one) for one in (model.verdict, *each_of_document(judged))]


def test_the_popular_list_and_older_models_have_no_verdict(small_world, document, tmp_path):
    popular = fitted("popularity", small_world)
    found = portrait(popular, Names(popular.user_ids, popular.item_ids, {}))
    page = written(found, tmp_path / "page.html")
    assert "This is the popular list" in page
    assert "Popular and rare items" not in page  # twice the same row
    assert not any("on the popular one, too" in sentence for sentence in lead(found))
    none = {"beside": {}, "warns": False, "says": []}
    page = written(document | {"verdict": none}, tmp_path / "page.html")
    assert "No verdict" in page
    assert "an earlier version" in page


HOSTILE = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "line\nbreak\r\n\ttab",
    "x" * 1_000_000,
    "{{ 7 * 7 }}{% raw %}",
    "$\\frac{1}{0}$",
    "\u202egnp.exe",
    "\ud800 alone",
    "]]> --> <!-- & &amp;",
    "`code` | pipe",
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """The page of a model whose users and items have all of these ids."""
    n = len(HOSTILE)
    ids = Ids.of(HOSTILE)
    users, items = np.nonzero(np.random.default_rng(0).random((n, n)) < 0.4)
    clicks = Clicks.from_pairs(users, items, user_ids=ids, item_ids=ids)
    place = tmp_path_factory.mktemp("hostile")
    make("ubo", epochs=2, dim=4).fit(clicks, seed=0).save(place / "model")
    report.write(report.document(place / "model"), place / "page.html")
    return place / "page.html"


def test_hostile_ids_are_short_text_and_never_markup(hostile):
    page = hostile.read_text(encoding="utf-8")
    assert len(page) < 400_000
    assert "<img" not in page
    check_self_contained(page)
    assert "&lt;script&gt;" in page
    assert "{{ 7 * 7 }}" in page  # and not 49
    assert "\u202e" not in page
    assert "x" * LONGEST not in page


def test_everything_clicked_leaves_a_page_without_pairs(tmp_path):
    users, items = np.nonzero(np.ones((4, 3)))
    clicks = Clicks.from_pairs(users, items, user_ids=Ids.range(4), item_ids=Ids.range(3))
    model = make("umf", epochs=2, dim=4).fit(clicks, seed=0)
    document = portrait(model, Names(model.user_ids, model.item_ids, {}))
    assert document["relations"]["pairs"] == 0
    json.dumps(document, allow_nan=False)
    report.write(document, tmp_path / "page.html")


def test_titles_take_the_place_of_ids_as_text(folder, tmp_path):
    rows = "".join(f"{item},Film <{item}>\n" for item in range(60))
    (tmp_path / "titles.csv").write_text("item_id,title\n" + rows)
    document = report.document(folder / "model", titles=tmp_path / "titles.csv")
    assert document["lifted"]["up"][0]["item"].startswith("Film <")
    page = written(document, tmp_path / "page.html")
    assert "Film &lt;" in page
    assert "Film <" not in page
    with pytest.raises(InputError, match="no title column"):
        report.document(folder / "model", titles=folder / "judged.csv")


def test_the_command_writes_the_page_and_prints_its_data(folder, tmp_path, capsys):
    out = tmp_path / "page.html"
    words = ["report", str(folder / "model"), "--judged", str(folder / "judged.csv")]
    assert ended(*words, "--protocol", "snips", "--out", str(out), "--json") == 0
    page = out.read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    printed = capsys.readouterr()
    again = "unexposed report MODEL --judged judged.csv --protocol snips --out page.html"
    assert f"<pre>{again}</pre>" in page
    found = json.loads(printed.out)
    assert (found["method"], found["judged"]["protocol"]) == ("ubo", "snips")
    assert len(found["verdict"]["says"]) == 2  # on held-out clicks, on judged pairs
    assert all(sentence in printed.err for sentence in found["verdict"]["says"])


REFUSED = {
    "--out .": "is a folder",
    "--out p.html --title name": "--titles",
    "--out p.html --judged absent.csv": "no such file",
    "--out p.html --protocol snips": "give --judged, too",
    "--out p.html --judged absent.csv --protocol snps": "mean 'snips'",
}


@pytest.mark.parametrize("words", REFUSED)
def test_the_command_refuses_impossible_options(folder, words, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert ended("report", str(folder / "model"), *words.split()) == 2
    assert REFUSED[words] in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_only_a_page_needs_the_packages_and_refuses_before_any_work(
    folder, tmp_path, monkeypatch, package, capsys
):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    out = tmp_path / "page.html"
    assert ended("report", str(folder / "model"), "--out", str(out)) == 2
    assert f"this needs {package}: pip install" in capsys.readouterr().err
    assert not out.exists()
    assert ended("report", str(folder / "model"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["method"] == "ubo"
    assert ended("report", str(folder / "model")) == 2
    assert "give --out" in capsys.readouterr().err


def test_a_panel_takes_the_colours_of_the_page_and_escapes_its_text():
    panel = draw("a b", "1 < 2 & $\\frac{$", lambda axes: axes.plot([0, 1]))
    assert "currentColor" in panel.svg
    assert INK not in panel.svg
    assert "1 &lt; 2 &amp; $\\frac{$" in panel.svg
    assert 'id="a-b-' in panel.svg
