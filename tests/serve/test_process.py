"""The service over real sockets: its command, its workers, its end and its headers."""

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import closing, contextmanager
from http.client import HTTPConnection

import pytest
from serving import model

from unexposed.cli.serve import serve
from unexposed.errors import InputError
from unexposed.serve import app as app_module
from unexposed.serve.app import HEADERS, listening
from unexposed.serve.model import Source


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("process") / "model"
    model().save(path)
    return path


@contextmanager
def running(saved, *options):
    """A service in a process of its own, and the port that it names."""
    command = [sys.executable, "-m", "unexposed", "serve", str(saved), "--port=0", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        try:
            line = child.stderr.readline()
            where = re.fullmatch(
                r"serving mf \(40 users, 300 items\) at http://127.0.0.1:(\d+) until Ctrl-C\n", line
            )
            assert where, line + child.stderr.read()
            yield child, int(where[1])
        finally:
            child.kill()


def asked(port, path):
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer, json.loads(answer.read())


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_workers_answer_on_one_port_and_end_at_once_without_a_word(saved, workers):
    with running(saved, f"--workers={workers}") as (child, port):
        for user in (1, 2):
            answer, lists = asked(port, f"/recommend?user={user}&k=3")
            wanted = model().recommend([user], 3)["item"].to_list()
            assert [entry["item"] for entry in lists["items"]] == wanted
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        child.send_signal(signal.SIGTERM)
        assert child.wait(60) == 0
        assert child.stderr.read() == ""


@pytest.mark.slow
def test_a_model_saved_again_is_picked_up_by_every_worker(saved, tmp_path):
    path = tmp_path / "model"
    model().save(path)
    with running(path, "--workers=2") as (_, port):
        before = asked(port, "/health")[1]["model"]["saved"]
        newer = model(seed=1)
        newer.save(path)
        end, seen = time.monotonic() + 120, 0
        while seen < 10:  # in a row, from whichever worker
            assert time.monotonic() < end, "the newer model did not come"
            saved_at = asked(port, "/health")[1]["model"]["saved"]
            seen = seen + 1 if saved_at != before else 0
            time.sleep(0.2)
        lists = asked(port, "/recommend?user=1&k=3")[1]
    wanted = newer.recommend([1], 3)["item"].to_list()
    assert [entry["item"] for entry in lists["items"]] == wanted


@pytest.mark.slow
def test_a_line_for_each_request_is_logged_if_asked_for(saved):
    with running(saved, "--log") as (child, port):
        asked(port, "/health")
        assert '"GET /health HTTP/1.1" 200' in child.stderr.readline()


@pytest.mark.parametrize("host", ["no such host", "192.0.2.1"])
def test_an_address_that_cannot_be_used_is_refused_in_one_sentence(host):
    with pytest.raises(InputError, match=f"cannot listen on {host}, port 0: "):
        listening(host, 0)


def test_a_port_in_use_is_refused_in_one_sentence():
    with listening("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(InputError, match="(?i)address already in use"):
            listening("127.0.0.1", port)


@pytest.mark.parametrize(("host", "warned"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_whoever_opens_it_to_other_machines_is_warned(saved, monkeypatch, host, warned):
    said: list[str] = []
    monkeypatch.setattr(app_module.uvicorn, "Server", lambda _: app_module.Multiprocess)
    monkeypatch.setattr(app_module.Multiprocess, "run", lambda _: None)
    monkeypatch.setattr(app_module.signal, "signal", lambda *_: None)
    app_module.run(Source(saved), host=host, port=0, workers=1, log=False, say=said.append)
    assert ("can be reached from other machines" in said[0]) == warned
    assert said[-1].startswith("serving mf")


def test_the_missing_extra_is_named(saved, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(InputError, match=re.escape("this needs uvicorn: pip install '.[serve]'")):
        serve(saved)
