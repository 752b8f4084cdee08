"""The tables of the pages, from values whose answer is known by hand."""

import json
import math

import numpy as np
import pytest

import pages
import stored
from cell_tables import Column, columns, strategies, worlds
from markdown import markdown, p_value
from stored import Memory, Place, less, ratio_interval
from study_tables import criteria
from unexposed.cards import NONE, number, signed
from unexposed.evaluation.significance import against_best
from unexposed.experiments import spec
from unexposed.experiments.compare import comparisons
from unexposed.experiments.results import Results
from unexposed.report.tables import Cell, Table, seconds, shown, spread
from verdict import clicks_and_truth, exposure, share, verdict

BASE = np.linspace(0.2, 0.8, 60)
NOISE = np.resize([0.01, -0.01], 60)  # sums to 0


def place(name: str, **gains: float) -> Place:
    """A world in which an arm lies above the base by its gain, for every user, up to noise."""
    values = {a.replace("_", "-"): np.stack([BASE + g + NOISE * g] * 2) for a, g in gains.items()}
    given = {arm: "given dislikes" if "disliked" in arm else "" for arm in values}
    given |= {arm: "oracle" for arm in values if arm.startswith("items-known")}
    facts = dict.fromkeys(values, 0.5)
    means = {arm: float(own.mean()) for arm, own in values.items()}
    return Place(name, name, name, len(BASE), means, values, given, facts, facts, facts)


def row(table, name: str) -> list[str]:
    return next([c.text for c in row] for row in table.rows if row[0].text == name)


def test_the_verdict_has_each_difference_with_interval_and_p_and_a_dash_where_nothing_ran():
    asked = [place("A", ubo=0.1, umf=0.0, mf=0.0), place("B", umf=0.0)]
    table = verdict(asked)
    column = table.heads.index("UBO less UMF")
    assert row(table, "A")[column].startswith("+.100 [")
    assert "p < .001" in row(table, "A")[column]
    assert "p = 1.000" in row(table, "A")[table.heads.index("UMF less MF")]
    assert set(row(table, "B")[1:]) == {NONE}
    assert [c.bold for c in table.rows[0]].count(True) == 1


def test_the_verdict_corrects_p_for_the_number_of_its_cells():
    lone = place("A", ubo=0.0, umf=0.0)
    shift = np.where(np.arange(60) < 38, 0.1, -0.1)  # p about .05 on its own
    lone.values["ubo"] += shift
    many = [lone, *(place(name, ubo=0.0, umf=0.0, mf=0.0) for name in "BCDE")]
    alone, among = (float(verdict(a).rows[0][1].text.split("p = ")[1]) for a in ([lone], many))
    assert among > 2 * alone


def test_a_difference_that_one_seed_denies_is_not_bold():
    asked = place("A", ubo=0.1, umf=0.0)
    assert verdict([asked]).rows[0][1].bold
    asked.values["ubo"][0] -= 0.11
    asked.values["ubo"][1] += 0.11  # the mean over seeds, and so p, stays
    cell = verdict([asked]).rows[0][1]
    assert "p < .001" in cell.text
    assert not cell.bold


def test_a_world_answers_by_the_arms_of_the_ablation():
    guided = place("A", items_disliked=0.2, items_frozen_disliked=0.1)
    table = verdict([guided, place("B", umf=0.0)])
    column = next(i for i, head in enumerate(table.heads) if "guided" in head)
    assert row(table, "A")[column].startswith("+.100")
    assert row(table, "B")[column] == NONE


def test_a_share_is_the_gain_over_the_frozen_arm_relative_to_the_oracles():
    gains = {"items_frozen_disliked": 0.1, "items_known_disliked": 0.5, "items_disliked": 0.2}
    table = share([place("A", mf=0.0, **gains)])
    assert row(table, "items-disliked")[1].startswith("25 % [25 %, 25 %]")
    assert row(table, "the oracle's gain")[1].startswith("+.400")
    assert len(table.rows) == 2  # neither the oracle nor the frozen arm has a share


def test_the_interval_of_a_ratio_holds_the_ratio_and_narrows_with_pairing():
    rng = np.random.default_rng(1)
    below = rng.normal(1, 0.3, (2, 400))
    low, high = ratio_interval(0.5 * below, below)
    assert (low, high) == pytest.approx((0.5, 0.5))
    low, high = ratio_interval(rng.normal(0.5, 0.3, (2, 400)), below)
    assert low < 0.5 < high


def test_the_table_of_exposures_is_less_mf_and_marks_what_is_given():
    table = exposure([place("A", mf=0.0, umf=0.1, items_known_disliked=0.2)])
    assert row(table, "mf")[1] == ".500"
    assert row(table, "umf")[1].startswith("+.100 [")
    assert [r[0].aside for r in table.rows] == ["", "", "oracle"]


