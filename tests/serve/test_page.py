"""The page of the service, used as a reader would, in a headless Chromium."""

import json
from urllib.parse import quote

import pytest
from exploring import (
    HOSTILE,
    READY,
    ROWS,
    TITLES,
    VIEWS,
    arrive,
    expected,
    failures,
    find,
    listed,
    middling,
    served,
    slide,
    visit,
)

from small import fitted
from unexposed.serve.model import Source

pytestmark = pytest.mark.slow  # needs Chromium


def test_an_item_is_found_by_a_piece_of_its_title(browser, service):
    visit(browser, service)
    find(browser, "smoked g")
    browser.wait("document.title.startsWith('Smoked green')")
    browser.wait(READY)
    assert browser.text("h1") == "Smoked green"
    similar = service.model.similar_items("t12", 10)["item"].to_list()
    names = [TITLES.get(item, item) for item in similar]
    assert browser.texts(".stack .card:last-child .item a") == names


def test_the_keyboard_alone_leads_from_the_start_to_a_changed_list(browser, service):
    visit(browser, service)
    browser.tab_to("find")
    browser.type("u03")
    browser.press("Enter")  # before the results are there
    browser.wait("document.querySelector('h1')?.innerText === 'User u03'")
    browser.wait("document.activeElement.tagName === 'H1'")
    browser.wait(READY)
    before = listed(browser)
    browser.tab_to("penalty")
    browser.press(*["ArrowRight"] * 20)
    browser.wait("document.querySelector('.summary')")
    browser.wait(READY)
    assert listed(browser) == expected(service, popularity_penalty=1.0) != before


def test_sliders_change_list_marks_and_address_and_back_restores_them(browser, service):
    visit(browser, service, "user")
    untouched = expected(service, k=60)
    before = listed(browser)
    assert before == untouched[:10]
    least = middling(service)
    slide(browser, "penalty", 0.1)
    slide(browser, "exposure", least)
    browser.wait("document.querySelector('.summary')")
    browser.wait(READY)
    assert browser.run("location.hash") == f"#/user?id=u03&penalty=0.1&exposure={least}"
    after = expected(service, popularity_penalty=0.1, minimum_exposure=least)
    assert listed(browser) == after != before
    for rank, item in enumerate(after, start=1):
        row = f'{ROWS}[data-item="{item}"]'
        was = untouched.index(item) + 1
        move = "new" if was > 10 else "same" if was == rank else "up" if was > rank else "down"
        assert browser.run(f"document.querySelector({json.dumps(row)}).dataset.move") == move
    browser.run("history.back()")
    browser.wait("document.querySelector('.ranking') && !document.querySelector('.summary')")
    assert listed(browser) == before


def test_clicks_of_an_imagined_user_are_folded_in(browser, service):
    visit(browser, service, "nobody")
    assert not listed(browser)
    for at, (text, item) in enumerate([("jasm", "t07"), ("t20", "t20")], start=1):
        browser.run("document.getElementById('add').focus()")
        browser.type(text)
        browser.press("Enter")
        browser.wait(f"document.querySelectorAll('.chosen li').length === {at}")
        browser.wait(f"document.querySelector('.chosen li:last-child').dataset.item === '{item}'")
    browser.wait(f"{READY} && document.querySelector('{ROWS}')")
    assert listed(browser) == service.model.recommend_for(["t07", "t20"])["item"].to_list()
    browser.run("document.querySelector('.chosen li:last-child button').click()")
    browser.wait("document.querySelectorAll('.chosen li').length === 1")
    browser.wait(READY)
    assert listed(browser) == service.model.recommend_for(["t07"])["item"].to_list()


def test_what_the_model_does_not_know_is_named(browser, service):
    arrive(browser, service, f"#/imagined?clicks={quote(json.dumps(['t07', 'gone']))}")
    browser.wait("document.querySelectorAll('.chosen li').length === 2")
    browser.wait(f"{READY} && document.querySelector('{ROWS}')")
    assert "ignored" in browser.text(".chosen li:last-child")
    assert "ignored" not in browser.text(".chosen li:first-child")
    visit(browser, service, "error")
    assert "The model was never trained on user 'nobody'." in browser.text("[role=alert]")
    assert not failures(browser)


def test_a_server_that_is_gone_is_told_in_a_sentence_and_asked_again(browser, service):
    visit(browser, service, "user")
    browser.run("window.real = fetch; window.fetch = () => Promise.reject(new TypeError('gone'))")
    slide(browser, "penalty", 1)
    browser.wait("document.querySelector('.list [role=alert]')")
    assert "The server does not answer; is it still running?" in browser.text(".list")
    browser.run("window.fetch = real; document.querySelector('.list button').click()")
    browser.wait("document.querySelector('.summary')")
    assert listed(browser) == expected(service, popularity_penalty=1)


def test_a_replaced_model_is_noticed(browser, teas, tmp_path):
    source = Source(tmp_path / "model")
    newer = fitted("mf", teas, epochs=2, seed=1)
    with served(fitted("ubo", teas, epochs=2), source) as service:
        visit(browser, service, "user")
        before = listed(browser)
        newer.save(source.path)
        service.current.reload()
        browser.run("dispatchEvent(new Event('focus'))")
        browser.wait("!document.getElementById('notice').hidden")
        browser.wait(f"{READY} && document.getElementById('model').innerText.startsWith('mf')")
        browser.wait(f"document.querySelector('{ROWS}')")
        after = newer.recommend(["u03"], 10)["item"].to_list()
        assert listed(browser) == after != before
        assert "mf has no exposure model" in browser.text(".controls")
        assert "Exposure" not in browser.texts(".ranking th")


def test_markup_in_ids_and_titles_stays_text(browser, service):
    visit(browser, service, "hostile")
    assert browser.text("h1") == HOSTILE
    assert f"For user {HOSTILE}" in browser.text("main")
    find(browser, HOSTILE)
    browser.wait(READY)
    visit(browser, service, "imagined")
    assert HOSTILE in browser.texts(".chosen .item a")
    assert browser.run("document.querySelectorAll('img').length") == 0
    assert not failures(browser)


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


def test_every_view_can_be_read_on_a_phone_and_in_the_dark_and_asks_this_service_only(
    browser, service
):
    browser.look(width=390, dark=True)
    for view in VIEWS:
        visit(browser, service, view)
        assert browser.run("document.documentElement.scrollWidth") <= 390, view
        assert browser.run(CONTRAST) == [], view
    asked = [
        event["params"]["request"]["url"]
        for event in browser.events
        if event["method"] == "Network.requestWillBeSent"
        and event["params"]["documentURL"].startswith(service.address)
    ]
    assert len(asked) > len(VIEWS)
    assert [url for url in asked if not url.startswith((service.address, "data:"))] == []
    assert not failures(browser)
