"""The web application: routes, errors as one sentence, and the page."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from unexposed.errors import InputError, plain
from unexposed.serve.batches import Busy, Work
from unexposed.serve.guard import Guard
from unexposed.serve.openapi import document
from unexposed.serve.parameters import Missing, of_body, of_query
from unexposed.serve.reloading import SECONDS, Current, Say
from unexposed.serve.routes import CALLS, Call

PAGE = Path(__file__).parent / "page"
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
MOST_BODY = 1 << 20  # bytes
BODY_SECONDS = 10.0  # for a body to come
MOST_FIELDS = 1_100  # of a query: as many ids as a request may name, and the other parameters
ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))

Endpoint = Callable[[Request], Any]


class Refused(Exception):
    """A request that is refused for its size or its slowness."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def application(
    current: Current,
    *,
    hosts: Iterable[str] | None = None,
    log: Say | None = None,
    fail: Say = print,
    look_every: float = SECONDS,
) -> Guard:
    """The service as an ASGI application.

    `hosts` are the names by which it may be asked, if not any. `log` takes a line for each
    request, `fail` the traceback of an error of our own.
    """
    work = Work()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        del app
        watching = asyncio.create_task(current.watch(look_every))
        try:
            yield
        finally:
            watching.cancel()
            work.close()

    routes = [
        *(Route(path, one, methods=methods) for path, methods, one in _endpoints(current, work)),
        Route("/openapi.json", _fixed(encoded(document()), "application/json")),
        *_page(),
    ]
    handlers = dict.fromkeys([HTTPException, InputError, Refused, Busy, Exception], _error)
    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    app.router.redirect_slashes = False
    return Guard(app, hosts=None if hosts is None else frozenset(hosts), log=log, fail=fail)


def encoded(answer: Any) -> bytes:
    """The answer as JSON, in ASCII: any text of an id can be told."""
    return ENCODER.encode(answer).encode("ascii")


def _endpoints(current: Current, work: Work) -> list[tuple[str, list[str], Endpoint]]:
    """One endpoint for each path of the table, for all its methods."""
    paths: dict[str, dict[str, Call]] = {}
    for call in CALLS:
        paths.setdefault(call.path, {})[call.method] = call
    return [(path, list(calls), _endpoint(current, work, calls)) for path, calls in paths.items()]


def _endpoint(current: Current, work: Work, calls: dict[str, Call]) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        held = current.held  # to the end of the request, whatever is loaded meanwhile
        if request.method == "POST":
            call = calls["POST"]
            given = of_body(call.parameters, await _body(request))
            answer = await call.answer(work, held, given)
            content = await work.apart(partial(encoded, answer))  # it may be long
        else:
            call = calls["GET"]
            given = of_query(call.parameters, _query(request))
            content = encoded(await call.answer(work, held, given))
        return Response(content, media_type="application/json")

    return endpoint


def _query(request: Request) -> list[tuple[str, str]]:
    text = request.scope["query_string"].decode("latin-1")
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_FIELDS)
    except ValueError:
        raise InputError(f"the query has more than {MOST_FIELDS:,} parameters") from None


async def _body(request: Request) -> Any:
    """The JSON document of a request, of bounded size and read in bounded time."""
    read = bytearray()
    stated = request.headers.get("content-length", "")
    too_large = Refused(413, f"the body may have {MOST_BODY:,} bytes")
    if stated.isdecimal() and int(stated) > MOST_BODY:
        raise too_large
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                read += part
                if len(read) > MOST_BODY:
                    raise too_large
    except TimeoutError:
        raise Refused(408, f"the body did not come within {BODY_SECONDS:.0f} seconds") from None
    try:
        return json.loads(read, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is not JSON: {plain(error, 100)}") from None


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not a number in JSON")


def _page() -> list[Route]:
    """The files of the page; the first one is the root."""
    files = [file for file in sorted(PAGE.iterdir()) if file.suffix in TYPES]
    return [
        Route(
            "/" if file.name == "index.html" else f"/{file.name}",
            _fixed(file.read_bytes(), TYPES[file.suffix]),
        )
        for file in files
    ]


def _fixed(content: bytes, media_type: str) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        del request
        return Response(content, media_type=media_type)

    return endpoint


async def _error(request: Request, error: Exception) -> Response:
    """One sentence, and the status that goes with it."""
    status, sentence, headers = 500, "something failed here; the log of the service says what", {}
    match error:
        case Missing():
            status, sentence = 404, str(error)
        case InputError():
            status, sentence = 400, str(error)
        case Refused():
            status, sentence, headers = error.status, str(error), {"connection": "close"}
        case Busy():
            status, sentence = 503, "too many requests wait; try again"
            headers = {"retry-after": "1"}
        case HTTPException(status_code=404):
            status, sentence = 404, f"there is nothing at {plain(request.url.path, 100)}"
        case HTTPException(status_code=405):
            allowed = (error.headers or {}).get("Allow", "")
            status, sentence, headers = 405, f"this address takes {allowed}", {"allow": allowed}
        case HTTPException():
            status, sentence = error.status_code, plain(error.detail, 200)
    content = encoded({"error": sentence})
    return Response(content, status, headers, media_type="application/json")
