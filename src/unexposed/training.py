"""The one loop: epochs, the held-out clicks that choose one, early stopping."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from unexposed.errors import InputError
from unexposed.progress import Progress, Tick
from unexposed.recommender import Parameters


@dataclass(frozen=True)
class Loop:
    """How long to train, and what chooses the epoch to keep."""

    label: str
    epochs: int
    patience: int  # epochs without improvement before the end; 0: never stop early
    quality: Callable[[Parameters], float] | None  # on held-out clicks; higher is better
    window: int = 1  # epochs over which the quality is averaged: few clicks make it jump


@dataclass(frozen=True)
class Trainee:
    """A method at the start of its training on one log; it learns when it is asked to."""

    steps: Callable[[], Iterator[float]]  # one more epoch, step by step: the loss before each
    epoch: Callable[[], float]  # the same at once, the mean loss
    parameters: Callable[[], Parameters]  # a copy of what was learned
    facts: dict[str, Any] = field(default_factory=dict)  # what a model says of its training


def run(
    loop: Loop,
    *,
    epoch: Callable[[], float],
    parameters: Callable[[], Parameters],
    progress: Progress,
) -> tuple[Parameters, dict[str, Any]]:
    """The parameters of the best epoch and the facts of the training.

    `epoch` and `parameters` are those of a `Trainee`.
    Without held-out clicks the last epoch is kept. Ctrl-C ends the training and keeps the best
    epoch so far; a loss that is not finite does too, and with no good epoch it is an error.
    """
    started = time.monotonic()
    best, best_epoch, best_value = None, 0, -math.inf
    losses: list[float] = []
    values: list[float] = []
    ended = "all epochs done"
    try:
        for number in range(1, loop.epochs + 1):
            loss = epoch()
            if not math.isfinite(loss):
                ended = f"the loss was not finite in epoch {number}"
                break
            losses.append(loss)
            value = None
            if loop.quality is None:
                best, best_epoch = parameters(), number
            else:
                current = parameters()
                values.append(loop.quality(current))
                recent = values[-loop.window :]
                value = sum(recent) / len(recent)
                if value > best_value:
                    best, best_epoch, best_value = current, number, value
            progress(Tick(loop.label, number, loop.epochs, loss, value, best_epoch))
            if loop.quality and loop.patience and number - best_epoch >= loop.patience:
                ended = f"no improvement in {loop.patience} epochs"
                break
    except KeyboardInterrupt:
        if best is None:
            raise
        ended = "interrupted"
    if best is None:
        raise InputError(f"{loop.label}: {ended}; try a lower learning_rate or a smaller dim")
    facts = {
        "epochs_run": len(losses),
        "best_epoch": best_epoch,
        "best_value": best_value if values else None,
        "ended": ended,
        "losses": losses,
        "held_out": values,
        "seconds": time.monotonic() - started,
    }
    return best, facts
