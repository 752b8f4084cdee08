"""What the service refuses, and that it answers to its own names and writes nothing."""

import json

import pytest
from serving import app, model
from starlette.testclient import TestClient

from unexposed.serve import app as app_module
from unexposed.serve import batches
from unexposed.serve.app import LOOPBACK
from unexposed.serve.model import ServedModel


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("limits") / "model"
    model().save(path)
    return path


@pytest.fixture(scope="module")
def client(saved):
    with TestClient(app(saved)) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/recommend", 400, "give user: a raw id"),
        ("/recommend?user=1&user=2", 400, "user is given 2 times: give it once"),
        ("/recommend?user=1&k=ten", 400, "k must be a whole number from 1 to 1,000, got 'ten'"),
        ("/recommend?user=1&popularity_penalty=nan", 400, "popularity_penalty must be a number"),
        ("/recommend?user=1&show_clicked=maybe", 400, "show_clicked must be true or false"),
        ("/recommend?user=1&unknown=skip", 400, "unknown must be popular or refuse, got 'skip'"),
        ("/recommend?user=99", 404, "the model was never trained on user '99'"),
        ("/recommend?user=1&kk=3", 400, "no parameter 'kk'; did you mean 'k'?"),
        ("/search?q=" + "a" * 201, 400, "q must be a text of at most 200 characters"),
        ("/etc/passwd", 404, "there is nothing at /etc/passwd"),
        ("/..%2fapp.py", 404, "there is nothing at /"),
        ("/search?q=" + "a" * 9000, 414, "the query may have 8,192 bytes"),
    ],
)
def test_a_mistake_is_answered_with_one_sentence(client, path, status, sentence):
    answer = client.get(path)
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]
    assert sentence in answer.json()["error"]


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        ("", 400, "the body is not JSON"),
        ("[1]", 400, "the body must be a JSON object with users"),
        ('{"users": 1}', 400, "users must be a list of ids, at most 1,000, got 1"),
        ('{"users": [NaN]}', 400, "the body is not JSON"),
        ('{"users": [1], "k": true}', 400, "k must be a whole number"),
        ('{"users": [{}]}', 400, "an object cannot be an id"),
        ('{"users": ' + "[" * 100_000, 400, "the body is not JSON"),
        (json.dumps({"users": [1] * 1001}), 400, "users must be a list of ids, at most 1,000"),
        (json.dumps({"users": [1] * 1000, "k": 51}), 400, "make 51,000 items: ask for at most"),
        ('{"users": ["' + "a" * (1 << 20) + '"]}', 413, "Content Too Large"),
        ((b" " * 65_536 for _ in range(20)), 413, "the body may have 1,048,576 bytes"),
    ],
)
def test_a_bad_body_is_answered_with_one_sentence(client, body, status, sentence):
    answer = client.post("/recommend", content=body)
    assert answer.status_code == status
    assert sentence in answer.text


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_can_be_written(client, method):
    for path in ("/", "/recommend", "/health", "/fold-in"):
        answer = client.request(method, path)
        assert answer.status_code == 405
        assert "this address takes" in answer.json()["error"]
    assert client.get("/fold-in").status_code == 405


def test_the_page_is_at_the_root_and_nothing_else_of_the_package(client):
    answer = client.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.text.startswith("<!doctype html>")
    assert client.get("/page.js").status_code == 200
    assert client.get("/app.py").status_code == 404


def test_on_loopback_a_page_from_elsewhere_cannot_ask(saved):
    with TestClient(app(saved, hosts=LOOPBACK)) as client:
        for host in ("localhost", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST:1"):
            assert client.get("/health", headers={"host": host}).status_code == 200
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000"):
            assert client.get("/health", headers={"host": host}).status_code == 400


def test_an_error_of_our_own_shows_nothing_of_the_code(saved, monkeypatch):
    monkeypatch.setattr(ServedModel, "raw", lambda *_: 1 / 0)
    with TestClient(app(saved), raise_server_exceptions=False) as client:
        answer = client.get("/recommend?user=1")
    assert answer.status_code == 500
    assert answer.json() == {"error": "something failed here; the log of the service says what"}


def test_a_request_that_takes_too_long_is_given_up(saved, monkeypatch):
    monkeypatch.setattr(app_module, "REQUEST_SECONDS", 0.0)
    with TestClient(app(saved)) as client:
        answer = client.get("/user?user=1")
    assert (answer.status_code, "no answer within" in answer.json()["error"]) == (408, True)


def test_more_than_can_be_answered_soon_is_refused(saved, monkeypatch):
    monkeypatch.setattr(batches, "MOST_WAITING", 2)
    with TestClient(app(saved)) as client:
        answer = client.post("/recommend", json={"users": [1, 2, 3]})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert client.post("/recommend", json={"users": [1, 2]}).status_code == 200
