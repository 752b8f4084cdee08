"""Kills and full disks at any file operation of every command that writes.

A full disk is a tmpfs with a file that takes all space left. Where none may be mounted, it is a
limit on the length of files.
"""

import contextlib
import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from usearch.index import Index

from attack_command import FIT, MOST_SECONDS, PREPARING, End, command, ended, forked, must
from unexposed.files import PREFIX
from unexposed.tensors import read_file

TUNE = "tune --methods mf --train world/clicks.csv --set epochs=2 --set dim=4 --out out --trials"
RUN = "run study/e.toml --out out --seeds"
# the command that fills the place, and the one that is struck while it writes there
WRITING = {
    "simulate": ("simulate --out out --users 30 --items 40", "simulate --out out --seed 1"),
    "fit": (f"{FIT} --out out", f"{FIT} --out out --seed 1 --force"),
    "fit --resume": (f"{FIT} --out out", f"{FIT} --out out --seed 1 --resume"),
    "update": ("update mf newer.csv --out out", "update mf newer.csv --out out --seed 1 --force"),
    "recommend csv": ("recommend mf --out out.csv -k 3", "recommend mf --out out.csv -k 4"),
    "recommend parquet": ("recommend mf --out out.parquet", "recommend expomf --out out.parquet"),
    "export npy": ("export mf --to out --format npy", "export other --to out --format npy"),
    "export parquet": (
        "export mf --to out --format parquet",
        "export other --to out --format parquet",
    ),
    "export usearch": (
        "export mf --to out --format usearch",
        "export other --to out --format usearch",
    ),
    "export onnx": ("export mf --to out --format onnx", "export other --to out --format onnx"),
    "report model": ("report mf --out out.html", "report other --out out.html"),
    "report": ("report study --out out", "report study2 --out out"),
    "tune": (f"{TUNE} 1", f"{TUNE} 3"),
    "run": (f"{RUN} 1", f"{RUN} 2"),
    "run --fresh": (f"{RUN} 2", f"{RUN} 1 --fresh"),
    # the slow ones: a small attack ends before them
    "tune --workers": (f"{TUNE} 1", f"{TUNE} 3 --workers 2"),
    "run --workers": (f"{RUN} 1", f"{RUN} 2 --workers 2"),
    "demo": ("simulate --out out --users 30 --items 40", "demo --out out"),
}
GROWING = ("tune", "tune --workers", "run", "run --workers")  # they add to what is there
FILE_BY_FILE = ("simulate", "report", "demo")  # each file is whole, the folder is no unit
ROOM = (0, 0, 1, 300, 4096)  # bytes that a file may have, once the disk is full
PAGES = (0, 0, 1, 3, 16)  # pages that the disk has left
DISK = 48 << 20
WORKER = "ATTACK_WORKER"  # tells worker processes at which file operation they are killed


class Struck(NamedTuple):
    """A writing command: the folder before it, what is there after it, its file operations."""

    before: Path
    after: dict[str, Any]
    operations: int


def strike(folder: Path, words: str, nth: int, act: Callable[[], int | None]) -> End:
    """Run a command that `act` is done to at its nth file operation; then the disk is full."""

    def work() -> int:
        hook = Hook(folder, nth, act)
        sys.addaudithook(hook)
        code = command(words)
        if nth == 0:
            os.write(1, f"\n{hook.seen}".encode())
        return code

    return forked(folder, work, seconds=MOST_SECONDS if nth else PREPARING)


class Hook:
    """Counts the file operations in a folder, and acts at the nth."""

    def __init__(self, folder: Path, nth: int, act: Callable[[], int | None]) -> None:
        self.seen = 0
        self._folder, self._nth, self._act = folder, nth, act
        self._room: int | None = None  # left on the disk, once it is full

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if not is_writing(event, args, self._folder):
            return
        self.seen += 1
        if self.seen == self._nth:
            self._room = self._act()
        if self._room == 0 and makes_a_name(event, args):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def makes_a_name(event: str, args: tuple[Any, ...]) -> bool:
    """Whether a folder grows by an operation, which a full disk may refuse."""
    is_new = event == "open" and args[2] & os.O_CREAT and not os.path.exists(args[0])
    return bool(is_new) or event in ("os.mkdir", "os.rename")


