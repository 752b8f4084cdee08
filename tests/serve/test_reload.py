"""A newer model is picked up whole, without a failed request; a broken one is refused."""

import asyncio
import threading
import time
from functools import partial

import numpy as np
import pytest
from serving import app, model
from starlette.testclient import TestClient

from unexposed.serve import batches
from unexposed.serve.batches import lists_of
from unexposed.serve.model import Current, Options, ServedModel, Source, read

SOON = 120.0  # seconds that a test waits at most


def until(true) -> None:
    end = time.monotonic() + SOON
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)


def first_items(answer) -> tuple:
    return tuple(entry["item"] for entry in answer["items"])


def test_requests_go_on_while_the_model_is_replaced_five_times(tmp_path):
    path = tmp_path / "model"
    generations = [model(seed=seed) for seed in range(6)]
    lists = [
        {user: tuple(one.recommend([user], 10)["item"].to_list()) for user in (1, 2, 3)}
        for one in generations
    ]
    assert len({tuple(one.values()) for one in lists}) == 6
    generations[0].save(path)
    with TestClient(app(path, look_every=0.01)) as client:
        done, answers, failed = threading.Event(), [], []

        def ask() -> None:
            while not done.is_set():
                answer = client.post("/recommend", json={"users": [1, 2, 3]})
                if answer.status_code != 200:
                    failed.append(answer.text)
                    return
                answers.append({one["user"]: first_items(one) for one in answer.json()["lists"]})

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for newer, wanted in zip(generations[1:], lists[1:], strict=True):
            newer.save(path)
            one = partial(client.get, "/recommend?user=1")
            until(lambda one=one, wanted=wanted: first_items(one().json()) == wanted[1])
        done.set()
        for thread in threads:
            thread.join()
    assert not failed
    assert all(answer in lists for answer in answers), "an answer mixes two models"
    seen = [lists.index(answer) for answer in answers]
    assert seen[0] == 0
    assert len(set(seen)) > 1


def test_a_broken_model_is_refused_and_the_old_one_stays(tmp_path):
    path, said = tmp_path / "model.safetensors", []
    model(seed=1).save(path)
    current = Current(Source(path), say=said.append)
    before = current.model
    whole = path.read_bytes()
    path.unlink()  # what is mapped stays as it was
    path.write_bytes(whole[: len(whole) // 2])
    current.reload()
    assert current.model is before
    assert len(said) == 1
    assert said[0].startswith("the new model is refused, the old one stays: ")
    model(seed=2).save(path)
    current.reload()
    assert current.model.saved > before.saved
    assert "holds a new model, saved at" in said[1]


def test_a_moved_model_is_picked_up_and_a_missing_one_is_waited_for(tmp_path):
    path, newer, said = tmp_path / "model.safetensors", tmp_path / "newer.safetensors", []
    model(seed=1).save(path)
    model("umf", seed=2).save(newer)
    with TestClient(app(path, said, look_every=0.01)) as client:
        path.rename(tmp_path / "away")
        time.sleep(0.05)  # several looks at nothing
        assert client.get("/recommend?user=1").status_code == 200
        newer.rename(path)
        until(lambda: client.get("/health").json()["model"]["method"] == "umf")
    assert len(said) == 1


@pytest.fixture(scope="module")
def served(tmp_path_factory) -> ServedModel:
    path = tmp_path_factory.mktemp("served") / "model"
    model().save(path)
    return read(Source(path))


def together(served: ServedModel, *requests: tuple) -> list:
    """The answers to requests that come at the same time."""

    async def ask() -> list:
        work = batches.Batches()
        running = asyncio.create_task(work.run())
        answers = (work.lists(served, *request) for request in requests)
        found = await asyncio.gather(*answers, return_exceptions=True)
        running.cancel()
        return found

    return asyncio.run(ask())


def test_requests_that_come_together_share_a_batch_if_their_options_agree(served, monkeypatch):
    sizes: list[list[int]] = []

    def counted(batch):
        sizes.append([len(one.rows) for one in batch])
        return lists_of(batch)

    monkeypatch.setattr(batches, "lists_of", counted)
    plain, penalised = Options(), Options(popularity_penalty=1.0)
    requests = [([n], 3 + n, plain) for n in range(4)]
    requests += [([5, 6], 2, penalised), ([7], 2, plain)]
    answers = together(served, *requests)
    assert sizes == [[1, 1, 1, 1, 1], [2]]
    assert [[len(entries) for entries in one] for one in answers] == [
        [3],
        [4],
        [5],
        [6],
        [2, 2],
        [2],
    ]
    (alone,) = served.lists(np.array([2]), np.array([5]), plain)
    assert answers[2] == [alone]


def test_a_large_request_is_divided(served, monkeypatch):
    monkeypatch.setattr(batches, "ROWS", 4)
    (answer,) = together(served, (list(range(10)), 2, Options()))
    assert answer == served.lists(np.arange(10), np.full(10, 2), Options())


def test_an_error_reaches_every_request_of_its_batch(served, monkeypatch):
    monkeypatch.setattr(ServedModel, "lists", lambda *_: 1 / 0)
    answers = together(served, ([1], 2, Options()), ([2], 2, Options()))
    assert [type(one) for one in answers] == [ZeroDivisionError] * 2
