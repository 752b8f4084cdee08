"""Small logs in several files, and what each rank does with them."""

import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl

from unexposed import ranks
from unexposed.data import over_ranks, share
from unexposed.data.clicks import Clicks
from unexposed.data.log import read_log
from unexposed.errors import InputError

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
    _parts(folder / "integers in CSV", numbers, 5)
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
    (spelled / "1.csv").write_text("user,item\n" + "".join(f"{u},{u % 5}\n" for u in range(40)))
    (spelled / "2.csv").write_text("user,item\n7,1\n12,2\n100,1\n")
    (spelled / "3.csv").write_text("user,item\n7,1\nx9,2\n100,b\n")
    (spelled / "4.csv").write_text("user,item\n")
    few = pl.DataFrame({"user": [3, 3, 9, 9], "item": [1, 2, 1, 1]})
    _parts(folder / "few users", few, 2)
    some = [folder / "texts" / "2.csv", str(folder / "texts" / "0.csv")]
    return {
        "integers": (folder / "integers", {}),
        "integers in CSV": (str(folder / "integers in CSV"), {}),
        "texts": (folder / "texts", {"threshold": 4}),
        "shown": (folder / "shown", {"time": "day"}),
        "events": (folder / "events", {"click": "buy", "shown": "view"}),
        "numbers become texts": (spelled, {}),
        "few users": (folder / "few users", {}),
        "a pattern": (str(folder / "shown" / "[0-2].csv"), {"click": "clicked"}),
        "a list of files": (some, {"threshold": 3}),
        "one file": (folder / "texts" / "1.csv", {"threshold": 3}),
    }


def write_bad(folder: Path) -> dict[str, Path]:
    """Logs that cannot be read: the first file is sound, and larger."""
    lines = {"missing id": "7,1\n,2\n", "no column": None}
    for name, rows in lines.items():
        (folder / name).mkdir()
        _sound(folder / name)
        text = "user\n7\n" if rows is None else f"user,item\n{rows}"
        (folder / name / "2.csv").write_text(text)
    objects, unlike = folder / "objects", folder / "unlike"
    for log, second in ((objects, 1.5), (unlike, '"ann"')):
        log.mkdir()
        row = '{"user": %s, "item": 3}\n'
        (log / "1.jsonl").write_text("".join(row % user for user in range(99)))
        (log / "2.jsonl").write_text(row % second)
    return {name: folder / name for name in (*lines, "objects", "unlike", "not there")}


def _sound(folder: Path) -> None:
    (folder / "1.csv").write_text("user,item\n" + "".join(f"{u},{u % 5}\n" for u in range(40)))


def _parts(folder: Path, frame: pl.DataFrame, n: int, kind: str = "csv") -> None:
    folder.mkdir()
    cuts = np.linspace(0, len(frame), n + 1).astype(int).tolist()
    for number, (start, stop) in enumerate(pairwise(cuts)):
        part = frame[start:stop]
        (part.write_csv if kind == "csv" else part.write_parquet)(folder / f"{number}.{kind}")


def quietly(source: Any, options: dict[str, Any]) -> Clicks:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return read_log(source, **options)


def divided(logs: dict[str, tuple[Any, dict[str, Any]]], rank: int) -> dict[str, list[Clicks]]:
    """This rank's part of each log, of its held-out clicks, of the rest, and of both together."""
    del rank
    found = {}
    blocks = [mock.patch.object(module, "BLOCK", 16) for module in (over_ranks, share)]
    with blocks[0], blocks[1], ranks.together():
        for name, (source, options) in logs.items():
            clicks = quietly(source, options)
            train, held_out = clicks.hold_out(fraction=0.3, seed=2)
            found[name] = [clicks, train, held_out, train.union(held_out)]
    return found


def refused(logs: dict[str, Path], rank: int) -> dict[str, str]:
    """What this rank says of logs that cannot be read, and of clicks outside their group."""
    del rank

    def sentence(work: Callable[[], Any]) -> str:
        try:
            work()
        except InputError as error:
            return str(error)
        return "no error"

    return {name: sentence(partial(read_log, source)) for name, source in logs.items()}


def warned(logs: dict[str, tuple[Any, dict[str, Any]]], rank: int) -> list[str]:
    """The warnings of this rank about a threshold that nobody gave."""
    del rank
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_log(logs["texts"][0], rating="rating")
    return [str(warning.message) for warning in caught]