def is_writing(event: str, args: tuple[Any, ...], folder: Path) -> bool:
    """Whether an audit event is a file operation in the folder, other than reading a file."""
    if not (event == "open" or event.startswith(("os.", "shutil."))) or not args:
        return False
    if not isinstance(args[0], str | os.PathLike):
        return False
    path = os.path.abspath(args[0])
    reads = event == "open" and not args[2] & (os.O_WRONLY | os.O_RDWR) and not os.path.isdir(path)
    return path.startswith(str(folder)) and not reads


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_workers(folder: Path, nth: int) -> Callable[[], None]:
    """What tells every worker process that starts from now on to be killed, too."""

    def act() -> None:
        os.environ[WORKER] = f"{nth} {folder}"

    return act


def limit_files(room: int) -> int:
    """Let no file grow beyond so many bytes from here on, whoever writes it."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    return room


def fill_disk(folder: Path, room: int) -> int:
    """Take all of the disk but for so many bytes."""
    about = os.statvfs(folder)
    with (folder / "ballast").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, about.f_bavail * about.f_frsize - room)
    return room


@contextlib.contextmanager
def disk(place: Path) -> Iterator[bool]:
    """Mount a small disk at a place, if that is allowed."""
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(place)]
    is_mounted = subprocess.run(words, capture_output=True, check=False).returncode == 0
    try:
        yield is_mounted
    finally:
        if is_mounted:
            subprocess.run(["umount", str(place)], check=True)


def snapshot(folder: Path) -> dict[str, Any]:
    """What every file holds, but for the times that models and results tell, and the order in
    which threads came to an index."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if any(part.startswith(PREFIX) for part in path.parts):  # removed a day later
            continue
        if path.is_file():
            content: Any = path.read_bytes()
            if path.suffix == ".safetensors" and ".checkpoint" not in path.name:
                stored = read_file(path)
                for name in ("seconds", "resumed_at"):
                    stored.document["facts"].pop(name, None)
                del stored.document["sha256"]
                arrays = {name: array.tobytes() for name, array in stored.arrays.items()}
                content = [stored.document, arrays]
            elif path.suffix == ".jsonl":  # a last line without its end does not count
                lines = [json.loads(line) for line in content.split(b"\n")[:-1]]
                content = [line | {"seconds": 0, "finished": ""} for line in lines]
            elif path.suffix == ".usearch":
                content = indexed(path)
            found[str(path.relative_to(folder))] = content
    return found


def indexed(path: Path) -> bytes:
    """The vectors in an index, in the order of their keys."""
    try:
        index = Index.restore(path)
    except RuntimeError:
        return b"torn"
    return np.stack([index.get(key) for key in range(len(index))]).tobytes()


def prepare_strikes(whole: Path, base: Path, kills: int) -> dict[str, Struck]:
    """Every writing command, or as many as will be struck."""
    found = {}
    for number, (name, (first, second)) in enumerate(list(WRITING.items())[:kills]):
        before = base / f"before{number}"
        shutil.copytree(whole, before)
        must(before, first)
        if name == "fit --resume":
            for kept in whole.glob("other.checkpoint*"):
                shutil.copy(kept, before / kept.name.replace("other", "out"))
        after = base / f"after{number}"
        shutil.copytree(before, after)
        end = strike(after, second, 0, lambda: None)
        if end.code:
            sys.exit(f"cannot prepare the attack: {second}: exit {end.code}: {end.err}")
        found[name] = Struck(before, snapshot(after), int(end.out.splitlines()[-1]))
        shutil.rmtree(after)
    return found


