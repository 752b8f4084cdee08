"""`unexposed plan`: a table for people, a document for machines, a sentence for bad numbers."""

import json

import pytest

LARGE = "plan --users 1e8 --items 1e6 --clicks 1e10 --method ubo --ranks 16 --batch-size 65536"


def test_plan_shows_bytes_steps_and_seconds_with_their_formulas(done):
    out, _ = done(LARGE)
    assert "u = 6,250,000 users and c = 625,000,000 clicks, M = 1,000,000 items" in out
    assert "12 c + 32 u + 16 M" in out
    assert "152,588 steps an epoch" in out
    assert "16 machines, 25 Gb Ethernet: " in out
    assert "2 (W − 1)/W × bytes / speed" in out


def test_plan_prints_one_json_document(done):
    out, _ = done(f"{LARGE} --dim 32 --engine cuda --json")
    plan = json.loads(out)
    assert (plan["method"], plan["ranks"], plan["users_of_a_rank"]) == ("ubo", 16, 6_250_000)
    rows = plan["memory_of_a_rank"][0]
    assert (rows["where"], rows["n_bytes"]) == ("card", 6_250_000 * 4 * 32 * (6 + 4))
    assert plan["bytes_of_an_epoch"] == plan["steps_of_an_epoch"] * plan["bytes_of_a_step"]
    assert len(plan["seconds_of_exchange"]) == 2


@pytest.mark.parametrize("text", ["many", "0", "1.5", "-3", "nan", "1e400"])
def test_a_size_that_is_not_a_whole_number_is_refused_in_one_sentence(run, text):
    code, out, err = run(f"plan --users {text} --items 5 --clicks 9")
    assert (code, out) == (2, "")
    assert err == f"error: --users must be a whole number of at least 1, got {text!r}\n"
