"""Compare top-k lists for many users with implicit's, in turn in one run, and measure memory.

    python benchmarks/recommend.py [--implicit-python PYTHON] [--json FILE] [--stream N]
    python benchmarks/recommend.py --whole [--json FILE]

The model has a million users and 100,000 items (dim 64, 20 clicks a user) and random vectors. A
share of its users get lists of 10, clicked items hidden. Ours is a table of raw ids; implicit, in
its own interpreter, gives arrays of indices. Each round gives a ratio, reported by median, least
and greatest: in wall-clock seconds, which need idle cores, and in CPU seconds.
The lists of N users are then written to Parquet and CSV while memory is measured. With --whole
nothing is compared: the lists of all users go to Parquet, and this row is added to FILE.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from unexposed import compiled as loops
from unexposed import make
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids
from unexposed.model.model import Model
from unexposed.progress import Silent

DIM, CLICKS_OF_A_USER, K = 64, 20, 10

IMPLICIT = """
import json, sys, time, numpy as np, scipy.sparse as sp
from implicit.cpu.als import AlternatingLeastSquares
folder, k, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
users, items, clicked = (np.load(f"{folder}/{n}.npy") for n in ("users", "items", "clicked"))
model = AlternatingLeastSquares(factors=users.shape[1], num_threads=threads)
model.user_factors, model.item_factors = users, items
rows = np.repeat(np.arange(len(users)), clicked.shape[1])
ones = np.ones(len(rows), np.float32)
clicks = sp.csr_matrix((ones, (rows, clicked.ravel())), shape=(len(users), len(items)))
print("ready", flush=True)
for _ in sys.stdin:
    wall, cpu = time.perf_counter(), time.process_time()
    found, _ = model.recommend(np.arange(len(users)), clicks, N=k)
    took = [time.perf_counter() - wall, time.process_time() - cpu]
    print(json.dumps({"took": took, "first": found[0].tolist()}), flush=True)
