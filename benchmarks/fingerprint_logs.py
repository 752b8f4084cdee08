"""Read odd logs of every kind, and compare what came of each with an earlier run of this program.

    python benchmarks/fingerprint_logs.py --write before.json
    python benchmarks/fingerprint_logs.py --against before.json

A log gives a digest of its clicks, impressions and ids, or the sentence that refuses it. Other
clicks, or clicks instead of a refusal, are an error; another sentence is only printed.
"""

import argparse
import gzip
import hashlib
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import scipy.sparse as sp

from attack_logs import write_log
from unexposed import Clicks, read_judged, read_log, read_pairs
from unexposed.errors import InputError

N = 240
RNG = np.random.default_rng(5)
LOG = pl.DataFrame(
    {
        "user_id": RNG.integers(-3, 30, N),
        "item_id": [f"é{n}" for n in RNG.integers(0, 40, N)],
        "clicked": RNG.integers(0, 2, N),
        "plays": RNG.integers(1, 9, N),
        "ts": RNG.integers(1_700_000_000, 1_700_900_000, N),
        "pscore": RNG.integers(1, 64, N) / 64,
        "note": ["a,b"] * N,
    }
)
SHOP = {"user": ["ada", "ada", "bob", "bob"], "item": ["x", "y", "x", "x"]}
EVENTS = SHOP | {"event": ["view", "purchase", "impression", "view"]}
CSV = "user,item\nbob,y\nada,x\nada,y\nada,x\n"
TEXTS = {
    "blank lines": "\n\r\n" + CSV.replace("\n", "\n\n") + "\r\n\n",
    "byte order mark": "\ufeff" + CSV,
    "carriage returns": CSV.replace("\n", "\r\n"),
    "short rows": "user,item,note,time\na,x,n,1\nb,y\n",
    "columns without a name": "user,item,,\na,x,,\nb,y,,\n",
    "quoted line ends": 'user,item\n"a\n\nb",x\n"c, d",y\n',
    "leading zeros": "user,item\n007,1\n7,2\n",
    "beyond 64 bits": "user,item\n9223372036854775808,1\n1,2\n",
    "headless": "1,5\n2,7\n",
    "semicolons": CSV.replace(",", ";"),
    "missing id": "user,item\na,x\n,y\n",
    "empty row": "user,item,n\na,x,1\n,,\nb,y,2\n",
    "long row": "user,item\na,x\nb,y,z\n",
    "stray quote": 'user,item\na,x\nb,5" disk\n',
    "lone return": "user,item\na\rb,x\nb,y\n",
    "null byte": "user,item\na,x\nb,\0\n",
    "twice": "user,user,item\n1,2,3\n",
    "one item": "user,item\na,x\nb,x\n",
    "no rows": "user,item\n",
    "ratings": "customer,sku,stars\nada,x,5\nbob,y,4\nbob,x,3.9\ncy,z,0\n",
    "bad rating": "user,item,rating\na,x,5\nb,y,4.5.6\n",
    "bad label": "user,item,label\na,x,1\nb,y,2\n",
    "dates": "user,item,date\na,x,2024-01-31\na,x,2024/02/01 10:00\nb,y,2023-05-05T10:00+02:00\n",
    "no dates": "user,item,time\na,x,noon\nb,y,2024-01-01\n",
    "days": "user,item,day\na,x,20240131\nb,y,20240201\n",
}
FRAMES: dict[str, tuple[Any, dict[str, Any]]] = {
    "mapping": (LOG.to_dict(as_series=False), {}),
    "lazy": (LOG.lazy(), {}),
    "arrow": (LOG.to_arrow(), {}),
    "pandas": (LOG.to_pandas(), {}),
    "events": (EVENTS, {"click": "purchase", "shown": "view,impression"}),
    "events unnamed": (EVENTS, {}),
    "events dropped": (EVENTS, {"click": "purchase", "any_size": True}),
    "one event": (SHOP | {"event": ["buy"] * 4}, {}),
    "no such event": (EVENTS, {"click": "bought"}),
    "searches": (
        {"user": ["a", "b", "c"], "item": ["x", "y", None], "event": ["buy", "buy", "search"]},
        {"click": "buy"},
    ),
    "counts": (SHOP | {"plays": [3, 0, 2, 5]}, {}),
    "bad count": (SHOP | {"plays": [3, 1.5, 2, 5]}, {}),
    "large counts": (SHOP | {"n": [1, 1, 2**31 - 1, 2]}, {}),
    "chances": (SHOP | {"clicked": [1, 0, 0, 1], "propensity": [0.5, 0.25, 0.2, 0.4]}, {}),
    "bad chance": (SHOP | {"propensity": [0.5, 1.01, 0.5, 0.5]}, {}),
    "below": (SHOP | {"rating": [5, 3, 4, 1]}, {"threshold": 4, "shown": "below"}),
    "labels and ratings": (SHOP | {"rating": [5, 1, 1, 1], "clicked": [0, 1, 0, 0]}, {}),
    "times": (SHOP | {"timestamp": [1_700_000_000, 5, 1_700_000_009, 1_700_000_003]}, {}),
    "datetimes": (SHOP | {"time": [datetime(2024, 1, day) for day in (1, 2, 3, 4)]}, {}),
    "tuples": ({"user": [(2, "a"), (3, "a"), (1, "b")], "item": [1, 2, 3]}, {}),
    "mixed": ({"user": [("b",), 7, "a"], "item": [1, 2, 3]}, {}),
    "unsigned": ({"user": pl.Series([2**64 - 1, 1], dtype=pl.UInt64), "item": [1, 2]}, {}),
    "day ids": ({"user": [date(2024, 1, 1), date(2024, 2, 1)], "item": [1.5, 2.5]}, {}),
    "lists": ({"user": [1, 2], "item": [3, [4]]}, {}),
    "unaligned": ({"user": [1, 2], "item": [1]}, {}),
    "nothing": ({"user": [1.5, float("nan")], "item": [1, 2]}, {}),
    "matrix": (sp.coo_array(([2, 1, 0, 1], ([0, 0, 1, 2], [1, 1, 0, 0])), shape=(3, 3)), {}),
    "rated matrix": (sp.csr_array([[0, 2.5], [4, 0]]), {"threshold": 3}),
    "bad matrix": (sp.csr_array([[0, 2.5], [1, 0]]), {}),
    "bad settings": (SHOP, {"item": "itme"}),
    "no table": ([1, 2], {}),
}


