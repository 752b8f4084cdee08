"""Listen on a socket, in one process or in several that share it."""

import contextlib
import ipaddress
import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from errno import EACCES, EADDRINUSE
from multiprocessing.connection import wait
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any

import uvicorn
from threadpoolctl import threadpool_limits

from unexposed.errors import InputError
from unexposed.model.model import Model
from unexposed.serve.app import application
from unexposed.serve.held import Source
from unexposed.serve.protocol import Strict
from unexposed.serve.reloading import Current, Number, Say

MOST_CONNECTIONS = 1_000
KEEP_SECONDS = 30  # an idle connection
STOP_SECONDS = 1  # for requests in flight when the service is to end
SOON = 5.0  # seconds: a worker that ends this early will not do better if started again
LOOPBACK = ("127.0.0.1", "[::1]", "localhost")
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Settings:
    """How the service is started."""

    source: Source
    host: str
    port: int
    workers: int
    log: bool  # a line for each request


def run(settings: Settings, say: Say) -> None:
    """Serve until a signal ends it."""
    with listening(settings.host, settings.port) as listener:
        address = _address(listener)
        if not _is_loopback(settings.host):
            say(
                f"warning: {settings.host} can be reached from other machines, and anybody who "
                "reaches this service may read the model: put a proxy with a login in front"
            )
        current = Current(settings.source, say=say)
        if current.held.titles is not None:
            named, n_items = len(current.held.titles), len(current.held.model.item_ids)
            say(f"{settings.source.titles}: names of {named:,} of {n_items:,} items")
        say(f"serving {_line(current.held.model)} at {address} until Ctrl-C")
        if settings.workers == 1:
            serve_one(listener, settings, current, say)
        else:
            del current
            _serve_many(listener, settings, say)


def serve_one(listener: socket.socket, settings: Settings, current: Current, say: Say) -> None:
    """Answer requests in this process."""
    app = application(
        current,
        hosts=LOOPBACK if _is_loopback(settings.host) else None,
        log=say if settings.log else None,
        fail=say,
    )
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)  # the app logs its own
    config = uvicorn.Config(
        app,
        http=Strict,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=KEEP_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    # uvicorn ends on a signal, then raises it again: by then there is nothing left to end
    with _handling(lambda *_: None), threadpool_limits(1):  # a thread makes lists, one answers
        uvicorn.Server(config).run([listener])


def _serve_many(listener: socket.socket, settings: Settings, say: Say) -> None:
    """Answer requests in several processes, and start one again that ended."""
    context = multiprocessing.get_context("spawn")
    number = _SharedCounter(context)
    ended = False

    def end(*_: Any) -> None:
        nonlocal ended
        ended = True
        for worker in workers:
            worker.terminate()

    workers: list[SpawnProcess] = []

    def started() -> SpawnProcess:
        worker = context.Process(target=_work, args=(listener, settings, number, say))
        worker.start()
        return worker

    with _handling(end):
        begin = time.monotonic()
        workers += [started() for _ in range(settings.workers)]
        while not ended:
            wait([worker.sentinel for worker in workers], timeout=1)
            for at, worker in enumerate(workers):
                if ended or worker.is_alive():
                    continue
                if time.monotonic() - begin < SOON:
                    end()
                    raise InputError(f"a worker ended at once (exit code {worker.exitcode})")
                say(f"a worker ended (exit code {worker.exitcode}); another one is started")
                begin, workers[at] = time.monotonic(), started()
        for worker in workers:
            worker.join(STOP_SECONDS + 2)
            if worker.is_alive():
                worker.kill()


def _work(listener: socket.socket, settings: Settings, number: Number, say: Say) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all: the parent ends the others
    try:
        current = Current(settings.source, say=say, number=number)
    except InputError as error:
        say(f"error: {error}")
        raise SystemExit(2) from None
    serve_one(listener, settings, current, say)
    leave()


def leave() -> None:
    """End this process at once: the packages would take seconds to take themselves apart."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


class _SharedCounter:
    """Numbers models alike in all processes."""

    def __init__(self, context: SpawnContext) -> None:
        self._lock = context.Lock()
        self._checksum = context.Array("c", 64, lock=False)  # in hexadecimal digits
        self._generation = context.Value("q", 0, lock=False)

    def __call__(self, checksum: str) -> int:
        with self._lock:
            if self._checksum.raw.decode() != checksum:
                self._checksum.raw = checksum.encode()
                self._generation.value += 1
            return int(self._generation.value)


@contextlib.contextmanager
def _handling(handle: Callable[..., None]) -> Iterator[None]:
    before = {one: signal.signal(one, handle) for one in SIGNALS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


@contextlib.contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket bound to this address; refused with one sentence if it cannot be."""
    if not 0 <= port < 1 << 16:
        raise InputError(f"--port must be between 0 and 65535, got {port}")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
    except (OSError, UnicodeError):
        raise InputError(f"--host {host!r} is no address of a machine") from None
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen()  # the second service on a port is told here, before its model is read
        except OSError as error:
            raise InputError(_why(error, host, port)) from None
        yield listener


def _why(error: OSError, host: str, port: int) -> str:
    if error.errno == EADDRINUSE:
        return f"port {port} of {host} is in use: choose another one with --port"
    if error.errno == EACCES:
        return f"port {port} is for the system's own services: choose one above 1023 with --port"
    return f"cannot listen on {host}, port {port}: {error.strerror or error}"


def _line(model: Model) -> str:
    log = model.clicks
    return f"{model.method.name} ({log.n_users:,} users, {log.n_items:,} items)"


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
