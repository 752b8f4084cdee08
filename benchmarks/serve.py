"""Measure the web service: requests a second, and how long answers take.

    python benchmarks/serve.py [--json FILE] [--workers N] [--seconds N] [--rate N]

The model has 100,000 users and 100,000 items (dim 64, 20 clicks a user) and random vectors. Lists
of 10, clicked items hidden, are asked for over real sockets with keep-alive, each for a user drawn
at random, from a process of its own that shares the cores with the service. First at a steady rate,
an answer's time counted from when its request was due; then as fast as answers come. Before that,
some answers are compared with `model.recommend`.
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from recommend import DIM, drawn_model
from unexposed import compiled as loops
from unexposed.model.model import Model

HERE = Path(__file__).parent
K, COMPARED = 10, 50


@contextmanager
def service(folder: Path, workers: int) -> Iterator[tuple[int, int]]:
    """The port of a service of this model, and its process id."""
    command = [sys.executable, "-m", "unexposed", "serve", str(folder), "--port", "0"]
    child = subprocess.Popen(
        [*command, "--workers", str(workers)], stderr=subprocess.PIPE, text=True
    )
    assert child.stderr is not None
    try:
        line = child.stderr.readline()
        if " at http://" not in line:
            sys.exit(line + child.stderr.read())
        port = int(line.split(" until ")[0].rpartition(":")[2])
        asked(port, "/health")
        yield port, child.pid
    finally:
        child.terminate()
        child.wait()


def asked(port: int, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    document = json.loads(answer.read())
    connection.close()
    if answer.status != 200:
        sys.exit(f"{path}: {document}")
    return document


def same_lists(model: Model, port: int) -> bool:
    """Whether the service gives the lists of `model.recommend`."""
    users = np.linspace(0, len(model.user_ids) - 1, COMPARED).astype(int)
    table = model.recommend(users, K)
    ours = table["item"].to_list()
    theirs = [
        entry["item"]
        for user in users
        for entry in asked(port, f"/recommend?user={user}&k={K}")["items"]
    ]
    return ours == theirs


def cpu_seconds(process: int) -> float | None:
    """CPU seconds of a process and its children so far; None where the system does not say."""
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        stat = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    own = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(cpu_seconds(int(child)) or 0 for child in children)


def measured(port: int, process: int, **options: float) -> dict[str, Any]:
    """Requests a second, the time of an answer and its CPU seconds, under one load."""
    command = [sys.executable, str(HERE / "serve_load.py"), str(port)]
    command += [f"--{name}={value}" for name, value in options.items()]
    load, before = os.getloadavg(), cpu_seconds(process)
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    after, found = cpu_seconds(process), json.loads(ran.stdout)
    cpu = None if before is None or after is None else (after - before) / found["requests"]
    return {**options, **found, "cpu_seconds_of_a_request": cpu, "load_average": load[0]}


def show(result: dict[str, Any]) -> None:
    for row in result["loads"]:
        kind = f"at {row['rate']:,.0f} a second" if row.get("rate") else "as fast as answers come"
        cpu = 1e3 * (row["cpu_seconds_of_a_request"] or 0)
        times = {name: f"{1e3 * s:.1f} ms" for name, s in row["seconds_of_an_answer"].items()}
        print(
            f"{row['workers']} worker(s), {row['connections']} connections, {kind}: "
            f"{row['per_second']:,.0f} requests a second, {row['failed']} failed, p50 "
            f"{times['p50']}, p99 {times['p99']}, {cpu:.2f} ms of "
            f"CPU each; load average {row['load_average']:.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--rate", type=float, default=1_000)
    arguments = parser.parse_args()
    model = drawn_model(arguments.users, arguments.items)
    rows, same = [], True
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "model"
        model.save(folder)
        for workers in arguments.workers:
            with service(folder, workers) as (port, process):
                same = same and same_lists(model, port)
                load: dict[str, Any] = {
                    "users": arguments.users,
                    "connections": arguments.connections,
                }
                measured(port, process, **load, seconds=2)  # warms up
                time.sleep(1)
                for rate in (arguments.rate, 0):
                    row = measured(port, process, **load, seconds=arguments.seconds, rate=rate)
                    rows.append({"workers": workers, **row})
    result = {
        "command": "python benchmarks/serve.py --json benchmarks/results/serve.json",
        "items": arguments.items,
        "dim": DIM,
        "k": K,
        "cores": loops.CORES,
        "same_lists_as_recommend": same,
        "loads": rows,
    }
    show(result)
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