def files(folder: Path) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """The name, the source and the options of logs in files."""
    for name, text in TEXTS.items():
        (folder / f"{name}.csv").write_bytes(text.encode())
        options = {"time": "day"} if name == "days" else {}
        yield name, f"{name}.csv", options
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
        yield f"{name}, packed", f"{name}.csv.gz", options
    lines = "".join(json.dumps(row) + "\n" for row in LOG.to_dicts())
    odd = (
        '{"user": 7, "item": "a"}\n\n{"user": "7", "item": "b"}\n{"user": 1e3, "item": "\\ud800"}\n'
    )
    for name, text in {"lines": lines, "odd lines": odd, "bad lines": odd + "{\n"}.items():
        (folder / f"{name}.jsonl").write_text(text)
        yield name, f"{name}.jsonl", {}
    LOG.write_parquet(folder / "log.parquet")
    yield "Parquet", "log.parquet", {}
    (folder / "damaged.parquet").write_bytes((folder / "log.parquet").read_bytes()[:-30])
    yield "damaged Parquet", "damaged.parquet", {}
    for kind in ("parquet", "csv", "ndjson"):
        (folder / kind).mkdir()
        for n in range(5):
            part = LOG[n * 50 : n * 50 + 50]
            getattr(part, f"write_{kind}")(folder / kind / f"{n}.{kind}")
        yield f"{kind} in parts", kind, {}
        yield f"pattern of {kind}", f"{kind}/[0-2]*", {}
    for (user, day), part in LOG.with_columns(day=pl.lit("2024-01-31")).group_by("user_id", "day"):
        (there := folder / "hive" / f"user_id={user}" / f"day={day}").mkdir(parents=True)
        part.drop("user_id", "day").write_parquet(there / "part.parquet")
    yield "hive", "hive", {"time": "day"}
    for name, rows in {
        "spelled": ("7,1\n8,1\n", "007,2\n8,1\n"),
        "short": ("7,1\n", "7\n,2\n"),
    }.items():
        (folder / name).mkdir()
        for n, text in enumerate(rows):
            (folder / name / f"{n}.csv").write_text("user,item\n" + text)
        yield name, name, {}
    (folder / "unlike").mkdir()
    for n, ids in enumerate(([1, 2], ["1", "2"])):
        pl.DataFrame({"user": ids, "item": [1, 2]}).write_parquet(
            folder / "unlike" / f"{n}.parquet"
        )
    yield "unlike", "unlike", {}
    with sqlite3.connect(folder / "shop.db") as database:
        database.execute("CREATE TABLE log (user INTEGER, item TEXT, ts INTEGER)")
        database.executemany(
            "INSERT INTO log VALUES (?, ?, ?)", LOG["user_id", "item_id", "ts"].rows()
        )
    database.close()
    for query in ("SELECT * FROM log", "SELECT * FROM logs"):
        yield query, "sqlite:///shop.db", {"query": query}


