"""Checkpoints: folders from which a killed training resumes.

A checkpoint holds everything an epoch reads and changes, the epochs so far, the best one, and a
fingerprint of the training's inputs. It is written at the end of an epoch, from time to time.

Several ranks write one by partitions of the users, and any number of them resume from it.
"""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from unexposed import ranks, settings
from unexposed.data.clicks import Clicks
from unexposed.data.ids import Ids, to_json
from unexposed.data.partitions import PARTITIONS, owned
from unexposed.errors import InputError, plain
from unexposed.files import archive
from unexposed.files.archive import Arrays
from unexposed.files.claims import check_course, check_state
from unexposed.files.whole import remove_folder
from unexposed.training import by_partition
from unexposed.version import __version__

if TYPE_CHECKING:
    from unexposed.model.recommender import Recommender
    from unexposed.progress import Progress
    from unexposed.training.side import Side

CHECKPOINT = archive.Kind(
    "checkpoint",
    version=2,
    parted=3,
    cure="remove it, and start the training again without resuming",
)
EVERY = 30.0  # seconds
SHARE = 19  # times the last write must pass before the next: at most a twentieth of the time
CHUNK = 65_536  # ids hashed at a time


@dataclass
class Course:
    """The progress of a training."""

    losses: list[float] = field(default_factory=list)  # one for each epoch
    values: list[float] = field(default_factory=list)
    best: Arrays | None = None
    best_epoch: int = 0
    best_value: float = -np.inf
    seconds: float = 0.0  # in earlier processes
    resumed_at: list[int] = field(default_factory=list)  # epochs done at each resumption


@dataclass(frozen=True)
class Memory:
    """Everything an epoch reads and changes, so that a training can resume from a checkpoint."""

    kind: str  # of learner: each kind has arrays of its own
    state: Callable[[], Arrays]  # not a copy: write it before the next epoch
    restore: Callable[[Arrays], None]  # copies its argument
    rng: np.random.Generator
    user_arrays: frozenset[str] = frozenset()  # of the state, which have a row for each user

    @staticmethod
    def of(kind: str, state: Arrays, rng: np.random.Generator) -> "Memory":
        """The memory of a method whose state is a dict, with new arrays in every epoch."""

        def restore(saved: Arrays) -> None:
            state.update({name: np.array(saved[name]) for name in state})

        return Memory(kind, lambda: state, restore, rng)


def place_beside(model: Path) -> Path:
    """Path of the checkpoint of a model that will be saved here."""
    model = model.absolute()
    return model.with_name(f"{model.name}.checkpoint")


def second_of(folder: Path) -> Path:
    """Path of the checkpoint of the second training, on all clicks."""
    return folder.with_name(f"{folder.name}-refit")


def is_kept(folder: Path) -> bool:
    """Whether there is a training to resume."""
    return folder.exists() or second_of(folder).exists()


def remove(folder: Path) -> None:
    """Remove the checkpoints of both trainings."""
    for part in (folder, second_of(folder)):
        remove_folder(part)


class Fingerprint(Protocol):
    """The inputs of a training, hashed as one process does or, `parted`, as any ranks do."""

    def __call__(self, *, parted: bool) -> dict[str, Any]: ...


