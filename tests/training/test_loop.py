"""The training loop keeps the best epoch, however the training ends."""

import math
from typing import Any

import numpy as np
import pytest

from unexposed.errors import InputError, Interrupted
from unexposed.progress import Lines, Silent, Tick
from unexposed.training.loop import Loop, Trainee, run


class Counter:
    """A training whose only parameter is the number of epochs done."""

    def __init__(self, losses: list[Any] | None = None) -> None:
        self.done = 0
        self._losses = losses

    def epoch(self) -> float:
        loss = self._losses[self.done] if self._losses else 1.0 / (self.done + 1)
        if loss is KeyboardInterrupt:
            raise KeyboardInterrupt
        self.done += 1
        return loss

    def parameters(self):
        return {"done": np.array([self.done])}


def train(loop: Loop, counter: Counter):
    try:
        trainee = Trainee(lambda: iter(()), counter.epoch, counter.parameters)
        return run(loop, trainee, progress=Silent())
    except Interrupted as stopped:
        return stopped.result


def quality_of(values: list[float]):
    return lambda parameters: values[int(parameters["done"][0]) - 1]


JUMPY = [0.1, 0.5, 0.3, 0.5, 0.2]
LUCKY = [0.1, 0.9, 0.2, 0.6, 0.7, 0.1]  # one lucky epoch, then a good stretch
COMPLETE, INTERRUPTED = "all epochs done", "interrupted"


@pytest.mark.parametrize(
    ("values", "patience", "window", "losses", "best", "run", "ended"),
    [
        (JUMPY, 0, 1, None, 2, 5, COMPLETE),  # the first of two equals
        (JUMPY, 2, 1, None, 2, 4, "no improvement in 2 epochs"),
        (LUCKY, 0, 2, None, 5, 6, COMPLETE),
        (None, 2, 1, None, 4, 4, COMPLETE),  # without held-out clicks the last epoch is kept
        ([0.1, 0.2], 0, 1, [1.0, 0.5, math.nan], 2, 2, "the loss was not finite in epoch 3"),
        ([0.3, 0.2], 0, 1, [1.0, 0.5, KeyboardInterrupt], 1, 2, INTERRUPTED),
    ],
)
def test_the_best_epoch_is_kept_however_the_training_ends(
    values, patience, window, losses, best, run, ended
):
    epochs = 4 if values is None else max(len(values), 3)
    quality = None if values is None else quality_of(values)
    kept, facts = train(Loop("x", epochs, patience, quality, window), Counter(losses))
    assert kept["done"] == best
    assert (facts["best_epoch"], facts["epochs_run"]) == (best, run)
    assert facts["held_out"] == (values or [])[:run]
    assert facts["ended"] == ended


def test_a_training_that_ends_in_its_first_epoch_has_nothing_to_keep():
    with pytest.raises(InputError, match="not finite in epoch 1; try a lower learning_rate"):
        train(Loop("mf", 4, 0, None), Counter([math.inf]))
    with pytest.raises(KeyboardInterrupt):
        train(Loop("x", 9, 0, None), Counter([KeyboardInterrupt]))


def test_lines_end_with_the_last_epoch_of_each_label(capsys):
    with Lines(seconds=1000) as lines:
        for label in ("a", "b"):
            for epoch in (1, 2, 3):
                lines(Tick(label, epoch, 3, 0.5, None, epoch))
    printed = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in printed] == [
        "a: epoch 1 of 3",
        "a: epoch 3 of 3",
        "b: epoch 3 of 3",
    ]
