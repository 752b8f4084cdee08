"""Hostile logs: malformed fields, quotes, encodings and columns."""

import csv
import gzip
import io
import json
import os
import signal
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from attack_command import MOST_SECONDS, ended, forked
from unexposed.data.log import read_log
from unexposed.errors import InputError

LOGS_TOGETHER = 50  # a process reads so many
Pair = tuple[str, str]


def text(rng: np.random.Generator) -> str:
    alphabet = list("abü,;\t|\"'\n\r =#5\u2028字")
    middle = "".join(rng.choice(alphabet, size=rng.integers(0, 6)))
    return f"x{middle}{rng.integers(9)}"


def quoted_log(rng: np.random.Generator) -> tuple[bytes, Counter[Pair]]:
    """A log that is quoted as it should be, and the pairs in it as Python's csv reads them."""
    width = int(rng.integers(0, 4))
    header = ["user", "item", *(f"c{n}" for n in range(width))]
    rows = [[text(rng) for _ in header] for _ in range(rng.integers(4, 30))]
    stream = io.StringIO()
    ending = "\n" if rng.integers(2) else "\r\n"
    csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator=ending).writerows([header, *rows])
    read = list(csv.reader(io.StringIO(stream.getvalue(), newline=""), strict=True))
    return stream.getvalue().encode(), Counter((row[0], row[1]) for row in read[1:])


def spoil(content: bytes, rng: np.random.Generator) -> bytes:
    how = rng.integers(8)
    if how == 0:
        return content.decode().encode(str(rng.choice(["utf-16", "utf-32", "utf-8-sig", "utf-7"])))
    if how == 1:
        columns = ",".join(f"k{n}" for n in range(int(rng.choice([300, 9_999, 60_000]))))
        return b"user,item," + columns.encode() + b"\n1,2\n2,3,4\n"
    if how == 2:
        packed = gzip.compress(content)
        return packed[: rng.integers(2, len(packed) + 1)]
    spoilt = bytearray(content)
    for _ in range(rng.integers(1, 6)):
        pieces = [b'"', b'""', b"\n", b"\r", b"\0", b",", b"\xff", b"\xef\xbb\xbf", b"\x1a"]
        pieces += [rng.bytes(4), b"y" * 200_000 if how == 3 else b"\t"]
        at = int(rng.integers(len(spoilt) + 1))
        spoilt[at : at + rng.integers(0, 4)] = pieces[rng.integers(len(pieces))]
    return bytes(spoilt)


def write_log(folder: Path, rng: np.random.Generator) -> tuple[Path, Counter[Pair] | None]:
    """A log that is sound, with its pairs, or that is spoilt."""
    content, pairs = quoted_log(rng)
    if rng.integers(3) == 0:
        (file := folder / "log.csv").write_bytes(content)
        return file, pairs
    file = folder / str(rng.choice(["log.csv", "log.tsv"]))
    file.write_bytes(spoil(content, rng))
    return file, None


def attack_log(folder: Path, rng: np.random.Generator) -> str | None:
    """Read one log; where it is quoted correctly, it must read as Python's csv reads it."""
    file, pairs = write_log(folder, rng)
    try:
        clicks = read_log(file)
    except InputError as error:
        enough = pairs and min(len({pair[side] for pair in pairs}) for side in (0, 1)) >= 2
        return f"refused: {error}" if enough else None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    users, items = clicks.user_ids.values[clicks.users], clicks.item_ids.values[clicks.items]
    found = Counter(dict(zip(zip(users, items, strict=True), clicks.counts.tolist(), strict=True)))
    return "read otherwise than by csv" if pairs and found != pairs else None


def logs(number: int, seed: int) -> Iterator[str | None]:
    """A log given to a command, then more of them read in one process."""
    rngs = [np.random.default_rng([seed, 1, number, n]) for n in range(LOGS_TOGETHER)]
    with tempfile.TemporaryDirectory() as name:
        file, _ = write_log(Path(name), rngs[0])
        yield ended(Path(name), f"fit {file.name} --method popularity --out model").fault()

        def work() -> int:
            for n, rng in enumerate(rngs[1:], 1):
                signal.alarm(MOST_SECONDS)
                fault = attack_log(Path(name), rng)
                os.write(1, (json.dumps(fault and f"log {n}: {fault}") + "\n").encode())
            return 0

        end = forked(Path(name), work)
        yield from map(json.loads, end.out.splitlines())
        if fault := end.fault():
            yield fault
