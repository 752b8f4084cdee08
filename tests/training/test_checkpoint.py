"""A killed training resumes and ends with the same bits as an uninterrupted one."""

import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from command import Ended, ended_in_child
from small import BRIEF, COMPOSED, TRAINED, assert_same_parameters, make_with
from unexposed import tensors
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.engine.objective import Strategy
from unexposed.errors import InputError
from unexposed.files import PREFIX
from unexposed.model.model import Model
from unexposed.progress import Silent, Tick
from unexposed.sampling.validation import ValidationSet
from unexposed.training import checkpoint, fingerprint
from unexposed.training.side import Side

QUICK = BRIEF | {"negatives": 2, "quality_window": 2, "exposure_learning_rate": 0.01}


class Killed(BaseException):
    pass


class Killer(Silent):
    """Ends the training in an epoch, before its checkpoint is written; keeps the notes."""

    def __init__(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self.notes: list[str] = []

    def __call__(self, tick: Tick) -> None:
        if tick.epoch == self.epoch:
            raise Killed

    def note(self, text: str) -> None:
        self.notes.append(text)


def quick(name: str, **settings: Any) -> Any:
    return make_with(name, QUICK | settings)


def assert_same(one: Model, other: Model) -> None:
    assert_same_parameters(one, other)
    for facts in (one.facts, other.facts):
        assert facts["seconds"] > 0
    left_out = {"seconds": 0.0, "resumed_at": []}
    assert one.facts | left_out == other.facts | left_out


def assert_survives(method: Any, clicks: Clicks, folder: Path, *, side: Side | None = None) -> None:
    """Killed in epochs 2, 3 and 6, the training ends with the same parameters and facts."""
    held = clicks.hold_out(fraction=0.3, seed=5)
    whole = method.fit(*held, seed=3, side=side, progress=Silent())
    settings = {"seed": 3, "side": side, "checkpoint": folder, "checkpoint_every": 0}
    for epoch in (2, 3, 6):
        with pytest.raises(Killed):
            method.fit(*held, **settings, resume=True, progress=Killer(epoch))
    killer = Killer()
    resumed = method.fit(*held, **settings, resume=True, progress=killer)
    assert f"{method.name}: resumed at epoch 5 of 7" in killer.notes
    assert resumed.facts["resumed_at"] == [1, 2, 5]
    assert_same(whole, resumed)


CASES = [
    *((name, {"engine": engine}) for name in COMPOSED for engine in ("cpu", "reference")),
    *((name, {}) for name in TRAINED if name not in COMPOSED),
    *(("ubo", {"strategy": strategy}) for strategy in get_args(Strategy)),
    *(("ubo", {"engine": e, "validation_batch": 5}) for e in ("cpu", "reference")),
    ("mf", {"pairs": "all"}),
    ("umf", {"weighting": "unbiased"}),
    ("ubo", {"guide": "drawn"}),
    ("ubo with items", {}),
    ("ubo with an exponent", {"epoch_by": "validation"}),
    ("cjmf", {"n_models": 1, "residual": False}),
]


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_a_killed_training_ends_with_the_bits_of_an_uninterrupted_one(
    name, settings, small_world, tmp_path
):
    assert_survives(quick(name, **settings), small_world.clicks(0), tmp_path / "kept")


def test_a_training_with_side_information_resumes_and_another_side_is_refused(
    small_world, tmp_path
):
    clicks = small_world.clicks(0)
    rng = np.random.default_rng(0)
    features = rng.random((clicks.n_users, 3)).astype(np.float32)
    guide = ValidationSet(clicks.users[:20], clicks.items[:20], np.arange(20) % 2 == 0)
    side = Side(user_features=features, validation=guide)
    assert_survives(quick("ubo"), clicks, tmp_path / "kept", side=side)
    given = Side(exposure=rng.uniform(0.1, 1, (clicks.n_users, clicks.n_items)))
    assert_survives(quick("umf"), clicks, tmp_path / "other", side=given)

    def of(side: Side) -> dict[str, Any]:
        return fingerprint.fingerprint(quick("umf"), clicks, clicks, seed=0, side=side)

    exposure = np.ones(clicks.n_items)
    assert of(Side(exposure=exposure)) == of(Side(exposure=exposure.copy()))
    assert of(Side(exposure=exposure)) != of(Side(exposure=exposure * 0.5)) != of(Side())


# Killed by the system

LOG = "user,item\n" + "".join(
    f"u{u},i{i}\n" for u, i in np.random.default_rng(1).integers(60, size=(900, 2))
)
MOMENTS = {
    "in an epoch": ("unexposed.sampling.draw", "samples", 3),
    "while a checkpoint is written": ("unexposed.tensors", "write_file", 4),
    "before a checkpoint is moved into place": ("unexposed.files", "flush", 5),
    "after a checkpoint was moved into place": ("unexposed.files", "flush", 4),
    "while the model is saved": ("unexposed.model.save", "check_place", 2),
}


def command(moment: str | None, out: str, *words: str, folder: Path) -> Ended:
    settings = "epochs=16 patience=0 dim=6 batch_size=64 quality_window=3 strategy=bilevel".split()
    given = [word for setting in settings for word in ("--set", setting)]
    words = (*"--method ubo --engine cpu --checkpoint-every 0".split(), *given, *words)
    at = MOMENTS[moment] if moment else None
    return ended_in_child(["fit", "log.csv", "--out", out, *words], cwd=folder, killed_at=at)


@pytest.mark.slow
def test_a_command_killed_at_any_moment_resumes_to_the_same_files(tmp_path):
    (tmp_path / "log.csv").write_text(LOG)
    done = command(None, "whole", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for moment in MOMENTS:
        killed = command(moment, "model", "--resume", folder=tmp_path)
        assert killed.returncode == -signal.SIGKILL, (moment, killed.stderr)
        assert not (tmp_path / "model.safetensors").exists()
    done = command(None, "model", "--resume", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ubo: resumed at epoch" in done.stderr
    left = [name for name in os.listdir(tmp_path) if not name.startswith(PREFIX)]
    assert sorted(left) == ["log.csv", "model.safetensors", "whole.safetensors"]
    whole, resumed = (tensors.read_file(tmp_path / f"{n}.safetensors") for n in ("whole", "model"))
    assert len(resumed.document["facts"].pop("resumed_at")) == len(MOMENTS)
    for one in (whole, resumed):
        del one.document["facts"]["seconds"], one.document["sha256"]
    assert whole.document == resumed.document
    assert whole.arrays.keys() == resumed.arrays.keys()
    for name, array in whole.arrays.items():
        assert array.tobytes() == resumed.arrays[name].tobytes()


# Refusals


@pytest.fixture
def stopped(small_world, tmp_path) -> tuple[Clicks, Path]:
    """A log, and the checkpoint of a training on it that was killed in epoch 3."""
    clicks, folder = small_world.clicks(0), tmp_path / "kept.safetensors"
    with pytest.raises(Killed):
        quick("mf", engine="cpu").fit(
            clicks, checkpoint=folder, checkpoint_every=0, progress=Killer(3)
        )
    return clicks, folder


def resume(method: Any, *log: Clicks, folder: Path, **given: Any) -> Model:
    return method.fit(*log, checkpoint=folder, resume=True, progress=Silent(), **given)


def with_few_held_out(clicks: Clicks) -> tuple[Clicks, Clicks]:
    train, held_out = clicks.hold_out(fraction=0.1, seed=0)
    return train, held_out.pick(np.arange(3))


LOGS = {
    "the same": lambda clicks: (clicks,),
    "a click less": lambda clicks: (clicks.pick(np.arange(len(clicks)) != 4),),
    "other counts": lambda clicks: (replace(clicks, counts=clicks.counts + 1),),
    "other ids": lambda clicks: (
        replace(clicks, item_ids=Ids.of([f"item {i}" for i in range(clicks.n_items)])),
    ),
    "other held-out clicks": with_few_held_out,
}


@pytest.mark.parametrize(
    ("method", "settings", "given", "log", "difference"),
    [
        ("mf", {"dim": 7}, {}, "the same", "dim was 6 and is now 7"),
        ("mf", {}, {"seed": 1}, "the same", "the seed was 0 and is now 1"),
        ("mf", {"engine": "reference"}, {}, "the same", "was CpuEngine and is now ReferenceEngine"),
        ("umf", {}, {}, "the same", "the method was mf and is now umf"),
        ("mf", {}, {}, "a click less", r"the log was [\d,]+ clicks .* and is now "),
        ("mf", {}, {}, "other counts", "the log was"),
        ("mf", {}, {}, "other ids", "the item ids was 60 .* and is now 60"),
        ("mf", {}, {}, "other held-out clicks", "the held-out clicks was"),
    ],
)
def test_a_difference_to_the_killed_training_is_named(
    method, settings, given, log, difference, stopped
):
    clicks, folder = stopped
    other = quick(method, **({"engine": "cpu"} | settings))
    with pytest.raises(InputError, match=f"cannot resume from .*kept.safetensors: .*{difference}"):
        resume(other, *LOGS[log](clicks), folder=folder, **given)


def test_ids_have_one_fingerprint_however_they_are_stored():
    def of(ids: Ids) -> str:
        none = np.zeros(0, dtype=np.int32)
        return fingerprint.log_fingerprint(Clicks(none, none, none, Ids.range(1), ids))[
            "the item ids"
        ]

    held = Ids.of([f"user {n}" for n in range(1_000)])
    assert of(held) == of(Ids.unpacked(held.packed()))
    assert of(Ids.of(["ab", "c"])) != of(Ids.of(["a", "bc"])) != of(Ids.of(["bc", "a"]))


def test_a_damaged_checkpoint_is_refused(stopped):
    clicks, path = stopped
    whole = path.read_bytes()
    for damaged in (whole[:-5] + bytes([whole[-5] ^ 4]) + whole[-4:], whole[:-9], b"notes"):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="kept.safetensors is damaged, .*remove it"):
            resume(quick("mf", engine="cpu"), clicks, folder=path)
    path.write_bytes(whole)
    assert resume(quick("mf", engine="auto"), clicks, folder=path).facts["resumed_at"] == [2]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"checkpoint": "."}, "is a folder"),
        ({"checkpoint": "notes.safetensors"}, "not a checkpoint of unexposed"),
        ({"checkpoint": "c", "checkpoint_every": -1}, "at least 0 seconds, got -1"),
        ({"resume": True}, "give checkpoint="),
    ],
)
def test_a_checkpoint_needs_a_place_of_its_own(
    given, complaint, small_world, tmp_path, monkeypatch
):
    tensors.write_file(tmp_path / "notes.safetensors", {"format": "mine"}, {})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=complaint):
        quick("mf").fit(small_world.clicks(0), progress=Silent(), **given)
    assert os.listdir() == ["notes.safetensors"]


