"""The base of methods that learn by epochs: their loop, and how held-out clicks choose an epoch."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from unexposed.data.clicks import Clicks
from unexposed.data.labelled import Traffic
from unexposed.errors import InputError
from unexposed.model.recommender import Recommender
from unexposed.progress import Progress
from unexposed.ranking.held_out import (
    CRITERIA,
    DEFAULT,
    NOTHING_SHOWN,
    ByTraffic,
    Criterion,
    qualities,
    quality_of_users,
)
from unexposed.ranking.verdict import on_held_out
from unexposed.sampling.validation import ValidationSet
from unexposed.settings import setting
from unexposed.training.loop import Loop, Result, Trainee, Training, keeping, refitted, run
from unexposed.training.side import Parameters, Side, shares
from unexposed.workers import Workers, mean, several


@dataclass(frozen=True)
class TrainedMethod(Recommender):
    """Settings of every method that learns by epochs and keeps the best one."""

    dim: int = setting(50, "length of a user's or item's vector", low=1)
    epochs: int = setting(200, "most passes over the clicks", low=1)
    patience: int = setting(60, "epochs without improvement before the end; 0: never", low=0)
    criterion: str = setting(
        DEFAULT, "how held-out clicks are read as the quality of an epoch", names=CRITERIA
    )
    quality_window: int = setting(10, "epochs over which the held-out quality is averaged", low=1)
    epoch_by: Literal["held_out", "traffic"] = setting(
        "held_out",
        "what chooses the epoch: held-out clicks, or random traffic that training does not use",
    )
    refit: bool = setting(
        True,
        "once the epoch is chosen, train again on all clicks, held-out ones included",
        before=False,
    )

    @abstractmethod
    def trainee(
        self,
        clicks: Clicks,
        *,
        seed: int,
        side: Side,
        progress: Progress,
        workers: Workers | None = None,
    ) -> Trainee:
        """Prepare a training of this method on these clicks."""

    @property
    def width(self) -> int:
        """Length of a row of the factor tables: dim, and columns for biases."""
        return self.dim

    def pairs_of_epoch(self, clicks: Clicks) -> int:
        """How many pairs an epoch learns from; by default all, as in a sweep over the matrix."""
        return clicks.n_users * clicks.n_items

    # what chooses the epoch

    @property
    def chooses_by(self) -> Criterion:
        """How held-out clicks are read to choose the epoch."""
        return CRITERIA[self.criterion]

    @property
    def judges_among_shown(self) -> bool:
        return self.chooses_by.among == "shown"

    def loop(
        self, clicks: Clicks, held_out: Clicks, side: Side, workers: Workers | None = None
    ) -> Loop:
        """The training loop, with the criterion on the held-out clicks to choose the epoch."""
        others = side.passed_over
        if held_out.n_clicks and self.judges_among_shown and others is None:
            raise InputError(NOTHING_SHOWN)

        def quality(parameters: Parameters) -> float:
            scores = partial(self.scores, parameters, clicks=clicks)
            values = quality_of_users(scores, clicks, held_out, self.chooses_by, others, workers)
            return mean(values, workers)

        chooses = quality if held_out.n_clicks else None
        return Loop(self.name, self.epochs, self.patience, chooses, self.quality_window)

    def _quality_by(self, traffic: Traffic, given: Training) -> Callable[[Parameters], float]:
        """Quality by random traffic on pairs that nobody has clicked."""
        clicks = given.clicks
        quality = ByTraffic.of(traffic, clicks.union(given.held_out), k=self.chooses_by.k or None)
        return lambda learned: quality(lambda users: self.scores(learned, users, clicks))

    # which inputs are used, and for what

    def traffic_uses(self) -> list[str]:
        """What random traffic is for: `choice` of the epoch, and what a method adds."""
        return ["choice"] if self.epoch_by == "traffic" else []

    @property
    def accepts(self) -> frozenset[str]:
        uses = {"traffic": bool(self.traffic_uses()), "passed_over": self.judges_among_shown}
        return self.takes - {*uses} | {part for part, used in uses.items() if used}

    def cure(self, part: str) -> str:
        cures = {
            "passed_over": "choose by the criterion shown, or leave it out",
            "traffic": "leave it out, or let it choose the epoch with epoch_by=traffic",
        }
        return f" with these settings: {cures[part]}" if part in cures else ""

    def check_workers(self) -> None:
        super().check_workers()
        if several() and self.judges_among_shown:
            raise InputError(
                "several workers cannot choose by what was shown: give another criterion, or train "
                "in one process"
            )

    def _parted(self, side: Side) -> tuple[Side, Traffic | None]:
        """The inputs with the traffic for each use in its place, and the traffic for the choice."""
        if side.traffic is None:
            if self.epoch_by == "traffic":
                raise InputError(
                    "epoch_by=traffic needs random traffic: give --traffic FILE, "
                    "side=Side(traffic=…), or epoch_by=held_out"
                )
            return side, None
        parts = shares(side.traffic, self.traffic_uses())
        side = replace(side, traffic=parts.get("training"))
        if "guide" in parts:
            if side.validation is not None:
                raise InputError(
                    "random traffic and a validation set both guide the exposure: give one, or "
                    "traffic_use=training"
                )
            guide = parts["guide"]
            guides = ValidationSet(guide.users, guide.items, guide.relevant)
            side = replace(side, validation=guides)
        return side, parts.get("choice")

    # the training

    def train(self, given: Training) -> Result:
        side, choice = self._parted(given.side)
        given = replace(given, side=side)
        loop = self.loop(given.clicks, given.held_out, side, given.workers)
        if choice is not None:
            loop = replace(loop, quality=self._quality_by(choice, given))
        result = self._run(loop, given)
        if given.held_out.n_clicks == 0:
            return result
        with keeping(result, given.workers):
            result[1].update(self._judged(result[0], given))
            if not self.refit:
                return result
            every = given.clicks.union(given.held_out, given.workers)
            epochs, kept = result[1]["best_epoch"], given.checkpoint
            again = None if kept is None else kept.second(epochs=epochs)
            second = replace(given, clicks=every, checkpoint=again)
            loop = Loop(f"{self.name}, all clicks", epochs, patience=0, quality=None)
            return refitted(result, self._run(loop, second), n_clicks=every.n_clicks)

    def _run(self, loop: Loop, given: Training) -> Result:
        trainee = self.trainee(
            given.clicks,
            seed=given.seed,
            side=given.side,
            progress=given.progress,
            workers=given.workers,
        )
        return run(
            loop,
            trainee,
            progress=given.progress,
            checkpoint=given.checkpoint,
            workers=given.workers,
        )

    def _judged(self, parameters: Parameters, given: Training) -> dict[str, Any]:
        """The quality of the chosen epoch by every criterion, and its verdict."""
        scores = partial(self.scores, parameters, clicks=given.clicks)
        parts, workers = (given.clicks, given.held_out), given.workers
        return {
            "criteria": qualities(scores, *parts, given.side.passed_over, workers),
            "verdict": on_held_out(scores, given.rivals, *parts, self.chooses_by, workers),
        }


def initial_factors(clicks: Clicks, dim: int, scale: float, rng: np.random.Generator) -> Parameters:
    """Random user and item vectors, drawn from one stream."""
    start = rng.normal(0, scale, (clicks.n_users + clicks.n_items, dim)).astype(np.float32)
    users, items = np.split(start, [clicks.n_users])
    return {"user_factors": users, "item_factors": items}


def continued(initial: Parameters, start: Parameters | None) -> Parameters:
    """Put the rows of an earlier model at the head of each initial table."""
    for name, table in initial.items():
        if start is None or name not in start:
            continue
        earlier = start[name]
        if earlier.shape[1:] != table.shape[1:]:
            raise InputError(
                f"the {name} of the earlier model have {earlier.shape[-1]} columns, here they have "
                f"{table.shape[-1]}: continue it with its own settings"
            )
        table[: len(earlier)] = earlier
    return initial
