"""Tables fit any terminal: no head is cut, and rows given more than clicks do not compete."""

from pathlib import Path

import numpy as np
import pytest

from terminal import Seen, shown
from unexposed.cli import tables
from unexposed.data.log import read_log
from unexposed.evaluation.compare import Comparison, Result
from unexposed.evaluation.protocols import PROTOCOLS
from unexposed.methods import make

WIDTHS = pytest.mark.parametrize("width", [60, 80])
COMPARE = "compare --train log.csv --judged judged.csv --methods random,popularity --seeds 2"
EXPERIMENT = """
kind = "compare"
seeds = 2
protocol = "judged"
also = ["true-relevance"]
[data]
simulate = { users = 40, items = 20 }
[methods.popularity]
[methods.random]
"""


def words(seen: Seen, width: int) -> set[str]:
    """The words on the terminal, where nothing but a sentence is wider than it."""
    assert seen.code == 0, seen.text
    wide = [line for line in seen.lines if len(line) > width]
    assert all(line.startswith(("log.csv: ", "shop.csv: ", "judged.csv: ", "`")) for line in wide)
    return set(seen.text.split())


@WIDTHS
@pytest.mark.parametrize("by", ["judged", "catalogue"])
def test_every_metric_of_a_comparison_can_be_read(here, width, by):
    found = words(shown(f"{COMPARE} --protocol {by}", width=width), width)
    assert {*PROTOCOLS[by].metrics, "seconds", "random", "popularity"} <= found


@WIDTHS
def test_every_stratum_of_an_evaluation_can_be_read(here, width):
    make("popularity").fit(read_log("log.csv")).save("model")
    seen = shown("evaluate model --judged judged.csv --protocol judged", width=width)
    assert {*PROTOCOLS["judged"].metrics, "head", "middle", "tail"} <= words(seen, width)
    assert "95 % interval" in seen.text


@WIDTHS
def test_every_metric_of_a_run_can_be_read_and_a_world_shows_its_true_relevance(here, width):
    Path("small.toml").write_text(EXPERIMENT)
    found = words(seen := shown("run small.toml", width=width), width)
    assert {*PROTOCOLS["judged"].metrics, "dcg@3"} <= found
    assert "true-relevance: " in seen.text


@WIDTHS
def test_data_sets_are_shown_within_the_width(here, width):
    seen = shown("datasets", width=width)
    assert {"coat", "terms", "sha256"} <= words(seen, width)
    assert "\\n" not in seen.text


def test_a_name_longer_than_the_terminal_is_folded_and_no_metric_is_lost(here):
    methods = "--methods popularity,mf:dim=2:epochs=1:negatives=3:learning_rate=0.0123:engine=cpu"
    line = COMPARE.partition(" --methods")[0]
    found = words(shown(f"{line} {methods} --seeds 1 --protocol catalogue", width=60), 60)
    assert set(PROTOCOLS["catalogue"].metrics) <= found


def test_an_oracle_is_neither_the_best_nor_tested():
    by = PROTOCOLS["ubo-ijcai22"]

    def of(label: str, value: float) -> Result:
        values = {metric: np.full((2, 30), value) for metric in by.metrics}
        return Result(label, make("random"), values, 0.0)

    results = [of("mf", 0.2), of("seer", 0.9), of("bpr", 0.4)]
    comparison = Comparison(by, 30, 2, results, given={"seer": "oracle"})
    table = tables.document_table(comparison.document())
    labels, first = (list(table.columns[at].cells) for at in (0, 1))
    assert labels == ["mf", "seer (oracle)", "bpr"]
    assert [("bold" in cell, "†" in cell) for cell in first] == [
        (False, True),
        (False, False),
        (True, False),
    ]
    mf, seer, bpr = comparison.document()["results"]
    assert "p_holm" not in seer["metrics"]["dcg@1"]
    assert seer["given"] == "oracle"
    assert (mf["metrics"]["dcg@1"]["below_best"], bpr["metrics"]["dcg@1"]["below_best"]) == (
        pytest.approx(0.2),
        0,
    )
    alone = Comparison(by, 30, 2, results[1:2], given={"seer": "oracle"})
    assert "bold" not in next(iter(tables.document_table(alone.document()).columns[1].cells))
