"""A model folder is written whole or not at all, and checked before it is used."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ctrl_c import interrupted
from forging import forge
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids, Texts
from unexposed.data.labelled import Judgements
from unexposed.errors import InputError
from unexposed.evaluation.protocols import PROTOCOLS, evaluate
from unexposed.files import archive, arrays, whole
from unexposed.methods import load, make
from unexposed.model.filters import Rules
from unexposed.model.model import Model
from unexposed.progress import Silent

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


def model_of(users: Ids, items: Ids, name: str = "popularity", **settings: object) -> Model:
    n = min(len(users), len(items))
    clicks = Clicks.from_pairs(np.arange(n), np.arange(n), user_ids=users, item_ids=items)
    return make(name, **settings).fit(clicks, progress=Silent())


def numbered(letter: str, n: int = 50_000) -> Model:
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
    for file in ("model.json", "arrays.safetensors"):
        assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "model" / file).read_bytes()


def test_ids_that_json_cannot_hold_are_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(InputError, match="ids of type frozenset cannot be saved"):
        model_of(Ids.of([frozenset({1}), "b"]), Ids.of([1, 2])).save(tmp_path / "model")
    assert names(tmp_path) == []


def test_the_folder_holds_no_pickle_and_says_what_it_is(model, tmp_path):
    model.save(tmp_path / "model")
    assert names(tmp_path / "model") == ["arrays.safetensors", "model.json"]
    about = json.loads((tmp_path / "model" / "model.json").read_text())
    assert about["method"] == "popularity"
    assert about["version"] == 3


def test_loading_reads_neither_ids_nor_clicks_nor_parameters(tmp_path, monkeypatch):
    numbered("a").save(tmp_path / "model")
    monkeypatch.setattr(Texts, "__getitem__", lambda *_: pytest.fail("ids were decoded"))
    monkeypatch.setattr(Clicks, "__post_init__", lambda *_: pytest.fail("clicks were read"))
    again = load(tmp_path / "model")
    arrays = [*again.parameters.values(), again.clicks.items, again.clicks.user_start]
    for array in [*arrays, again.user_ids.values.run, again.item_ids.values]:
        assert not array.flags.owndata
        assert not array.flags.writeable
    assert again.user_ids.index(["a17", "b17"]).tolist() == [17, -1]


# Whole or not at all


def moved_away(*_: object) -> None:
    pytest.fail("the old model was moved away first")


def unable_to_swap(*_: object) -> None:
    raise OSError(22, "Invalid argument")


@pytest.mark.parametrize(
    ("target", "name", "instead"),
    [
        pytest.param(os, "rename", moved_away, id="in one step, never without a model"),
        pytest.param(whole, "_exchange", unable_to_swap, id="where the system cannot swap"),
    ],
)
def test_saving_over_a_model_replaces_it_and_leaves_nothing_else(
    target, name, instead, tmp_path, monkeypatch
):
    numbered("a", 3).save(tmp_path / "model")
    monkeypatch.setattr(target, name, instead)
    numbered("b", 3).save(tmp_path / "model")
    assert letter_of(load(tmp_path / "model", verify=True)) == "b"
    assert names(tmp_path) == ["model"]


def test_saving_through_a_link_writes_where_it_leads(model, tmp_path):
    model.save(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    numbered("b", 3).save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert letter_of(load(tmp_path / "real")) == "b"


def test_files_that_are_not_a_models_are_never_lost(model, tmp_path):
    model.save(tmp_path)
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="it holds 'thesis.tex'; choose another place"):
        model.save(tmp_path)
    with pytest.raises(InputError, match="is a file, not a model folder"):
        model.save(tmp_path / "thesis.tex")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "model.json").write_text('{"layers": 3}')
    with pytest.raises(InputError, match="not from unexposed; choose another place"):
        model.save(foreign)
    assert names(foreign) == ["model.json"]


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


def in_child(work: Callable[[], object]) -> int:
    """Wait for the work of another process; its exit status as os.waitpid gives it."""
    return os.waitpid(start_child(work), 0)[1]


def half_written(_: object, path: Path, **__: object) -> None:
    path.write_bytes(b"half")
    os.kill(os.getpid(), signal.SIGKILL)


def killed(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("target", "name", "deadly", "expected"),
    [
        pytest.param(arrays, "save_file", half_written, "a", id="in the arrays"),
        pytest.param(archive, "checksum", killed, "a", id="before model.json"),
        pytest.param(whole, "_exchange", killed, "a", id="before the swap"),
        pytest.param(whole, "_sync_names", killed, "b", id="after the swap"),
        pytest.param(shutil, "rmtree", killed, "b", id="in the removal of the old model"),
    ],
)
def test_a_kill_during_saving_leaves_the_old_model_or_the_new(
    target, name, deadly, expected, tmp_path, monkeypatch
):
    place = tmp_path / "model"
    numbered("a").save(place)
    new = numbered("b")

    def work() -> None:
        monkeypatch.setattr(target, name, deadly)
        new.save(place)

    assert in_child(work) == signal.SIGKILL
    assert letter_of(load(place, verify=True)) == expected
    numbered("c").save(place)  # which also removes what the killed process left
    assert letter_of(load(place, verify=True)) == "c"
    assert names(tmp_path) == ["model"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # left open
def test_ctrl_c_after_any_call_leaves_the_old_folder_or_the_new_and_nothing_else(tmp_path):
    place = tmp_path / "here"

    def fill(text: str) -> Callable[[Path], None]:
        return lambda folder: folder.joinpath("text").write_bytes(text.encode()) and None

    for number in range(1_000):
        whole.write_folder(place, fill("old"))
        was_whole = interrupted(
            lambda: whole.write_folder(place, fill("new")),
            after=number,
            files=("whole.py", "pathlib.py"),
        )
        assert os.listdir(tmp_path) == ["here"], number
        assert (place / "text").read_text() in (("new",) if was_whole else ("old", "new"))
        if was_whole:
            break
    assert was_whole
    assert number > 20


def test_what_a_living_process_is_writing_is_not_swept_away(model, tmp_path):
    def slowly(place: Path) -> None:
        (place / "part").write_text("x")
        assert in_child(lambda: model.save(tmp_path / "other")) == 0
        assert (place / "part").exists()

    whole.write_folder(tmp_path / "mine", slowly)
    assert names(tmp_path) == ["mine", "other"]


def test_a_workspace_can_hold_another(tmp_path):
    def work() -> None:
        signal.alarm(20)  # two that wait for each other would do so for ever
        with whole.workspace(tmp_path) as outer, whole.workspace(outer) as inner:
            (inner / "part").touch()
            with whole.workspace(tmp_path):
                assert (inner / "part").exists()
        assert names(tmp_path) == []

    assert in_child(work) == 0


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
        with pytest.raises(InputError, match="cannot write a model to .*No space left.*make room"):
            numbered("b", 500_000).save(disk / "model")
        assert letter_of(load(disk / "model", verify=True)) == "a"
        assert names(disk) == ["model"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


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


def test_of_two_that_save_at_once_one_wins_and_readers_never_see_a_mixture(tmp_path):
    place = tmp_path / "model"
    models = {letter: numbered(letter, 2_000) for letter in "ab"}
    models["a"].save(place)

    def save_often(letter: str) -> None:
        for _ in range(60):
            models[letter].save(place)

    running = {start_child(lambda letter=letter: save_often(letter)) for letter in "ab"}
    while running:
        assert letter_of(load(place, verify=True)) in "ab"
        for child in list(running):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                assert status == 0
                running.remove(child)
    assert names(tmp_path) == ["model"]


# Checked before it is used


INT32 = np.int32
TRAINED = {
    "seed": 0,
    "epochs_run": 10**12,
    "best_epoch": 10**12,
    "best_value": None,
    "ended": "all epochs done",
    "losses": [0.7, 0.6],
    "held_out": [],
    "seconds": 0.1,
}


def edited(old: str, new: str) -> Callable[[Path], object]:
    def edit(place: Path) -> None:
        about = place / "model.json"
        assert old in about.read_text()
        about.write_text(about.read_text().replace(old, new))

    return edit


def forged(**changed: object) -> Callable[[Path], object]:
    return lambda place: forge(place, **changed)


def document(text: str) -> Callable[[Path], object]:
    return lambda place: (place / "model.json").write_text(text)


def instead(name: str, make: Callable[[Path], object]) -> Callable[[Path], object]:
    def replace(place: Path) -> None:
        (place / name).unlink()
        make(place / name)

    return replace


ARRAYS, ABOUT = "arrays.safetensors", "model.json"
DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no json": (lambda place: (place / ABOUT).unlink(), "lacks model.json"),
    "endless json": (document("[" * 200_000), "model.json is damaged"),
    "json that is a list": (document("[1]"), "model.json is damaged"),
    "huge json, sparse": (
        lambda place: os.truncate(place / ABOUT, 1 << 40),
        "model.json is damaged .*too long",
    ),
    "foreign json": (document('{"format": "x", "version": 1}'), "model.json is not from unexposed"),
    "newer": (
        edited('"version": 3', '"version": 99'),
        "newer unexposed .*upgrade: pip install .* in the checkout",
    ),
    "older": (edited('"version": 3', '"version": 2'), "older unexposed .*train it again"),
    "an endless version": (
        edited('"version": 3', '"version": Infinity'),
        "model.json is damaged .*version cannot be inf",
    ),
    "edited": (edited('"seed": 0', '"seed": 1'), "model.json is damaged .*checksum"),
    "unknown method": (forged(method="magic"), "model.json is damaged .*no method 'magic'"),
    "a training without end": (
        forged(facts=TRAINED),
        "model.json is damaged .*cannot be 1000000000000",
    ),
    "no arrays": (lambda place: (place / ARRAYS).unlink(), "lacks arrays.safetensors"),
    "arrays of another model": (
        lambda place: archive.write_arrays(place / ARRAYS, {"clicks.users": np.zeros(3, INT32)}),
        "arrays.safetensors is damaged .*not the one",
    ),
    "arrays that are a link": (
        instead(ARRAYS, lambda path: path.symlink_to("/etc/passwd")),
        "cannot open .*arrays.safetensors",
    ),
    "arrays that are a pipe": (
        instead(ARRAYS, os.mkfifo),
        "arrays.safetensors is not a regular file",
    ),
    "json that is a folder": (instead(ABOUT, Path.mkdir), "model.json is not a regular file"),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_foreign_or_newer_folder_is_refused_with_one_sentence(model, tmp_path, how):
    model.save(tmp_path / "model")
    damage, complaint = DAMAGE[how]
    damage(tmp_path / "model")
    with pytest.raises(InputError, match=complaint) as refused:
        load(tmp_path / "model")
    assert "\n" not in str(refused.value)
    assert str(tmp_path / "model") in str(refused.value)


def test_a_path_that_is_not_a_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    for place in ("file", "nothing"):
        with pytest.raises(InputError, match=f"{place} is not a model folder"):
            load(tmp_path / place)


FORGED = {
    "no clicks": {"clicks.items": None},
    "clicks of another type": {"clicks.items": np.zeros(3, np.float32)},
    "fewer clicks": {"clicks.items": np.zeros(2, INT32)},
    "clicks that end early": {"clicks.user_start": np.array([0, 1, 2, 2])},
    "fewer users": {"parameters.user_factors": np.zeros((2, 50), np.float32)},
    "vectors of two lengths": {"parameters.item_factors": np.zeros((3, 7), np.float32)},
    "no parameters": {"parameters.item_factors": None},
    "ids of two types": {"ids.items.run": np.zeros(3, np.uint8)},
    "fewer ids": {"ids.items.integers": np.arange(2)},
    "order of others": {"ids.items.order": np.arange(9, dtype=INT32)},
}


@pytest.fixture(scope="module")
def factor_model() -> Model:
    return model_of(Ids.of(["a", "b", "c"]), Ids.of([5, 7, 9]), "mf", epochs=1, engine="reference")


@pytest.mark.parametrize("how", FORGED)
def test_parts_that_do_not_fit_each_other_are_refused_without_reading_them(
    factor_model, how, tmp_path
):
    factor_model.save(tmp_path / "model")
    forge(tmp_path / "model", FORGED[how])
    with pytest.raises(InputError, match="arrays.safetensors is damaged"):
        load(tmp_path / "model")


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"clicks.items": np.array([0, 1, 99], INT32)}, "item index outside"),
        ({"clicks.users": np.array([0, 2, 1], INT32)}, "ordered"),
        ({"clicks.user_start": np.array([0, 3, 1, 3])}, "begin"),
        ({"ids.items.integers": np.array([5, 5, 7])}, "twice"),
        ({"ids.users.run": np.frombuffer(b"acb", np.uint8)}, "order"),
        ({"parameters.item_counts": np.array([1, np.nan, 2], np.float32)}, "finite"),
    ],
)
def test_verifying_finds_values_forged_with_valid_checksums(model, arrays, complaint, tmp_path):
    model.save(tmp_path / "model")
    forge(tmp_path / "model", arrays)
    load(tmp_path / "model")
    with pytest.raises(InputError, match=f"arrays.safetensors is damaged .*{complaint}"):
        load(tmp_path / "model", verify=True)


def test_verifying_finds_every_single_changed_byte(tmp_path):
    numbered("a", 40).save(tmp_path / "model")
    rng = np.random.default_rng(0)
    for file in ("arrays.safetensors", "model.json"):
        path = tmp_path / "model" / file
        whole = path.read_bytes()
        for at in rng.integers(len(whole), size=60).tolist():
            changed = bytearray(whole)
            changed[at] ^= 1 << int(rng.integers(8))
            path.write_bytes(changed)
            if file == "model.json" and chr(whole[at]).isspace() and chr(changed[at]).isspace():
                continue
            with pytest.raises(InputError, match=file):
                load(tmp_path / "model", verify=True)
        path.write_bytes(whole)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of damaged numbers
@pytest.mark.parametrize("way", ["save", "fold_in", "update"])
def test_a_damaged_array_gets_no_new_checksum(way, small_world, tmp_path):
    clicks = small_world.clicks(0)
    make("wmf", epochs=1, dim=3).fit(clicks, progress=Silent()).save(tmp_path / "model")
    path = tmp_path / "model" / ARRAYS
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    header = 8 + int.from_bytes(whole[:8], "little")
    for at in rng.integers(header, len(whole), size=12).tolist():
        changed = bytearray(whole)
        changed[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
        model = load(tmp_path / "model")
        with pytest.raises(InputError):
            (model if way == "save" else getattr(model, way)(clicks)).save(tmp_path / "other")
        assert names(tmp_path) == ["model"]


LISTS = np.frombuffer(b'[["a"],["b"],["c"]]', np.uint8)


@pytest.mark.parametrize(
    "arrays",
    [
        {"clicks.user_start": np.array([0, 3, 0, 3])},  # each user is said to have all clicks
        {"clicks.user_start": np.array([0, -(2**60), 2**60, 3])},
        {"clicks.items": np.array([0, 2**30, 2], INT32)},
        {"ids.items.order": np.array([0, 9, -9], INT32)},
        {"ids.users.run": None, "ids.users.ends": None, "ids.users.json": LISTS},
    ],
)
def test_false_places_and_ids_are_refused_before_they_are_used(model, arrays, tmp_path):
    model.save(tmp_path / "model")
    forge(tmp_path / "model", arrays)
    with pytest.raises(InputError, match="damaged|must begin|outside"):
        load(tmp_path / "model").recommend(["c", "b"], 1, rules=Rules(deny=[7]))


def test_clicks_that_point_outside_never_reach_a_compiled_loop(tmp_path):
    numbered("a", 4).save(tmp_path / "model")
    forge(tmp_path / "model", {"clicks.items": np.array([0, 2**30], INT32)})
    model = load(tmp_path / "model")
    judged = Judgements.from_pairs(
        [2], [1], [True], user_ids=model.user_ids, item_ids=model.item_ids
    )
    catalogue = next(p for p in PROTOCOLS.values() if p.candidates == "catalogue")
    with pytest.raises(InputError, match="item index outside"):
        evaluate(model, judged, catalogue)
    with pytest.raises(InputError, match="item index outside"):
        make("mf").fit(model.clicks)
