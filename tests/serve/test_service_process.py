"""The service over real sockets: its command, its end, its limits on the head of a request."""

import json
import multiprocessing
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing, suppress
from http.client import HTTPConnection

import pytest
import uvicorn

from serve_world import app, model
from unexposed.cli.serve import serve
from unexposed.errors import InputError
from unexposed.serve import protocol, running
from unexposed.serve.protocol import Strict
from unexposed.serve.running import listening


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("process") / "model"
    model().save(folder)
    return folder


def test_two_workers_answer_on_one_port_and_end_at_once_without_a_word(saved):
    command = [sys.executable, "-m", "unexposed", "serve", str(saved), "--port=0", "--workers=2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        try:
            line = child.stderr.readline()
            found = re.fullmatch(
                r"serving mf \(40 users, 300 items\) at http://127.0.0.1:(\d+) until Ctrl-C\n", line
            )
            assert found, line + child.stderr.read()
            with closing(HTTPConnection("127.0.0.1", int(found[1]), timeout=60)) as connection:
                for user in (1, 2):
                    connection.request("GET", f"/recommend?user={user}&k=3")
                    answer = json.loads(connection.getresponse().read())
                    wanted = model().recommend([user], 3)["item"].to_list()
                    assert [entry["item"] for entry in answer["items"]] == wanted
                child.send_signal(signal.SIGTERM)
                assert child.wait(60) == 0
            assert child.stderr.read() == ""
        finally:
            child.kill()


@pytest.fixture(scope="module")
def port(saved):
    """The port of a service in a thread of this process."""
    config = uvicorn.Config(app(saved), http=Strict, ws="none", log_config=None)
    server = uvicorn.Server(config)
    with listening("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join()


def sent(port: int, data: bytes) -> bytes:
    """All that comes back until the service closes the connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(data)
        found = b""
        while part := connection.recv(65_536):
            found += part
        return found


def test_a_slow_head_is_given_up(port, monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.05)
    assert sent(port, b"") == b""
    assert sent(port, b"GET /health HTTP/1.1\r\nHost: localhost\r\n") == b""
    first, second = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /health HTTP"
    assert sent(port, first + second).count(b"HTTP/1.1 200 OK") == 1


def test_a_long_head_is_given_up(port, monkeypatch):
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 60)
    with suppress(ConnectionResetError):  # what was not read resets the connection
        assert sent(port, b"GET /health HTTP/1.1\r\nX: " + b"a" * 40_000) == b""


def test_what_is_not_http_is_refused_and_the_service_goes_on(port):
    assert sent(port, b"\x16\x03\x01\x00\xa5 hello\r\n\r\n").startswith(b"HTTP/1.1 400")
    closing = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert sent(port, closing).startswith(b"HTTP/1.1 200 OK")


def test_a_port_in_use_is_told_in_one_sentence(port):
    said = f"port {port} of 127.0.0.1 is in use: choose another one with --port"
    with pytest.raises(InputError, match=said), listening("127.0.0.1", port):
        pass


@pytest.mark.parametrize(
    ("host", "port", "said"),
    [
        ("no such host", 0, "--host 'no such host' is no address of a machine"),
        ("192.0.2.1", 0, "cannot listen on 192.0.2.1, port 0"),
        ("127.0.0.1", 70_000, "--port must be between 0 and 65535, got 70000"),
    ],
)
def test_a_wrong_address_is_told_in_one_sentence(host, port, said):
    with pytest.raises(InputError, match=said), listening(host, port):
        pass


def test_other_machines_are_warned_of_and_loopback_is_not(saved, monkeypatch):
    monkeypatch.setattr(running, "serve_one", lambda *_: None)
    for host, warned in (("127.0.0.1", False), ("0.0.0.0", True)):
        said: list[str] = []
        settings = running.Settings(running.Source(saved), host, 0, workers=1, log=False)
        running.run(settings, said.append)
        assert ("can be reached from other machines" in said[0]) == warned
        assert said[-1].startswith("serving mf")
    assert [running._is_loopback(h) for h in ("localhost", "::1", "::")] == [True, True, False]


def test_workers_number_models_alike():
    number = running._SharedCounter(multiprocessing.get_context("spawn"))
    a, b = "a" * 64, "b" * 64
    assert [number(one) for one in (a, a, b, b, a)] == [1, 1, 2, 2, 3]


def test_the_missing_extra_is_named(saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(InputError, match=re.escape("this needs uvicorn: pip install '.[serve]'")):
        serve(saved)


def test_a_folder_without_a_model_is_told_in_one_sentence(tmp_path):
    with pytest.raises(InputError, match="is not a whole model"):
        serve(tmp_path, port=0)
