"""What each process does in the tests of training over ranks, and how to start them."""

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

from small import clicks_of, make_with
from unexposed import ranks
from unexposed.data.clicks import Clicks
from unexposed.data.share import cut
from unexposed.engine import build
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.model.model import Model
from unexposed.progress import Silent
from unexposed.training import divided
from unexposed.training.given import Side

SETTINGS = {
    "dim": 4,
    "epochs": 2,
    "patience": 0,
    "batch_size": 70,  # the last batch of an epoch is shorter
    "learning_rate": 0.02,
    "negatives": 2,
    "snips_window": 1,
    "exposure_learning_rate": 0.01,
    "gate_pace": 0.5,
    "validation_users": 0.5,
    "lookahead": 0.05,  # wide enough for its exchange to matter
    "engine": "reference",
}
CASES: dict[str, dict[str, Any]] = {
    "mf": {},
    "bpr": {},
    "relmf": {},
    "umf": {"weighting": "unbiased", "negatives_exponent": 0.5},
    "ubpr": {"biases": True},
    "ubo": {"validation_batch": 7},
    "ubo joint": {"strategy": "joint"},
    "ubo alternate": {"strategy": "alternate"},
    "ubo bilevel_on_batch": {"strategy": "bilevel_on_batch", "biases": True},
    "ubo frozen": {"strategy": "frozen"},
    "ubo items": {"exposure_model": "items", "exposure_learning_rate": 0.05},
    "ubo features": {},
    "ubo few": {},
}


FACTS = ("losses", "held_out", "best_epoch", "criteria", "verdict", "refitted_on")


def log(name: str) -> Clicks:
    """Clicks of 40 users; "few": of 3, fewer than four ranks."""
    rng = np.random.default_rng(5)
    n_users, n_items = (3, 8) if name == "ubo few" else (40, 15)
    return clicks_of(rng.random((n_users, n_items)) < np.linspace(0.7, 0.1, n_items))


def side(name: str) -> Side:
    if name != "ubo features":
        return Side()
    rng = np.random.default_rng(6)
    return Side(user_features=rng.random((40, 2)), item_features=rng.random((15, 3)))


def fitted(name: str, **settings: Any) -> Model:
    method = make_with(name.partition(" ")[0], SETTINGS | CASES.get(name, {}) | settings)
    return method.fit(log(name), seed=1, side=side(name), progress=Silent())


@contextmanager
def in_float64() -> Any:
    exact = partial(ReferenceEngine, dtype=torch.float64)
    with mock.patch.object(build, "ReferenceEngine", exact):
        yield


def whole(model: Model) -> Model:
    """The model of all ranks' users, on every rank; outside a process group itself."""
    others = ranks.current()
    if others is None or model.clicks.share is None:
        return model
    parameters = divided.whole_parameters(model.parameters, model.clicks.share, others)
    return replace(model, parameters=parameters, clicks=divided.whole_clicks(model.clicks, others))


def outcome(name: str) -> dict[str, Any]:
    """Parameters, lists of all users and facts of a training in float64."""
    with in_float64():
        model = whole(fitted(name))
    lists = model.recommend(model.clicks.user_ids.values.tolist(), 5).select("user", "item", "rank")
    facts = {key: model.facts[key] for key in FACTS}
    return {"parameters": model.parameters, "lists": lists.rows(), "facts": facts}


def every_outcome(rank: int) -> dict[str, Any]:
    del rank
    with ranks.together():  # one group for all, which is faster
        return {name: outcome(name) for name in CASES}


def own_rows(rank: int) -> list[int]:
    """How many rows this rank holds of a user table, and of the moments of the other."""
    del rank
    method, clicks = make_with("ubo", SETTINGS), log("ubo")
    with ranks.together() as others:
        state = method.build(cut(clicks, others), Side(), np.random.default_rng(0)).state()
    return [len(state[name]) for name in ("user_factors", "exposure_user_factors.second")]


def sentence(work: Callable[[], Any]) -> str:
    """How this work was refused."""
    try:
        work()
    except InputError as error:
        return str(error)
    return "no error"


def failures(rank: int) -> dict[str, str]:
    """What this rank says where rank 1 fails in the middle, trains something else, or is late."""
    found = {
        name: sentence(lambda name=name: fitted(name, snips_window=1))
        for name in ("wmf", "expomf", "cjmf", "ease")
    }
    found["cuda"] = sentence(lambda: fitted("mf", engine="cuda"))
    method = make_with("mf", SETTINGS)
    found["other seed"] = sentence(lambda: method.fit(log("mf"), seed=rank, progress=Silent()))

    def failing(engine: Any, batch: Any) -> float:
        raise InputError("the disk is full") if rank == 1 else AssertionError

    with ExitStack() as stack:
        if rank == 1:
            stack.enter_context(mock.patch.object(ReferenceEngine, "step", failing))
        found["in a step"] = sentence(lambda: fitted("ubo"))
    with mock.patch.object(ranks, "LIMIT", 1.0), ranks.together() as others:
        found["late"] = sentence(lambda: late(rank, others))
    return found


def late(rank: int, others: ranks.Ranks) -> None:
    if rank == 1:
        time.sleep(2)
    others.add_up(torch.zeros(1))


def _on_rank(rank: int, works: list[Callable[[int], Any]], n_ranks: int, folder: Path) -> None:
    torch.set_num_threads(1)
    place = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=n_ranks)
    found = [work(rank) for work in works]
    dist.destroy_process_group()
    (folder / f"{rank}.pickle").write_bytes(pickle.dumps(found))


def on_ranks(n_ranks: int, folder: Path, *works: Callable[[int], Any]) -> list[list[Any]]:
    """What each of these functions gives on each rank: one list for each rank."""
    # a server imports once and forks each rank before it has any thread
    multiprocessing.get_context("forkserver").set_forkserver_preload(["unexposed.methods"])
    torch.multiprocessing.start_processes(
        _on_rank, (list(works), n_ranks, folder), nprocs=n_ranks, start_method="forkserver"
    )
    return [pickle.loads((folder / f"{rank}.pickle").read_bytes()) for rank in range(n_ranks)]
