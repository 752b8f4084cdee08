"""Ask a service for lists over some connections, and print how long the answers took, as JSON.

    python benchmarks/serve_load.py PORT --users N --connections N --seconds N [--rate N]

With a rate, requests are due at even steps of time whether or not earlier ones are answered, and
an answer's time counts from when its request was due. Without one, each connection asks again as
soon as it is answered.
"""

import argparse
import asyncio
import json
import random
import time
from collections import deque

import uvloop

K = 10
LAST = 30.0  # seconds to wait for the last answers


class Connection(asyncio.Protocol):
    """One connection with keep-alive that sends one request at a time."""

    def __init__(self, done: "asyncio.Queue[Connection]") -> None:
        self._done = done
        self._read = bytearray()
        self._end = -1  # of the answer; −1: its head is not complete
        self.due = 0.0
        self.took: list[float] = []
        self.failed = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def ask(self, user: int, due: float) -> None:
        self.due = due
        text = f"GET /recommend?user={user}&k={K} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        self._transport.write(text.encode())  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._read += data
        if self._end < 0:
            head = self._read.find(b"\r\n\r\n")
            if head < 0:
                return
            at = self._read.find(b"content-length: ") + 16
            self._end = head + 4 + int(self._read[at : self._read.find(b"\r\n", at)])
        if len(self._read) >= self._end:
            self.took.append(time.perf_counter() - self.due)
            self.failed += not self._read.startswith(b"HTTP/1.1 200")
            self._read.clear()
            self._end = -1
            self._done.put_nowait(self)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.failed += 1


async def load(
    port: int, *, users: int, connections: int, seconds: float, rate: float, seed: int
) -> dict[str, object]:
    loop = asyncio.get_running_loop()
    free: asyncio.Queue[Connection] = asyncio.Queue()
    made = []
    for _ in range(connections):
        _, one = await loop.create_connection(lambda: Connection(free), "127.0.0.1", port)
        made.append(one)
        free.put_nowait(one)
    draw = random.Random(seed)
    begin = time.perf_counter()
    asked = await (at_rate if rate else at_once)(free, draw, users, begin, seconds, rate)
    end = time.perf_counter() + LAST
    while sum(len(one.took) for one in made) < asked and time.perf_counter() < end:
        await asyncio.sleep(0.01)
    spent = time.perf_counter() - begin
    took = sorted(seconds for one in made for seconds in one.took)
    return {
        "requests": len(took),
        "failed": sum(one.failed for one in made) + asked - len(took),
        "per_second": len(took) / spent,
        "seconds_of_an_answer": {
            "p50": took[len(took) // 2],
            "p90": took[len(took) * 9 // 10],
            "p99": took[len(took) * 99 // 100],
            "greatest": took[-1],
        },
    }


async def at_once(
    free: "asyncio.Queue[Connection]",
    draw: random.Random,
    users: int,
    begin: float,
    seconds: float,
    rate: float,
) -> int:
    del rate
    asked = 0
    while time.perf_counter() < begin + seconds:
        one = await free.get()
        one.ask(draw.randrange(users), time.perf_counter())
        asked += 1
    return asked


async def at_rate(
    free: "asyncio.Queue[Connection]",
    draw: random.Random,
    users: int,
    begin: float,
    seconds: float,
    rate: float,
) -> int:
    asked, waiting = 0, deque[float]()
    while (now := time.perf_counter()) < begin + seconds or waiting:
        while asked + len(waiting) < min((now - begin) * rate, seconds * rate):
            waiting.append(begin + (asked + len(waiting)) / rate)
        while waiting and not free.empty():
            free.get_nowait().ask(draw.randrange(users), waiting.popleft())
            asked += 1
        await asyncio.sleep(0.001)
        if time.perf_counter() > begin + 2 * seconds:
            break
    return asked


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rate", type=float, default=0, help="requests a second (default: most)")
    parser.add_argument("--seed", type=int, default=0)
    given = vars(parser.parse_args())
    print(json.dumps(uvloop.run(load(given.pop("port"), **given))))


if __name__ == "__main__":
    main()