def test_what_clicks_say_stands_beside_the_truth():
    table = clicks_and_truth([place("A", mf=0.0, umf=0.1)], {"mf": "MF", "umf": "UMF", "x": "X"})
    assert [[c.text for c in r][:4] for r in table.rows] == [
        ["A", "MF", ".500", "0"],
        ["A", "UMF", ".500", "0"],
    ]


# From stored results

LEVEL = {"mf": 0.7, "umf": 0.8, "ubo": 0.9}
HEAD = 'kind = "compare"\nseeds = 2\n'
COAT = HEAD + '[data]\ndataset = "coat"\n[methods.mf]\n[methods.ubo]\n'
WORLD = '[data]\nsemi_synthetic = "ml_100k"\ngenerator = "saito"\npower = 1\n'
TRUTH = HEAD + 'also = ["true-relevance"]\n' + WORLD + "[methods.mf]\n[methods.umf]\n"


def write(folder, name: str, text: str, *, keep: bool = True) -> stored.Stored:
    """An experiment with invented results: a level of the method and a trait of the user."""
    path = folder / name / f"{name}.toml"
    path.parent.mkdir()
    path.write_text(text)
    (cell,) = spec.cells(path)
    asked, lines = cell.read(), []
    for arm in asked.arms.values():
        for seed in range(asked.seeds):
            rng, protocols = np.random.default_rng([seed, len(arm.label)]), {}
            for by in (asked.protocol, *asked.also):
                level = LEVEL[arm.method.name] - 0.1 * (arm.label == "joint")
                values = {m: level + BASE - 0.5 + rng.normal(0, 0.01, 60) for m in by.metrics}
                means = {m: float(own.mean()) for m, own in values.items()}
                protocols[by.name] = {"users": 60, "who": "x", "means": means, "values": values}
            facts = {"best_epoch": 3, "best_value": 0.5}
            line = {**asked.identity(arm), "seed": seed, "protocols": protocols, "facts": facts}
            line |= {"exposure_correlation": 0.4 + 0.1 * seed} if "umf" in arm.label else {}
            lines.append(line | {"seconds": 1.0, "engine": "cpu"})
    Results(cell.results, cell.name).write(lines, comparisons(asked, lines, {}))
    if not keep:
        Results(cell.results, cell.name).values.unlink()
    (found,) = stored.stored(path)
    return found


def test_places_take_true_relevance_in_worlds_and_the_protocol_on_data_sets(tmp_path):
    world, coat = write(tmp_path, "world", TRUTH), write(tmp_path, "coat", COAT)
    known, real = stored.places([world, coat])
    truth = [li["protocols"]["true-relevance"]["values"]["dcg@3"] for li in world.lines[:2]]
    assert known.values["mf"] == pytest.approx(np.stack(truth))
    assert known.pcc == {"umf": pytest.approx(0.45)}
    assert less(real, "ubo", "mf").mean == pytest.approx(0.2, abs=0.02)
    assert less(real, "umf", "mf") is None


def test_differences_are_remembered_without_the_values_and_no_longer_than_the_means(
    tmp_path, monkeypatch
):
    path = tmp_path / "paired.json"
    monkeypatch.setattr(stored, "MEMORY", Memory(path))
    (known,) = stored.places([write(tmp_path, "world", TRUTH)])
    asked, part = less(known, "umf", "mf"), (([(known, "umf")], [(known, "mf")]),) * 2
    assert stored.share(*part)[0] == 1
    stored.MEMORY.write()
    assert len(json.loads(path.read_text())) == 2
    monkeypatch.setattr(stored, "MEMORY", Memory(path))
    (tmp_path / "later").mkdir()
    (again,) = stored.places([write(tmp_path / "later", "world", TRUTH, keep=False)])
    assert again.values == {}
    assert less(again, "umf", "mf") == asked
    moved = {**again.means, "umf": again.means["umf"] + 0.01}
    assert less(Place(**{**vars(again), "means": moved}), "umf", "mf") is None


def test_a_column_has_the_means_the_best_the_test_and_the_papers_figure(tmp_path):
    cell = write(tmp_path, "coat", COAT)
    table = columns("t", "T", [Column("DCG@3", cell)])
    assert [row[0].text for row in table.rows] == ["mf", "ubo"]
    mf, ubo = (row[1] for row in table.rows)
    values = cell.values(cell.by_truth())
    assert ubo.text.startswith(number(float(values["ubo"].mean())))
    assert (mf.bold, ubo.bold) == (False, True)
    assert ("†" in mf.text) == against_best(values, seed=0)["mf"].significant
    assert (mf.aside, ubo.aside) == ("", ".931 ± .004")


