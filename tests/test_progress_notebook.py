"""In a notebook a training shows a bar below its cell; a plain script shows nothing."""

import sys
from types import SimpleNamespace

import pytest

from small import quick
from unexposed import progress as show
from unexposed.progress import Notebook, Silent, Tick


class Cell:
    """The output of a cell: what is displayed, and how often it was updated."""

    def __init__(self):
        self.bundles = []

    def display(self, bundle, *, raw, display_id):
        assert raw
        assert display_id
        assert not self.bundles, "a second output in place of an update"
        self.bundles.append(bundle)
        return SimpleNamespace(update=lambda bundle, raw: self.bundles.append(bundle))

    @property
    def lines(self):
        return [bundle["text/plain"] for bundle in self.bundles]


@pytest.fixture
def cell(monkeypatch):
    """A stand-in for IPython in the kernel of a notebook."""
    cell = Cell()
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1))
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=cell.display))
    return cell


def tick(epoch: int) -> Tick:
    return Tick("<mf>", epoch, 9, 0.5, None, epoch)


def test_a_training_shows_its_last_epoch_in_a_notebook(cell, small_world):
    quick("mf", epochs=4, refit=False).fit(small_world.clicks(0))
    assert cell.lines[0].startswith("mf: epoch 1 of 4") or "compil" in cell.lines[0]
    assert cell.lines[-1].startswith("mf: epoch 4 of 4")
    assert '<progress value="4" max="4">' in cell.bundles[-1]["text/html"]


def test_updates_come_at_most_every_so_often_and_the_last_one_always(cell):
    with Notebook(seconds=1000) as shown:
        for epoch in range(1, 10):
            shown(tick(epoch))
    assert [line.split(",")[0] for line in cell.lines] == [
        "<mf>: epoch 1 of 9",
        "<mf>: epoch 9 of 9",
    ]
    assert "&lt;mf&gt;" in cell.bundles[0]["text/html"]


def test_short_work_without_epochs_leaves_the_cell_empty(cell):
    with Notebook() as shown:
        for done in range(5):
            shown.count("users", done, 5)
    assert cell.bundles == []


def test_a_note_is_shown_at_once(cell):
    with Notebook(seconds=1000) as shown:
        shown(tick(1))
        shown.note("compiling")
    assert cell.lines[-1] == "compiling"


def test_a_plain_script_and_ipython_in_a_terminal_are_no_notebook(monkeypatch):
    for module in (None, SimpleNamespace(), SimpleNamespace(get_ipython=lambda: None)):
        monkeypatch.setitem(sys.modules, "IPython", module)
        assert not show.in_notebook()
    terminal = SimpleNamespace(get_ipython=lambda: SimpleNamespace())
    monkeypatch.setitem(sys.modules, "IPython", terminal)
    assert type(show.on_terminal(otherwise=Silent)) is Silent  # in a test there is no terminal
