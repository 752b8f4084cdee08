"""The training loop: epochs, early stopping on held-out clicks, checkpoints."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unexposed.data.clicks import Clicks
from unexposed.errors import InputError, Interrupted
from unexposed.progress import Progress, Tick
from unexposed.ranking.verdict import Rivals
from unexposed.tensors import refusing
from unexposed.training.checkpoint import CHECKPOINT, Checkpoint, Course, Memory
from unexposed.training.side import Parameters, Side
from unexposed.workers import Workers

COMPLETE, INTERRUPTED = "all epochs done", "interrupted"  # how a training ended
Result = tuple[Parameters, dict[str, Any]]  # what was learned, and facts about the training


@dataclass(frozen=True, eq=False)
class Training:
    """Everything that a training is given."""

    clicks: Clicks
    held_out: Clicks
    seed: int
    side: Side
    progress: Progress
    checkpoint: Checkpoint | None = None
    rivals: Rivals = field(default_factory=dict)  # that the verdict sets the model beside
    workers: Workers | None = None


@dataclass(frozen=True)
class Loop:
    """How long to train, and what chooses the epoch to keep."""

    label: str
    epochs: int
    patience: int  # epochs without improvement before the end; 0: never stop early
    quality: Callable[[Parameters], float] | None  # on held-out clicks; higher is better
    window: int = 1  # epochs over which the quality is averaged: it is noisy with few clicks


@dataclass(frozen=True)
class Trainee:
    """A method ready to be trained on one log."""

    steps: Callable[[], Iterator[float]]  # run one epoch step by step: the loss before each step
    epoch: Callable[[], float]  # run one epoch: the mean loss
    parameters: Callable[[], Parameters]  # a copy of the learned parameters
    memory: Memory | None = None  # for checkpoints; None: the training cannot be resumed
    facts: dict[str, Any] = field(default_factory=dict)  # about the training, kept with the model

    @staticmethod
    def of_sweeps(
        name: str, epoch: Callable[[], float], state: Parameters, rng: np.random.Generator
    ) -> "Trainee":
        """A method whose epoch is a single step that replaces all arrays of `state`."""

        def steps() -> Iterator[float]:
            yield epoch()

        return Trainee(steps, epoch, state.copy, Memory.of(name, state, rng))


def run(
    loop: Loop,
    trainee: Trainee,
    *,
    progress: Progress,
    checkpoint: Checkpoint | None = None,
    workers: Workers | None = None,
) -> Result:
    """The parameters of the best epoch and the facts of the training.

    Without held-out clicks the last epoch is kept. A loss that is not finite ends the training and
    keeps the best epoch so far; if there is none, it is an error. Ctrl-C raises `Interrupted` with
    the best epoch so far; workers, which stop at different steps, end without a model.
    With a checkpoint a killed training can resume and ends with the same bits.
    """
    started, memory = time.monotonic(), trainee.memory
    course = Course()
    if memory is not None and checkpoint is not None:
        course = _resumed(loop, memory, checkpoint, progress)
    ended, interrupted = COMPLETE, False
    try:
        for number in range(len(course.losses) + 1, loop.epochs + 1):
            loss = trainee.epoch()
            if not math.isfinite(loss):
                ended = f"the loss was not finite in epoch {number}"
                break
            course.losses.append(loss)
            value = _judge(loop, course, number, trainee.parameters())
            progress(Tick(loop.label, number, loop.epochs, loss, value, course.best_epoch))
            if loop.quality and loop.patience and number - course.best_epoch >= loop.patience:
                ended = f"no improvement in {loop.patience} epochs"
                break
            if memory is not None and checkpoint is not None and checkpoint.is_due():
                checkpoint.keep(course, memory, started=started, progress=progress)
    except KeyboardInterrupt:
        if course.best is None or workers is not None:  # they stop at different steps
            raise
        ended, interrupted = INTERRUPTED, True
    if course.best is None:
        raise InputError(f"{loop.label}: {ended}; try a lower learning_rate or a smaller dim")
    facts = {
        "epochs_run": len(course.losses),
        "best_epoch": course.best_epoch,
        "best_value": course.best_value if course.values else None,
        "ended": ended,
        "losses": course.losses,
        "held_out": course.values,
        "seconds": course.seconds + time.monotonic() - started,
    }
    facts |= trainee.facts | ({"resumed_at": course.resumed_at} if course.resumed_at else {})
    if interrupted:
        raise Interrupted((course.best, facts))
    return course.best, facts


def peak(facts: dict[str, Any]) -> int | None:
    """The epoch with the highest held-out quality of its own, if it is not the one kept.

    The mean over a window of epochs chooses, which ends with the epoch it is of.
    """
    values = facts.get("held_out")
    if not values:
        return None
    highest = int(np.argmax(values)) + 1
    return None if highest == facts["best_epoch"] else highest


@contextmanager
def keeping(result: Result, workers: Workers | None) -> Iterator[None]:
    """Let Ctrl-C during later work raise `Interrupted` with this result; not among workers."""
    try:
        yield
    except KeyboardInterrupt:
        if workers is not None:
            raise
        parameters, facts = result
        raise Interrupted((parameters, facts | {"ended": INTERRUPTED})) from None


def refitted(first: Result, second: Result, *, n_clicks: int) -> Result:
    """The result of a second training, or of the first if the second did not reach its end."""
    (parameters, facts), (learned, later) = first, second
    if later["ended"] != COMPLETE:
        return parameters, facts | {"ended": later["ended"]}
    seconds = facts["seconds"] + later["seconds"]
    return learned, facts | {"seconds": seconds, "refitted_on": n_clicks}


def _judge(loop: Loop, course: Course, number: int, current: Parameters) -> float | None:
    """The averaged quality of an epoch, which is kept if it is the best so far."""
    if loop.quality is None:
        course.best, course.best_epoch = current, number
        return None
    course.values.append(loop.quality(current))
    recent = course.values[-loop.window :]
    value = sum(recent) / len(recent)
    if value > course.best_value:
        course.best, course.best_epoch, course.best_value = current, number, value
    return value


def _resumed(
    loop: Loop,
    memory: Memory,
    checkpoint: Checkpoint,
    progress: Progress,
) -> Course:
    """Restore a training from its checkpoint; without one, start a new course."""
    kept = checkpoint.read(memory.kind)
    if kept is None:
        return Course()
    course, state, random = kept
    with refusing(CHECKPOINT, checkpoint.path):
        memory.restore(state)
        memory.rng.bit_generator.state = random
    course.resumed_at.append(len(course.losses))
    progress.note(f"{loop.label}: resumed at epoch {len(course.losses)} of {loop.epochs}")
    return course
