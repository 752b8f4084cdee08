"""A service that runs in a thread, and what a reader does on its page."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from urllib.parse import quote

import uvicorn
from browser import Browser

from unexposed.model.filters import Rules
from unexposed.model.model import Model
from unexposed.serve.app import application
from unexposed.serve.model import Current, Source

HOSTILE = "<img src=x onerror=alert(1)>"
TITLES = {"t07": "Jasmine & pearl", "t11": "Smoked black", "t12": "Smoked green", HOSTILE: HOSTILE}
LONG = "an_id_without_any_place_to_break_" * 6
VISITS = count()
READY = "document.querySelector('main h1') && !document.querySelector('[aria-busy]')"
ROWS = ".ranking tr[data-item]"
VIEWS = {  # no two neighbours of one user or item: each view is built anew
    "start": "#/",
    "user": "#/user?id=u03",
    "item": "#/item?id=t07&user=u03",
    "imagined": f"#/imagined?clicks={quote(json.dumps(['t07', LONG, HOSTILE]))}",
    "long": f"#/item?id={LONG}",
    "nobody": "#/imagined",
    "hostile": f"#/item?id={quote(HOSTILE)}&user={quote(HOSTILE)}",
    "sliders": "#/user?id=u03&penalty=0.5&exposure=0.2&k=20",
    "error": "#/user?id=nobody",
}


@dataclass(frozen=True)
class Service:
    """A service that runs in a thread."""

    address: str
    model: Model
    current: Current


@contextmanager
def served(model: Model, source: Source) -> Iterator[Service]:
    model.save(source.path)
    current = Current(source, say=print)
    how = {"port": 0, "ws": "none", "lifespan": "on", "log_config": None}
    server = uvicorn.Server(uvicorn.Config(application(current), **how))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started and thread.is_alive():
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Service(f"http://127.0.0.1:{port}/", model, current)
    finally:
        server.should_exit = True
        thread.join()


def visit(browser: Browser, service: Service, view: str = "start") -> None:
    """Open a view as from a link that somebody sent."""
    arrive(browser, service, VIEWS[view])
    browser.wait(READY)


def arrive(browser: Browser, service: Service, place: str) -> None:
    browser.open(f"{service.address}?{next(VISITS)}{place}")  # another query: loaded anew


def find(browser: Browser, text: str) -> None:
    """Type into the search and take the first result."""
    browser.run("document.getElementById('find').focus()")
    browser.type(text)
    browser.wait("document.querySelector('#find-found [aria-selected=true]')")
    browser.press("Enter")


def listed(browser: Browser) -> list[str]:
    return browser.run(f"[...document.querySelectorAll({ROWS!r})].map(row => row.dataset.item)")


def expected(service: Service, user: str = "u03", k: int = 10, **rules) -> list[str]:
    return service.model.recommend([user], k, rules=Rules(**rules))["item"].to_list()


def middling(service: Service) -> float:
    """An exposure that half of the untouched list of u03 has."""
    exposures = service.model.recommend(["u03"], 10)["exposure"]
    return round(float(exposures.median()), 2)


def slide(browser: Browser, name: str, value: float) -> None:
    browser.run(
        f"{name}.value = {value}; {name}.dispatchEvent(new Event('input', {{bubbles: true}}))"
    )


def failures(browser: Browser) -> list[str]:
    """Errors in the console, except that a request was refused."""
    shown = []
    for event in browser.events:
        params = event.get("params", {})
        entry = params.get("entry", {})
        if (
            event["method"] in ("Runtime.exceptionThrown", "Page.javascriptDialogOpening")
            or params.get("type") == "error"
            or (entry.get("level") == "error" and entry.get("source") != "network")
        ):
            shown.append(json.dumps(params))
    return shown
