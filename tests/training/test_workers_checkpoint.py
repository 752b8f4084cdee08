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

from checkpoint_workers import RULES, Faults, Few, Killed, Notes, Resumed, trained
from small import assert_same_parameters, clicks_of
from training_workers import log, on_workers
from unexposed import tensors
from unexposed.data.ids import Ids
from unexposed.methods import load, make
from unexposed.model.lists import FILES, parts_of, write_lists
from unexposed.model.save import MODEL
from unexposed.training.checkpoint import CHECKPOINT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo"),
]

MOMENTS = [  # the rank that is killed, and at which call of which function
    (1, ("unexposed.engine.reference:ReferenceEngine", "step"), 9),
    (1, ("unexposed.tensors", "write_file"), 50),
    (0, ("unexposed.tensors", "write_whole"), 2),
    (0, ("unexposed.tensors", "remove_shards"), 1),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("ranks")


def spawned(n_ranks: int, place: Path, name: str, *works: Any) -> list[list[Any]]:
    (place / name).mkdir()
    return on_workers(n_ranks, place / name, *works)


@pytest.fixture(scope="module")
def undisturbed(place) -> list[Any]:
    """What two ranks give that nobody disturbs."""
    return spawned(2, place, "undisturbed", Resumed(None, place / "undisturbed"))


@pytest.fixture(scope="module")
def killed(place) -> Path:
    """The checkpoint of two ranks that were killed again and again."""
    for n, (rank, where, times) in enumerate(MOMENTS):
        work = Killed(place / "kept" / "train.safetensors", rank, where, times)
        with pytest.raises(torch.multiprocessing.ProcessExitedException, match="SIGKILL"):
            spawned(2, place, f"kill {n}", work)
    return place / "kept" / "train.safetensors"


def copied(killed: Path, name: str) -> Path:
    return Path(shutil.copytree(killed.parent, killed.parent.with_name(name))) / killed.name


def test_killed_ranks_resume_to_the_bits_of_an_undisturbed_training(undisturbed, killed, place):
    checkpoint = copied(killed, "of two")
    resumed = spawned(2, place, "resumed", Resumed(checkpoint, place / "resumed"))
    for (one,), (other,) in zip(undisturbed, resumed, strict=True):
        assert other["facts"]["resumed_at"]
        assert one["facts"]["losses"] == other["facts"]["losses"]
        for name, table in one["whole"].items():
            assert table.tobytes() == other["whole"][name].tobytes(), name
    one, other = (stored(place / done / "model") for done in ("undisturbed", "resumed"))
    for ours, theirs in zip(one.shards, other.shards, strict=True):
        assert ours.path.read_bytes() == theirs.path.read_bytes()
    assert os.listdir(checkpoint.parent) == []


def stored(model: Path) -> tensors.Tensors:
    return tensors.read_tensors(MODEL, tensors.path_of(model))


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
    assert set(os.listdir(place / "lists")) == set(FILES)
    for name in FILES:
        files = (pl.read_parquet(f / name) for f in (place / "lists", place / "undisturbed/lists"))
        assert next(files).equals(next(files))


@pytest.fixture(scope="module")
def failed(killed, place) -> list[list[Any]]:
    damaged = copied(killed, "damaged")
    # a partition of rank 1 that has users
    shards = tensors.read_tensors(CHECKPOINT, damaged).shards[1::2]
    path = max((shard.path for shard in shards), key=os.path.getsize)
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
        assert "cannot write" in found["model"]
        assert "No space left on device" in found["model"]
        assert "(worker 1)" in found["model"]
        assert "model.safetensors" not in found["left"]


def test_a_full_disk_on_one_rank_does_not_end_the_training(faults):
    assert all(found["epochs"] == 5 for found in faults)
    said = [note for note in faults[0]["notes"] if "the training continues" in note]
    assert said
    assert all("No space left on device" in note for note in said)


def test_a_rank_that_cannot_read_its_file_ends_all_with_its_sentence(faults):
    assert "is damaged" in faults[1]["damaged"]
    assert faults[0]["damaged"] == f"worker 1 failed: {faults[1]['damaged']}"


def test_a_divided_model_is_not_saved_as_a_whole(faults):
    assert all("is saved by partitions" in found["not whole"] for found in faults)


def test_more_ranks_than_users_save_one_model(faults, few, place):
    model = load(place / "few" / "model", verify=True)
    assert sorted(few) == [0, 1]
    assert_same_parameters(model, load(place / "one user"))
    assert model.user_ids.values.tolist() == ["ann"]
    lists = pl.read_parquet(place / "few" / "lists" / "*.parquet")
    assert lists["user"].to_list() == ["ann"] * 3  # 63 files are empty, and of the same types
