"""Workers that read a log together hold what one process reads, cut among them."""

import warnings
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pytest
import torch.distributed as dist

from reading import quiet
from training_workers import on_workers
from unexposed import workers
from unexposed.data import share
from unexposed.data.clicks import Clicks
from unexposed.data.log import read_log
from unexposed.data.share import cut
from unexposed.errors import InputError

pytestmark = pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo")

SOUND = "user,item\n" + "".join(f"{u},{u % 5}\n" for u in range(40))
NAMES = ("zoë", "ann", "ü", "käthe", "漢字", "b", "𝔘x")


def write(folder: Path) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Logs by name: the source and the options of each."""
    rng, n = np.random.default_rng(0), 400
    users, items = rng.integers(-50, 60, n), rng.integers(0, 20, n)
    numbers = pl.DataFrame(
        {
            "user": users * 10**12,
            "item": items,
            "timestamp": 17 * 10**11 + rng.integers(0, 10**9, n),
        }
    )
    _parts(folder / "integers", numbers, 3, "parquet")
    texts = pl.DataFrame(
        {
            "user": [f"{NAMES[user % len(NAMES)]}{user}" for user in users],
            "item": [f"sku{item}" for item in items],
            "rating": rng.integers(1, 6, n),
        }
    )
    _parts(folder / "texts", texts, 3)
    shown = pl.DataFrame(
        {
            "user": users,
            "item": items,
            "clicked": (rng.random(n) < 0.3).astype(int),
            "propensity": rng.uniform(0.05, 1, n),
            "day": rng.integers(20240101, 20240128, n),
        }
    )
    _parts(folder / "shown", shown, 4)
    events = pl.DataFrame(
        {
            "user": users,
            "item": items,
            "event": rng.choice(["view", "buy", "search"], n),
            "count": rng.integers(0, 3, n),
        }
    )
    _parts(folder / "events", events, 2)
    spelled = folder / "numbers become texts"
    spelled.mkdir()
    (spelled / "1.csv").write_text(SOUND)
    (spelled / "2.csv").write_text("user,item\n7,1\n12,2\n100,1\n")
    (spelled / "3.csv").write_text("user,item\n7,1\nx9,2\n100,b\n")
    (spelled / "4.csv").write_text("user,item\n")
    few = pl.DataFrame({"user": [3, 3, 9, 9], "item": [1, 2, 1, 1]})
    _parts(folder / "few users", few, 2)
    some = [folder / "texts" / "2.csv", str(folder / "texts" / "0.csv")]
    return {
        "integers": (folder / "integers", {}),
        "texts": (folder / "texts", {"threshold": 4}),
        "shown": (folder / "shown", {"time": "day"}),
        "events": (folder / "events", {"click": "buy", "shown": "view"}),
        "numbers become texts": (spelled, {}),
        "few users": (folder / "few users", {}),
        "a list of files": (some, {"threshold": 3}),
        "one file": (folder / "texts" / "1.csv", {"threshold": 3}),
    }


def write_bad(folder: Path) -> dict[str, Path]:
    """Logs that cannot be read: the first file is sound, and larger."""
    lines = {"missing id": "7,1\n,2\n", "no column": None}
    for name, rows in lines.items():
        (folder / name).mkdir()
        (folder / name / "1.csv").write_text(SOUND)
        text = "user\n7\n" if rows is None else f"user,item\n{rows}"
        (folder / name / "2.csv").write_text(text)
    objects, unlike = folder / "objects", folder / "unlike"
    for log, second in ((objects, 1.5), (unlike, '"ann"')):
        log.mkdir()
        row = '{"user": %s, "item": 3}\n'
        (log / "1.jsonl").write_text("".join(row % user for user in range(99)))
        (log / "2.jsonl").write_text(row % second)
    return {name: folder / name for name in (*lines, "objects", "unlike", "not there")}


def _parts(folder: Path, frame: pl.DataFrame, n: int, kind: str = "csv") -> None:
    folder.mkdir()
    cuts = np.linspace(0, len(frame), n + 1).astype(int).tolist()
    for number, (start, stop) in enumerate(pairwise(cuts)):
        part = frame[start:stop]
        (part.write_csv if kind == "csv" else part.write_parquet)(folder / f"{number}.{kind}")


def divided(logs: dict[str, tuple[Any, dict[str, Any]]], rank: int) -> dict[str, list[Clicks]]:
    """This worker's part of each log, of its held-out clicks, of the rest, and of both together."""
    del rank
    found = {}
    with mock.patch.object(share, "BLOCK", 16), workers.together() as group:
        for name, (source, options) in logs.items():
            clicks = read_log(source, say=quiet, **options)
            train, held_out = clicks.hold_out(fraction=0.3, seed=2, workers=group)
            found[name] = [clicks, train, held_out, train.union(held_out, group)]
    return found


