"""Checkpoints: files from which a killed training resumes.

A checkpoint holds everything an epoch reads and changes, the epochs so far, the best one, and a
fingerprint of the training's inputs. It is written at the end of an epoch, from time to time.
Several workers write a shard for each partition of the users; any number of workers resumes.
"""

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unexposed import tensors
from unexposed.data.clicks import Clicks
from unexposed.data.share import own_rows
from unexposed.errors import InputError
from unexposed.tensors import Arrays, Kind, part, refusing
from unexposed.training.fingerprint import differences
from unexposed.workers import Workers, led

if TYPE_CHECKING:
    from unexposed.progress import Progress

CHECKPOINT = Kind("checkpoint", version=4, cure="remove it, and train without resuming")
EVERY = 30.0  # seconds
SHARE = 19  # times the last write must pass before the next: at most a twentieth of the time


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
    path = tensors.path_of(model)
    return path.with_name(f"{path.stem}.checkpoint{path.suffix}")


def second_of(path: Path) -> Path:
    """Path of the checkpoint of the second training, on all clicks."""
    return path.with_name(f"{path.stem}-refit{path.suffix}")


def is_kept(path: Path) -> bool:
    """Whether there is a training to resume."""
    return path.exists() or second_of(path).exists()


def remove(path: Path) -> None:
    """Remove the checkpoints of both trainings, and what killed workers left of them."""
    for one in (path, second_of(path)):
        one.unlink(missing_ok=True)
        tensors.remove_shards(one, os.listdir(one.parent))


class Checkpoint:
    """Path of a training's checkpoint, and the fingerprint of its inputs."""

    def __init__(
        self,
        path: Path,
        *,
        of: dict[str, Any],
        clicks: Clicks,  # of this worker
        user_tables: Callable[[Arrays], frozenset[str]],  # of parameters: which have users' rows
        resume: bool,
        every: float = EVERY,
        workers: Workers | None = None,
    ) -> None:
        if not every >= 0:
            raise InputError(f"checkpoint_every must be at least 0 seconds, got {every}")
        self.path = tensors.path_of(path)
        tensors.check_place(CHECKPOINT, self.path)
        self._of, self._clicks, self._user_tables = of, clicks, user_tables
        self._resume, self._every, self._workers = resume, every, workers
        self._due = time.monotonic() + every

    def second(self, *, epochs: int) -> "Checkpoint":
        """The checkpoint of the second training, which runs for this many epochs."""
        return Checkpoint(
            second_of(self.path),
            of={**self._of, "the epochs on all clicks": epochs},
            clicks=self._clicks,
            user_tables=self._user_tables,
            resume=self._resume,
            every=self._every,
            workers=self._workers,
        )

    def read(self, kind: str) -> tuple[Course, Arrays, dict[str, Any]] | None:
        """The course so far, the learner's state and its random state; None: start afresh.

        `kind` names the learner, which cannot use the state of another kind.
        """
        if not self._resume or not led(self.path.exists, self._workers):
            return None
        stored = tensors.read_tensors(CHECKPOINT, self.path)
        with refusing(CHECKPOINT, self.path):
            about = stored.document
            course, random = Course(**about["course"]), about["random"]
            changed = differences(
                {**about["of"], "the engine": about["kind"]}, {**self._of, "the engine": kind}
            )
        if changed:
            raise InputError(
                f"cannot resume from {self.path}: {'; '.join(changed[:3])}; give the same inputs, "
                "or train from the start without resuming"
            )
        arrays = dict(stored.arrays)
        with refusing(CHECKPOINT, self.path):
            stored.verify()
            if stored.shards:
                arrays |= dict(self._own(stored.shards))
            elif self._clicks.share is not None:
                own = self._clicks.share.users
                used = (name for name in about["of_users"] if len(arrays[name]))
                arrays |= {name: arrays[name][own] for name in used}
        best = {name: np.array(array) for name, array in part(arrays, "best.").items()}
        course.best = best or None
        return course, part(arrays, "state."), random

    def keep(self, course: Course, memory: Memory, *, started: float, progress: "Progress") -> None:
        """Write a checkpoint; if that fails, say so and continue the training."""
        begin = time.monotonic()
        progressed = {f.name: getattr(course, f.name) for f in fields(course) if f.name != "best"}
        progressed["seconds"] += begin - started
        random = dict(memory.rng.bit_generator.state)
        about = {"of": self._of, "kind": memory.kind, "course": progressed, "random": random}
        best, state = course.best or {}, memory.state()
        arrays = {f"state.{name}": array for name, array in state.items()}
        arrays |= {f"best.{name}": array for name, array in best.items()}
        own = [f"state.{name}" for name in memory.user_arrays & state.keys()]
        own += [f"best.{name}" for name in self._user_tables(best)] if best else []
        about["of_users"] = sorted(own)
        workers, shards = self._workers, None
        if workers is not None:
            shards = self._cut({name: arrays.pop(name) for name in own})
        try:
            tensors.write_tensors(CHECKPOINT, self.path, about, arrays, shards, workers=workers)
        except InputError as error:
            progress.note(f"{error}; the training continues without a checkpoint")
        end = time.monotonic()
        self._due = end + max(self._every, SHARE * (end - begin)) if self._every else end

    def is_due(self) -> bool:
        """Whether to write a checkpoint now; the first worker says so for all."""
        return led(lambda: time.monotonic() >= self._due, self._workers)

    def _cut(self, arrays: Arrays) -> Iterator[tuple[int, Arrays]]:
        """The rows of each partition of this worker."""
        for number, rows in own_rows(self._clicks.user_ids, self._workers):
            yield number, {n: array[rows] if len(array) else array for n, array in arrays.items()}

    def _own(self, shards: list[tensors.Tensors]) -> Iterator[tuple[str, NDArray[Any]]]:
        """The rows of this worker's users, from the shards of every partition."""
        own = list(own_rows(self._clicks.user_ids, self._workers))
        for number, _ in own:
            shards[number].verify()
        for name, first in shards[0].arrays.items():
            in_use = any(len(shards[number].arrays[name]) for number, _ in own)
            table = np.empty((self._clicks.n_users * in_use, *first.shape[1:]), dtype=first.dtype)
            for number, rows in own if in_use else ():
                table[rows] = shards[number].arrays[name]
            yield name, table