# When a checkpoint is written and removed


@pytest.mark.parametrize("every", [0, 3600])
def test_a_checkpoint_stays_until_the_model_is_saved_and_a_short_training_needs_none(
    every, small_world, tmp_path
):
    model = quick("mf", engine="cpu").fit(
        small_world.clicks(0),
        checkpoint=tmp_path / "kept",
        checkpoint_every=every,
        progress=Silent(),
    )
    assert (tmp_path / "kept.safetensors").exists() == (every == 0)
    model.save(tmp_path / "model")
    assert os.listdir(tmp_path) == ["model.safetensors"]


@pytest.mark.parametrize("every", [10, 40])
def test_writing_checkpoints_takes_at_most_a_twentieth_of_the_time(
    every, small_world, tmp_path, monkeypatch
):
    now, written = [0.0], []
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])

    def write(*_: object, **__: object) -> None:
        written.append(now[0])
        now[0] += 2  # as long as writing takes

    monkeypatch.setattr(tensors, "write_tensors", write)

    class Second(Silent):
        def __call__(self, tick: Tick) -> None:
            now[0] += 1

    quick("wmf", epochs=130).fit(
        small_world.clicks(0),
        checkpoint=tmp_path / "kept",
        checkpoint_every=every,
        progress=Second(),
    )
    rest = max(every, 38)
    assert written == [every + n * (rest + 2) for n in range(len(written))]
    assert len(written) == 1 + (130 - every) // rest


def test_a_checkpoint_that_cannot_be_written_does_not_end_the_training(
    small_world, tmp_path, monkeypatch
):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensors, "write_file", full)
    killer = Killer()
    model = quick("mf", engine="cpu").fit(
        small_world.clicks(0), checkpoint=tmp_path / "c", checkpoint_every=0, progress=killer
    )
    assert model.facts["epochs_run"] == 7
    assert any("No space left on device" in note and "continues" in note for note in killer.notes)