def refused(logs: dict[str, Path], rank: int) -> dict[str, str]:
    """What this worker says of logs that cannot be read, and of clicks outside their group."""
    del rank

    def sentence(work: Callable[[], Any]) -> str:
        try:
            work()
        except InputError as error:
            return str(error)
        return "no error"

    return {name: sentence(partial(read_log, source)) for name, source in logs.items()}


def warned(logs: dict[str, tuple[Any, dict[str, Any]]], rank: int) -> list[str]:
    """The warnings of this worker about a threshold that nobody gave."""
    del rank
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_log(logs["texts"][0], rating="rating")
    return [str(warning.message) for warning in caught]


@pytest.fixture(scope="module")
def logs(tmp_path_factory) -> dict[str, Any]:
    return write(tmp_path_factory.mktemp("logs"))


@pytest.fixture(scope="module")
def alone(logs) -> dict[str, list[Clicks]]:
    found = {}
    for name, (source, options) in logs.items():
        clicks = read_log(source, say=quiet, **options)
        train, held_out = clicks.hold_out(fraction=0.3, seed=2)
        found[name] = [clicks, train, held_out, train.union(held_out)]
    return found


@pytest.fixture(scope="module")
def two(logs, tmp_path_factory) -> list[list[Any]]:
    bad = write_bad(tmp_path_factory.mktemp("bad"))
    works = partial(divided, logs), partial(refused, bad), partial(warned, logs)
    return on_workers(2, tmp_path_factory.mktemp("two"), *works)


def assert_alike(one: Any, other: Any, at: str) -> None:
    """Equal to the bit, in every field."""
    assert type(one) is type(other), at
    if is_dataclass(one):
        for field in fields(one):
            assert_alike(getattr(one, field.name), getattr(other, field.name), f"{at}.{field.name}")
    elif isinstance(one, np.ndarray):
        assert (one.dtype, one.tolist()) == (other.dtype, other.tolist()), at
    else:
        assert one == other, at


def assert_cut(found: list[dict[str, list[Clicks]]], alone: dict[str, list[Clicks]]) -> None:
    for number, parts in enumerate(found):
        worker: Any = SimpleNamespace(number=number, size=len(found))
        for name, wholes in alone.items():
            for own, whole in zip(parts[name], wholes, strict=True):
                assert_alike(own, cut(whole, worker), f"{name}, worker {number}")


def test_two_workers_hold_what_one_process_reads(two, alone):
    assert_cut([rank[0] for rank in two], alone)


@pytest.mark.slow
def test_four_workers_hold_what_one_process_reads(logs, alone, tmp_path):
    """More workers than some logs have files, and than one has users."""
    found = [rank[0] for rank in on_workers(4, tmp_path, partial(divided, logs))]
    assert_cut(found, alone)
    few = [of_rank["few users"][0] for of_rank in found]
    assert sorted(clicks.n_users for clicks in few) == [0, 0, 1, 1]


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
def test_a_file_that_cannot_be_read_ends_all_workers_with_its_name(two, name, says):
    for _, found, _ in two:
        assert says in found[name]


def test_the_first_worker_alone_warns(two):
    assert ["threshold 4 is assumed" in said for said in two[0][2]] == [True]
    assert two[1][2] == []


def test_divided_clicks_are_not_chosen_by_one_process(two):
    clicks = two[0][0]["integers"][0]
    with pytest.raises(InputError, match="do it on every worker"):
        clicks.pick(slice(2))
