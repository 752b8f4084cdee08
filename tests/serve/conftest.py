"""A headless browser, and a service of a small log whose ids and titles are hostile."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from browser import CHROMIUM, Browser
from exploring import HOSTILE, LONG, TITLES, Service, served

from small import fitted
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.serve.model import Source


@pytest.fixture(scope="session")
def teas(small_world) -> Clicks:
    """A small log with titles; one user and one item have markup for an id, one item a long id."""
    clicks = small_world.clicks(0)
    items = [HOSTILE, LONG, *(f"t{n:02}" for n in range(2, clicks.n_items))]
    users = [HOSTILE, *(f"u{n:02}" for n in range(1, clicks.n_users))]
    return replace(clicks, user_ids=Ids.of(users), item_ids=Ids.of(items))


@pytest.fixture(scope="session")
def service(teas, tmp_path_factory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("teas")
    rows = [f'{item},"{title}"' for item, title in TITLES.items()]
    (folder / "titles.csv").write_text("\n".join(["item,title", *rows]), encoding="utf-8")
    model = fitted("ubo", teas, epochs=20)
    with served(model, Source(folder / "model", folder / "titles.csv")) as running:
        yield running


@pytest.fixture(scope="session")
def started(tmp_path_factory) -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def browser(started) -> Browser:
    started.look()
    started.events.clear()
    return started