class Checkpoint:
    """Path of a training's checkpoint, and the fingerprint of its inputs."""

    def __init__(
        self,
        folder: Path,
        *,
        of: Fingerprint,
        users: Ids,
        user_tables: Callable[[Arrays], frozenset[str]],  # of parameters: which have users' rows
        resume: bool,
        every: float = EVERY,
    ) -> None:
        if not every >= 0:
            raise InputError(f"checkpoint_every must be at least 0 seconds, got {every}")
        archive.check_place(CHECKPOINT, folder)
        self.folder, self._every, self._resume = folder, every, resume
        self._fingerprint, self._users = of, users  # users of this rank
        self._user_tables = user_tables
        self._of = of(parted=ranks.current() is not None)
        self._due = time.monotonic() + every

    def second(self, *, epochs: int) -> "Checkpoint":
        """The checkpoint of the second training, which runs for this many epochs."""

        def of(*, parted: bool) -> dict[str, Any]:
            return {**self._fingerprint(parted=parted), "the epochs on all clicks": epochs}

        again: dict[str, Any] = {"resume": self._resume, "every": self._every}
        users: dict[str, Any] = {"users": self._users, "user_tables": self._user_tables}
        return Checkpoint(second_of(self.folder), of=of, **users, **again)

    def read(self, kind: str) -> tuple[Course, Arrays, dict[str, Any]] | None:
        """The course so far, the learner's state and its random state; None: start afresh.

        `kind` names the learner, which cannot use the state of another kind.
        """
        if not self._resume or not ranks.led(self.folder.exists):
            return None
        found = archive.read(CHECKPOINT, self.folder)
        found.verify(owned() if found.parts else None)
        about = found.about
        with archive.refusing(CHECKPOINT, self.folder / CHECKPOINT.about):
            then = {**about["of"], "the engine": about["kind"]}
            course, random = Course(**check_course(about["course"])), about["random"]
            if found.parts and len(found.parts) != PARTITIONS:
                raise ValueError(f"it has {len(found.parts)} partitions, not {PARTITIONS}")
        self._refuse_differences(then, {**self._like(found), "the engine": kind})
        with archive.refusing(CHECKPOINT, self.folder / archive.ARRAYS):
            arrays = found.arrays
            if found.parts:
                arrays = arrays | by_partition.joined(found.parts, self._users)
            check_state(arrays)
        best = {k.removeprefix("best."): a for k, a in arrays.items() if k.startswith("best.")}
        state = {k.removeprefix("state."): a for k, a in arrays.items() if k.startswith("state.")}
        course.best = {name: np.array(array) for name, array in best.items()} or None
        return course, state, random

    def keep(self, course: Course, memory: Memory, *, started: float, progress: "Progress") -> None:
        """Write a checkpoint; if that fails, say so and continue the training."""
        begin = time.monotonic()
        state, best = memory.state(), course.best or {}
        progressed = {f.name: getattr(course, f.name) for f in fields(course) if f.name != "best"}
        progressed["seconds"] += begin - started
        random = dict(memory.rng.bit_generator.state)
        about = {"of": self._of, "kind": memory.kind, "course": progressed, "random": random}
        try:
            self._write(about, state, best, memory.user_arrays)
        except OSError as error:
            progress.note(
                f"cannot write the checkpoint {self.folder}: {error.strerror or error}; "
                "the training continues without it"
            )
        end = time.monotonic()
        self._due = end + max(self._every, SHARE * (end - begin)) if self._every else end

    def is_due(self) -> bool:
        """Whether to write a checkpoint now; rank 0 says so for all."""
        return ranks.led(lambda: time.monotonic() >= self._due)

    def _write(
        self, about: dict[str, Any], state: Arrays, best: Arrays, of_users: frozenset[str]
    ) -> None:
        arrays = _both(state, best)
        if ranks.current() is None:
            return archive.write(CHECKPOINT, self.folder, about, arrays)
        own = _both(
            {name: state[name] for name in of_users & state.keys()},
            {name: best[name] for name in self._user_tables(best)} if best else {},
        )
        shared = {name: array for name, array in arrays.items() if name not in own}
        parts = by_partition.cut(own, self._users)
        return archive.write_parted(CHECKPOINT, self.folder, about, shared, parts)

    def _like(self, found: archive.Archive) -> dict[str, Any]:
        """The fingerprint of this training, of the kind that the checkpoint has."""
        if found.parts:
            return self._fingerprint(parted=True)
        if ranks.current() is not None:
            raise InputError(
                f"{self.folder} was written by one process: resume it in one process, or "
                "train from the start without resuming"
            )
        return self._of

    def _refuse_differences(self, then: dict[str, Any], now: dict[str, Any]) -> None:
        changed = differences(then, now)
        if changed:
            raise InputError(
                f"cannot resume from {self.folder}: {'; '.join(changed[:3])}; give the "
                "same inputs, or train from the start without resuming"
            )


