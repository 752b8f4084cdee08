"""How the page looks: widths, colours, order of headings; markup stays text, requests stay here."""

import json
from itertools import pairwise
from urllib.parse import quote

import pytest
from exploring import HOSTILE, VIEWS, arrive, failures, find, tour, visit


def test_markup_in_ids_and_titles_stays_text(browser, service):
    visit(browser, service, "hostile")
    assert browser.text("h1") == HOSTILE
    assert f"For user {HOSTILE}" in browser.text("main")
    find(browser, HOSTILE)
    arrive(browser, service, f"#/user?id={quote(HOSTILE)}")
    browser.wait(f"document.querySelector('h1')?.innerText === {json.dumps(f'User {HOSTILE}')}")
    visit(browser, service, "imagined")
    assert HOSTILE in browser.texts(".chosen .item a")
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert not failures(browser)


@pytest.mark.parametrize("width", [390, 1280])
def test_no_view_scrolls_sideways(browser, service, width):
    browser.look(width=width)
    for view in tour(browser, service):
        assert browser.run("document.documentElement.scrollWidth") <= width, view


CONTRAST = """(() => {
  const channels = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const light = (c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const found = channels(getComputedStyle(one).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
  };
  const poor = [];
  for (const one of document.body.querySelectorAll("*")) {
    const isText = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    const isShown = one.getClientRects().length && !one.matches(".unseen, :disabled, noscript");
    if (!isText || !isShown) continue;
    const style = getComputedStyle(one);
    const colour = one.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const levels = [channels(colour), behind(one)].map(luminance);
    const contrast = (Math.max(...levels) + 0.05) / (Math.min(...levels) + 0.05);
    if (contrast < 4.5) poor.push([contrast, one.className, one.textContent]);
  }
  return poor;
})()"""


def test_text_stands_out_in_light_and_in_dark(browser, service):
    pages = set()
    for dark in (False, True):
        browser.look(dark=dark)
        for view in tour(browser, service, "sliders", "imagined", "error"):
            assert browser.run(CONTRAST) == [], (view, dark)
        pages.add(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert len(pages) == 2


def test_no_request_leaves_the_service_and_no_view_fails(browser, service):
    assert list(tour(browser, service)) == list(VIEWS)
    asked = [
        event["params"]["request"]["url"]
        for event in browser.events
        if event["method"] == "Network.requestWillBeSent"
        and event["params"]["documentURL"].startswith(service.address)
    ]
    assert len(asked) > len(VIEWS)
    assert [url for url in asked if not url.startswith((service.address, "data:"))] == []
    assert not failures(browser)


def test_headings_and_labels_are_in_order(browser, service):
    for _ in tour(browser, service, "sliders", "imagined", "item"):
        levels = browser.run("[...document.querySelectorAll('h1, h2, h3')].map(h => +h.tagName[1])")
        assert levels.count(1) == 1
        assert levels[0] == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
        unnamed = "[...document.querySelectorAll('input, select')].filter(i => !i.labels.length)"
        assert browser.run(f"{unnamed}.length") == 0
        ids = browser.run("[...document.querySelectorAll('[id]')].map(one => one.id)")
        assert len(ids) == len(set(ids))
    assert browser.run("document.documentElement.lang") == "en"
