"""Several processes train the model of one process."""

from typing import Any

import numpy as np
import pytest
import torch.distributed as dist

from training_ranks import CASES, every_outcome, failures, on_ranks, outcome, own_rows
from unexposed import ranks
from unexposed.data.ids import Ids
from unexposed.data.partitions import PARTITIONS, partitions

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo")


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return {name: outcome(name) for name in CASES}


@pytest.fixture(scope="module")
def two(alone, tmp_path_factory) -> list[list[Any]]:
    return on_ranks(2, tmp_path_factory.mktemp("two"), every_outcome, own_rows, failures)


def assert_alike(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name in CASES:
        parameters = one[name]["parameters"]
        assert parameters.keys() == other[name]["parameters"].keys()
        for table, values in other[name]["parameters"].items():
            np.testing.assert_allclose(parameters[table], values, rtol=0, atol=1e-9, err_msg=name)
        assert one[name]["lists"] == other[name]["lists"]
        assert one[name]["facts"]["best_epoch"] == other[name]["facts"]["best_epoch"]
        for fact in ("losses", "held_out"):
            np.testing.assert_allclose(one[name]["facts"][fact], other[name]["facts"][fact])


def test_the_cases_train_in_float64(alone):
    for name, found in alone.items():
        assert found["parameters"]["user_factors"].dtype == np.float64, name
        assert len(found["facts"]["losses"]) == 2, name


def test_two_ranks_train_the_model_of_one_process(alone, two):
    assert_alike(two[0][0], alone)


def test_every_rank_returns_the_same_model(two):
    for name in CASES:
        one, other = (rank[0][name] for rank in two)
        for table, values in one["parameters"].items():
            assert values.tobytes() == other["parameters"][table].tobytes(), (name, table)


def test_four_ranks_train_the_model_of_one_process(alone, tmp_path):
    """One of the cases has three users: a rank without any user takes part."""
    assert_alike(on_ranks(4, tmp_path, every_outcome)[3][0], alone)


def test_an_exchange_with_nobody_changes_nothing(alone, tmp_path, monkeypatch):
    place = f"file://{tmp_path}/store"
    dist.init_process_group("gloo", init_method=place, rank=0, world_size=1)
    try:
        monkeypatch.setattr(ranks, "_current", ranks.Ranks())
        assert_alike(every_outcome(0), alone)
    finally:
        dist.destroy_process_group()


def test_a_rank_holds_the_rows_of_its_own_users_alone(two):
    of_rank = [rank[1] for rank in two]
    assert [sum(rows) for rows in zip(*of_rank, strict=True)] == [40, 40]
    assert all(0 < n < 40 for rows in of_rank for n in rows)


def test_what_ranks_cannot_do_is_refused_in_one_sentence(two):
    for _, _, found in two:
        for name in ("wmf", "expomf", "cjmf", "ease"):
            assert found[name].startswith(f"{name} cannot be trained by several ranks")
        assert found["cuda"].startswith("the cuda engine needs a CUDA GPU")
        assert found["checkpoint"].startswith("several ranks keep no checkpoints")


def test_ranks_that_were_given_different_things_all_say_so(two):
    for _, _, found in two:
        assert found["other seed"].startswith("ranks 0 and 1 differ in the seed")


def test_the_failure_of_one_rank_ends_all_with_its_reason(two):
    assert two[1][2]["in a step"] == "the disk is full"
    assert two[0][2]["in a step"] == "rank 1 failed: the disk is full"


def test_a_rank_waits_for_a_late_one_no_longer_than_the_limit(two):
    assert "gave no answer within 1 s" in two[0][2]["late"]


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
