"""The report of a folder of experiments."""

import json
import re
import sys

import numpy as np
import pytest

import report_world as simulated
from command import ended
from unexposed.errors import InputError
from unexposed.evaluation import significance as statistics
from unexposed.experiments import results
from unexposed.report.experiments import document as experiments_document
from unexposed.report.pages import kind_of, write_experiments


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return simulated.write_all(tmp_path_factory.mktemp("work") / "experiments")


@pytest.fixture(scope="module")
def document(folder):
    return experiments_document(folder)


@pytest.fixture(scope="module")
def written(document, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    write_experiments(document, out)
    return out


@pytest.fixture(scope="module")
def page(written):
    return (written / "report.html").read_text(encoding="utf-8")


def about(document, name):
    return next(a for a in document["experiments"] if a["name"] == name)


def values(folder, arm, metric):
    lines = results.Results(folder / "results", "coat").read()
    own = [line["protocols"]["ubo-ijcai22"] for line in lines if line["arm"] == arm]
    return np.stack([protocol["values"][metric] for protocol in own])


def test_the_numbers_come_from_the_stored_values(folder, document):
    rows = about(document, "coat")["found"]["comparison"]["results"]
    table = {arm: values(folder, arm, "dcg@3") for arm in ("random", "mf", "ubo", "ubo-frozen")}
    against = statistics.against_best(table, seed=0)
    assert [row["method"] for row in rows] == list(table)  # in the order of the file
    assert sum(row["metrics"]["dcg@3"]["best"] for row in rows) == 1
    for row in rows:
        found, stored = row["metrics"]["dcg@3"], table[row["method"]]
        assert (found["mean"], found["sd"]) == pytest.approx(
            (stored.mean(), stored.mean(axis=1).std(ddof=1))
        )
        assert found["p_holm"] == against[row["method"]].p_holm
        assert found["below_best"] == pytest.approx(-against[row["method"]].difference)


def test_a_strategy_is_compared_with_ubo_on_the_same_users(document):
    arms = {a["arm"]: a for a in about(document, "ablation_coat")["found"]["ablation"]}
    low, high = arms["ubo-joint"]["difference_ci95"]
    assert low < arms["ubo-joint"]["difference"] < high < 0  # a tenth below by construction
    wide = arms["ubo-joint"]["ci95"]
    assert high - low < (wide[1] - wide[0]) / 2  # pairing takes the users' traits out
    assert arms["ubo"]["difference"] == 0


def test_a_trend_has_the_mean_and_deviation_over_seeds_of_the_steps_that_all_reached(document):
    ubo = about(document, "trend")["found"]["trend"][0]
    assert ubo["iterations"]["at"] == [1, 2]  # at 0 there was none
    assert ubo["iterations"]["mean"] == pytest.approx([0.55, 0.75])
    assert ubo["iterations"]["sd"] == pytest.approx([0.1 / 2**0.5] * 2)
    assert ubo["epochs"]["at"] == [1, 2, 3]  # the other seed went on to 4


def test_worlds_of_each_generator_have_a_table_with_oracles_outside_the_contest(written):
    text = (written / "tables.md").read_text(encoding="utf-8")
    ours, theirs = (
        text.split(f"## Amazon CDs and Vinyl{by}\n")[1].split("## ")[0]
        for by in ("", ", as Saito et al.")
    )
    assert "| method | power 0.5 | power 2 | PCC, power 0.5 | PCC, power 2 |" in ours
    assert "| method | power 2 | PCC, power 2 |" in theirs
    rows = {line.split("|")[1].strip(): line for line in theirs.splitlines() if "| `" in line}
    assert "**" in rows["`ubo`"]
    assert "**" not in rows["`umf-true` (oracle)"]  # higher by construction
    assert rows["`umf-true` (oracle)"].endswith("| .450 |")
    assert rows["`mf`"].endswith("| – |")
    assert "do not compete" in theirs


def test_the_variance_of_a_loss_is_averaged_over_seeds_with_its_error(document):
    first = about(document, "variance")["found"]["variance"][0]
    assert first["rows"][0]["empirical"] == pytest.approx(110)
    assert first["rows"][0]["error"] == pytest.approx(10 / 2**0.5)


SAID = {
    "the paper's figure beside ours": "(.931 ± .004)",
    "the strategies of a method": '<figure id="ablation"',
    "worlds of several powers": '<figure id="powers">',
    "the trend of the exposure": '<figure id="trends-epochs"',
    "the noise of a loss": '<figure id="variance-variance">',
    "ranges with too few clicks are left out": ">0.1 … 0.5<",  # and not from .01, where 14 fell
    "the median ratio of UBO to RelMF over repeats": "2.36 ×",  # .26 over .11 in the second
    "the paper's ratio": "4.84 ×",
    "the command of an experiment": "unexposed run experiments/coat.toml",
    "a caveat about its data": "Not the paper&#39;s data.",
    "the machine": "Some Processor",
    "the commit": "0123456789",
}


@pytest.mark.parametrize("what", SAID)
def test_the_page_says(page, what):
    assert SAID[what] in page


def test_ids_are_unique_and_the_page_needs_neither_script_nor_network(page):
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    simulated.check_self_contained(page)


def test_the_same_results_give_the_same_bytes(document, page, tmp_path):
    write_experiments(document, tmp_path)
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page


def test_what_is_missing_is_named_with_the_command_that_makes_it(tmp_path):
    folder = tmp_path / "experiments"
    simulated.write(folder, "coat", simulated.COAT)
    simulated.write(folder, "unrun", simulated.COAT, run=False)
    place = results.Results(folder / "results", "coat")
    lines = place.read()
    lost = [li for li in lines if (li["arm"], li["seed"]) != ("mf", 1)]
    place.write(lost, {})
    document = experiments_document(folder)
    assert about(document, "coat")["missing"] == [{"arm": "mf", "seeds": [1]}]
    rows = about(document, "coat")["found"]["comparison"]["results"]
    assert "mf" not in [row["method"] for row in rows]  # a mean of fewer seeds cannot compete
    write_experiments(document, tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "1 of 12 runs, of <code>mf</code>." in page
    assert "12 of 12 runs" in page
    assert "unexposed run experiments/unrun.toml" in page


def test_results_of_other_seeds_or_settings_do_not_count(tmp_path):
    text = simulated.TREND.replace("{power}", "0.5")
    simulated.write(tmp_path, "trend", text)
    (tmp_path / "trend.toml").write_text(text.replace("seeds = 2", "seeds = 1"), encoding="utf-8")
    found = about(experiments_document(tmp_path), "trend")
    assert found["found"]["trend"][0]["iterations"]["mean"] == pytest.approx([0.5, 0.7])
    assert found["origins"][0]["seeds"] == [0]
    simulated.write(tmp_path, "coat", simulated.COAT)
    changed = simulated.COAT.replace("[methods.mf]", "[methods.mf]\nsettings = { dim = 3 }")
    (tmp_path / "coat.toml").write_text(changed, encoding="utf-8")
    found = about(experiments_document(tmp_path), "coat")
    assert found["stale"] == 3
    assert found["missing"] == [{"arm": "mf", "seeds": [0, 1, 2]}]


def test_an_experiment_whose_study_is_not_made_yet_says_so_and_spoils_nothing(tmp_path):
    simulated.write(tmp_path, "coat", simulated.COAT)
    tuned = simulated.COAT.replace("[methods.mf]", '[methods.mf]\nstudy = "mf.json"')
    simulated.write(tmp_path, "tuned", tuned, run=False)
    document = experiments_document(tmp_path)
    assert "study" in about(document, "tuned")["problem"]
    write_experiments(document, tmp_path / "out")
    assert "mf.json" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_a_name_from_a_toml_file_is_text_and_never_markup(tmp_path):
    text = simulated.COAT.replace("Table 2: Coat", "<img src=x onerror=alert(1)> & $x$")
    arms = text.replace("[methods.ubo-frozen]", "[methods.\"<b onload='1'>|$y_1$\"]")
    simulated.write(tmp_path, "coat", arms)
    write_experiments(experiments_document(tmp_path), tmp_path / "out")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "<img" not in page
    assert "<b onload" not in page
    assert "\\|" in (tmp_path / "out" / "tables.md").read_text(encoding="utf-8")


def test_a_folder_that_is_neither_kind_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(InputError, match="neither a model"):
        kind_of(tmp_path)
    with pytest.raises(InputError, match="is not a folder"):
        kind_of(tmp_path / "nowhere")
    (tmp_path / "paper.toml").write_text("[coat]\n")
    with pytest.raises(InputError, match="holds no experiment"):
        experiments_document(tmp_path)


def test_the_command_writes_the_report_and_prints_its_data(folder, tmp_path, capsys):
    out = tmp_path / "report"
    assert ended("report", str(folder), "--out", str(out), "--json") == 0
    assert {p.name for p in out.iterdir()} == {"report.html", "tables.md"}
    assert json.loads(capsys.readouterr().out)["folder"] == "experiments"


REFUSED = {
    "": "give --out",
    "--out x --judged f.csv": "are for a model",
    f"--out {__file__}": "is a file",
}


@pytest.mark.parametrize("words", REFUSED)
def test_the_command_refuses_impossible_options(folder, words, capsys):
    assert ended("report", str(folder), *words.split()) == 2
    assert REFUSED[words] in capsys.readouterr().err


@pytest.mark.parametrize("package", ["matplotlib", "jinja2"])
def test_only_a_page_needs_the_packages_and_refuses_before_any_work(
    folder, tmp_path, monkeypatch, package, capsys
):
    monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
    assert ended("report", str(folder), "--out", str(tmp_path / "out")) == 2
    cure = f"this needs {package}: pip install '.[report]' in the checkout of unexposed"
    assert capsys.readouterr().err == f"error: {cure}\n"
    assert not (tmp_path / "out").exists()
    assert ended("report", str(folder), "--json") == 0
    assert json.loads(capsys.readouterr().out)["experiments"]
