"""The web application: its addresses, limits and description, the page, and its processes."""

import asyncio
import ipaddress
import logging
import signal
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, get_type_hints
from urllib.parse import parse_qsl

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.staticfiles import StaticFiles
from threadpoolctl import threadpool_limits
from uvicorn.supervisors import Multiprocess

from unexposed.errors import InputError, plain
from unexposed.serve import messages
from unexposed.serve.batches import Batches
from unexposed.serve.messages import Missing
from unexposed.serve.model import SECONDS, Current, Say, ServedModel, Source
from unexposed.version import __version__

PAGE = Path(__file__).parent / "page"
MOST_QUERY, MOST_BODY = 8 << 10, 1 << 20  # bytes
REQUEST_SECONDS = 30.0  # from the head of a request to its answer
IDLE_SECONDS, STOP_SECONDS = 30, 1  # of an idle connection; of requests in flight at the end
MOST_CONNECTIONS = 1_000  # of a process
MOST_ENTRIES = 50_000  # items of all lists of an answer
LOOPBACK = ("127.0.0.1", "[::1]", "localhost")
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; frame-ancestors 'none'; form-action 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
ERRORS = {
    400: "a parameter is missing, unknown or not allowed",
    404: "the model was never trained on this user or item",
    408: "the request took too long",
    413: "the body is too large",
    414: "the address is too long",
    503: "too many requests wait",
}


@dataclass(frozen=True)
class Call:
    """One address of the service, described by the signature and docstring of its handler.

    A handler takes the model and the request; if it makes lists, the batches too.
    """

    method: str
    path: str
    handler: Callable[..., Any]

    @cached_property
    def request(self) -> type[msgspec.Struct]:
        return get_type_hints(self.handler)["request"]

    @cached_property
    def answer(self) -> type[msgspec.Struct]:
        return get_type_hints(self.handler)["return"]


async def recommend(
    batches: Batches, model: ServedModel, request: messages.RecommendOne
) -> messages.List:
    """The best items for a user, best first."""
    return (await _lists(batches, model, [request.user], request))[0]


async def recommend_many(
    batches: Batches, model: ServedModel, request: messages.RecommendMany
) -> messages.Lists:
    """The best items for each of many users."""
    n_users, k = len(request.users), request.k
    if n_users * k > MOST_ENTRIES:
        raise InputError(
            f"{n_users:,} users with k = {k:,} make {n_users * k:,} items: ask for at most "
            f"{MOST_ENTRIES:,} at once"
        )
    return messages.Lists(await _lists(batches, model, request.users, request))


async def _lists(
    batches: Batches, model: ServedModel, users: list[Any], request: messages.UserRules
) -> list[messages.List]:
    find = model.known if request.unknown == "refuse" else model.index
    rows, options = [find(user, "user") for user in users], model.options(request)
    if min(rows, default=0) < 0:
        await asyncio.to_thread(lambda: model.average)  # so that others do not wait for it
    served = [model.log.n_users if row < 0 else row for row in rows]
    lists = await batches.lists(model, served, request.k, options)
    return [
        messages.List(user if row < 0 else model.raw("user", row), row >= 0, entries)
        for user, row, entries in zip(users, rows, lists, strict=True)
    ]


CALLS = (
    Call("GET", "/health", ServedModel.health),
    Call("GET", "/recommend", recommend),
    Call("POST", "/recommend", recommend_many),
    Call("GET", "/similar", ServedModel.similar),
    Call("GET", "/exposure", ServedModel.exposure),
    Call("POST", "/fold-in", ServedModel.fold_in),
    Call("GET", "/user", ServedModel.clicks_of),
    Call("GET", "/search", ServedModel.search),
)


def application(
    current: Current, *, hosts: Sequence[str] = ("*",), look_every: float = SECONDS
) -> Starlette:
    """The service as an ASGI application that answers to these names of hosts."""
    batches, description = Batches(), openapi()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(one) for one in (current.watch(look_every), batches.run())]
        yield
        for task in tasks:
            task.cancel()

    async def answer(request: Request) -> Response:
        """The answer of the call with this path and method, or one sentence."""
        model = current.model  # to the end of the request, whatever is loaded meanwhile
        method = "POST" if request.method == "POST" else "GET"  # HEAD is answered like GET
        call = next(c for c in CALLS if (c.path, c.method) == (request.scope["path"], method))
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                asked = await _asked(request, call)
                if asyncio.iscoroutinefunction(call.handler):
                    return _json(await call.handler(batches, model, asked))
                return _json(await asyncio.to_thread(call.handler, model, asked))
        except TimeoutError:
            raise HTTPException(408, f"no answer within {REQUEST_SECONDS:.0f} seconds") from None

    paths = {call.path: [c.method for c in CALLS if c.path == call.path] for call in CALLS}
    app = Starlette(
        routes=[
            *(
                Route(path, answer, methods=methods, max_body_size=MOST_BODY)
                for path, methods in paths.items()
            ),
            Route("/openapi.json", lambda _: _json(description)),
        ],
        # a page from elsewhere can give its own name this machine's address, and read answers
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False)],
        exception_handlers=dict.fromkeys([HTTPException, InputError, Exception], _refusal),
        lifespan=lifespan,
    )
    app.router.default = StaticFiles(directory=PAGE, html=True)
    return app


