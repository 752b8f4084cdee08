"""What each process does in the tests of training by workers, and how to start them."""

import multiprocessing
import pickle
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing
from numpy.typing import NDArray

from small import clicks_of, make_with
from unexposed import workers
from unexposed.data import share
from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Traffic
from unexposed.data.share import cut
from unexposed.engine import build
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.maths import relevance
from unexposed.model.model import Model
from unexposed.progress import Silent
from unexposed.sampling import validation
from unexposed.training import exposure_clock
from unexposed.training.side import Side

SETTINGS = {
    "dim": 4,
    "epochs": 2,
    "patience": 0,
    "batch_size": 70,  # the last batch of an epoch is shorter
    "learning_rate": 0.02,
    "negatives": 2,
    "quality_window": 1,
    "exposure_learning_rate": 0.01,
    "gate_pace": 0.5,
    "lookahead": 0.05,  # wide enough for its exchange to matter
    "engine": "reference",
}
CASES: dict[str, dict[str, Any]] = {
    "mf": {},
    "bpr": {"counts": "linear", "criterion": "wtd"},
    "relmf": {"negatives_from": "catalogue", "criterion": "popular_half"},
    "umf": {"weighting": "unbiased", "negatives_exponent": 0.5, "biases": True},
    "ubpr": {"biases": True},
    "ubo": {"validation_batch": 7},
    "ubo joint": {"strategy": "joint"},
    "ubo alternate": {"strategy": "alternate"},
    "ubo bilevel_on_batch": {"strategy": "bilevel_on_batch", "biases": True},
    "ubo frozen": {"strategy": "frozen"},
    "ubo items": {"exposure_model": "items", "exposure_learning_rate": 0.05},
    "ubo guided": {
        "epoch_by": "validation",
        "guide": "drawn",
        "biases": True,
    },
    "ubo features": {},
    "ubo few": {},
}


FACTS = ("losses", "held_out", "best_epoch", "criteria", "verdict", "refitted_on")


def log(name: str) -> Clicks:
    """Clicks of 40 users, the last without any; "few": of 3, fewer than four workers."""
    rng = np.random.default_rng(5)
    n_users, n_items = (3, 8) if name == "ubo few" else (40, 15)
    clicked = rng.random((n_users, n_items)) < np.linspace(0.7, 0.1, n_items)
    clicked[3:][-1:] = False
    found = clicks_of(clicked)
    return replace(found, counts=rng.integers(1, 4, len(found)).astype(np.int32))


def side(name: str) -> Side:
    rng = np.random.default_rng(6)
    if name == "relmf":
        return Side(exposure=rng.uniform(0.1, 1, (40, 15)))
    if name == "ubo features":
        return Side(user_features=rng.random((40, 2)), item_features=rng.random((15, 3)))
    return Side()


def fitted(name: str, clicks: Clicks | None = None, **settings: Any) -> Model:
    method = make_with(name.partition(" ")[0], SETTINGS | CASES.get(name, {}) | settings)
    with (
        small_blocks(),
        mock.patch.object(exposure_clock, "PAIRS_A_STEP", 15 * 20),
    ):  # half of the users
        return method.fit(clicks or log(name), seed=1, side=side(name), progress=Silent())


@contextmanager
def small_blocks() -> Any:
    """Let workers go through users and draws in several blocks, as they do in a large log."""
    with ExitStack() as stack:
        for module, name in ((share, "BLOCK"), (validation, "BLOCK"), (relevance, "BLOCK")):
            stack.enter_context(mock.patch.object(module, name, 19))
        yield


@contextmanager
def in_float64() -> Any:
    exact = partial(ReferenceEngine, dtype=torch.float64)
    with mock.patch.object(build, "ReferenceEngine", exact):
        yield


def outcome(name: str) -> dict[str, Any]:
    """Parameters, lists of all users and facts of a training in float64."""
    with in_float64():
        model = fitted(name).whole()
    lists = model.recommend(model.clicks.user_ids.values.tolist(), 5).select("user", "item", "rank")
    facts = {key: model.facts[key] for key in FACTS}
    return {"parameters": model.parameters, "lists": lists.rows(), "facts": facts}


def every_outcome(rank: int) -> dict[str, Any]:
    del rank
    with workers.together():  # one group for all, which is faster
        return {name: outcome(name) for name in CASES}


def own(rank: int) -> dict[str, Any]:
    """What this worker holds: in training, and of the models of a whole and of a divided log."""
    del rank
    method = make_with("ubo", SETTINGS)
    with workers.together() as group:
        clicks = cut(log("ubo"), group)
        rng = np.random.default_rng(0)
        state = method.build(clicks, Side(), rng, workers=group).state()
        models = [fitted("ubo"), fitted("ubo", clicks)]
    tables = ("user_factors", "exposure_user_factors")
    rows = [state["user_factors"], state["exposure_user_factors.second"]]
    rows += [model.parameters[table] for model in models for table in tables]
    return {
        "rows": [len(table) for table in rows],
        "clicks": [len(model.clicks) for model in models],
        "parameters": [model.parameters for model in models],
    }


