"""A training that is killed goes on to the same bits as one that never was."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from small import BRIEF, COMPOSED, TRAINED, assert_same_parameters, make_with
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.engine.objective import Strategy
from unexposed.errors import InputError
from unexposed.files import archive
from unexposed.model.model import Model
from unexposed.progress import Silent, Tick
from unexposed.sampling.validation import ValidationSet
from unexposed.training import checkpoint
from unexposed.training import loop as training
from unexposed.training.given import Side

QUICK = BRIEF | {"negatives": 2, "snips_window": 2, "exposure_learning_rate": 0.01}


class Killed(BaseException):
    pass


class Killer(Silent):
    """Ends the training when it is told of an epoch: that one's checkpoint is never written."""

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
    """Killed in epoch 2, in epoch 3, and in epoch 6, it ends as if nothing had been."""
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


STRATEGIES = Strategy.__args__
CASES = [
    *((name, e, {}) for name in COMPOSED for e in ("cpu", "reference")),
    *((name, None, {}) for name in TRAINED if name not in COMPOSED),
    *(("ubo", e, {"strategy": s}) for s in STRATEGIES for e in ("cpu", "reference")),
    *(("ubo", e, {"validation_batch": 5}) for e in ("cpu", "reference")),
    ("mf", "cpu", {"pairs": "all"}),
    ("umf", "cpu", {"weighting": "unbiased"}),
    ("ubo", "cpu", {"validation_in_training": False}),
    ("cjmf", "cpu", {"n_models": 1, "residual": False}),
]


@pytest.mark.parametrize(("name", "engine", "settings"), CASES)
def test_a_training_that_is_killed_ends_with_the_bits_of_one_that_was_not(
    name, engine, settings, small_world, tmp_path
):
    method = quick(name, **settings, **({"engine": engine} if engine else {}))
    assert_survives(method, small_world.clicks(0), tmp_path / "kept")


def test_side_information_is_no_obstacle(small_world, tmp_path):
    clicks = small_world.clicks(0)
    rng = np.random.default_rng(0)
    features = rng.random((clicks.n_users, 3)).astype(np.float32)
    guide = ValidationSet(clicks.users[:20], clicks.items[:20], np.arange(20) % 2 == 0)
    side = Side(user_features=features, validation=guide)
    assert_survives(quick("ubo"), clicks, tmp_path / "kept", side=side)
    given = Side(exposure=rng.uniform(0.1, 1, (clicks.n_users, clicks.n_items)))
    assert_survives(quick("umf"), clicks, tmp_path / "other", side=given)


def test_without_held_out_clicks_the_last_epoch_is_kept_after_resuming_too(small_world, tmp_path):
    clicks = small_world.clicks(0)
    log = (clicks, clicks.pick(np.zeros(len(clicks), dtype=bool)))
    whole = quick("mf").fit(*log, progress=Silent())
    kept = {"checkpoint": tmp_path / "kept", "checkpoint_every": 0}
    with pytest.raises(Killed):
        quick("mf").fit(*log, **kept, progress=Killer(4))
    assert_same(whole, quick("mf").fit(*log, **kept, resume=True, progress=Silent()))


def test_the_best_epoch_and_the_patience_count_on_over_a_kill(tmp_path):
    qualities = [0.1, 0.5, 0.3, 0.2, 0.4, 0.9]

    def train(progress: Silent) -> tuple[dict[str, Any], dict[str, Any]]:
        state = {"done": np.zeros(1)}

        def epoch() -> float:
            state["done"] = state["done"] + 1
            return 1.0

        loop = training.Loop("x", 6, 3, lambda p: qualities[int(p["done"][0]) - 1])
        return training.run(
            loop,
            epoch=epoch,
            parameters=state.copy,
            progress=progress,
            memory=training.Memory.of("x", state, np.random.default_rng(0)),
            checkpoint=checkpoint.Checkpoint(tmp_path / "kept", of={}, resume=True, every=0),
        )

    with pytest.raises(Killed):
        train(Killer(4))
    best, facts = train(Silent())
    assert best["done"] == 2
    assert facts["held_out"] == qualities[:5]
    assert facts["ended"] == "no improvement in 3 epochs"
    assert facts["resumed_at"] == [3]


