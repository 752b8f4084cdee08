"""A model file is written whole or not at all, and checked before it is used."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file

from ctrl_c import interrupted
from unexposed import tensors
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids, Texts
from unexposed.errors import InputError
from unexposed.files import DAY, PREFIX, write_folder, write_whole
from unexposed.methods import load, make
from unexposed.model.filters import Rules
from unexposed.model.model import Model
from unexposed.progress import Silent

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def model_of(users: Ids, items: Ids, name: str = "popularity", **settings: object) -> Model:
    n = min(len(users), len(items))
    clicks = Clicks.from_pairs(np.arange(n), np.arange(n), user_ids=users, item_ids=items)
    return make(name, **settings).fit(clicks, progress=Silent())


def numbered(letter: str, n: int = 300) -> Model:
    """A model whose every part tells which one it is of."""
    return model_of(Ids.of([f"{letter}{i}" for i in range(n)]), Ids.of([ord(letter), 7]))


def letter_of(model: Model) -> str:
    """Which model it is, if it is that one in every part."""
    letters = {raw[0] for raw in model.user_ids.values.tolist()}
    (letter,) = letters | {chr(model.item_ids.values[0])}
    return letter


@pytest.fixture
def model() -> Model:
    return model_of(Ids.of(["a", "b", "c"]), Ids.of([5, 7, 9]))


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


# What a file holds


@pytest.mark.parametrize(
    "raw",
    [
        [3, -1, 2**60],
        ["plain", 'comma, "quote"', "new\nline", "<b>ünïcode</b> \U0001f600", "\udc80", ""],
        [1.5, "text", ("pair", 2), None, True],
    ],
)
def test_raw_ids_survive_saving(raw, tmp_path):
    model_of(Ids.of(raw), Ids.of(raw)).save(tmp_path / "model")
    again = load(tmp_path / "model", verify=True)
    assert again.user_ids.values.tolist() == raw
    assert [type(r) for r in again.item_ids.values.tolist()] == [type(r) for r in raw]
    again.save(tmp_path / "again")
    one, other = (tmp_path / f"{name}.safetensors" for name in ("model", "again"))
    assert one.read_bytes() == other.read_bytes()


def test_a_model_is_one_file_that_the_safetensors_package_reads(model, tmp_path):
    model.save(tmp_path / "shop")
    assert names(tmp_path) == ["shop.safetensors"]
    stored = tensors.read_file(tmp_path / "shop.safetensors")
    assert stored.document["method"] == "popularity"
    theirs = load_file(tmp_path / "shop.safetensors")
    assert theirs.keys() == stored.arrays.keys()
    for name, array in stored.arrays.items():
        assert array.flags.aligned
        assert array.dtype == theirs[name].dtype
        assert array.tolist() == theirs[name].tolist()


def test_loading_reads_neither_ids_nor_clicks_nor_parameters(tmp_path, monkeypatch):
    numbered("a", 50_000).save(tmp_path / "model")
    monkeypatch.setattr(Texts, "__getitem__", lambda *_: pytest.fail("ids were decoded"))
    monkeypatch.setattr(Clicks, "__post_init__", lambda *_: pytest.fail("clicks were read"))
    again = load(tmp_path / "model")
    arrays = [*again.parameters.values(), again.clicks.items, again.clicks.user_start]
    for array in [*arrays, again.user_ids.values.run, again.item_ids.values]:
        assert not array.flags.owndata
        assert not array.flags.writeable
    assert again.user_ids.index(["a17", "b17"]).tolist() == [17, -1]


# Whole or not at all


def in_child(work: Callable[[], object]) -> int:
    """Wait for the work of another process; its exit status as os.waitpid gives it."""
    return os.waitpid(start_child(work), 0)[1]


def start_child(work: Callable[[], object]) -> int:
    """Do the work in a process of its own, and return its id."""
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return child


def killed_at(work: Callable[[], object], number: int) -> bool:
    """Do the work in a process that is killed before its nth use of a file; whether it was."""

    def count(event: str, _: object) -> None:
        if event == "open" or event.startswith("os."):
            used.append(event)
            if len(used) == number + 1:
                os.kill(os.getpid(), signal.SIGKILL)

    used: list[str] = []

    def work_counted() -> None:
        sys.addaudithook(count)
        work()

    status = in_child(work_counted)
    assert status in (0, signal.SIGKILL)
    return status != 0


@pytest.mark.parametrize(("partitioned", "stride"), [(False, 1), (True, 23)])
def test_a_kill_at_any_use_of_a_file_leaves_the_old_model_or_the_new(partitioned, stride, tmp_path):
    place, new = tmp_path / "model", numbered("b")
    numbered("a").save(place, partitioned=partitioned)
    number, found = 0, "a"
    while killed_at(lambda: new.save(place, partitioned=partitioned), number):
        for left in tmp_path.glob(PREFIX + "*"):  # removed a day later
            shutil.rmtree(left)
        letter = letter_of(load(place, verify=True))
        assert letter in ("a", "b")[found == "b" :]  # once the new one is there it stays
        number, found = number + stride, letter
    assert number > 5
    assert letter_of(load(place, verify=True)) == "b"
    numbered("c").save(place, partitioned=partitioned)
    named = tensors.read_file(tmp_path / "model.safetensors").document.get("shards", [])
    assert {*named, "model.safetensors"} <= set(names(tmp_path))
    assert partitioned or names(tmp_path) == ["model.safetensors"]


def test_what_a_killed_process_left_is_removed_a_day_later(model, tmp_path):
    for age, name in ((2 * DAY, "old"), (60, "young")):
        left = tmp_path / (PREFIX + name)
        left.mkdir()
        for path in (left / "model.safetensors", left):
            path.touch()
            os.utime(path, (time.time() - age,) * 2)
    model.save(tmp_path / "model")
    assert names(tmp_path) == [PREFIX + "young", "model.safetensors"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # left open
@pytest.mark.parametrize("folder", [False, True])
def test_ctrl_c_after_any_call_leaves_the_old_or_the_new_and_nothing_else(folder, tmp_path):
    place = tmp_path / "here"

    def write(text: str) -> None:
        if folder:
            write_folder(place, lambda to: (to / "text").write_text(text))
        else:
            write_whole(place, lambda to: to.write_text(text))

    for number in range(1_000):
        write("old")
        was_whole = interrupted(
            lambda: write("new"), after=number, files=("files.py", "pathlib.py")
        )
        assert os.listdir(tmp_path) == ["here"], number
        found = (place / "text" if folder else place).read_text()
        assert found in (("new",) if was_whole else ("old", "new"))
        if was_whole:
            break
    assert was_whole
    assert number > 5


@pytest.mark.parametrize("partitioned", [False, True])
def test_readers_of_a_model_that_is_replaced_see_the_old_or_the_new(partitioned, tmp_path):
    place = tmp_path / "model"
    models = [numbered(letter) for letter in "ab"]
    models[0].save(place, partitioned=partitioned)

    def save_often() -> None:
        for number in range(12):
            models[number % 2].save(place, partitioned=partitioned)

    child, seen = start_child(save_often), set()
    while (done := os.waitpid(child, os.WNOHANG)) == (0, 0):
        seen.add(letter_of(load(place, verify=True)))
    assert done[1] == 0
    assert seen == {"a", "b"}


@pytest.mark.slow
def test_a_full_disk_leaves_the_old_model_intact(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)],
        capture_output=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk is not allowed here")
    try:
        numbered("a", 10_000).save(disk / "model")
        with pytest.raises(InputError, match="cannot write .*No space left.*make room"):
            numbered("b", 500_000).save(disk / "model")
        assert letter_of(load(disk / "model", verify=True)) == "a"
        assert names(disk) == ["model.safetensors"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_the_file_of_somebody_else_is_never_replaced(model, tmp_path):
    foreign = tmp_path / "weights.safetensors"
    tensors.write_file(foreign, {"format": "theirs"}, {"layer": np.zeros(3)})
    (tmp_path / "folder.safetensors").mkdir()
    for name, complaint in (("weights", "not a model of unexposed"), ("folder", "is a folder")):
        with pytest.raises(InputError, match=f"{complaint}; choose another place"):
            model.save(tmp_path / name)
    assert tensors.read_file(foreign).document["format"] == "theirs"


def test_a_place_that_may_not_be_written_to_is_refused(model):
    open_to_all = Path(tempfile.mkdtemp())
    try:
        open_to_all.chmod(0o555)

        def work() -> None:
            if os.geteuid() == 0:  # who may write anywhere
                os.setuid(65534)
            for place in (open_to_all / "model", open_to_all / "deep" / "model"):
                with pytest.raises(InputError, match=f"{open_to_all} may not be written to"):
                    model.save(place)

        assert in_child(work) == 0
        assert names(open_to_all) == []
    finally:
        shutil.rmtree(open_to_all)


# Checked once, when it is opened


def test_a_folder_of_version_0_2_is_refused_in_a_sentence(tmp_path):
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "model.json").write_text("{}")
    with pytest.raises(InputError, match=r"shop is a model folder of unexposed 0\.2.*train it"):
        load(tmp_path / "shop")
    with pytest.raises(InputError, match=r"there is no model .*nothing\.safetensors"):
        load(tmp_path / "nothing")


def rewrite(path: Path, *, document: dict[str, Any] | None = None, **arrays: Any) -> None:
    """Change parts of a saved model, as somebody who knows the format; None removes an array."""
    stored = tensors.read_file(path)
    held = {name: array.copy() for name, array in stored.arrays.items()}
    for name, array in arrays.items():
        held[name.replace("__", ".")] = array
    kept = {name: array for name, array in held.items() if array is not None}
    tensors.write_file(path, stored.document | (document or {}), kept)


def flip(path: Path, place: int) -> None:
    whole = path.read_bytes()
    place %= len(whole)
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 64]) + whole[place + 1 :])


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda path: path.write_bytes(b""), "cannot mmap an empty file"),
    "cut": (lambda path: os.truncate(path, path.stat().st_size - 9), "buffer is too small"),
    "text": (lambda path: path.write_text("users,items\n1,2\n"), "damaged"),
    "a bit": (lambda path: flip(path, -3), "is not what was written"),
    "another kind": (
        lambda path: rewrite(path, document={"format": "unexposed checkpoint"}),
        "it is an unexposed checkpoint",
    ),
    "newer": (lambda path: rewrite(path, document={"version": 99}), "upgrade: pip install"),
    "unknown method": (lambda path: rewrite(path, document={"method": "magic"}), "no method 'magi"),
    "no clicks": (lambda path: rewrite(path, clicks__items=None), "other columns"),
    "fewer clicks": (
        lambda path: rewrite(path, clicks__items=np.zeros(2, np.int32)),
        "its columns of clicks differ in length",
    ),
    "clicks that end early": (
        lambda path: rewrite(path, clicks__user_start=np.array([0, 1, 2, 2])),
        "begin and end with its users",
    ),
    "fewer users": (
        lambda path: rewrite(path, parameters__user_factors=np.zeros((2, 4), np.float32)),
        "user_factors has 2 rows for 3",
    ),
    "vectors of two lengths": (
        lambda path: rewrite(path, parameters__item_factors=np.zeros((3, 7), np.float32)),
        "damaged",
    ),
    "no parameters": (lambda path: rewrite(path, parameters__item_factors=None), "there is no"),
    "ids of another type": (
        lambda path: rewrite(path, ids__items__integers=np.zeros(3, np.float32)),
        "there are no ids in integers",
    ),
    "not a number": (
        lambda path: rewrite(path, parameters__item_factors=np.full((3, 4), np.nan, np.float32)),
        "item_factors holds values that are not finite",
    ),
    "clicks out of order": (
        lambda path: rewrite(path, clicks__items=np.array([9, 0, 1], np.int32)),
        "clicks",
    ),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_foreign_or_newer_file_is_refused_with_one_sentence(how, tmp_path):
    one = model_of(Ids.of(["a", "b", "c"]), Ids.of([5, 7, 9]), "mf", dim=4, epochs=1)
    one.save(tmp_path / "model")
    damage, complaint = DAMAGE[how]
    damage(tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=complaint) as refused:
        load(tmp_path / "model", verify=True)
    assert "\n" not in str(refused.value)
    start = f"{tmp_path / 'model.safetensors'} is damaged, or not a model of this version ("
    assert str(refused.value).startswith(start)


@settings(
    max_examples=int(os.environ.get("UNEXPOSED_FUZZ", "60")),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(place=st.integers(0, 10**6), cut=st.booleans())
def test_any_flipped_bit_and_any_cut_is_found(place, cut, model, tmp_path):
    path = tmp_path / "model.safetensors"
    path.unlink(missing_ok=True)
    model.save(path)
    flip(path, place) if not cut else os.truncate(path, place % path.stat().st_size)
    with contextlib.suppress(InputError):  # else a bit that means nothing
        again = load(path, verify=True)
        assert again.facts == model.facts
        assert again.user_ids == model.user_ids
        assert again.method == model.method


@pytest.mark.parametrize(
    "arrays",
    [
        {"clicks__user_start": np.array([0, 3, 0, 3])},  # each user is said to have all clicks
        {"clicks__items": np.array([0, 2**30, 2], np.int32)},
        {"ids__items__order": np.array([0, 9, -9], np.int32)},
    ],
)
def test_false_places_are_refused_before_they_are_used(arrays, model, tmp_path):
    model.save(tmp_path / "model")
    rewrite(tmp_path / "model.safetensors", **arrays)
    with pytest.raises(InputError, match="damaged|must begin|outside"):
        load(tmp_path / "model").recommend(["c", "b"], 1, rules=Rules(deny=[7]))


def test_clicks_that_point_outside_never_reach_a_compiled_loop(model, tmp_path):
    model.save(tmp_path / "model")
    rewrite(tmp_path / "model.safetensors", clicks__items=np.array([0, 1, 2**30], np.int32))
    with pytest.raises(InputError, match="item index outside"):
        make("mf").fit(load(tmp_path / "model").clicks)
