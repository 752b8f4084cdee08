"""Ranks with the CUDA engine take the steps of one process: see `test_engine_cuda.py` for a GPU."""

from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist
from engine_problem import (
    BILEVEL,
    INTERPRETED,
    N_USERS,
    OPTIMISER,
    TOLERANCE,
    Problem,
    distance,
    needs_a_gpu,
    new_engine,
    random_problem,
)
from ranks_in_threads import InThreads, Meeting
from thread_ranks import USER_TABLES

from small import clicks_of
from unexposed import workers
from unexposed.engine import build, cuda
from unexposed.engine.cuda import device, divided
from unexposed.engine.cuda.engine import CudaEngine
from unexposed.engine.objective import Objective
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.sampling.samples import Drawing

USERS_OF = {  # by rank
    2: [np.arange(0, N_USERS, 2), np.arange(1, N_USERS, 2)],
    3: [np.arange(20), np.zeros(0, dtype=np.int64), np.arange(20, N_USERS)],  # one has no users
}
CLICKS, BATCH = (9, 4) if INTERPRETED else (280, 32)


def own_part(problem: Problem, users: np.ndarray) -> Problem:
    row = np.full(N_USERS, -1, dtype=np.int32)
    row[users] = np.arange(len(users))
    tables = {n: t[users] if n in USER_TABLES else t for n, t in problem.parameters.items()}
    return problem._replace(
        parameters=tables,
        samples=problem.samples.own(row),
        validation=problem.validation.own(row),
        exposure=problem.exposure | {"pair": problem.exposure["pair"][users]},
    )


def trained_by_ranks(
    problem: Problem, objective: Objective, n_ranks: int, *, kind: type = CudaEngine, **given: Any
) -> tuple[list[Any], list[InThreads], list[float]]:
    meeting = Meeting(n_ranks)
    exchanges = [InThreads(meeting, rank) for rank in range(n_ranks)]
    parts = [own_part(problem, users) for users in USERS_OF[n_ranks]]
    engines = [
        new_engine(kind, part, objective, exchange=exchange, **given)
        for part, exchange in zip(parts, exchanges, strict=True)
    ]

    def work(engine: Any, part: Problem) -> float:
        if not INTERPRETED:  # which would run the programs of a large batch
            engine.compile()
        engine.epoch(part.samples, batch_size=BATCH)
        return engine.epoch(part.samples, batch_size=BATCH)

    works = [
        lambda engine=engine, part=part: work(engine, part)
        for engine, part in zip(engines, parts, strict=True)
    ]
    return engines, exchanges, meeting.run(works)


CASES = {
    "bilevel": (BILEVEL, {"biases": "both"}),
    "bilevel in parts": (Objective("low_variance", "bilevel", validation_batch=40), {}),
    "bilevel_on_batch": (Objective("low_variance", "bilevel_on_batch"), {"item_weights": True}),
    "joint": (Objective("low_variance", "joint"), {}),
    "alternate": (Objective("low_variance", "alternate"), {}),
    "frozen": (Objective("low_variance", "frozen"), {}),
    "mf": (Objective("low_variance"), {}),
    "relmf": (Objective("inverse_propensity"), {}),
    "bpr": (Objective("pairwise"), {"biases": "item"}),
    "ubpr": (Objective("inverse_propensity_pairwise"), {}),
}


