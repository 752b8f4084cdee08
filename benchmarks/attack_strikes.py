"""Kills and full disks at any file operation of every command that writes."""

import errno
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attack_command import FIT, End, command, ended, forked, must

TUNE = "tune --methods mf --train world/clicks.csv --set epochs=2 --set dim=4 --out out --trials"
# the command that fills the place, and the one that is struck while it writes there
WRITING = {
    "simulate": ("simulate --out out --users 30 --items 40", "simulate --out out --seed 1"),
    "fit": (f"{FIT} --out out", f"{FIT} --out out --seed 1"),
    "fit --resume": (f"{FIT} --out out", f"{FIT} --out out --seed 1 --resume"),
    "update": ("update mf newer.csv --out out", "update mf newer.csv --out out --seed 1"),
    "recommend csv": ("recommend mf --out out.csv -k 3", "recommend mf --out out.csv -k 4"),
    "recommend parquet": ("recommend mf --out out.parquet", "recommend expomf --out out.parquet"),
    "export npy": ("export mf --to out --format npy", "export other --to out --format npy"),
    "export parquet": (
        "export mf --to out --format parquet",
        "export other --to out --format parquet",
    ),
    "report model": ("report mf --out out.html", "report other --out out.html"),
    "report": ("report study --out out", "report study2 --out out"),
    "tune": (f"{TUNE} 1", f"{TUNE} 3"),
    "run": ("run study/e.toml --out out --seeds 1", "run study/e.toml --out out --seeds 2"),
}
GROWING = ("tune", "run")  # they add to what is there
FILE_BY_FILE = ("simulate", "report")  # each file is whole, the folder is no unit


class Struck(NamedTuple):
    """A writing command: the folder before it, what is there after it, its file operations."""

    before: Path
    after: dict[str, Any]
    operations: int


def strike(folder: Path, words: str, nth: int, act: Callable[[], int | None]) -> End:
    """Run a command that `act` is done to at its nth file operation; then the disk is full."""

    def work() -> int:
        seen, room = 0, None  # room: bytes a file may have, once the disk is full

        def hook(event: str, args: tuple[Any, ...]) -> None:
            nonlocal seen, room
            if not is_writing(event, args, folder):
                return
            seen += 1
            if seen == nth:
                room = act()
            if room == 0 and event == "os.mkdir":
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        sys.addaudithook(hook)
        code = command(words)
        if nth == 0:
            os.write(1, f"\n{seen}".encode())
        return code

    return forked(folder, work)


def is_writing(event: str, args: tuple[Any, ...], folder: Path) -> bool:
    """Whether an audit event is a file operation in the folder, other than reading a file."""
    if event == "ctypes.dlsym":
        return args[1] == "renameat2"
    if not (event == "open" or event.startswith(("os.", "shutil."))) or not args:
        return False
    if not isinstance(args[0], str | os.PathLike):
        return False
    path = os.path.abspath(args[0])
    reads = event == "open" and not args[2] & (os.O_WRONLY | os.O_RDWR) and not os.path.isdir(path)
    return path.startswith(str(folder)) and not reads


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fill_disk(room: int) -> int:
    """Let no file grow beyond so many bytes from here on, whoever writes it."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
    return room


def snapshot(folder: Path) -> dict[str, Any]:
    """What every file holds, but for the times that a model says its training took."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            content: Any = path.read_bytes()
            if path.name == "model.json" and not path.parent.name.startswith("."):
                content = json.loads(content)
                for name in ("seconds", "resumed_at"):
                    content["facts"].pop(name, None)
                del content["checksum"]
            found[str(path.relative_to(folder))] = content
    return found


def prepare_strikes(whole: Path, base: Path) -> dict[str, Struck]:
    found = {}
    for number, (name, (first, second)) in enumerate(WRITING.items()):
        before = base / f"before{number}"
        shutil.copytree(whole, before)
        must(before, first)
        if name == "fit --resume":
            shutil.copytree(whole / "other.checkpoint", before / "out.checkpoint")
        after = base / f"after{number}"
        shutil.copytree(before, after)
        end = strike(after, second, 0, lambda: None)
        if end.code:
            sys.exit(f"cannot prepare the attack: {second}: {end.err}")
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
    room = int(rng.choice([0, 0, 1, 300, 4096]))
    is_kill = bool(rng.integers(2))
    with tempfile.TemporaryDirectory() as place:
        here = Path(place) / "here"
        shutil.copytree(before, here)
        old = snapshot(here)
        end = strike(here, second, nth, kill if is_kill else lambda: fill_disk(room))
        faults = [] if is_kill and end.code == -signal.SIGKILL else [end.fault()]
        faults.append(lost(name, old, after, snapshot(here)))
        end = ended(here, second)
        faults.append(end.code and f"the command run again: exit {end.code}: {end.err[-200:]}")
        faults.append(unlike(name, old, after, snapshot(here)))
        how = "killed" if is_kill else f"disk full but for {room} bytes"
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
    # world.json names the files of both worlds while one replaces the other
    ours = {path for path in ours if not (".checkpoint" in path or path.endswith("world.json"))}
    states = [{path: state.get(path) for path in ours} for state in (old, new, now)]
    if name in FILE_BY_FILE:
        torn = [path for path in ours if states[2][path] not in (states[0][path], states[1][path])]
        return f"{torn[0]} is torn" if torn else None
    return None if states[2] in states[:2] else "the output is torn"


def shorter(old: dict[str, Any], now: dict[str, Any]) -> str | None:
    """The file that lost some of its lines."""
    for path, content in old.items():
        found = now.get(path)
        grown = isinstance(found, bytes) and isinstance(content, bytes) and path.startswith("out")
        if found != content and not (
            grown and (path.endswith(".json") or found.startswith(content))
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