def test_side_information_is_part_of_the_fingerprint(small_world):
    clicks = small_world.clicks(0)

    def of(side: Side) -> dict[str, Any]:
        return checkpoint.fingerprint(quick("umf"), clicks, clicks, seed=0, side=side)

    exposure = np.ones(clicks.n_items)
    assert of(Side(exposure=exposure)) == of(Side(exposure=exposure.copy()))
    assert of(Side(exposure=exposure)) != of(Side(exposure=exposure * 0.5)) != of(Side())


# Killed by the system

LOG = "user,item\n" + "".join(
    f"u{u},i{i}\n" for u, i in np.random.default_rng(1).integers(60, size=(900, 2))
)
# what runs in the process: the command, killed by SIGKILL at the nth time it comes to a function
DRIVER = """
import os, signal, sys
module, name, times = sys.argv[1:4]
if module:
    import importlib
    home = importlib.import_module(module)
    function, calls = getattr(home, name), []
    def deadly(*given, **named):
        calls.append(name)
        if len(calls) == int(times):
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*given, **named)
    setattr(home, name, deadly)
from unexposed import cli
sys.argv = ["unexposed", *sys.argv[4:]]
cli.main()
"""
MOMENTS = {
    "in an epoch": ("unexposed.sampling.draw", "samples", 3),
    "in a checkpoint, before its document": ("unexposed.files.archive", "checksum", 4),
    "before a checkpoint is swapped in": ("unexposed.files.whole", "_exchange", 3),
    "after a checkpoint was swapped in": ("unexposed.files.whole", "_sync_names", 2),
    "while the model is saved": ("unexposed.model.save", "check_place", 2),
}


