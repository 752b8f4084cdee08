"""A newer model is picked up whole, without a failed request; a broken one is refused."""

import asyncio
import shutil
import threading
import time
from functools import partial

import pytest
from starlette.testclient import TestClient

from serve_world import app, clicks, model
from unexposed.serve import batches
from unexposed.serve.batches import Asked, made
from unexposed.serve.held import Held, Options, Source, read
from unexposed.serve.reloading import Counter, Current

SOON = 120.0  # seconds that a test waits at most


def until(true) -> None:
    end = time.monotonic() + SOON
    while not true():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.005)


def first_items(answer) -> tuple:
    return tuple(entry["item"] for entry in answer["items"])


def test_requests_go_on_while_the_folder_is_replaced_five_times(tmp_path):
    folder = tmp_path / "model"
    generations = [model(seed=seed) for seed in range(6)]
    lists = [
        {user: tuple(made_.recommend([user], 10)["item"].to_list()) for user in (1, 2, 3)}
        for made_ in generations
    ]
    assert len({tuple(one.values()) for one in lists}) == 6
    generations[0].save(folder)
    with TestClient(app(folder, look_every=0.01)) as client:
        done, answers, failed = threading.Event(), [], []

        def ask() -> None:
            while not done.is_set():
                answer = client.post("/recommend", json={"users": [1, 2, 3]})
                if answer.status_code != 200:
                    failed.append(answer.text)
                    return
                answers.append({one["user"]: first_items(one) for one in answer.json()["lists"]})

        asking = [threading.Thread(target=ask) for _ in range(2)]
        for thread in asking:
            thread.start()
        for number, newer in enumerate(generations[1:], start=2):
            newer.save(folder)
            told = partial(client.get, "/health")
            until(lambda n=number, told=told: told().json()["model"]["generation"] == n)
        done.set()
        for thread in asking:
            thread.join()
        last = client.get("/recommend?user=1").json()
    assert not failed
    assert all(answer in lists for answer in answers), "an answer mixes two generations"
    assert first_items(last) == lists[-1][1]
    seen = [lists.index(answer) for answer in answers]
    assert seen[0] == 0
    assert len(set(seen)) > 1


def test_a_broken_model_is_refused_and_the_old_one_stays(tmp_path):
    folder, said = tmp_path / "model", []
    model(seed=1).save(folder)
    current = Current(Source(folder), say=said.append)
    before = current.held
    arrays = folder / "arrays.safetensors"
    whole = arrays.read_bytes()
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    (damaged / "arrays.safetensors").write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    folder.rename(tmp_path / "old")
    damaged.rename(folder)
    current.reload()
    assert current.held is before
    assert len(said) == 1
    assert said[0].startswith("the new model is refused, the old one stays: ")
    assert "is not what was written" in said[0]
    shutil.rmtree(folder)
    model(seed=2).save(folder)
    current.reload()
    assert current.held.generation == 2
    assert "holds a new model, generation 2" in said[1]


def test_a_moved_folder_is_picked_up_and_a_missing_one_is_waited_for(tmp_path):
    folder, newer, said = tmp_path / "model", tmp_path / "newer", []
    model(seed=1).save(folder)
    model("umf", seed=2).save(newer)
    with TestClient(app(folder, said, look_every=0.01)) as client:
        folder.rename(tmp_path / "away")
        time.sleep(0.05)  # several looks at nothing
        assert client.get("/recommend?user=1").status_code == 200
        newer.rename(folder)
        until(lambda: client.get("/health").json()["model"]["method"] == "umf")
    assert said == [f"{folder} holds a new model, generation 2"]


def test_the_same_model_written_again_is_not_a_new_generation(tmp_path):
    folder, said = tmp_path / "model", []
    model(seed=1).save(folder)
    current = Current(Source(folder), say=said.append)
    model(seed=1).save(folder)
    current.reload()
    assert (current.held.generation, said) == (1, [])


def test_models_are_numbered_as_they_come():
    number = Counter()
    assert [number(checksum) for checksum in ("a", "a", "b", "a")] == [1, 1, 2, 3]


@pytest.fixture(scope="module")
def held(tmp_path_factory) -> Held:
    folder = tmp_path_factory.mktemp("held") / "model"
    model().save(folder)
    return read(Source(folder))


def test_requests_that_come_together_are_served_together_and_apart_by_their_options(
    held, monkeypatch
):
    sizes: list[list[int]] = []

    def counted(batch):
        sizes.append([len(one.rows) for one in batch])
        return made(batch)

    monkeypatch.setattr(batches, "made", counted)
    plain, penalised = Options(), Options(popularity_penalty=1.0)

    async def many() -> list:
        work = batches.Work()
        asked = [([n], 3 + n, plain) for n in range(4)]
        asked += [([5, 6], 2, penalised), ([7], 2, plain)]
        return await asyncio.gather(*(work.lists(held, *one) for one in asked))

    found = asyncio.run(many())
    assert sizes == [[1, 1, 1, 1, 1], [2]]
    assert [[len(one.items) for one in part] for part in found] == [[3], [4], [5], [6], [2, 2], [2]]
    alone = held.lists(clicks().users[:1] * 0 + 2, 5, plain)[0]
    assert found[2][0].items.tolist() == alone.items.tolist()


def test_a_large_request_is_divided(held, monkeypatch):
    monkeypatch.setattr(batches, "ROWS", 4)
    found = asyncio.run(batches.Work().lists(held, list(range(10)), 2, Options()))
    together = held.lists(clicks().users[:50:5], 2, Options())
    assert [one.items.tolist() for one in found] == [one.items.tolist() for one in together]


def test_an_error_reaches_every_request_of_its_batch(held, monkeypatch):
    def fails(batch: list[Asked]) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(batches, "made", fails)

    async def two() -> list:
        work = batches.Work()
        jobs = (work.lists(held, [n], 2, Options()) for n in range(2))
        return await asyncio.gather(*jobs, return_exceptions=True)

    assert [str(one) for one in asyncio.run(two())] == ["broken", "broken"]