"""


def drawn_model(n_users: int, n_items: int) -> Model:
    rng = np.random.default_rng(0)

    def normal(n: int) -> Any:
        return rng.standard_normal((n, DIM), dtype=np.float32) * np.float32(0.3)

    step = n_items // CLICKS_OF_A_USER  # one click in each stretch of the catalogue: all distinct
    clicked = rng.integers(step, size=(n_users, CLICKS_OF_A_USER), dtype=np.int32)
    clicked += np.arange(CLICKS_OF_A_USER, dtype=np.int32) * step
    clicks = Clicks(
        np.repeat(np.arange(n_users, dtype=np.int32), CLICKS_OF_A_USER),
        clicked.ravel(),
        np.ones(clicked.size, dtype=np.int32),
        user_ids=Ids.range(n_users),
        item_ids=Ids.range(n_items),
    )
    parameters = {"user_factors": normal(n_users), "item_factors": normal(n_items)}
    return Model(make("mf", dim=DIM), parameters, clicks, {})


class Implicit:
    """implicit's recommend in its own interpreter, ready for the same users."""

    def __init__(self, python: str, model: Model, n_users: int, folder: Path) -> None:
        np.save(folder / "users.npy", model.parameters["user_factors"][:n_users])
        np.save(folder / "items.npy", model.parameters["item_factors"])
        clicked = model.clicks.items[: n_users * CLICKS_OF_A_USER]
        np.save(folder / "clicked.npy", clicked.reshape(n_users, CLICKS_OF_A_USER))
        self._child = subprocess.Popen(
            [python, "-c", IMPLICIT, str(folder), str(K), str(loops.CORES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},  # as it asks: it has its own threads
        )
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._in, self._out = self._child.stdin, self._child.stdout
        self.here = self._out.readline().strip() == "ready"

    def __call__(self) -> tuple[list[float], list[int]]:
        self._in.write("go\n")
        self._in.flush()
        answer = json.loads(self._out.readline())
        return answer["took"], answer["first"]

    def close(self) -> None:
        self._in.close()
        self._child.wait()


def ours(model: Model, users: Any) -> tuple[list[float], list[int]]:
    wall, cpu = time.perf_counter(), time.process_time()
    table = model.recommend(users, K, progress=Silent())
    took = [time.perf_counter() - wall, time.process_time() - cpu]
    return took, table["item"].head(K).to_list()


def compare(model: Model, n_users: int, python: str, repeats: int, folder: Path) -> dict[str, Any]:
    """Seconds of both, in turn; the first round warms up."""
    users = model.user_ids.values[:n_users]
    implicit = Implicit(python, model, n_users, folder)
    times: dict[str, list[list[float]]] = {"ours": [], "implicit": []}
    same = None
    for round_ in range(repeats + 1):
        took, first = ours(model, users)
        theirs = implicit() if implicit.here else None
        if round_ == 0:
            same = None if theirs is None else theirs[1] == first
            continue
        times["ours"].append(took)
        if theirs is not None:
            times["implicit"].append(theirs[0])
    implicit.close()
    return {"seconds": times, "same_list_for_the_first_user": same}


def resident() -> int | None:
    """Bytes of memory that this process holds; None where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_above(work: Callable[[], Any]) -> tuple[float, int | None]:
    """Seconds of the work, and the most memory it held above what was held before."""
    before, most = resident(), 0
    done = threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.01):
            most = max(most, resident() or 0)

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    try:
        work()
    finally:
        seconds = time.perf_counter() - begin
        done.set()
        watcher.join()
    return seconds, None if before is None else max(0, most - before)


def stream(
    model: Model, n_users: int, folder: Path, endings: tuple[str, ...] = ("parquet", "csv")
) -> list[dict[str, Any]]:
    rows = []
    for ending in endings:
        path = folder / f"lists.{ending}"
        users = model.user_ids.values[:n_users]
        write = lambda to=path, of=users: model.write_recommendations(to, of, K, progress=Silent())  # noqa: E731
        seconds, peak = peak_above(write)
        size = path.stat().st_size
        rows.append(
            {"format": ending, "users": n_users, "seconds": seconds, "peak": peak, "bytes": size}
        )
        path.unlink()
    return rows


def spread(over: list[float], under: list[float]) -> dict[str, float] | None:
    ratios = [a / b for a, b in zip(over, under, strict=False)]
    if not ratios:
        return None
    return {"median": statistics.median(ratios), "least": min(ratios), "greatest": max(ratios)}


def show(result: dict[str, Any]) -> None:
    title = f"{result['share']:,} of {result['users']:,} users × {result['items']:,} items"
    table = Table("", "bar", "median", "least", "greatest", title=title)
    for clock, ratio in result["speed"].items():
        what = f"implicit's seconds over ours, {clock}"
        cells = ["absent"] * 3 if ratio is None else [f"{v:.2f}" for v in ratio.values()]
        table.add_row(what, "≥ 1", *cells)
    Console().print(table)
    for name, seconds in result["seconds"].items():
        if seconds:
            wall = statistics.median(s[0] for s in seconds)
            print(f"{name}: {wall:.2f} s, {result['share'] / wall:,.0f} users a second")
    show_stream(result["stream"], result["model_bytes"])


def show_stream(rows: list[dict[str, Any]], model_bytes: int) -> None:
    for row in rows:
        peak = "?" if row["peak"] is None else f"{row['peak'] / 2**30:.2f} GiB"
        print(
            f"{row['users']:,} users to {row['format']}: {row['seconds']:.1f} s, "
            f"{peak} above the model, which holds {model_bytes / 2**30:.2f} GiB"
        )


def whole(model: Model, folder: Path, file: Path | None) -> None:
    """All lists to Parquet, for the record."""
    n_users = len(model.user_ids)
    rows = stream(model, n_users, folder, endings=("parquet",))
    for row in rows:
        row |= {"cores": loops.CORES, "load_average": os.getloadavg()[0]}
    show_stream(rows, parameter_bytes(model))
    if file is None:
        return
    result = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"stream": []}
    others = [row for row in result["stream"] if row["users"] != n_users]
    result["stream"] = others + rows
    file.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def parameter_bytes(model: Model) -> int:
    return sum(array.nbytes for array in model.parameters.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--implicit-python", default=sys.executable)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--share", type=int, default=20_000, help="users of each round")
    parser.add_argument("--stream", type=int, default=20_000, help="users written to files")
    parser.add_argument("--whole", action="store_true", help="only write the lists of all users")
    arguments = parser.parse_args()
    model = drawn_model(arguments.users, arguments.items)
    if arguments.whole:
        with tempfile.TemporaryDirectory() as folder:
            whole(model, Path(folder), arguments.json)
        return
    with tempfile.TemporaryDirectory() as folder:
        written = stream(model, arguments.stream, Path(folder))
        found = compare(
            model, arguments.share, arguments.implicit_python, arguments.repeats, Path(folder)
        )
    times = found["seconds"]
    result = {
        "users": arguments.users,
        "items": arguments.items,
        "share": arguments.share,
        "cores": loops.CORES,
        "load_average": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "speed": {
            clock: spread([t[n] for t in times["implicit"]], [t[n] for t in times["ours"]])
            for n, clock in enumerate(("wall", "CPU"))
        },
        **found,
        "model_bytes": parameter_bytes(model),
        "stream": written,
    }
    show(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