async def _asked(request: Request, call: Call) -> Any:
    """The request, from the JSON document of a body or from a query."""
    if call.method == "POST":
        try:
            return messages.decoded(call.request, msgspec.json.decode(await request.body()))
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InputError(f"the body is not JSON: {plain(error, 100)}") from None
    text = request.scope["query_string"].decode("latin-1")
    if len(text) > MOST_QUERY:
        raise HTTPException(414, f"the query may have {MOST_QUERY:,} bytes, got {len(text):,}")
    values: dict[str, Any] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        values.setdefault(name, []).append(value)
    allowed = messages.schema(call.request)["properties"]
    for name, given in values.items():
        if allowed.get(name, {}).get("type") != "array":
            if len(given) > 1:
                raise InputError(f"{name} is given {len(given)} times: give it once")
            values[name] = given[0]
    return messages.decoded(call.request, values, strict=False)


def _json(answer: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(answer), status, headers, media_type="application/json")


async def _refusal(request: Request, error: Exception) -> Response:
    """One sentence, and the status that goes with it."""
    status, sentence, headers = 500, "something failed here; the log of the service says what", {}
    if isinstance(error, InputError):
        status, sentence = 404 if isinstance(error, Missing) else 400, str(error)
    elif isinstance(error, HTTPException):
        status, sentence, headers = error.status_code, error.detail, dict(error.headers or {})
        if status == 404:
            sentence = f"there is nothing at {plain(request.url.path, 100)}"
        elif status == 413:
            sentence = f"the body may have {MOST_BODY:,} bytes"
        elif status == 405:
            sentence = f"this address takes {headers.get('Allow')}"
    return _json(messages.Error(sentence), status, headers)


def openapi() -> dict[str, Any]:
    """The description of the service, in OpenAPI 3.1."""
    types = [messages.Error, *(t for call in CALLS for t in (call.request, call.answer))]
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")

    def described(text: str, kind: type[msgspec.Struct]) -> dict[str, Any]:
        content = {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}
        return {"description": text, "content": {"application/json": content}}

    errors = {str(status): described(text, messages.Error) for status, text in ERRORS.items()}
    paths: dict[str, dict[str, Any]] = {}
    for call in CALLS:
        schema = messages.schema(call.request)
        operation: dict[str, Any] = {
            "operationId": f"{call.method}_{call.path[1:]}".lower().replace("-", "_"),
            "summary": call.handler.__doc__,
            "responses": {"200": described("the answer", call.answer)} | errors,
        }
        if call.method == "POST":
            operation["requestBody"] = described("the request", call.request) | {"required": True}
        else:
            operation["parameters"] = [
                {"name": name, "in": "query", "required": name in schema["required"]}
                | {"schema": one}
                for name, one in schema["properties"].items()
            ]
        paths.setdefault(call.path, {})[call.method.lower()] = operation
    about = "Lists, similar items and exposure from a saved model. Nothing writes."
    return {
        "openapi": "3.1.0",
        "info": {"title": "unexposed", "version": __version__, "description": about},
        "paths": paths,
        "components": {"schemas": schemas},
    }


def run(source: Source, *, host: str, port: int, workers: int, log: bool, say: Say) -> None:
    """Serve until a signal ends it."""
    with listening(host, port) as listener:
        hosts = LOOPBACK if _is_loopback(host) else ("*",)
        if hosts == ("*",):
            say(
                f"warning: {host} can be reached from other machines, and anybody who reaches "
                "this service may read the model: put a proxy with a login in front"
            )
        first = Current(source, say=say)
        clicks, titles = first.model.log, first.model.titles
        if titles is not None:
            say(f"{source.titles}: names of {len(titles):,} of {clicks.n_items:,} items")
        size = f"{clicks.n_users:,} users, {clicks.n_items:,} items"
        say(f"serving {first.model.method.name} ({size}) at {_address(listener)} until Ctrl-C")
        config = uvicorn.Config(
            partial(started, source, hosts, say, first if workers == 1 else None),
            factory=True,
            workers=workers,
            http="httptools",
            ws="none",
            log_config=None,
            access_log=log,
            headers=list(HEADERS.items()),
            server_header=False,
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=STOP_SECONDS,
            timeout_worker_healthcheck=60,  # loading a large model may hold the interpreter
        )
        if workers > 1:
            Multiprocess(config, sockets=[listener]).run()
        else:
            for one in (signal.SIGINT, signal.SIGTERM):
                signal.signal(one, lambda *_: None)  # uvicorn raises it again when it has ended
            uvicorn.Server(config).run([listener])


def started(source: Source, hosts: Sequence[str], say: Say, first: Current | None) -> Starlette:
    """The application in a process that answers requests, and where its log lines go."""
    threadpool_limits(1)  # a thread makes lists, one answers
    logging.basicConfig(format="%(message)s")
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    logging.getLogger("uvicorn.access").setLevel(logging.INFO)
    return application(first or Current(source, say=say), hosts=hosts)


def listening(host: str, port: int) -> socket.socket:
    """A socket bound to this address; refused with one sentence if it cannot be."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"cannot listen on {host}, port {port}: {plain(reason)}; choose with --host and --port"
        ) from None


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
