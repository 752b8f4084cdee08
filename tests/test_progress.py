"""The progress bar at a terminal: the time left, on one line whatever the width."""

import sys
from types import SimpleNamespace
from unittest import mock

import pytest

from terminal import Seen, terminal
from unexposed import progress as show
from unexposed.progress import Bar, Lines, Silent, Tick


def ten_seconds(width: int, label: str, monkeypatch) -> Seen:
    """Ten of forty epochs, a second each."""
    now = 0.0
    monkeypatch.setattr("rich.console.monotonic", lambda: now)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    with (
        terminal(width) as (opened, sent),
        open(opened, "w", encoding="utf-8", closefd=False) as stream,
        mock.patch.object(sys, "stderr", stream),
        Bar() as bar,
    ):
        bar.note("compiling, which takes a while on a machine that was never used before today")
        for epoch in range(1, 11):
            bar(Tick(label, epoch, 40, 0.5, 0.25, epoch))
            now += epoch < 10
    return Seen(0, sent)


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("label", ["mf", "mf:dim=20:epochs=40:negatives=[7], seed 0 of many seeds"])
def test_a_bar_shows_the_time_left_and_cuts_nothing_but_its_label(width, label, monkeypatch):
    lines = ten_seconds(width, label, monkeypatch).lines
    assert max(map(len, lines)) <= width
    last = [line for line in lines if line][-1]
    assert last.startswith(label[:8])
    assert "10/40" in last
    assert last.endswith("00:30 left")
    assert ("held-out 0.2500" in last, "best epoch 10" in last) == (True, width == 120)


def test_a_notebook_without_widgets_has_lines_and_a_plain_script_nothing(monkeypatch):
    for module in (None, SimpleNamespace(), SimpleNamespace(get_ipython=lambda: None)):
        monkeypatch.setitem(sys.modules, "IPython", module)
        assert type(show.on_terminal(otherwise=Silent)) is Silent  # in a test there is no terminal
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1))
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setattr(show, "find_spec", lambda name: None)
    assert type(show.on_terminal(otherwise=Silent)) is Lines
