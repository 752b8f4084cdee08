"""What the service refuses, and what every answer carries."""

import asyncio
import json

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

from serve_world import app, model
from unexposed.serve import app as app_module
from unexposed.serve import batches, guard
from unexposed.serve.batches import Busy, Work
from unexposed.serve.running import LOOPBACK


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("limits") / "model"
    model().save(folder)
    return folder


@pytest.fixture(scope="module")
def client(saved):
    with TestClient(app(saved)) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "status", "sentence"),
    [
        ("/recommend", 400, "give user: raw id of a user"),
        ("/recommend?user=1&user=2", 400, "user is given 2 times: give it once"),
        ("/recommend?user=1&k=0", 400, "k must be a whole number from 1 to 1,000, got 0"),
        ("/recommend?user=1&k=1001", 400, "k must be a whole number from 1 to 1,000, got 1001"),
        ("/recommend?user=1&k=ten", 400, "k must be a whole number from 1 to 1,000, got 'ten'"),
        ("/recommend?user=1&popularity_penalty=nan", 400, "popularity_penalty must be a number"),
        ("/recommend?user=1&popularity_penalty=-1", 400, "popularity_penalty must be a number"),
        ("/recommend?user=1&minimum_exposure=1.5", 400, "minimum_exposure must be a number from 0"),
        ("/recommend?user=1&show_clicked=maybe", 400, "show_clicked must be true or false"),
        ("/recommend?user=1&unknown=skip", 400, "unknown must be one of refuse, popular"),
        ("/recommend?user=99", 404, "the model was never trained on user '99'"),
        ("/similar?item=x", 404, "the model was never trained on item 'x'"),
        ("/recommend?user=1&kk=3", 400, "no parameter 'kk'; did you mean 'k'?"),
        ("/search?kind=film", 400, "kind must be one of item, user, got 'film'"),
        ("/search?q=" + "a" * 201, 400, "q must be a text of at most 200 characters"),
        ("/etc/passwd", 404, "there is nothing at /etc/passwd"),
        ("/page/index.html", 404, "there is nothing at /page/index.html"),
        ("/" + "a" * 9000, 414, "the address may have 8,192 bytes"),
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
        ("[1]", 400, 'the body must be a JSON object with "users"'),
        ('{"users": 1}', 400, "users must be a list of ids, got 1"),
        ('{"users": [NaN]}', 400, "NaN is not a number in JSON"),
        ('{"users": [1], "k": 1.5}', 400, "k must be a whole number"),
        ('{"users": [1], "k": true}', 400, "k must be a whole number"),
        ('{"users": ' + "[" * 100_000, 400, "the body is not JSON"),
        (json.dumps({"users": [1] * 1001}), 400, "users may hold 1,000 ids, got 1,001"),
        (json.dumps({"users": [1] * 1000, "k": 51}), 400, "make 51,000 items: ask for at most"),
        ('{"users": ["' + "a" * (1 << 20) + '"]}', 413, "the body may have 1,048,576 bytes"),
    ],
)
def test_a_bad_body_is_answered_with_one_sentence(client, body, status, sentence):
    answer = client.post("/recommend", content=body)
    assert answer.status_code == status
    assert sentence in answer.json()["error"]


def test_a_body_without_stated_length_is_bounded_too(client):
    parts = (b" " * 65_536 for _ in range(20))
    assert client.post("/fold-in", content=parts).status_code == 413


def test_a_slow_body_is_given_up(monkeypatch):
    monkeypatch.setattr(app_module, "BODY_SECONDS", 0.01)

    async def never() -> dict[str, object]:
        await asyncio.sleep(60)
        return {}

    request = Request({"type": "http", "method": "POST", "headers": []}, never)
    with pytest.raises(app_module.Refused, match="the body did not come within") as refused:
        asyncio.run(app_module._body(request))
    assert refused.value.status == 408


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_can_be_written(client, method):
    for path in ("/", "/recommend", "/health", "/fold-in"):
        answer = client.request(method, path)
        assert answer.status_code == 405
        assert "this address takes" in answer.json()["error"]
        assert answer.headers["allow"]
    assert client.get("/fold-in").status_code == 405


def test_every_answer_carries_the_security_headers(client):
    for path in ("/", "/health", "/nothing", "/recommend", "/" + "a" * 9000):
        headers = client.get(path).headers
        assert headers["content-security-policy"] == guard.POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers
    assert "default-src 'none'" in guard.POLICY
    assert "unsafe" not in guard.POLICY


def test_the_page_is_at_the_root(client):
    answer = client.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.text.startswith("<!doctype html>")
    assert client.head("/").text == ""


def test_on_loopback_a_page_from_elsewhere_cannot_ask(saved):
    with TestClient(app(saved, hosts=LOOPBACK)) as client:
        for host in ("localhost", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST:1"):
            assert client.get("/health", headers={"host": host}).status_code == 200
        for host in ("evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8000"):
            assert client.get("/health", headers={"host": host}).status_code == 400


def test_an_error_of_our_own_shows_nothing_of_the_code(saved, monkeypatch):
    said: list[str] = []
    monkeypatch.setattr("unexposed.serve.answers.entries", lambda *_: 1 / 0)
    with TestClient(app(saved, said)) as client:
        answer = client.get("/recommend?user=1")
    assert answer.status_code == 500
    assert answer.json() == {"error": "something failed here; the log of the service says what"}
    assert "ZeroDivisionError" in said[-1]


def test_a_line_for_each_request_is_logged_only_if_asked_for(saved):
    lines: list[str] = []
    with TestClient(app(saved, log=lines.append)) as client:
        client.get("/recommend?user=1&k=3")
        client.get("/no%0Athing")
    assert [line.rpartition(" ")[0].rpartition(" ")[0] for line in lines] == [
        "GET /recommend?user=1&k=3 200",
        "GET /no\\nthing 404",
    ]


def test_a_request_that_takes_too_long_is_given_up(saved, monkeypatch):
    monkeypatch.setattr(guard, "SECONDS", 0.0)
    with TestClient(app(saved)) as client:
        answer = client.get("/user?user=1")
    assert (answer.status_code, "no answer within" in answer.json()["error"]) == (503, True)


def test_more_than_can_be_answered_soon_is_refused(saved, monkeypatch):
    monkeypatch.setattr(batches, "MOST_WAITING", 2)
    with TestClient(app(saved)) as client:
        answer = client.post("/recommend", json={"users": [1, 2, 3]})
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert client.post("/recommend", json={"users": [1, 2]}).status_code == 200


def test_jobs_beside_the_lists_are_bounded(monkeypatch):
    monkeypatch.setattr(batches, "MOST_APART", 1)

    async def two() -> list[object]:
        work = Work()
        jobs = (work.apart(lambda: 1), work.apart(lambda: 2))
        return await asyncio.gather(*jobs, return_exceptions=True)

    first, second = asyncio.run(two())
    assert first == 1
    assert isinstance(second, Busy)
