"""What the service answers: the lists of `recommend`, for ids of any kind."""

import json
import re
import shlex
from pathlib import Path
from urllib.parse import quote

import msgspec
import numpy as np
import pytest
from serving import DIM, N_ITEMS, N_USERS, NASTY, app, clicks, model, write_titles
from starlette.testclient import TestClient

from unexposed.data.ids import Ids
from unexposed.methods import load, make
from unexposed.model.filters import Rules
from unexposed.model.model import Model
from unexposed.serve import messages
from unexposed.serve.app import CALLS


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "model"
    model("umf").save(folder)
    return folder


@pytest.fixture(scope="module")
def titles(tmp_path_factory):
    return write_titles(tmp_path_factory.mktemp("titles"))


@pytest.fixture(scope="module")
def client(saved, titles):
    with TestClient(app(saved, titles=titles)) as client:
        yield client


def served(made: Model, folder):
    made.save(folder / "model")
    return TestClient(app(folder / "model"))


COLUMNS = ["item", "rank", "score", "relevance", "exposure"]


def rows(answer):
    return [tuple(one[name] for name in COLUMNS) for one in answer["items"]]


@pytest.mark.parametrize(
    ("query", "rules"),
    [
        ("", {}),
        ("&popularity_penalty=0.5&minimum_exposure=0.3", None),
        ("&show_clicked=true", {"hide_clicked": False}),
    ],
)
def test_a_list_is_the_list_of_recommend_to_the_last_bit(client, saved, query, rules):
    if rules is None:
        rules = {"popularity_penalty": 0.5, "minimum_exposure": 0.3}
    for user in range(0, N_USERS, 7):
        table = load(saved).recommend([user], 10, rules=Rules(**rules))
        answer = client.get(f"/recommend?user={user}{query}").json()
        assert rows(answer) == table.select(COLUMNS).rows()


def test_a_list_does_not_depend_on_who_else_is_asked_for(client, saved):
    users = list(range(N_USERS))
    together = client.post("/recommend", json={"users": users, "k": 20}).json()["lists"]
    alone = [client.get(f"/recommend?user={user}&k=20").json() for user in users]
    table = load(saved).recommend(users, 20)
    for lists in (together, alone):
        entries = [one for answer in lists for one in answer["items"]]
        assert [one["item"] for one in entries] == table["item"].to_list()
        # a product of other rows may add up in another order
        assert [one["score"] for one in entries] == pytest.approx(table["score"], abs=1e-6)


def test_an_unknown_user_is_refused_or_gets_the_popular_list(client, saved):
    refused = client.get("/recommend?user=nobody")
    assert refused.status_code == 404
    assert refused.json() == {"error": "the model was never trained on user 'nobody'"}
    answer = client.get("/recommend?user=nobody&unknown=popular").json()
    table = load(saved).recommend(["nobody"], 10, rules=Rules(unknown="popular"))
    assert answer["known"] is False
    assert [one["item"] for one in answer["items"]] == table["item"].to_list()
    body = {"users": [1, "nobody"], "unknown": "popular"}
    both = client.post("/recommend", json=body).json()["lists"]
    assert [one["known"] for one in both] == [True, False]
    assert both[1] == answer


def test_similar_items_are_the_ones_of_the_model(client, saved):
    table = load(saved).similar_items(7, 5)
    answer = client.get("/similar?item=7&k=5").json()
    found = [(one["item"], one["similarity"]) for one in answer["items"]]
    assert found == table.select(["item", "similarity"]).rows()
    assert len(client.get("/similar?item=7&k=1000").json()["items"]) == N_ITEMS - 1


def test_exposure_gives_pairs_in_the_order_asked_for(client, saved):
    clicked = clicks().items[0]
    answer = client.get(f"/exposure?user=0&item=200&item={clicked}").json()
    assert [one["item"] for one in answer["items"]] == [200, clicked]
    assert [one["clicked"] for one in answer["items"]] == [False, True]
    exposure = load(saved).exposure([0, 0], [200, clicked])
    assert [one["exposure"] for one in answer["items"]] == exposure.tolist()
    score = load(saved).score([0, 0], [200, clicked])
    assert [one["score"] for one in answer["items"]] == pytest.approx(score.tolist(), rel=1e-5)


def test_an_imagined_user_gets_the_list_of_recommend_for(client, saved):
    body = {"clicks": [5, "8", "nothing", 5], "k": 7, "popularity_penalty": 0.1}
    answer = client.post("/fold-in", json=body).json()
    assert (answer["known_clicks"], answer["unknown_items"]) == (2, ["nothing"])
    table = load(saved).recommend_for([5, 8], 7, rules=Rules(popularity_penalty=0.1))
    assert rows(answer) == table.select(COLUMNS).rows()
    assert client.post("/fold-in", json={"clicks": ["nothing"]}).status_code == 404
    assert client.post("/fold-in", json={"clicks": []}).status_code == 400


def test_a_users_clicks_are_listed(client):
    log = clicks()
    answer = client.get("/user?user=4").json()
    assert [one["item"] for one in answer["clicks"]] == log.items[20:25].tolist()
    assert answer["n_clicks"] == 5
    assert client.get("/user?user=nobody").status_code == 404


