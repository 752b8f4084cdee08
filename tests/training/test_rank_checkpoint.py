"""Ranks that were killed resume, as many as before or fewer, and save one model by partitions."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch.distributed as dist
import torch.multiprocessing

from checkpoint_ranks import RULES, Faults, Few, Killed, Notes, Resumed, trained
from small import assert_same_parameters, clicks_of
from training_ranks import log, on_ranks
from unexposed.data.ids import Ids
from unexposed.files.archive import part_name
from unexposed.methods import load, make
from unexposed.model.lists import FILES, parts_of, write_lists

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo")

MOMENTS = [  # the rank that is killed, and at which call of which function
    (1, ("unexposed.engine.reference:ReferenceEngine", "step"), 9),
    (1, ("unexposed.files.archive", "write_arrays"), 50),
    (0, ("unexposed.files.whole", "_put"), 2),
    (0, ("unexposed.files.whole", "_sync_names"), 1),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("ranks")


def spawned(n_ranks: int, place: Path, name: str, *works: Any) -> list[list[Any]]:
    (place / name).mkdir()
    return on_ranks(n_ranks, place / name, *works)


@pytest.fixture(scope="module")
def undisturbed(place) -> list[Any]:
    """What two ranks give that nobody disturbs."""
    return spawned(2, place, "undisturbed", Resumed(None, place / "undisturbed"))


@pytest.fixture(scope="module")
def killed(place) -> Path:
    """The checkpoint of two ranks that were killed again and again."""
    for n, (rank, where, times) in enumerate(MOMENTS):
        with pytest.raises(torch.multiprocessing.ProcessExitedException, match="SIGKILL"):
            spawned(2, place, f"kill {n}", Killed(place / "kept", rank, where, times))
    return place / "kept"


def copied(killed: Path, name: str) -> Path:
    return Path(shutil.copytree(killed, killed.with_name(name)))


def test_killed_ranks_resume_to_the_bits_of_an_undisturbed_training(undisturbed, killed, place):
    checkpoint = copied(killed, "of two")
    resumed = spawned(2, place, "resumed", Resumed(checkpoint, place / "resumed"))
    for (one,), (other,) in zip(undisturbed, resumed, strict=True):
        assert other["facts"]["resumed_at"]
        assert one["facts"]["losses"] == other["facts"]["losses"]
        for name, table in one["whole"].items():
            assert table.tobytes() == other["whole"][name].tobytes(), name
    for part in map(part_name, range(64)):
        one, other = (place / done / "model" / part for done in ("undisturbed", "resumed"))
        assert one.read_bytes() == other.read_bytes()
    assert not checkpoint.exists()


def test_one_process_resumes_what_two_ranks_began(undisturbed, killed):
    notes = Notes()
    model = trained(copied(killed, "of one"), progress=notes)
    assert any("resumed at epoch" in note for note in notes.notes)
    for name, table in undisturbed[0][0]["whole"].items():
        np.testing.assert_allclose(model.parameters[name], table, rtol=0, atol=1e-9)


def test_a_rank_holds_its_own_users_and_the_folder_all_of_them(undisturbed, place):
    rows = [rank[0]["held"]["user_factors"][0] for rank in undisturbed]
    assert sum(rows) == 40
    assert max(rows) < 40
    model = load(place / "undisturbed" / "model", verify=True)
    assert model.user_ids == log("ubo").user_ids
    assert model.clicks.keys.tolist() == log("ubo").keys.tolist()
    for name, table in undisturbed[0][0]["whole"].items():
        assert table.tobytes() == model.parameters[name].tobytes()


def test_the_lists_of_ranks_are_those_of_one_process(undisturbed, place):
    model = load(place / "undisturbed" / "model")
    one = write_lists(parts_of(model), place / "lists", 5, RULES)
    assert one == undisturbed[0][0]["rows"]
    assert set(os.listdir(place / "lists")) == FILES
    for name in FILES:
        files = (pl.read_parquet(f / name) for f in (place / "lists", place / "undisturbed/lists"))
        assert next(files).equals(next(files))


@pytest.fixture(scope="module")
def failed(killed, place) -> list[list[Any]]:
    damaged = copied(killed, "damaged")
    # a partition of rank 1 that has users
    path = max((damaged / part_name(n) for n in range(1, 64, 2)), key=os.path.getsize)
    content = path.read_bytes()
    path.write_bytes(content[:-5] + bytes([content[-5] ^ 4]) + content[-4:])
    (place / "full").mkdir()
    work = Faults(killed, damaged, place / "full")
    matrix = np.ones((1, 8)) * (np.arange(8) < 5)
    clicks = replace(clicks_of(matrix), user_ids=Ids.of(["ann"]))
    make("mf", dim=2, epochs=1, engine="reference").fit(clicks).save(place / "one user")
    few = Few(place / "one user", place / "few")
    return spawned(2, place, "faults", work, few)


@pytest.fixture(scope="module")
def faults(failed) -> list[dict[str, Any]]:
    return [found[0] for found in failed]


@pytest.fixture(scope="module")
def few(failed) -> list[int]:
    return [found[1] for found in failed]


def test_a_full_disk_on_one_rank_leaves_no_model_and_ends_all_with_one_sentence(faults):
    for found in faults:
        assert "cannot write a model to" in found["model"]
        assert "No space left on device (on rank 1)" in found["model"]
        assert found["left"] == []


def test_a_full_disk_on_one_rank_does_not_end_the_training(faults):
    assert all(found["epochs"] == 5 for found in faults)
    said = {note for note in faults[0]["notes"] if "cannot write the checkpoint" in note}
    assert len(said) == 2  # of the training, and of the one on all clicks
    assert all("left on device (on rank 1); the training continues" in note for note in said)


def test_a_rank_that_cannot_read_its_file_ends_all_with_its_sentence(faults):
    assert "is damaged" in faults[1]["damaged"]
    assert faults[0]["damaged"] == f"rank 1 failed: {faults[1]['damaged']}"


def test_a_divided_model_is_not_saved_as_a_whole(faults):
    assert all("is saved by partitions" in found["not whole"] for found in faults)


def test_more_ranks_than_users_save_one_model(faults, few, place):
    model = load(place / "few" / "model", verify=True)
    assert sorted(few) == [0, 1]
    assert_same_parameters(model, load(place / "one user"))
    assert model.user_ids.values.tolist() == ["ann"]
    lists = pl.read_parquet(place / "few" / "lists" / "*.parquet")
    assert lists["user"].to_list() == ["ann"] * 3  # 63 files are empty, and of the same types
