"""The rows of the table that `engine_cpu.py` prints, from the seconds that it measured."""

import os
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

import rivals
from long_log import BATCH, DIM, NEGATIVES
from unexposed.data.clicks import Clicks
from unexposed.sampling.samples import Samples
from unexposed.sampling.validation import ValidationSet

Row = dict[str, Any]
Times = dict[str, list[float]]


def method_rows(times: Times, *, quiet: bool) -> list[Row]:
    """Ratios of methods and of cores; those of seconds on the wall only from a quiet machine."""
    n = cores()
    places = {f"{n} cores": f"{n} cores", "one core": "CPU"}

    def of(over: str, under: str) -> list[float]:
        on_the_wall = over.endswith("cores")
        return [] if on_the_wall and not quiet else ratios(times[over], times[under])

    rows = [
        row(f"{name} / RelMF, {where}", bar, of(f"{name}, {key}", f"RelMF, {key}"))
        for name, bar in (("UBO", "≤ 1.6"), ("UBO, 512 validation pairs", "≤ 1.4"))
        for where, key in places.items()
    ]
    for where, key in places.items():
        slower = of(f"UBO in PyTorch, {key}", f"UBO, {key}")
        rows.append(row(f"UBO in PyTorch / ours, {where}", "", slower))
    for name in ("RelMF", "UBO", "BPR"):
        gain = of(f"{name}, 1 cores", f"{name}, {n} cores")
        rows.append(row(f"{n} cores over one, {name}", "≥ 1.6", gain))
        gain = of(f"{name}, CPU", f"{name}, first thread")
        rows.append(row(f"one core over the first of {n} threads, {name}", "≥ 1.6", gain))
    return rows


def rival_rows(
    times: Times, clicks: Clicks, *, recbole: str | None, implicit: str | None
) -> list[Row]:
    ours = [NEGATIVES * len(clicks) / t for t in times["BPR, CPU"]]
    rows = [row("BPR, million samples a second and core", "", [b / 1e6 for b in ours])]
    for name, program, python, bar in (
        ("RecBole", rivals.RECBOLE, recbole, "≥ 10"),
        ("implicit", rivals.IMPLICIT, implicit, "≥ 1.5"),
    ):
        found = [
            rivals.samples_a_second(
                program, python, clicks, dim=DIM, negatives=NEGATIVES, batch=BATCH
            )
            for _ in range(min(3, len(ours)))
        ]
        theirs = [f for f in found if f is not None]
        rows.append(row(f"{name}'s BPR, the same", "", [f / 1e6 for f in theirs]))
        rows.append(row(f"BPR / {name}'s", bar, ratios(ours[: len(theirs)], theirs)))
    return rows


def size_rows(by_size: dict[int, list[float]], memory: Any) -> list[Row]:
    smallest, rows = min(by_size), []
    for size, cost in by_size.items():
        rows.append(row(f"ns a sample, {size:,} clicks", "", cost))
        if size > smallest:
            grown = ratios(cost, by_size[smallest])
            rows.append(row(f"the same over {smallest:,} clicks", "≤ 1.5", grown))
    for size, found in memory.items():
        rows.append(row(f"GiB of memory, {size:,} clicks", "", [found["bytes"] / 2**30]))
    return rows


def byte_rows(
    times: Times, samples: Samples, guide: ValidationSet, clicks: Clicks, repeats: int
) -> list[Row]:
    """The bytes an epoch must move a second, as a share of a copy of as large tables."""
    rows = []
    for name, used, tables in (("RelMF", None, 1), ("UBO", guide, 2)):
        moved = bytes_of_an_epoch(samples, used)
        held = 12 * DIM * (tables * clicks.n_users + clicks.n_items)
        most = copied_bytes_a_second(held // 2, repeats)
        shares = [moved / t / most for t in times[f"{name}, CPU"]]
        rows.append(row(f"{name}: bytes a sample must move", "", [moved / len(samples.items)]))
        rows.append(row(f"{name}: GB a second of a copy in {held / 1e6:.0f} MB", "", [most / 1e9]))
        rows.append(row(f"{name}: achieved over possible, one core", "", shares))
    return rows


def part_rows(times: Times, samples: int) -> list[Row]:
    """What UBO's step is made of: methods that each do a little more."""
    named = {
        "RelMF": "RelMF",
        "UMF": "UMF",
        "frozen": "and a learned exposure, not stepped",
        "alternate": "and Adam on it",
        "UBO, 512 validation pairs": "and the step ahead, with 512 validation pairs",
        "UBO": "UBO: all validation pairs",
    }
    return [
        row(f"ns a sample, one core: {what}", "", [t / samples * 1e9 for t in times[f"{key}, CPU"]])
        for key, what in named.items()
    ]


def bytes_of_an_epoch(samples: Samples, guide: ValidationSet | None) -> int:
    """What an epoch must move: each row of a batch with its moments once in and once out.

    UBO has two tables of users, and reads the validation set's rows in every batch.
    """
    row, moved = 4 * DIM, 4 * len(samples.items)
    for batch in samples.batches(BATCH):
        users, items = len(np.unique(batch.users)), len(np.unique(batch.items))
        moved += 6 * row * (users + items)
        if guide is not None:
            read = len(np.unique(guide.users)) + len(np.unique(guide.items))
            moved += 6 * row * users + row * read
    return moved


def copied_bytes_a_second(n: int, repeats: int) -> float:
    """The bytes that one core reads and writes, copying n of them."""
    source, target = np.ones(n // 4, np.float32), np.zeros(n // 4, np.float32)
    seconds = []
    for _ in range(3 * repeats):
        begin = time.thread_time()
        np.copyto(target, source)
        seconds.append(time.thread_time() - begin)
    return 2 * n / min(seconds)


def ratios(over: list[float], under: list[float]) -> list[float]:
    return [a / b for a, b in zip(over, under, strict=True)]


def cores() -> int:
    return max(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)


def busy_seconds() -> float:
    """Seconds that all cores have worked since the machine started; 0 where that is not known."""
    try:
        columns = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    except OSError:
        return 0.0
    idle, waiting = int(columns[3]), int(columns[4])
    return (sum(int(c) for c in columns[:8]) - idle - waiting) / os.sysconf("SC_CLK_TCK")


def row(what: str, bar: str, values: list[float]) -> Row:
    if not values:
        return {"what": what, "bar": bar, "median": None, "least": None, "greatest": None}
    middle = statistics.median(values)
    return {
        "what": what,
        "bar": bar,
        "median": middle,
        "least": min(values),
        "greatest": max(values),
    }