def answers(rank: int) -> list[Any]:
    """What this worker finds out about its part of random numbers."""
    found = []
    with small_blocks(), workers.together() as group:
        for values, places in random_numbers():
            mine = np.flatnonzero(places % group.size == rank)
            users, n_users = np.sort(places[mine]), len(places)
            before = share.before(values[users] % 9, users, n_users, group)
            found.append(
                {
                    "mean": workers.mean(values[mine].astype(np.float64), group),
                    "moments": workers.moments(
                        values[mine].astype(np.float64), ddof=1, workers=group
                    )[0],
                    "before": dict(zip(users, before, strict=True)),
                    "smallest": [
                        set(
                            mine[
                                share.smallest(
                                    values[mine].astype(np.uint64), places[mine], n, group
                                )
                            ]
                        )
                        for n in range(0, n_users + 2, 7)
                    ],
                }
            )
    return found


def random_numbers() -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Numbers and distinct places of things: with many ties, some, and none."""
    rng = np.random.default_rng(8)
    return [(rng.integers(0, high, size=50), rng.permutation(50)) for high in (3, 400, 2**62)]


def sentence(work: Callable[[], Any]) -> str:
    """How this work was refused."""
    try:
        work()
    except InputError as error:
        return str(error)
    return "no error"


def failures(rank: int) -> dict[str, str]:
    """What this worker says where worker 1 fails, trains something else, or is late."""
    found = {
        name: sentence(lambda name=name: fitted(name, quality_window=1))
        for name in ("wmf", "expomf", "cjmf", "ease")
    }
    found["all pairs"] = sentence(lambda: fitted("mf", pairs="all"))
    found["traffic"] = sentence(lambda: of_traffic(make_with("mf", SETTINGS)))
    found["cuda"] = sentence(lambda: fitted("mf", engine="cuda"))
    method = make_with("mf", SETTINGS)
    found["other seed"] = sentence(lambda: method.fit(log("mf"), seed=rank, progress=Silent()))

    def failing(engine: Any, batch: Any) -> float:
        raise InputError("the disk is full") if rank == 1 else AssertionError

    with ExitStack() as stack:
        if rank == 1:
            stack.enter_context(mock.patch.object(ReferenceEngine, "step", failing))
        found["in a step"] = sentence(lambda: fitted("ubo"))
    with workers.together():
        pass  # both come from here at once: the limit is on their next meeting, too
    with mock.patch.object(workers, "LIMIT", 3.0), workers.together() as group:
        found["late"] = sentence(lambda: late(rank, group))
    return found


def meeting(rank: int) -> float:
    """When worker 0 went on, and when worker 1, which is slow, was connected."""
    new_group, times = dist.new_group, list[float]()

    def slow(**options: Any) -> Any:
        group = new_group(**options)
        time.sleep(0.3)
        times.append(time.monotonic())
        return group

    with mock.patch.object(dist, "new_group", slow if rank == 1 else new_group), workers.together():
        times.append(time.monotonic())
    return times[0]


def ending(rank: int) -> tuple[str, float]:
    """What this worker says where worker 0 fails; when worker 2, a slow one, knew and others left.

    Every worker keeps the error, as an interactive shell does, and meets the others again.
    """
    explained, times = workers.Workers.explained, list[float]()

    def slow(own: workers.Workers, error: BaseException) -> BaseException:
        time.sleep(0.3)
        times.append(time.monotonic())
        return explained(own, error)

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(workers, "STAY", 60.0))
        if rank == 2:
            stack.enter_context(mock.patch.object(workers.Workers, "explained", slow))
        try:
            with workers.together() as group:
                if rank == 0:
                    raise InputError("the disk is full")
                group.add_up(torch.zeros(1))
        except InputError as error:
            kept = error
        times.append(time.monotonic())
    with mock.patch.object(workers, "LIMIT", 60.0), workers.together():
        return str(kept), times[0]


def of_traffic(method: Any) -> Model:
    clicks = log("mf")
    pairs = [np.zeros(1, dtype=np.int32)] * 2
    shown = Traffic(*pairs, np.ones(1, dtype=bool), clicks.user_ids, clicks.item_ids)
    return method.fit(clicks, side=Side(traffic=shown), progress=Silent())


def late(rank: int, group: workers.Workers) -> None:
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        store.wait(["worker 0 has given up"])
    try:
        group.add_up(torch.zeros(1))
    finally:
        store.set("worker 0 has given up", "")


def _on_worker(rank: int, works: list[Callable[[int], Any]], n_workers: int, folder: Path) -> None:
    torch.set_num_threads(1)
    place = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=n_workers)
    found = [work(rank) for work in works]
    dist.destroy_process_group()
    (folder / f"{rank}.pickle").write_bytes(pickle.dumps(found))


def on_workers(n_workers: int, folder: Path, *works: Callable[[int], Any]) -> list[list[Any]]:
    """What each of these functions gives on each worker: one list for each."""
    # a server imports once and forks each worker before it has any thread
    multiprocessing.get_context("forkserver").set_forkserver_preload(["unexposed.methods"])
    torch.multiprocessing.start_processes(
        _on_worker, (list(works), n_workers, folder), nprocs=n_workers, start_method="forkserver"
    )
    return [pickle.loads((folder / f"{rank}.pickle").read_bytes()) for rank in range(n_workers)]
