"""Tables in Markdown, drawings, and the looks of arms."""

import math

import pytest

from unexposed.cards import number, signed
from unexposed.report.drawing import draw
from unexposed.report.look import INK, looks, swatch
from unexposed.report.tables import Cell, Table, markdown, p_value, seconds, shown, spread


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (number(0.1234), ".123"),
        (number(-0.5), "−.500"),
        (number(1.0), "1.000"),
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


def test_a_panel_takes_the_colours_of_the_page_and_escapes_its_text():
    panel = draw("a b", "1 < 2 & $\\frac{$", lambda axes: axes.plot([0, 1]))
    assert "currentColor" in panel.svg
    assert INK not in panel.svg
    assert "1 &lt; 2 &amp; $\\frac{$" in panel.svg
    assert 'id="a-b-' in panel.svg
