import math
from collections.abc import Iterator

import numpy as np
import pytest

from unexposed.errors import InputError
from unexposed.progress import Lines, Silent, Tick
from unexposed.training.loop import Loop, run


class Counter:
    """A training whose only parameter is how many epochs it has done."""

    def __init__(self, losses: Iterator[float] | None = None) -> None:
        self.done = 0
        self._losses = losses

    def epoch(self) -> float:
        loss = next(self._losses) if self._losses else 1.0 / (self.done + 1)
        self.done += 1
        return loss

    def parameters(self):
        return {"done": np.array([self.done])}


def train(loop: Loop, counter: Counter, progress=None):
    return run(
        loop, epoch=counter.epoch, parameters=counter.parameters, progress=progress or Silent()
    )


def quality_of(values: list[float]):
    return lambda parameters: values[int(parameters["done"][0]) - 1]


def test_the_epoch_that_held_out_clicks_rate_highest_is_kept():
    values = [0.1, 0.5, 0.3, 0.5, 0.2]
    best, facts = train(Loop("x", 5, 0, quality_of(values)), Counter())
    assert best["done"] == 2  # the first of two equals
    assert (facts["best_epoch"], facts["best_value"]) == (2, 0.5)
    assert facts["epochs_run"] == 5
    assert facts["held_out"] == values


def test_the_quality_is_averaged_over_the_last_epochs_of_a_window():
    values = [0.1, 0.9, 0.2, 0.6, 0.7, 0.1]  # one lucky epoch, then a good stretch
    best, facts = train(Loop("x", 6, 0, quality_of(values), window=2), Counter())
    assert best["done"] == 5
    assert facts["held_out"] == values


def test_training_ends_after_patience_epochs_without_improvement():
    values = [0.1, 0.5, 0.3, 0.2, 0.4, 0.9]
    best, facts = train(Loop("x", 6, 3, quality_of(values)), Counter())
    assert facts["epochs_run"] == 5
    assert facts["ended"] == "no improvement in 3 epochs"
    assert best["done"] == 2


def test_without_held_out_clicks_the_last_epoch_is_kept():
    best, facts = train(Loop("x", 4, 2, None), Counter())
    assert best["done"] == 4
    assert facts["best_epoch"] == 4


def test_a_loss_that_is_not_finite_ends_training_and_keeps_the_best_epoch():
    counter = Counter(iter([1.0, 0.5, math.nan, 0.1]))
    best, facts = train(Loop("x", 4, 0, quality_of([0.1, 0.2, 0.3, 0.4])), counter)
    assert best["done"] == 2
    assert facts["ended"] == "the loss was not finite in epoch 3"


def test_a_loss_that_never_was_finite_is_an_error_that_names_epoch_and_cure():
    with pytest.raises(InputError, match="not finite in epoch 1; try a lower learning_rate"):
        train(Loop("mf", 4, 0, None), Counter(iter([math.inf])))


def test_ctrl_c_keeps_the_best_epoch_so_far():
    def losses() -> Iterator[float]:
        yield 1.0
        yield 0.5
        raise KeyboardInterrupt

    best, facts = train(Loop("x", 9, 0, quality_of([0.3, 0.2])), Counter(losses()))
    assert best["done"] == 1
    assert facts["ended"] == "interrupted"


def test_ctrl_c_before_the_first_epoch_has_nothing_to_keep():
    def losses() -> Iterator[float]:
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        train(Loop("x", 9, 0, None), Counter(losses()))


def test_every_epoch_is_told():
    class Heard(Silent):
        def __init__(self) -> None:
            self.ticks: list[Tick] = []

        def __call__(self, tick: Tick) -> None:
            self.ticks.append(tick)

    heard = Heard()
    train(Loop("x", 3, 0, quality_of([0.1, 0.3, 0.2])), Counter(), heard)
    assert [(t.epoch, t.epochs, t.value, t.best_epoch) for t in heard.ticks] == [
        (1, 3, 0.1, 1),
        (2, 3, 0.3, 2),
        (3, 3, 0.2, 2),
    ]


def test_lines_end_with_the_last_epoch_of_each_label(capsys):
    with Lines(seconds=1000) as told:
        for label in ("a", "b"):
            for epoch in (1, 2, 3):
                told(Tick(label, epoch, 3, 0.5, None, epoch))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "a: epoch 1 of 3",
        "a: epoch 3 of 3",
        "b: epoch 3 of 3",
    ]
