"""Several processes train the model of one process."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist

from training_workers import (
    CASES,
    answers,
    ending,
    every_outcome,
    failures,
    log,
    meeting,
    on_workers,
    outcome,
    own,
    random_numbers,
)
from unexposed import workers
from unexposed.data.ids import Ids
from unexposed.data.share import PARTITIONS, partitions

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo")


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return {name: outcome(name) for name in CASES}


@pytest.fixture(scope="module")
def two(alone, tmp_path_factory) -> list[list[Any]]:
    works = every_outcome, own, failures, answers, meeting
    return on_workers(2, tmp_path_factory.mktemp("two"), *works)


@pytest.fixture(scope="module")
def four(alone, tmp_path_factory) -> list[list[Any]]:
    return on_workers(4, tmp_path_factory.mktemp("four"), every_outcome, ending)


def leaves(facts: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value inside of nested facts, with its path."""
    if not isinstance(facts, dict | list):
        yield path, facts
        return
    inside = facts.items() if isinstance(facts, dict) else enumerate(facts)
    for name, value in inside:
        yield from leaves(value, (*path, name))


def assert_alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name in CASES:
        parameters = one[name]["parameters"]
        assert parameters.keys() == other[name]["parameters"].keys()
        for table, values in other[name]["parameters"].items():
            np.testing.assert_allclose(parameters[table], values, rtol=0, atol=1e-9, err_msg=name)
        assert one[name]["lists"] == other[name]["lists"]
        facts, others = (dict(leaves(found[name]["facts"])) for found in (one, other))
        assert facts.keys() == others.keys()
        for path, value in others.items():
            near = value if isinstance(value, str) else pytest.approx(value, rel=1e-11, abs=1e-15)
            assert facts[path] == near, (name, path)


def test_the_cases_train_in_float64(alone):
    for name, found in alone.items():
        assert found["parameters"]["user_factors"].dtype == np.float64, name
        assert len(found["facts"]["losses"]) == 2, name


def test_two_workers_train_the_model_of_one_process(alone, two):
    assert_alike(two[0][0], alone)


def assert_same_bits(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name in CASES:
        for table, values in one[name]["parameters"].items():
            assert values.tobytes() == other[name]["parameters"][table].tobytes(), (name, table)
        assert one[name]["facts"] == other[name]["facts"]


def test_every_worker_has_the_same_bits_of_what_users_share(two):
    assert_same_bits(two[0][0], two[1][0])


@pytest.mark.slow
def test_four_workers_train_the_model_of_one_process(alone, four):
    """One of the cases has three users: a worker without any user takes part."""
    assert_alike(four[3][0], alone)
    assert_same_bits(four[0][0], four[3][0])


def test_an_exchange_with_nobody_changes_nothing(alone, tmp_path, monkeypatch):
    place = f"file://{tmp_path}/store"
    dist.init_process_group("gloo", init_method=place, rank=0, world_size=1)
    try:
        monkeypatch.setattr(workers, "_open", workers.Workers().meet())
        assert_alike(every_outcome(0), alone)
    finally:
        dist.destroy_process_group()


def test_a_worker_holds_the_rows_and_clicks_of_its_own_users_alone(two):
    of_rank = [rank[1] for rank in two]
    for what, whole in (("rows", 40), ("clicks", len(log("ubo")))):
        held = [found[what] for found in of_rank]
        assert {sum(parts) for parts in zip(*held, strict=True)} == {whole}
        assert all(0 < n < whole for parts in held for n in parts)


def test_workers_that_divided_the_log_before_train_the_same_bits(two):
    for _, found, *_ in two:
        of_whole, of_divided = found["parameters"]
        assert all((of_whole[table] == of_divided[table]).all() for table in of_whole)


def test_workers_find_means_and_the_smallest_as_one_process_does(two):
    of_ranks = [rank[3] for rank in two]
    for (values, places), *found in zip(random_numbers(), *of_ranks, strict=True):
        for one in found:
            assert one["mean"] == pytest.approx(values.mean(), rel=1e-12)
            wanted = (50, values.mean(), values.std(ddof=1))
            assert one["moments"] == pytest.approx(wanted, rel=1e-12)
        before = {user: n for one in found for user, n in one["before"].items()}
        counts = values % 9
        assert [before[user] for user in range(50)] == (np.cumsum(counts) - counts).tolist()
        order = np.lexsort((places, values))
        chosen = [
            set.union(*each) for each in zip(*(one["smallest"] for one in found), strict=True)
        ]
        assert chosen == [set(order[:n]) for n in range(0, 52, 7)]


def test_what_workers_cannot_do_is_refused_in_one_sentence(two):
    for _, _, found, *_ in two:
        for name in ("wmf", "expomf", "cjmf", "ease"):
            assert found[name].startswith(f"{name} cannot be trained by several workers")
        assert found["all pairs"].startswith("several workers draw negatives")
        assert found["traffic"].startswith("several workers cannot train with traffic")
        assert found["cuda"].startswith("the cuda engine needs a CUDA GPU")


def test_workers_that_were_given_different_things_all_say_so(two):
    for _, _, found, *_ in two:
        assert found["other seed"].startswith("workers 0 and 1 differ in the seed")


def test_the_failure_of_one_worker_ends_all_with_its_reason(two):
    assert two[1][2]["in a step"] == "the disk is full"
    assert two[0][2]["in a step"] == "worker 1 failed: the disk is full"


@pytest.mark.slow
def test_a_failure_ends_workers_that_wait_for_another_one_than_the_failed(four):
    """In a ring of four, worker 2 waits for workers 1 and 3."""
    said = [found[1][0] for found in four]
    assert said == ["the disk is full", *["worker 0 failed: the disk is full"] * 3]


@pytest.mark.slow
def test_the_first_worker_stays_until_all_know_why_it_failed(four):
    """It may keep the store that holds the reason."""
    left, knew = four[0][1][1], four[2][1][1]
    assert left > knew


def test_no_worker_goes_on_before_all_are_connected(two):
    """One that failed at once would close a connection that is half made."""
    (*_, went_on), (*_, connected) = two
    assert went_on > connected


def test_a_worker_waits_for_a_late_one_no_longer_than_the_limit(two):
    assert "gave no answer within 3 s" in two[0][2]["late"]


def test_a_users_partition_depends_on_the_raw_id_alone():
    ids = ["ann", "bob", "", "käthe"]
    assert partitions(Ids.of(ids)).tolist() == partitions(Ids.of(ids[::-1])).tolist()[::-1]
    # models and checkpoints rely on these numbers: they never change
    assert partitions(Ids.of(ids)).tolist() == [37, 18, 52, 3]
    assert partitions(Ids.of([0, 1, -1, 2**62])).tolist() == [47, 1, 32, 43]
    assert partitions(Ids.of(["ann", 3, 2.5])).tolist() == [37, 1, 52]


@pytest.mark.parametrize("ids", [Ids.range(6400), Ids.of(f"user {n}" for n in range(6400))])
def test_partitions_are_about_as_large_as_each_other(ids):
    sizes = np.bincount(partitions(ids), minlength=PARTITIONS)
    assert 50 < sizes.min() <= sizes.max() < 150