def test_search_finds_ids_by_their_beginning_and_titles_by_a_piece(client):
    def found(query, kind="item"):
        answer = client.get("/search", params={"q": query, "kind": kind, "limit": 100}).json()
        return [(one[kind], one["clicks"]) for one in answer[f"{kind}s"]]

    def by_clicks(pairs):
        return [item for item, _ in sorted(pairs, key=lambda pair: (-pair[1], pair[0]))]

    counts = dict(enumerate(clicks().item_counts.tolist()))
    colours = {1: "red", 0: "blue"}
    names = {i: f"the {colours[i % 2]} item {i}" if i < 250 else "" for i in counts}
    begin = [(i, n) for i, n in counts.items() if str(i).startswith("29") or "29" in names[i]]
    assert [i for i, _ in found("29")] == [29, *by_clicks(pair for pair in begin if pair[0] != 29)]
    named = [(i, n) for i, n in counts.items() if "d item 1" in names[i]]
    assert [i for i, _ in found("D ITEM 1")] == by_clicks(named)
    assert [i for i, _ in found("")] == by_clicks(counts.items())[:100]
    assert found("no such thing") == []
    assert {i for i, _ in found("3", "user")} == {3, *range(30, 40)}


@pytest.mark.parametrize("kind", ["texts", "tuples", "mixed", "large"])
def test_ids_of_every_kind_come_back_as_they_went(tmp_path, kind):
    raw = {
        "texts": [*NASTY, *(f"u{n}" for n in range(N_USERS))],
        "tuples": [("shop", n) for n in range(N_USERS)],
        "mixed": [7, 2.5, "7a", ("x", 1), *range(100, 100 + N_USERS)],
        "large": [2**60 + n for n in range(N_USERS)],
    }[kind][:N_USERS]
    made = model(log=clicks(users=Ids.of(raw)))
    with served(made, tmp_path) as client:
        for user in raw[:6]:
            asked = client.post("/recommend", content=json.dumps({"users": [user], "k": 2}))
            by_text = client.get(f"/recommend?user={quote(str(user))}&k=2").json()
            assert asked.json()["lists"] == [by_text]
            shown = str(user) if kind == "large" else json.loads(json.dumps(user))
            assert by_text["user"] == shown
            again = client.post("/recommend", json={"users": [by_text["user"]], "k": 2})
            assert again.json()["lists"] == [by_text]


def test_text_and_truth_are_not_taken_for_other_ids(client):
    assert client.get("/recommend?user=01").status_code == 404
    assert client.post("/recommend", json={"users": [True]}).status_code == 404
    assert client.post("/recommend", json={"users": [3.0]}).json()["lists"][0]["user"] == 3
    assert client.post("/recommend", json={"users": [{}]}).status_code == 400


def test_a_method_says_what_it_cannot_do(tmp_path):
    made = model("bpr")
    with served(made, tmp_path) as client:
        health = client.get("/health").json()["model"]
        assert (health["scale"], health["has_exposure"]) == ("order", False)
        entry = client.get("/recommend?user=1&k=1").json()["items"][0]
        assert (entry["relevance"], entry["exposure"]) == (None, None)
        for path in ("/exposure?user=1&item=1", "/recommend?user=1&minimum_exposure=0.5"):
            refused = client.get(path)
            assert refused.status_code == 400
            assert "bpr has no exposure model" in refused.json()["error"]
    factors = {f"submodel_{table}": np.stack([f, f], 1) for table, f in made.parameters.items()}
    cjmf = make("cjmf", dim=DIM, n_models=2)
    exposure = np.ones(N_ITEMS, dtype=np.float32)
    one = Model(cjmf, factors | {"exposure": exposure}, made.clicks, {})
    with served(one, tmp_path) as client:
        assert client.get("/health").json()["model"]["folds_in"] is False
        refused = client.post("/fold-in", json={"clicks": [1]})
        assert refused.status_code == 400
        assert "cjmf cannot fold in users" in refused.json()["error"]


ASKED = {
    ("GET", "/recommend"): {"user": 1},
    ("POST", "/recommend"): {"users": [1, 2]},
    ("GET", "/similar"): {"item": 1},
    ("GET", "/exposure"): {"user": 1, "item": [1, 2]},
    ("POST", "/fold-in"): {"clicks": [1, 2]},
    ("GET", "/user"): {"user": 1},
}


def asked(client, method, path, request):
    if method == "POST":
        return client.post(path, json=request)
    return client.get(path, params=request)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.method} {call.path}")
def test_parameters_and_answers_are_as_described(client, call):
    request = ASKED.get((call.method, call.path), {})
    described = {
        n: s.get("default") for n, s in messages.schema(call.request)["properties"].items()
    }
    answer = asked(client, call.method, call.path, described | request)
    assert answer.status_code == 200, answer.text
    typed = msgspec.convert(answer.json(), call.answer)
    assert msgspec.to_builtins(typed) == answer.json()  # nothing more than is described
    operation = client.get("/openapi.json").json()["paths"][call.path][call.method.lower()]
    content = operation["responses"]["200"]["content"]["application/json"]
    assert content["schema"]["$ref"].endswith("/" + call.answer.__name__)
    refused = asked(client, call.method, call.path, request | {"usr": 1})
    assert refused.status_code == 400
    assert "no parameter 'usr'" in refused.json()["error"]


SERVING = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")


def test_every_request_of_the_docs_gets_the_answer_shown(client):
    shown = re.findall(r"^\$ curl (.+)\n(.+)$", SERVING, flags=re.MULTILINE)
    assert len(shown) == SERVING.count("$ curl") > 0
    for line, said in shown:
        *options, address = shlex.split(line)
        path = address.removeprefix("http://127.0.0.1:8000")
        answer = client.post(path, content=options[1]) if options else client.get(path)
        wanted = ".*".join(re.escape(part) for part in said.split("…"))
        assert re.fullmatch(wanted, answer.text), f"{line}\n{answer.text}"