def _both(state: Arrays, best: Arrays) -> Arrays:
    arrays = {f"state.{name}": array for name, array in state.items()}
    return arrays | {f"best.{name}": array for name, array in best.items()}


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The differences between the inputs of two trainings, in words."""
    return [
        plain(f"{what} was {then.get(what, 'none')} and is now {now.get(what, 'none')}")
        for what in {**then, **now}
        if then.get(what) != now.get(what)
    ]


def fingerprint(
    method: "Recommender",
    clicks: Clicks,
    held_out: Clicks,
    *,
    seed: int,
    side: "Side",
    parted: bool = False,
) -> dict[str, Any]:
    """Everything that decides the outcome of a training, except the engine.

    `parted` takes users by partition: then all ranks together find what one process does.
    """
    own = settings.values(method)
    own.pop("engine", None)  # "auto" is resolved later
    digest = _parted_digest if parted else _clicks_digest
    found = {
        "unexposed": __version__,
        "the method": method.name,
        **own,
        "the seed": seed,
        **log_fingerprint(clicks, parted=parted),
        "the held-out clicks": digest(held_out),
    }
    return found | side_fingerprint(side, users=clicks.user_ids if parted else None)


def side_fingerprint(side: "Side", *, users: Ids | None = None) -> dict[str, str]:
    """Hashes of the inputs beside the clicks; of those with rows for these users, by partition."""
    found = {}
    given: dict[str, Any] = {name: getattr(side, name) for name in side.given()}
    for name, part in sorted(given.items()):
        if users is not None and (
            name == "user_features" or (name == "exposure" and np.ndim(part) == 2)
        ):
            rows = np.asarray(part)
            found[name] = by_partition.digest(users, lambda at, rows=rows: _digest([rows[at]]))  # type: ignore[misc]
            continue
        if isinstance(part, dict):
            arrays = [part[key] for key in sorted(part)]
        else:
            # fields alone: `vars` would also give what a cached property has kept
            own = () if isinstance(part, np.ndarray) else fields(part)
            values = [getattr(part, f.name) for f in own] or [part]
            arrays = [value for value in values if isinstance(value, np.ndarray)]
        found[name] = _digest(arrays)
    return found


def log_fingerprint(clicks: Clicks, *, parted: bool = False) -> dict[str, str]:
    """Hashes of a log's clicks and raw ids."""
    users = clicks.user_ids
    if parted:
        n_users = len(users) if clicks.share is None else clicks.share.n_users
        of_ids = by_partition.digest(users, lambda rows: _ids_digest(Ids(users.values[rows])))
        return {
            "the log": _parted_digest(clicks),
            "the user ids": f"{n_users:,} ({of_ids})",
            "the item ids": _ids_digest(clicks.item_ids),
        }
    return {
        "the log": _clicks_digest(clicks),
        "the user ids": _ids_digest(users),
        "the item ids": _ids_digest(clicks.item_ids),
    }


def _parted_digest(clicks: Clicks) -> str:
    log = clicks.checked()

    def of_rows(rows: Any) -> str:
        start, end = log.user_start[rows], log.user_start[rows + 1]
        first = np.cumsum(end - start) - (end - start)  # of each user among these clicks
        at = np.repeat(start - first, end - start) + np.arange((end - start).sum())
        return _digest([end - start, log.items[at], log.counts[at]])

    return f"{clicks.n_clicks:,} clicks ({by_partition.digest(log.user_ids, of_rows)})"


def _clicks_digest(clicks: Clicks) -> str:
    return f"{len(clicks):,} clicks ({_digest([clicks.users, clicks.items, clicks.counts])})"


def _ids_digest(ids: Ids) -> str:
    """The same for equal ids, however they are stored."""
    if ids.are_integers:
        return f"{len(ids):,} ({_digest([ids.values])})"
    hashed = hashlib.sha256()
    for start in range(0, len(ids), CHUNK):
        part = [to_json(raw) for raw in ids.values[start : start + CHUNK].tolist()]
        hashed.update(json.dumps(part).encode())
    return f"{len(ids):,} ({hashed.hexdigest()[:16]})"


def _digest(arrays: list[Any]) -> str:
    hashed = hashlib.sha256()
    for array in arrays:
        hashed.update(f"{array.dtype.str}{array.shape}".encode())
        hashed.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return hashed.hexdigest()[:16]