@needs_a_gpu
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("n_ranks", USERS_OF)
@pytest.mark.parametrize("case", CASES)
def test_ranks_on_cards_give_the_parameters_of_one_process(
    case: str, n_ranks: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(divided, "SPAN", 3 * 4 * BATCH)  # a few spans an epoch
    objective, world = CASES[case]
    problem = random_problem(n=CLICKS, **world)
    given = {"lookahead": 0.5, "exposure": "item"}
    truth = new_engine(ReferenceEngine, problem, objective, dtype="float64", **given)
    truth.epoch(problem.samples, batch_size=BATCH)
    expected = truth.epoch(problem.samples, batch_size=BATCH)
    engines, _, losses = trained_by_ranks(problem, objective, n_ranks, dtype=dtype, **given)
    assert losses == [pytest.approx(expected, rel=TOLERANCE[dtype])] * n_ranks
    learned = [engine.parameters() for engine in engines]
    for name, table in truth.parameters().items():
        for users, own in zip(USERS_OF[n_ranks], learned, strict=True):
            rows = table[users] if name in USER_TABLES else table
            assert own[name].shape == rows.shape
            if len(rows):
                assert distance({name: own[name]}, {name: rows}) < TOLERANCE[dtype], name
        if name not in USER_TABLES:  # replicated: the same bits
            assert all((own[name] == learned[0][name]).all() for own in learned)


def test_ranks_mark_the_keys_that_any_of_them_has() -> None:
    keys = [torch.tensor([7, 2, 2]), torch.tensor([], dtype=torch.int64), torch.tensor([0, 7])]
    meeting = Meeting(len(keys))
    tables = {"item_factors": torch.zeros(1)}
    works = [
        lambda rank=rank, own=own: divided.Sums(InThreads(meeting, rank), tables, None, 1).touched(
            own, 9
        )
        for rank, own in enumerate(keys)
    ]
    assert [found.tolist() for found in meeting.run(works)] == [[0, 2, 7]] * 3


def test_the_marks_of_a_span_fit_into_memory() -> None:
    samples, pairs = random_problem(n=1000).samples, 5000
    of_few, of_many = (divided.batches_a_span(samples, 10, pairs, n) for n in (100, 1 << 22))
    assert of_few == divided.SPAN // 50
    assert of_many == 16
    assert divided.batches_a_span(samples, 10, pairs, 1 << 40) == 1  # a batch is never cut


# which group adds up, which card a rank takes


class OnACard:
    """A buffer that says it lies on a card."""

    is_cuda = True

    def __init__(self, *values: float) -> None:
        self.values = torch.tensor(values)

    def cpu(self) -> torch.Tensor:
        return self.values.clone()

    def copy_(self, values: torch.Tensor) -> None:
        self.values = values


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The groups of all-reduces, with twice the sum in the place of two equal ranks'."""
    groups: list[Any] = []

    def all_reduce(buffer: Any, group: Any) -> None:
        groups.append(group)
        if isinstance(buffer, torch.Tensor):
            buffer *= 2

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    monkeypatch.setattr(dist, "new_group", lambda backend, timeout: backend)
    return groups


def ranks_with(cards: list[str], monkeypatch: pytest.MonkeyPatch) -> workers.Workers:
    here = object.__new__(workers.Workers)
    here.number, here.size, here._group = 0, len(cards), "gloo"
    monkeypatch.setattr(workers, "own_card", lambda: cards[0])
    monkeypatch.setattr(
        dist, "all_gather_object", lambda found, own, group: found.__setitem__(slice(None), cards)
    )
    return here


def test_ranks_with_a_card_each_add_up_by_nccl(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ranks_with(["one", "two"], monkeypatch)
    here.add_up(OnACard(1.0))  # type: ignore[arg-type]
    assert asked == ["nccl"]
    here.add_up(torch.ones(1))
    assert asked == ["nccl", "gloo"]  # what lies on the host stays there


@pytest.mark.parametrize("cards", [["one", "one"], ["one", ""]])
def test_ranks_that_share_a_card_or_lack_nccl_add_up_on_the_host(
    cards: list[str], asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, buffer = ranks_with(cards, monkeypatch), OnACard(1.0, 3.0)
    here.add_up(buffer)  # type: ignore[arg-type]
    assert asked == ["gloo"]
    assert buffer.values.tolist() == [2, 6]


@pytest.mark.parametrize(("local", "chosen", "card"), [("5", 0, 1), ("1", 2, None), ("", 0, None)])
def test_a_rank_takes_the_card_of_its_place_on_the_machine(
    local: str, chosen: int, card: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int | None] = [None]
    monkeypatch.setenv("LOCAL_RANK", local)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: chosen)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    device.take_card()
    assert taken[-1] == card


@pytest.mark.parametrize(("name", "kind"), [("auto", "CpuEngine"), ("cuda", "CudaEngine")])
def test_ranks_take_cards_where_they_are_asked_to(
    name: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bool] = []
    monkeypatch.setattr(cuda, "available", lambda: True)
    monkeypatch.setattr(build, "take_card", lambda: taken.append(True))
    for engine in ("CudaEngine", "CpuEngine"):
        monkeypatch.setattr(build, engine, mock.Mock(return_value=engine))
    tables = {"user_factors": np.zeros((3, 2)), "item_factors": np.zeros((4, 2))}
    found: Any = build.build(
        Objective("pairwise"), OPTIMISER, tables, shared=mock.Mock(), name=name
    )
    assert (found, bool(taken)) == (kind, name == "cuda")


def test_the_samples_of_ranks_are_left_to_the_host() -> None:
    pytest.importorskip("triton")
    start = random_problem().start(learned=False)
    exchange = InThreads(Meeting(1), 0)
    engine = CudaEngine(Objective("pairwise"), OPTIMISER, start, exchange=exchange, device="cpu")
    with pytest.raises(InputError, match="samples of several ranks come from the host"):
        engine.sampler(clicks_of(np.eye(3)), Drawing(1), seed=0)
