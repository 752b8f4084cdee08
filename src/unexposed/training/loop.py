"""The training loop: epochs, early stopping on held-out clicks, checkpoints."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unexposed import ranks
from unexposed.errors import InputError
from unexposed.files import archive
from unexposed.files.claims import check_alike
from unexposed.progress import Progress, Tick
from unexposed.training.checkpoint import CHECKPOINT, Checkpoint, Course, Memory
from unexposed.training.side import Parameters

COMPLETE, INTERRUPTED = "all epochs done", "interrupted"  # how a training ended


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
    *,
    epoch: Callable[[], float],
    parameters: Callable[[], Parameters],
    progress: Progress,
    memory: Memory | None = None,
    checkpoint: Checkpoint | None = None,
) -> tuple[Parameters, dict[str, Any]]:
    """The parameters of the best epoch and the facts of the training.

    `epoch`, `parameters` and `memory` come from a `Trainee`.
    Without held-out clicks the last epoch is kept. Ctrl-C and a loss that is not finite end the
    training and keep the best epoch so far; if there is none, the loss is an error. Ctrl-C ends
    several ranks without a model.
    With a checkpoint a killed training can resume and ends with the same bits.
    """
    started = time.monotonic()
    course = Course()
    if memory is not None and checkpoint is not None:
        course = _resumed(loop, memory, parameters, checkpoint, progress)
    ended = COMPLETE
    try:
        for number in range(len(course.losses) + 1, loop.epochs + 1):
            loss = epoch()
            if not math.isfinite(loss):
                ended = f"the loss was not finite in epoch {number}"
                break
            course.losses.append(loss)
            value = _judge(loop, course, number, parameters())
            progress(Tick(loop.label, number, loop.epochs, loss, value, course.best_epoch))
            if loop.quality and loop.patience and number - course.best_epoch >= loop.patience:
                ended = f"no improvement in {loop.patience} epochs"
                break
            if memory is not None and checkpoint is not None and checkpoint.is_due():
                checkpoint.keep(course, memory, started=started, progress=progress)
    except KeyboardInterrupt:
        if course.best is None or ranks.current() is not None:  # ranks stop at different steps
            raise
        ended = INTERRUPTED
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
    return course.best, facts | ({"resumed_at": course.resumed_at} if course.resumed_at else {})


def peak(facts: dict[str, Any]) -> int | None:
    """The epoch with the highest held-out quality of its own, if it is not the one kept.

    The mean over a window of epochs chooses, which ends with the epoch it is of.
    """
    values = facts.get("held_out")
    if not values:
        return None
    highest = int(np.argmax(values)) + 1
    return None if highest == facts["best_epoch"] else highest


def refitted(
    parameters: Parameters,
    facts: dict[str, Any],
    train: Callable[[], tuple[Parameters, dict[str, Any]]],
    *,
    n_clicks: int,
) -> tuple[Parameters, dict[str, Any]]:
    """The result of a second training, or of the first if the second was interrupted."""
    try:
        learned, second = train()
    except KeyboardInterrupt:  # in its first epoch
        if ranks.current() is not None:
            raise
        return parameters, facts | {"ended": INTERRUPTED}
    if second["ended"] != COMPLETE:
        return parameters, facts | {"ended": second["ended"]}
    seconds = facts["seconds"] + second["seconds"]
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
    parameters: Callable[[], Parameters],
    checkpoint: Checkpoint,
    progress: Progress,
) -> Course:
    """Restore a training from its checkpoint; without one, start a new course."""
    kept = checkpoint.read(memory.kind)
    if kept is None:
        return Course()
    course, state, random = kept
    with archive.refusing(CHECKPOINT, checkpoint.folder / archive.ARRAYS):
        if course.best is not None:
            check_alike(course.best, parameters())
        memory.restore(state)
        memory.rng.bit_generator.state = random
    course.resumed_at.append(len(course.losses))
    progress.note(f"{loop.label}: resumed at epoch {len(course.losses)} of {loop.epochs}")
    return course