def command(moment: str | None, out: str, *words: str, folder: Path) -> Any:
    at = MOMENTS[moment] if moment else ("", "", 0)
    settings = "epochs=30 patience=0 dim=6 batch_size=64 snips_window=3 strategy=bilevel".split()
    given = [word for setting in settings for word in ("--set", setting)]
    words = (*"--method ubo --engine cpu --checkpoint-every 0".split(), *given, *words)
    return subprocess.run(
        [sys.executable, "-c", DRIVER, *map(str, at), "fit", "log.csv", "--out", out, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_killed_by_the_system_at_every_moment_and_resumed_the_saved_files_are_the_same(tmp_path):
    (tmp_path / "log.csv").write_text(LOG)
    done = command(None, "whole", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for moment in MOMENTS:
        killed = command(moment, "model", "--resume", folder=tmp_path)
        assert killed.returncode == -signal.SIGKILL, (moment, killed.stderr)
        assert not (tmp_path / "model").exists()
    done = command(None, "model", "--resume", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "ubo: resumed at epoch" in done.stderr
    assert sorted(os.listdir(tmp_path)) == ["log.csv", "model", "whole"]
    one, other = (tmp_path / out / "arrays.safetensors" for out in ("whole", "model"))
    assert one.read_bytes() == other.read_bytes()
    whole, resumed = (
        json.loads((tmp_path / out / "model.json").read_text()) for out in ("whole", "model")
    )
    assert len(resumed["facts"].pop("resumed_at")) == len(MOMENTS)
    for about in (whole, resumed):
        del about["facts"]["seconds"], about["checksum"]
    assert whole == resumed


# What is refused


@pytest.fixture
def stopped(small_world, tmp_path) -> tuple[Clicks, Path]:
    """A log, and the checkpoint of a training on it."""
    clicks, folder = small_world.clicks(0), tmp_path / "kept"
    with pytest.raises(Killed):
        quick("mf", engine="cpu").fit(
            clicks, checkpoint=folder, checkpoint_every=0, progress=Killer(3)
        )
    return clicks, folder


def resume(method: Any, clicks: Clicks, folder: Path, **given: Any) -> Model:
    return method.fit(clicks, checkpoint=folder, resume=True, progress=Silent(), **given)


def test_a_changed_setting_seed_engine_or_method_is_named_with_both_values(stopped):
    mf = quick("mf", engine="cpu")
    for method, given, difference in (
        (quick("mf", engine="cpu", dim=7), {}, "dim was 6 and is now 7"),
        (mf, {"seed": 1}, "the seed was 0 and is now 1"),
        (
            quick("mf", engine="reference"),
            {},
            "the engine was CpuEngine and is now ReferenceEngine",
        ),
        (quick("umf", engine="cpu"), {}, "the method was mf and is now umf"),
    ):
        with pytest.raises(InputError, match=f"cannot resume from .*kept: .*{difference}"):
            resume(method, *stopped, **given)
    assert resume(quick("mf", engine="auto"), *stopped).facts["resumed_at"] == [2]


def test_a_changed_log_is_refused_and_told_apart(stopped):
    clicks, folder = stopped
    mf = quick("mf", engine="cpu")
    fewer = clicks.pick(np.arange(len(clicks)) != 4)
    n = len(clicks.hold_out(fraction=0.1, seed=0)[0])
    with pytest.raises(InputError, match=f"the log was {n:,} clicks .* and is now "):
        resume(mf, fewer, folder)
    often = Clicks(clicks.users, clicks.items, clicks.counts + 1, clicks.user_ids, clicks.item_ids)
    with pytest.raises(InputError, match="the log was"):
        resume(mf, often, folder)
    names = Ids.of([f"item {i}" for i in range(clicks.n_items)])
    renamed = Clicks(clicks.users, clicks.items, clicks.counts, clicks.user_ids, names)
    with pytest.raises(InputError, match="kept: the item ids was 60 .* and is now 60"):
        resume(mf, renamed, folder)
    train, held_out = clicks.hold_out(fraction=0.1, seed=0)
    with pytest.raises(InputError, match="the held-out clicks was"):
        mf.fit(train, held_out.pick(np.arange(3)), checkpoint=folder, resume=True)


def test_ids_have_the_fingerprint_of_what_they_are_not_of_how_they_are_held():
    held = Ids.of([f"user {n}" for n in range(100_000)])
    assert checkpoint._ids_digest(held) == checkpoint._ids_digest(Ids.unpacked(held.packed()))
    assert checkpoint._ids_digest(Ids.of(["ab", "c"])) != checkpoint._ids_digest(
        Ids.of(["a", "bc"])
    )


def test_a_damaged_checkpoint_is_refused_with_the_cure(stopped):
    clicks, folder = stopped
    whole = bytearray((folder / "arrays.safetensors").read_bytes())
    whole[-5] ^= 4
    (folder / "arrays.safetensors").write_bytes(whole)
    with pytest.raises(InputError, match="arrays.safetensors is damaged .*remove it"):
        resume(quick("mf", engine="cpu"), clicks, folder)


def spoilt(array: np.ndarray) -> np.ndarray:
    changed = array.copy()
    changed.reshape(-1)[-1] = np.nan if array.dtype.kind == "f" else np.iinfo(array.dtype).min
    return changed


def test_a_forged_checkpoint_is_refused_before_it_reaches_compiled_code(stopped):
    clicks, folder = stopped
    found = archive.read(checkpoint.CHECKPOINT, folder)
    arrays = {name: array.copy() for name, array in found.arrays.items()}
    about = {name: found.about[name] for name in ("of", "kind", "course", "random")}
    course = about["course"]
    held = {name: array for name, array in arrays.items() if array.size}
    forged = [({}, {name: spoilt(array)}) for name, array in held.items()]
    forged += [({}, {name: array[:-1]}) for name, array in held.items()]
    forged += [
        ({"course": course | change}, {})
        for change in (
            {"best_epoch": 10**12},
            {"best_epoch": -1},
            {"losses": "none"},
            {"losses": [0.5]},
            {"seconds": None},
            {"resumed_at": 3},
        )
    ]
    forged += [({"course": []}, {}), ({"random": {"state": -1}}, {}), ({"of": 7}, {})]
    for said, changed in forged:
        archive.write(checkpoint.CHECKPOINT, folder, about | said, arrays | changed)
        with pytest.raises(InputError, match="is damaged .*remove it"):
            resume(quick("mf", engine="cpu"), clicks, folder)
    archive.write(checkpoint.CHECKPOINT, folder, about, arrays)
    assert resume(quick("mf", engine="cpu"), clicks, folder).facts["resumed_at"] == [2]


def test_what_is_no_checkpoint_is_never_written_over(small_world, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    for place, complaint in ((tmp_path, "holds 'notes.txt'"), (tmp_path / "notes.txt", "a file")):
        with pytest.raises(InputError, match=complaint):
            quick("mf").fit(small_world.clicks(0), checkpoint=place, progress=Silent())


def test_resuming_needs_a_place_and_seconds_are_not_negative(small_world, tmp_path):
    with pytest.raises(InputError, match="give checkpoint="):
        quick("mf").fit(small_world.clicks(0), resume=True)
    with pytest.raises(InputError, match="at least 0 seconds, got -1"):
        quick("mf").fit(small_world.clicks(0), checkpoint=tmp_path / "c", checkpoint_every=-1)


# When it is written


def test_a_checkpoint_goes_when_the_model_is_saved_and_not_before(small_world, tmp_path):
    method = quick("mf", engine="cpu")
    model = method.fit(
        small_world.clicks(0),
        checkpoint=tmp_path / "kept",
        checkpoint_every=0,
        progress=Silent(),
    )
    assert (tmp_path / "kept").is_dir()
    model.save(tmp_path / "model")
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.parametrize("after", range(8))
def test_a_kill_while_a_checkpoint_is_removed_leaves_it_whole_or_gone(after, stopped, monkeypatch):
    clicks, folder = stopped
    calls = iter(range(after))

    def deadly(remove):
        def call(*given, **named):
            if next(calls, None) is None:
                raise Killed
            return remove(*given, **named)

        return call

    with monkeypatch.context() as patch:
        for name in ("unlink", "rmdir", "rename"):
            patch.setattr(os, name, deadly(getattr(os, name)))
        with contextlib.suppress(Killed):
            checkpoint.remove(folder)
    assert resume(quick("mf", engine="cpu"), clicks, folder).facts["epochs_run"] == 7
    checkpoint.remove(folder)
    assert os.listdir(folder.parent) == []


def test_a_short_training_writes_none(small_world, tmp_path):
    method = quick("mf", engine="cpu")
    method.fit(small_world.clicks(0), checkpoint=tmp_path / "kept", progress=Silent())
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("every", [10, 40])
def test_checkpoints_keep_their_distance_and_take_a_twentieth_of_the_time(
    every, small_world, tmp_path, monkeypatch
):
    now, written = [0.0], []
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: now[0])

    def write(*_: object) -> None:
        written.append(now[0])
        now[0] += 2  # as long as writing takes

    monkeypatch.setattr(archive, "write", write)

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

    monkeypatch.setattr(archive, "write", full)
    killer = Killer()
    model = quick("mf", engine="cpu").fit(
        small_world.clicks(0), checkpoint=tmp_path / "c", checkpoint_every=0, progress=killer
    )
    assert model.facts["epochs_run"] == 7
    assert any("No space left on device; the training goes on" in note for note in killer.notes)
