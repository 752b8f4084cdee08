"""Ranks that read a log together hold what one process reads, cut among them."""

from dataclasses import fields, is_dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist

from divided_logs import divided, quietly, refused, warned, write, write_bad
from training_ranks import on_ranks
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.data.share import cut
from unexposed.errors import InputError

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo")


@pytest.fixture(scope="module")
def logs(tmp_path_factory) -> dict[str, Any]:
    return write(tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="module")
def alone(logs) -> dict[str, list[Clicks]]:
    found = {}
    for name, (source, options) in logs.items():
        clicks = quietly(source, options)
        train, held_out = clicks.hold_out(fraction=0.3, seed=2)
        found[name] = [clicks, train, held_out, train.union(held_out)]
    return found


@pytest.fixture(scope="module")
def two(logs, tmp_path_factory) -> list[list[Any]]:
    bad = write_bad(tmp_path_factory.mktemp("bad"))
    works = partial(divided, logs), partial(refused, bad), partial(warned, logs)
    return on_ranks(2, tmp_path_factory.mktemp("two"), *works)


def assert_alike(one: Any, other: Any, at: str) -> None:
    """Equal to the bit, in every field."""
    assert type(one) is type(other), at
    if is_dataclass(one):
        for field in fields(one):
            assert_alike(getattr(one, field.name), getattr(other, field.name), f"{at}.{field.name}")
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, at
        assert one.tolist() == other.tolist(), at
    else:
        assert one == other, at


def assert_cut(found: list[dict[str, list[Clicks]]], alone: dict[str, list[Clicks]]) -> None:
    for rank, of_rank in enumerate(found):
        ranks: Any = SimpleNamespace(rank=rank, size=len(found))
        for name, parts in alone.items():
            for n, (own, whole) in enumerate(zip(of_rank[name], parts, strict=True)):
                assert_alike(own, cut(whole, ranks), f"{name}, part {n}, rank {rank}")


def test_two_ranks_hold_what_one_process_reads(two, alone):
    assert_cut([rank[0] for rank in two], alone)


def test_four_ranks_hold_what_one_process_reads(logs, alone, tmp_path):
    """More ranks than some logs have files, and than one has users."""
    found = [rank[0] for rank in on_ranks(4, tmp_path, partial(divided, logs))]
    assert_cut(found, alone)
    few = [of_rank["few users"][0] for of_rank in found]
    assert sorted(clicks.n_users for clicks in few) == [0, 0, 1, 1]


def test_a_rank_knows_its_own_users_alone(two, alone):
    for name, (whole, *_) in alone.items():
        own = [rank[0][name][0] for rank in two]
        ids = [raw for clicks in own for raw in clicks.user_ids.values.tolist()]
        assert sorted(ids) == whole.user_ids.values.tolist(), name
        assert {clicks.n_clicks for clicks in own} == {len(whole)}
        numbers = np.concatenate([clicks.numbers for clicks in own])
        assert sorted(numbers.tolist()) == list(range(len(whole)))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("missing id", "2.csv, line 3: the id in column 'user' is missing; fill it in"),
        ("no column", "2.csv has no column 'item'"),
        ("objects", "2.jsonl holds other ids than 64-bit integers or texts"),
        ("unlike", "column 'user' holds integers in "),
        ("not there", "not there: no such file"),
    ],
)
def test_a_file_that_cannot_be_read_ends_all_ranks_with_its_name(two, name, says):
    for _, found, _ in two:
        assert says in found[name]


def test_rank_0_alone_warns(two):
    assert ["threshold 4 is assumed" in said for said in two[0][2]] == [True]
    assert two[1][2] == []


def test_divided_clicks_are_not_chosen_by_one_process(two):
    clicks = two[0][0]["integers"][0]
    with pytest.raises(InputError, match="do it on every worker"):
        clicks.pick(slice(2))


def test_a_share_counts_all_items_and_places_all_users(two):
    clicks, other = (two[0][0][name][0] for name in ("integers", "texts"))
    with pytest.raises(InputError, match="know the place of each of its users"):
        Clicks(*_columns(clicks), Ids.range(200), clicks.item_ids, share=clicks.share)
    with pytest.raises(InputError, match="one of two logs"):
        clicks.union(other.__class__(*_columns(clicks), clicks.user_ids, clicks.item_ids))


def _columns(clicks: Clicks) -> tuple[Any, Any, Any]:
    return clicks.users, clicks.items, clicks.counts