def strikes(struck: dict[str, Struck], number: int, seed: int) -> Iterator[str | None]:
    """A writing command, killed or on a disk that fills; then the same command again."""
    rng = np.random.default_rng([seed, 3, number])
    name = list(struck)[number % len(struck)]
    before, after, operations = struck[name]
    second = WRITING[name][1]
    nth = int(rng.integers(1, operations + 1))
    way, size = str(rng.choice(["kill", "kill", "fill", "fill", "limit"])), rng.integers(len(ROOM))
    with tempfile.TemporaryDirectory() as place, disk(Path(place)) as is_mounted:
        here = Path(place) / "here"
        shutil.copytree(before, here)
        old = snapshot(here)
        act: Callable[[], int | None]
        if way == "kill" and "--workers" in name and rng.integers(2):
            how, act = "workers killed", kill_workers(here, nth)
            nth = 1
        elif way == "kill":
            how, act = "killed", kill
        elif way == "fill" and is_mounted:
            room = PAGES[size] * resource.getpagesize()
            how, act = f"disk full but for {room} bytes", lambda: fill_disk(Path(place), room)
        else:
            how, act = f"files of {ROOM[size]} bytes", lambda: limit_files(ROOM[size])
        end = strike(here, second, nth, act)
        (Path(place) / "ballast").unlink(missing_ok=True)
        faults = [] if way == "kill" and end.code == -signal.SIGKILL else [end.fault()]
        faults.append(lost(name, old, after, snapshot(here)))
        end = ended(here, second)
        faults.append(end.code and f"the command run again: exit {end.code}: {end.err[-200:]}")
        faults.append(unlike(name, old, after, snapshot(here)))
        said = "; ".join(str(fault) for fault in faults if fault)
        yield f"{name}, {how} at operation {nth} of {operations}: {said}" if said else None


def lost(name: str, old: dict[str, Any], new: dict[str, Any], now: dict[str, Any]) -> str | None:
    """What is neither as it was nor replaced whole."""
    if name in GROWING:
        return shorter(old, now)
    ours = {path for path in old.keys() | new.keys() if path.startswith("out")}
    for path in old.keys() - ours:
        if now.get(path) != old[path]:
            return f"{path}, which is not ours, is lost"
    ours = {path for path in ours if ".checkpoint" not in path}
    states = [{path: state.get(path) for path in ours} for state in (old, new, now)]
    if name in FILE_BY_FILE:
        torn = [path for path in ours if states[2][path] not in (states[0][path], states[1][path])]
        return f"{torn[0]} is torn" if torn else None
    if name.startswith("export") and not any(states[2].values()):
        return None  # between two renames the old folder lies beside its place
    return None if states[2] in states[:2] else "the output is torn"


def shorter(old: dict[str, Any], now: dict[str, Any]) -> str | None:
    """The file that lost some of its lines."""
    for path, content in old.items():
        found = now.get(path)
        grown = found is not None and path.startswith("out")
        if found != content and not (
            grown and (path.endswith((".json", ".parquet")) or found[: len(content)] == content)
        ):
            return f"{path} lost what it held"
    return None


def unlike(name: str, old: dict[str, Any], new: dict[str, Any], now: dict[str, Any]) -> str | None:
    """How the folder differs from one in which the command was never struck."""
    for path in sorted(now.keys() ^ new.keys()):
        return f"{path} is {'left over' if path in now else 'not there'}"
    if name in GROWING:
        return shorter(old, now)
    differs = [path for path in sorted(new) if now[path] != new[path]]
    return f"{differs[0]} is not as without the strike" if differs else None


if WORKER in os.environ:  # this is a worker process, which imports what its parent began with
    at, whole_path = os.environ[WORKER].split(" ", 1)
    sys.addaudithook(Hook(Path(whole_path), int(at), kill))
