"""`unexposed plan`: its figures are those of real arrays and real exchanges."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from small import clicks_of, make_with
from unexposed.data.clicks import Clicks
from unexposed.data.share import Share
from unexposed.engine.cpu.engine import CpuEngine
from unexposed.engine.cuda.engine import CudaEngine
from unexposed.engine.exchange import USER_TABLES
from unexposed.engine.objective import Objective, Optimiser
from unexposed.engine.reference import ReferenceEngine
from unexposed.errors import InputError
from unexposed.methods.planned import planned
from unexposed.sampling.samples import Drawing, Samples
from unexposed.sampling.validation import ValidationSet
from unexposed.training.plan import (
    ETHERNET,
    NVLINK,
    Rank,
    Training,
    document,
    most_that_pay,
    rotating_speed_up,
    speed_up,
)

DIM, NEGATIVES, BATCH = 20, 2, 40
N_USERS, N_ITEMS = 70, 50


@pytest.fixture(scope="module")
def clicks() -> Clicks:
    return clicks_of(np.random.default_rng(0).random((N_USERS, N_ITEMS)) < 0.3)


def training(log: Clicks, /, **changes: Any) -> Training:
    sizes: dict[str, Any] = {
        "users": log.n_users,
        "items": log.n_items,
        "clicks": len(log),
        "ranks": 1,
        "dim": DIM,
        "batch_size": BATCH,
        "negatives": NEGATIVES,
    }
    return Training(**sizes | changes)


def tables(*, learned: bool) -> dict[str, NDArray[Any]]:
    rng = np.random.default_rng(1)
    found = {
        name: rng.normal(0, 0.1, (rows, DIM)).astype(np.float32)
        for name, rows in (("user_factors", N_USERS), ("item_factors", N_ITEMS))
    }
    if learned:
        found["exposure_user_factors"] = found["user_factors"].copy()
        found |= {"gate_weight": np.zeros(DIM, np.float32), "gate_bias": np.zeros(1, np.float32)}
    return found


GUIDE = ValidationSet(*(np.arange(9, dtype=np.int32),) * 2, np.arange(9) < 5)


def engine(kind: type, strategy: Any, **options: Any) -> Any:
    return kind(
        Objective("low_variance", strategy),
        Optimiser(1e-2, 1e-3),
        options.pop("parameters", tables(learned=strategy is not None)),
        exposure=np.full(N_ITEMS, 0.5, dtype=np.float32),
        **{"validation": GUIDE} | options,
    )


def part(plan: Training, name: str) -> int:
    return next(p.n_bytes for p in plan.memory() if p.name.startswith(name))


# memory


@pytest.mark.parametrize("strategy", [None, "frozen", "bilevel"])
def test_rows_take_the_bytes_of_an_engines_tables(clicks: Clicks, strategy: Any) -> None:
    plan = training(clicks, strategy=strategy)
    rows = part(plan, "user rows") + part(plan, "item rows")
    held = engine(CpuEngine, strategy)._tables
    assert rows == sum(t.nbytes for t in (held.users, held.items, held.exposure_users, held.gate))
    best = part(plan, "best epoch")
    learned = engine(ReferenceEngine, strategy).parameters()
    assert best == 2 * sum(table.nbytes for table in learned.values())


@pytest.mark.parametrize("strategy", [None, "frozen", "bilevel"])
def test_rows_on_a_card_take_the_bytes_of_its_tables(clicks: Clicks, strategy: Any) -> None:
    pytest.importorskip("triton")
    plan = training(clicks, strategy=strategy, engine="cuda")
    held = engine(CudaEngine, strategy, device="cpu")
    rows = part(plan, "user rows") + part(plan, "item rows")
    assert rows == sum(t.nbytes for t in held._tables.values())
    owners = [held._arguments[name].nbytes for name in ("user_owner", "item_owner")]
    assert part(plan, "marks") == sum(owners)


def test_a_rank_holds_clicks_and_samples_as_long_as_planned(clicks: Clicks) -> None:
    """A group of one, so that the share is known to be all."""
    plan = replace(training(clicks, ranks=2), users=2 * N_USERS, clicks=2 * len(clicks))
    assert (plan.own_users, plan.own_clicks) == (N_USERS, len(clicks))
    own = np.arange(N_USERS)
    share = Share(N_USERS, len(clicks), own, clicks.user_start[:-1], clicks.item_counts)
    arrays = [clicks.users, clicks.items, clicks.counts, clicks.user_start[:-1]]
    arrays += [share.users, share.first_click, share.item_counts]
    ids = 8 * (clicks.n_users + clicks.n_items)  # raw ids count as integers
    assert part(plan, "clicks") == sum(a.nbytes for a in arrays) + ids
    whole = Drawing(NEGATIVES).samples(clicks, np.random.default_rng(0))
    samples = whole.own(own.astype(np.int32))
    columns = [samples.users, samples.start[:-1], samples.items, samples.weight, samples.position]
    assert part(plan, "samples") == sum(c.nbytes for c in columns if c is not None)


def test_ranks_that_do_not_divide_the_partitions_get_unequal_shares(clicks: Clicks) -> None:
    of = training(clicks, users=6400, clicks=6400)
    assert [replace(of, ranks=w).own_users for w in (1, 2, 3, 48, 64)] == [
        6400,
        3200,
        2200,
        200,
        100,
    ]


# the exchange


class OfTwo:
    """The exchange of one of two ranks that hold the same, which counts the bytes it gives."""

    def __init__(self) -> None:
        self.n_bytes, self.sums, self.told = 0, 0, 0

    def touched(self, items: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        rows, times = np.unique(items, return_counts=True)
        self.told += 16 * len(rows)
        return rows, 2 * times

    def total(self, gradients: Any) -> dict[str, torch.Tensor]:
        shared = {n: g.detach() for n, g in gradients.items() if n not in USER_TABLES}
        self.n_bytes += sum(g.numel() * g.element_size() for g in shared.values())
        self.sums += 1
        return {**gradients, **{n: 2 * g for n, g in shared.items()}}

    def whole(self, tables: Any) -> Any:
        return {name: table.clone() for name, table in tables.items()}


@pytest.mark.parametrize("strategy", [None, "frozen", "joint", "alternate", "bilevel"])
def test_a_step_exchanges_the_bytes_that_are_planned(clicks: Clicks, strategy: Any) -> None:
    """Items as likely as each other; a rank has half of each batch, the other the same half."""
    rng, steps = np.random.default_rng(3), 20
    own = steps * BATCH // 2
    samples = Samples(
        rng.integers(N_USERS, size=own, dtype=np.int32),
        np.arange(own + 1, dtype=np.int64) * (1 + NEGATIVES),
        rng.integers(N_ITEMS, size=own * (1 + NEGATIVES), dtype=np.int32),
        np.ones(own, dtype=np.float32),
        position=2 * np.arange(own, dtype=np.int64),
        total=2 * own,
    )
    exchange = OfTwo()
    engine(ReferenceEngine, strategy, exchange=exchange).epoch(samples, batch_size=BATCH)
    # as many different items as one rank has in half a batch
    plan = training(clicks, ranks=2, strategy=strategy, clicks=2 * own)
    assert plan.steps == steps
    assert exchange.told / steps == pytest.approx(plan.told_bytes, rel=0.03)
    half = replace(plan, batch_size=BATCH // 2)
    assert exchange.n_bytes / steps == pytest.approx(half.step_bytes, rel=0.03)
    alone = strategy == "joint"  # the reference engine gives the gate a sum of its own
    assert exchange.sums / steps == plan.sums + alone


def test_a_ring_takes_the_time_of_the_formula(clicks: Clicks) -> None:
    plan = training(clicks, ranks=16, strategy="bilevel", items=1000, users=10**6, clicks=10**6)
    hops = 15
    seconds = (2 * hops / 16 * plan.step_bytes + hops * plan.told_bytes) / (25e9 / 8)
    assert plan.exchange_seconds(ETHERNET) == pytest.approx(seconds + 2 * hops * 4 * 30e-6)


def test_cards_add_up_a_mark_for_each_item_of_the_catalogue(clicks: Clicks) -> None:
    sizes = {"ranks": 8, "strategy": "bilevel", "items": 1000, "users": 10**6, "clicks": 10**6}
    plan = training(clicks, engine="cuda", **sizes)
    assert plan.told_bytes == 1000
    seconds = 2 * 7 / 8 * (plan.step_bytes + 1000) / 450e9
    assert plan.exchange_seconds(NVLINK) == pytest.approx(seconds + 2 * 7 * 4 * 3e-6)


def test_more_pairs_an_item_make_the_exchange_pay() -> None:
    large = Training(10**8, 10**6, 10**10, 8, 64, 1 << 16, 1, "bilevel", "cuda")
    rank = Rank(pairs_a_second=3e8)
    gains = [speed_up(replace(large, batch_size=1 << n), NVLINK, rank) for n in (12, 16, 20, 24)]
    assert gains == sorted(gains)
    assert gains[0] < 1 < gains[-1] < 8
    slower = [speed_up(large, NVLINK, replace(rank, overhead=each)) for each in (0, 1e-3, 1.0)]
    assert slower == sorted(slower, reverse=True)
    assert slower[-1] == pytest.approx(2 * large.batch_size / 3e8, rel=0.01)


def test_one_process_exchanges_nothing(clicks: Clicks) -> None:
    plan = document(training(clicks))
    assert plan["bytes_of_a_step"] == plan["told_bytes_of_a_step"] == plan["sums_of_a_step"] == 0
    assert plan["seconds_of_exchange"] == {}


# methods and the command


def test_a_plan_follows_the_settings_of_the_method() -> None:
    sizes = {"users": 100, "items": 50, "clicks": 1000, "ranks": 2}
    ubo = planned("ubo", make_with("ubo", {"dim": 7, "biases": True, "batch_size": 9}), **sizes)
    assert (ubo.dim, ubo.batch_size, ubo.strategy, ubo.user_tables) == (9, 9, "bilevel", 2)
    bpr = planned("bpr", make_with("bpr", {"engine": "cuda", "negatives": 4}), **sizes)
    assert (bpr.engine, bpr.negatives, bpr.strategy, bpr.sums) == ("cuda", 4, None, 1)
    with pytest.raises(InputError, match="ease is not trained in steps"):
        planned("ease", make_with("ease", {}), **sizes)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"ranks": 65}, "ranks must be at most 64, the partitions of users, got 65"),
        ({"clicks": 10**9}, "fewer pairs than the 1,000,000,000 clicks"),
        ({"users": 10**30}, "users must be between 1 and"),
        ({"negatives": 0}, "negatives must be between 1 and"),
    ],
)
def test_sizes_that_no_training_has_are_refused(
    clicks: Clicks, change: dict[str, int], sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence):
        training(clicks, **change)


@pytest.mark.parametrize(("rate", "most"), [(1e12, 1), (3e8, 9), (1e5, 64)])
def test_ranks_pay_while_they_compute_for_half_of_a_step(rate: float, most: int) -> None:
    plan = Training(10**8, 10**4, 10**10, 8, 64, 1 << 16, 10, "bilevel")
    assert most_that_pay(plan, NVLINK, Rank(rate)) == pytest.approx(most, abs=2)
    for ranks in {most - 3, most + 3} & set(range(2, 65)):
        gain = speed_up(plan, replace(NVLINK, ranks=ranks), Rank(rate))
        assert (gain >= ranks / 2) == (ranks < most)


def test_rotating_blocks_send_the_items_once_an_epoch() -> None:
    plan = Training(10**8, 10**6, 10**10, 16, 64, 1 << 16, 10, "bilevel")
    assert plan.rotated_bytes() == 10**6 * 64 * 4 * 3
    assert 15 < rotating_speed_up(plan, ETHERNET, Rank(1e8)) < 16
