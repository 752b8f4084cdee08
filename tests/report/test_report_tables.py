"""Tables in Markdown, drawings, and the looks of arms."""

import math

import pytest

from unexposed.report.drawing import draw
from unexposed.report.look import INK, looks, swatch
from unexposed.report.summary import known_as
from unexposed.report.tables import (
    Cell,
    Table,
    markdown,
    number,
    p_value,
    seconds,
    signed,
    spread,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1234, ".123"),
        (-0.5, "−.500"),
        (1.0, "1.000"),
        (-0.0001, ".000"),
        (None, "–"),
        (math.nan, "–"),
    ],
)
def test_a_number_has_three_decimals_and_no_leading_zero(value, text):
    assert number(value) == text


def test_a_spread_a_sign_and_a_p_value_read_as_papers_write_them():
    assert spread(0.9, 0.0123) == ".900 ± .012"
    assert (signed(0.01), signed(-0.01)) == ("+.010", "−.010")
    assert (p_value(0.0001), p_value(0.04)) == ("< .001", ".040")


@pytest.mark.parametrize(
    ("value", "text"), [(0.0123, "12.3 ms"), (1.5, "1.5 s"), (600, "10.0 min"), (9000, "2.5 h")]
)
def test_seconds_come_in_the_unit_people_would_say(value, text):
    assert seconds(value) == text


TABLE = Table(
    "name",
    "A & B",
    ["method", "a_1 < b"],
    [[Cell("x|y`z", code=True), Cell("50 %", bold=True, aside="±1")]],
    ["Protocol `p`."],
)


def test_markdown_keeps_pipes_and_backticks_inside_their_cell():
    assert markdown(TABLE).splitlines() == [
        "| method | a_1 < b |",
        "|---|---|",
        "| `` x\\|y`z `` | **50 %** (±1) |",
        "",
        "Protocol `p`.",
    ]


def test_no_two_arms_of_a_page_look_alike_and_each_keeps_its_look():
    arms = [f"arm {n}" for n in range(100)]
    found = looks([*arms, *arms], {"arm 3": "The third"})
    assert list(found) == arms
    assert len({(a.colour, a.marker, a.dashes) for a in found.values()}) == len(arms)
    assert (found["arm 3"].title, found["arm 4"].title) == ("The third", "arm 4")
    assert all(a.colour in swatch(a) for a in found.values())


def test_a_strategy_has_one_name():
    assert known_as("bilevel", "ubo", "bilevel") == "ubo"
    assert known_as("joint", "ubo", "joint") == "ubo-joint"
    assert known_as("ubo-512", "ubo", "bilevel") == "ubo-512"
    assert known_as("low_variance", None, None) == "low_variance"


def test_a_panel_takes_the_colours_of_the_page_and_escapes_its_text():
    panel = draw("a b", "1 < 2 & $\\frac{$", lambda axes: axes.plot([0, 1]))
    assert "currentColor" in panel.svg
    assert INK not in panel.svg
    assert "1 &lt; 2 &amp; $\\frac{$" in panel.svg
    assert 'id="a-b-' in panel.svg
