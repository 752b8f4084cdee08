"""Random problems for the engines, and how far an engine is from the reference on them."""

import importlib.util
import os
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from unexposed.engine import cuda
from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.cuda.engine import CudaEngine
from unexposed.engine.objective import Objective, Optimiser, Strategy
from unexposed.engine.reference import ReferenceEngine
from unexposed.maths.relevance import Biases, DotProduct
from unexposed.sampling.marks import Marks
from unexposed.sampling.samples import Samples
from unexposed.sampling.validation import ValidationSet

N_USERS, N_ITEMS, DIM = 60, 25, 5
N_CLICKS = 280
OPTIMISER = Optimiser(
    5e-3,
    1e-3,
    exposure_learning_rate=3e-3,
    exposure_weight_decay=1e-3,
    gate_pace=0.5,
    lookahead=0.05,
)
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
BILEVEL = Objective("low_variance", "bilevel")
TOLERANCE = {"float64": 1e-9, "float32": 1e-4}
Tables = dict[str, NDArray[Any]]

HAS_TRITON = importlib.util.find_spec("triton") is not None
INTERPRETED = bool(os.environ.get("TRITON_INTERPRET")) and HAS_TRITON
DEVICE = "cpu" if INTERPRETED else "cuda"
needs_a_gpu = pytest.mark.skipif(
    not (INTERPRETED or cuda.available()),
    reason="needs an NVIDIA GPU, and triton",
)
precision = pytest.mark.parametrize("dtype", TOLERANCE)
FAST = [pytest.param(CpuEngine, id="cpu"), pytest.param(CudaEngine, id="cuda", marks=needs_a_gpu)]
EVERY = [pytest.param(ReferenceEngine, id="reference"), *FAST]


class Problem(NamedTuple):
    """Users and items come several times in a batch, the last of each in no batch at all."""

    parameters: Tables
    samples: Samples
    validation: ValidationSet  # of the first users and items, and of the last item
    exposure: dict[str, NDArray[Any] | None]
    relevance: DotProduct

    def start(self, *, learned: bool) -> Tables:
        names = list(self.parameters) if learned else ["user_factors", "item_factors"]
        return {name: self.parameters[name] for name in names}