def fingerprint(clicks: Any) -> str:
    """A digest of ids, pairs, counts, times and impressions, or of judged pairs."""
    parts = [clicks, getattr(clicks, "shown", None)]
    digest = hashlib.sha256()
    for part in (part for part in parts if part is not None):
        for name in (
            "users",
            "items",
            "counts",
            "times",
            "shown",
            "clicked",
            "propensity",
            "relevant",
        ):
            value = getattr(part, name, None)
            if isinstance(value, np.ndarray):
                digest.update(f"{name} {value.dtype}".encode() + value.tobytes())
        for ids in (part.user_ids, part.item_ids):
            digest.update(repr((str(ids.values.dtype), list(ids.values))).encode())
    return digest.hexdigest()[:16]


def outcome(read: Any, source: Any, *more: Any, **options: Any) -> str:
    try:
        clicks = read(source, *more, say=lambda _: None, **options)
    except InputError as error:
        return f"refused: {error}"
    read_as = f" {clicks.read}" if isinstance(clicks, Clicks) and read is read_log else ""
    return fingerprint(clicks) + read_as


def all_logs(folder: Path) -> dict[str, str]:
    found = {f"frame, {n}": outcome(read_log, s, **o) for n, (s, o) in FRAMES.items()}
    found |= {f"file, {n}": outcome(read_log, s, **o) for n, s, o in files(folder)}
    like = read_log(SHOP, say=lambda _: None)
    for name, more in {"clicked": [1, 0, 0, 1], "rating": [5, 3, 4, 1], "plays": [1] * 4}.items():
        found[f"judged, {name}"] = outcome(read_judged, SHOP | {name: more}, like)
    found["pairs"] = outcome(read_pairs, "ratings.csv")
    for n in range(300):
        file, _ = write_log(folder, np.random.default_rng([7, n]))
        found[f"attack {n}"] = outcome(read_log, file.name)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", type=Path)
    parser.add_argument("--against", type=Path)
    given = parser.parse_args()
    to, against = (path and path.absolute() for path in (given.write, given.against))
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        found = all_logs(Path(name))
        os.chdir("/")
    if to is not None:
        to.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    if against is not None:
        before = json.loads(against.read_text())
        faults = 0
        for log in sorted(found.keys() | before.keys()):
            now, then = found.get(log, "missing"), before.get(log, "missing")
            refused = now.startswith("refused") and then.startswith("refused")
            same = refused or now.partition(" ")[0] == then.partition(" ")[0]
            faults += not same
            if now != then:
                print(f"{'other words' if same else 'OTHERWISE'}: {log}\n  {then}\n  {now}")
        print(f"{len(found)} logs, {faults} read otherwise")
        raise SystemExit(faults > 0)


if __name__ == "__main__":
    main()
