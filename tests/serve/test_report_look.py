"""How the page of a model looks in a browser; its text is tested with the report."""

from pathlib import Path

import pytest
from exploring import HOSTILE, LONG

from unexposed.report.pages import Given, model_document, write_model

WIDTHS = """[...document.querySelectorAll(".user .card table")].map(
  (table) => table.querySelector("tbody th").offsetWidth / table.offsetWidth)"""


@pytest.mark.parametrize("width", [390, 1280])
def test_names_have_room_and_nothing_is_cut_off(browser, service, tmp_path, width):
    pytest.importorskip("jinja2")
    given = Given(titles={"sku": [HOSTILE], "title": ["A title of ordinary length, as shops have"]})
    page = tmp_path / "page.html"
    write_model(model_document(service.model, given), page, Given(titles=Path(LONG)))
    browser.look(width=width)
    browser.open(page.as_uri())
    browser.wait("document.querySelector('#about pre')")
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("(e => e.scrollWidth - e.clientWidth)(document.querySelector('pre'))") == 0
    if width == 1280:  # on a phone three columns of numbers leave less
        assert min(browser.run(WIDTHS)) > 0.5