def test_a_strategy_is_compared_with_ubo_on_the_same_users(tmp_path):
    text = (
        HEAD
        + '[data]\ndataset = "coat"\n'
        + "\n".join(
            f'[methods.{name}]\nmethod = "ubo"\nsettings = {{ strategy = "{name}" }}'
            for name in ("bilevel", "joint")
        )
    )
    usual, joint = strategies([write(tmp_path, "strategies", text)]).rows
    assert [cell.text for cell in usual[-2:]] == [NONE, NONE]
    low, high = (float(end.replace("−", "-")) for end in joint[-1].text.split(" … "))
    assert low < -0.1 < high  # a tenth below by construction
    wide = [float(end) for end in joint[3].text.split(" … ")]
    assert high - low < (wide[1] - wide[0]) / 2  # pairing takes the users' traits out


def test_worlds_are_shown_by_true_relevance_with_oracles_outside_the_contest(tmp_path):
    text = TRUTH + '[methods.umf-true]\nmethod = "umf"\nexposure = "true"\n'
    cell = write(tmp_path, "world", text)
    (table,) = worlds([cell])
    by_name = {row[0].text: row for row in table.rows}
    truth = [li["protocols"]["true-relevance"]["means"]["dcg@3"] for li in cell.lines[:2]]
    assert by_name["mf"][1].text.startswith(number(sum(truth) / 2))
    assert by_name["umf"][1].bold
    assert not by_name["umf-true"][1].bold
    assert by_name["umf-true"][0].aside == "oracle"
    assert [by_name[name][2].text for name in ("mf", "umf")] == [NONE, ".450"]


def test_what_is_missing_is_named_with_the_command_that_makes_it(tmp_path):
    path = tmp_path / "coat" / "coat.toml"
    assert write(tmp_path, "coat", COAT).complete
    path.write_text(COAT.replace("[methods.mf]", "[methods.mf]\nsettings = { dim = 3 }"))
    stored.stored.cache_clear()
    (found,) = stored.stored(path)
    assert (found.missing, found.stale) == ({"mf": [0, 1]}, 2)
    assert [row["method"] for row in found.compared()["results"]] == ["ubo"]
    path.write_text(COAT.replace("[methods.mf]", '[methods.mf]\nstudy = "mf.json"'))
    stored.stored.cache_clear()
    (found,) = stored.stored(path)
    assert "mf.json is not here" in found.problem
    (said,) = pages.lacking([found])
    assert "`python experiments/lib run experiments/coat/coat.toml`" in said


# Words


def test_a_block_is_filled_only_between_its_marks_and_unknown_blocks_stay():
    page = "a\n<!-- t -->\nold\n<!-- end of t -->\nb\n<!-- u -->\nc\n<!-- end of u -->\n"
    tables = {"t": lambda: "new"}
    assert pages.filled(page, tables) == page.replace("old", "new")
    assert pages.filled(pages.filled(page, tables), tables) == pages.filled(page, tables)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (number(0.1234), ".123"),
        (number(-0.5), "−.500"),
        (number(-0.0001), ".000"),
        (number(math.nan), "–"),
        (spread(0.9, 0.0123), ".900 ± .012"),
        (signed(0.01), "+.010"),
        (p_value(0.0001), "< .001"),
        (seconds(0.0123), "12.3 ms"),
        (seconds(600), "10.0 min"),
        (shown("snips_recall@10"), "SNIPS recall@10"),
    ],
)
def test_numbers_read_as_papers_write_them(text, expected):
    assert text == expected


def test_markdown_keeps_pipes_and_backticks_inside_their_cell():
    row = [Cell("x|y`z", code=True), Cell("50 %", bold=True, aside="±1")]
    assert markdown(
        Table("t", "T", ["method", "a_1 < b"], [row], ["Protocol `p`."])
    ).splitlines() == [
        "| method | a_1 < b |",
        "|---|---|",
        "| `` x\\|y`z `` | **50 %** (±1) |",
        "",
        "Protocol `p`.",
    ]


def test_the_table_of_criteria_marks_the_advised_one_and_leaves_the_default_without_difference():
    def said(spearman: float, difference: float) -> dict:
        ends = [difference - 0.1, difference + 0.1]
        return {"spearman": spearman, "difference": difference, "interval": ends, "wins": 0.5}

    log = {"criteria": {"uniform": said(0.6, 0.0), "popular": said(0.8, 0.2)}}
    log |= {"default": "uniform", "advised": "popular", "worlds": [{}] * 3, "models": ["mf"]}
    uniform, popular = criteria({"Coat": log}).rows
    assert (uniform[1].bold, uniform[1].aside) == (False, "")
    assert (popular[1].bold, popular[1].aside) == (True, "+.200 [.100, .300]")
