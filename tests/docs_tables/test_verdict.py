"""The tables of the verdict, from values whose answer is known by hand."""

import numpy as np
import pytest

from docs_tables.criteria import criteria
from docs_tables.stored import Place, less, places, ratio_interval
from docs_tables.verdict import clicks_and_truth, exposure, oracles, share, verdict
from report_world import write
from unexposed.cards import NONE
from unexposed.experiments.results import Results

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


def test_the_table_of_oracles_has_no_other_row():
    table = oracles([place("A", mf=0.0, umf=0.1, items_known_disliked=0.2), place("B", mf=0.0)])
    assert [[c.text[:5] for c in r] for r in table.rows] == [["items", "+.200", NONE]]


def test_what_clicks_say_stands_beside_the_truth():
    table = clicks_and_truth([place("A", mf=0.0, umf=0.1)], {"mf": "MF", "umf": "UMF", "x": "X"})
    assert [[c.text for c in r][:4] for r in table.rows] == [
        ["A", "MF", ".500", "0"],
        ["A", "UMF", ".500", "0"],
    ]


def test_places_take_true_relevance_in_worlds_and_the_protocol_on_data_sets(tmp_path):
    world = '[data]\nsemi_synthetic = "ml_100k"\n[methods.mf]\n[methods.umf]\n'
    head = 'kind = "compare"\nseeds = 2\n'
    write(tmp_path, "world", head + 'also = ["true-relevance"]\n' + world)
    write(tmp_path, "coat", head + '[data]\ndataset = "coat"\n[methods.mf]\n[methods.ubo]\n')
    write(tmp_path, "later", head + world, run=False)
    (known,), (real,), (later,) = (
        places(tmp_path / f"{name}.toml") for name in ("world", "coat", "later")
    )
    lines = [li for li in Results(tmp_path / "results", "world").read() if li["arm"] == "mf"]
    truth = [li["protocols"]["true-relevance"]["values"]["dcg@3"] for li in lines]
    assert known.values["mf"] == pytest.approx(np.stack(truth))
    assert known.pcc["umf"] == pytest.approx(0.45)
    assert less(real, "ubo", "mf").mean == pytest.approx(0.2, abs=0.02)
    assert less(later, "umf", "mf") is None


def test_the_table_of_criteria_marks_the_advised_one_and_leaves_the_default_without_difference():
    def said(spearman: float, difference: float) -> dict:
        ends = [difference - 0.1, difference + 0.1]
        return {"spearman": spearman, "difference": difference, "interval": ends, "wins": 0.5}

    log = {"criteria": {"uniform": said(0.6, 0.0), "popular": said(0.8, 0.2)}}
    log |= {"default": "uniform", "advised": "popular", "worlds": [{}] * 3, "models": ["mf"]}
    uniform, popular = criteria({"Coat": log}).rows
    assert (uniform[1].bold, uniform[1].aside) == (False, "")
    assert (popular[1].bold, popular[1].aside) == (True, "+.200 [.100, .300]")