def random_problem(
    seed: int = 0,
    *,
    n: int = N_CLICKS,
    n_users: int = N_USERS,
    n_items: int = N_ITEMS,
    dim: int = DIM,
    scale: float = 0.5,
    most_drawn: int = 4,
    biases: Biases = "none",
    item_weights: bool = False,
    marked: str = "",
) -> Problem:
    """`n` clicks with 0 … `most_drawn` drawn items each, "pairs" or "compared" pairs marked."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int) -> NDArray[Any]:
        return rng.normal(0, scale, shape).astype(np.float32)

    def rows(high: int, size: int) -> NDArray[np.int32]:
        return rng.integers(high, size=size, dtype=np.int32)

    start = np.concatenate([[0], np.cumsum(1 + rng.integers(most_drawn + 1, size=n))])
    by_item = np.random.default_rng(seed).uniform(0.2, 5, n_items).astype(np.float32)
    validation_items = rows(n_items // 2, 150)
    validation_items[:100] = 3  # one item with more pairs than a block
    validation_items[-10:] = n_items - 1
    relevance = DotProduct(dim, scale, biases)
    parameters = {
        "user_factors": normal(n_users, relevance.width),
        "item_factors": normal(n_items, relevance.width),
        "exposure_user_factors": normal(n_users, relevance.width),
        "gate_weight": normal(relevance.width),
        "gate_bias": normal(1),
    }
    for ones in fixed_columns(relevance, parameters):
        ones[:] = 1
    samples = Samples(
        rows(n_users - 1, n),
        start,
        rows(n_items - 1, start[-1]),
        rng.uniform(0.5, 2, n).astype(np.float32),
        by_item if item_weights else None,
    )
    return Problem(
        parameters,
        replace(samples, marks=random_marks(samples, kind=marked)) if marked else samples,
        ValidationSet(rows(n_users // 2, 150), validation_items, rng.random(150) < 0.5),
        {
            "none": None,
            "item": rng.uniform(0.05, 1, n_items).astype(np.float32),
            "pair": rng.uniform(0.05, 1, (n_users, n_items)).astype(np.float32),
        },
        relevance,
    )


def random_marks(samples: Samples, *, kind: str, seed: int = 9) -> Marks:
    """Weights with zeros, and a given m, also 1, for half of the pairs; "pairs": labels too."""
    rng, n = np.random.default_rng(seed), len(samples.items)
    label = samples.pairs().click
    if kind == "pairs":
        label = (rng.random(n) < 0.4).astype(np.float32)
    known = np.where(rng.random(n) < 0.3, 1.0, rng.uniform(0.05, 1, n))
    return Marks(
        label,
        (rng.uniform(0.2, 3, n) * (rng.random(n) < 0.9)).astype(np.float32),
        np.where(rng.random(n) < 0.5, known, np.nan).astype(np.float32),
    )


def fixed_columns(relevance: DotProduct, tables: Tables) -> list[NDArray[Any]]:
    """Views of the columns of ones."""
    fixed = {name: relevance.tables[name].fixed for name in ("user_factors", "item_factors")}
    return [tables[name][:, column] for name, column in fixed.items() if column is not None]


def clicks_with(users: Any, items: list[Any], weight: Any = 1.0) -> Samples:
    """Clicks with the items of each, the clicked one first."""
    return Samples(
        np.array(users, dtype=np.int32),
        np.concatenate([[0], np.cumsum([len(of_click) for of_click in items], dtype=np.int64)]),
        np.concatenate([np.zeros(0), *items]).astype(np.int32),
        np.broadcast_to(np.float32(weight), len(users)).copy(),
    )


def new_engine(
    kind: type,
    problem: Problem,
    objective: Objective,
    *,
    exposure: str = "item",
    dtype: str = "float32",
    validation: bool = True,
    threads: int | None = 1,
    exchange: Any = None,
    **rates: float,
) -> Any:
    options: dict[str, Any] = {"dtype": getattr(torch, dtype)}
    if kind is CpuEngine:
        options = {"dtype": np.dtype(dtype), "threads": threads}
    elif kind is CudaEngine:
        options["device"] = DEVICE
    if exchange is not None:
        options["exchange"] = exchange
    return kind(
        objective,
        replace(OPTIMISER, **rates),
        problem.start(learned=objective.strategy is not None),
        exposure=problem.exposure[exposure],
        validation=problem.validation if validation else None,
        relevance=problem.relevance,
        **options,
    )


def distance(left: Tables, right: Tables) -> float:
    """The largest relative difference of two tables of the same name."""
    assert list(left) == list(right)
    return max(float(np.linalg.norm(left[n] - right[n]) / np.linalg.norm(right[n])) for n in left)


def assert_agrees(
    kind: type,
    objective: Objective,
    dtype: str,
    *,
    sizes: tuple[int, ...] = (120, 90, 400),  # of batches, epoch after epoch: the last one short
    steps: int = 100,
    exposure: str = "item",
    lookahead: float = OPTIMISER.lookahead,
    **world: Any,
) -> None:
    """Train an engine and the reference on the same samples; their parameters must be equal."""
    if INTERPRETED:  # two epochs of two batches
        sizes, steps = (min(*sizes, 5),), 4
        world |= {"n": 8}
    problem = random_problem(**world)
    given: dict[str, Any] = {"exposure": exposure, "lookahead": lookahead}
    fast = new_engine(kind, problem, objective, dtype=dtype, **given)
    oracle = new_engine(ReferenceEngine, problem, objective, dtype="float64", **given)
    start, epoch = oracle.parameters(), 0
    while oracle.state()["steps"][0] < steps:
        size = sizes[epoch % len(sizes)]
        expected = oracle.epoch(problem.samples, batch_size=size)
        loss = fast.epoch(problem.samples, batch_size=size)
        assert loss == pytest.approx(expected, rel=TOLERANCE[dtype], abs=TOLERANCE[dtype])
        epoch += 1
    assert fast.state()["steps"].tolist() == oracle.state()["steps"].tolist()
    learned = oracle.parameters()
    for tables in (learned, fast.parameters()):
        assert all((ones == 1).all() for ones in fixed_columns(problem.relevance, tables))
    assert distance(fast.parameters(), learned) < TOLERANCE[dtype]
    for name, table in learned.items():
        stays = objective.strategy == "frozen" and name not in ("user_factors", "item_factors")
        assert np.linalg.norm(table - start[name]) > 1e-5 or stays
