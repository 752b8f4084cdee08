"""The base of methods that learn by epochs: their loop, and how held-out clicks choose an epoch."""

from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np

from unexposed import ranks
from unexposed.data.clicks import Clicks
from unexposed.data.shown import Traffic
from unexposed.errors import InputError
from unexposed.methods.popularity import with_popular
from unexposed.model.recommender import Recommender
from unexposed.progress import Progress
from unexposed.ranking.by_traffic import ByTraffic
from unexposed.ranking.held_out import (
    CRITERIA,
    DEFAULT,
    NOTHING_SHOWN,
    Criterion,
    held_out_quality,
    qualities,
)
from unexposed.ranking.verdict import NO_RIVALS, Rivals, on_held_out
from unexposed.sampling.validation import ValidationSet
from unexposed.settings import setting
from unexposed.training import loop as training
from unexposed.training.checkpoint import Checkpoint
from unexposed.training.side import Parameters, Side, shares

NOTHING = Side()  # given beside the clicks


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

    @property
    def chooses_by(self) -> Criterion:
        """How held-out clicks are read to choose the epoch."""
        return CRITERIA[self.criterion]

    @property
    def width(self) -> int:
        """Length of a row of the factor tables: dim, and columns for biases."""
        return self.dim

    def loop(self, clicks: Clicks, held_out: Clicks, side: Side = NOTHING) -> training.Loop:
        """The training loop, with SNIPS on the held-out clicks to choose the epoch."""
        by = self.chooses_by
        if held_out.n_clicks and self.judges_among_shown and side.passed_over is None:
            raise InputError(NOTHING_SHOWN)

        def quality(parameters: Parameters) -> float:
            scores = partial(self.scores, parameters, clicks=clicks)
            return held_out_quality(scores, clicks, held_out, by, side.passed_over)

        chooses = quality if held_out.n_clicks else None
        return training.Loop(self.name, self.epochs, self.patience, chooses, self.quality_window)

    def traffic_uses(self) -> list[str]:
        """What random traffic is for: `choice` of the epoch, and what a method adds."""
        return ["choice"] if self.epoch_by == "traffic" else []

    @property
    def accepts(self) -> frozenset[str]:
        uses = {"traffic": bool(self.traffic_uses()), "passed_over": self.judges_among_shown}
        return self.takes - {*uses} | {part for part, used in uses.items() if used}

    @property
    def judges_among_shown(self) -> bool:
        return self.chooses_by.among == "shown"

    def check_ranks(self) -> None:
        super().check_ranks()
        if ranks.several() and self.judges_among_shown:
            raise InputError(
                "several ranks cannot choose by what was shown: give another criterion, or train "
                "in one process"
            )

    def cure(self, part: str) -> str:
        if part == "passed_over":
            return " with these settings: choose by the criterion shown, or leave it out"
        if part != "traffic":
            return ""
        return (
            " with these settings: leave it out, or let it choose the epoch with epoch_by=traffic"
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

    @abstractmethod
    def trainee(
        self, clicks: Clicks, *, seed: int, side: Side, progress: Progress
    ) -> training.Trainee:
        """Prepare a training of this method on these clicks."""

    def pairs_of_epoch(self, clicks: Clicks) -> int:
        """How many pairs an epoch learns from; by default all, as in a sweep over the matrix."""
        return clicks.n_users * clicks.n_items

    def train(
        self,
        clicks: Clicks,
        held_out: Clicks,
        *,
        seed: int,
        side: Side,
        progress: Progress,
        checkpoint: Checkpoint | None = None,
        rivals: Rivals = NO_RIVALS,
    ) -> tuple[Parameters, dict[str, Any]]:
        def trained(
            loop: training.Loop, clicks: Clicks, checkpoint: Checkpoint | None
        ) -> tuple[Parameters, dict[str, Any]]:
            trainee = self.trainee(clicks, seed=seed, side=side, progress=progress)
            return training.run(loop, trainee, progress=progress, checkpoint=checkpoint)

        side, choice = self._parted(side)
        loop = self.loop(clicks, held_out, side)
        if choice is not None:
            loop = self._chosen_by(choice, loop, clicks, held_out)
        parameters, facts = trained(loop, clicks, checkpoint)
        if held_out.n_clicks == 0:
            return parameters, facts
        with training.keeping((parameters, facts)):
            facts |= self._judged_by_all(parameters, side, clicks, held_out, rivals)
        if not self.refit:
            return parameters, facts
        every, epochs = clicks.union(held_out), facts["best_epoch"]
        second = None if checkpoint is None else checkpoint.second(epochs=epochs)
        loop = training.Loop(f"{self.name}, all clicks", epochs, patience=0, quality=None)
        return training.refitted(
            (parameters, facts), lambda: trained(loop, every, second), n_clicks=every.n_clicks
        )

    def _chosen_by(
        self, traffic: Traffic, loop: training.Loop, clicks: Clicks, held_out: Clicks
    ) -> training.Loop:
        """The loop whose epoch is chosen by random traffic on pairs that nobody has clicked."""
        quality = ByTraffic.of(traffic, clicks.union(held_out), k=self.chooses_by.k or None)
        return replace(
            loop, quality=lambda learned: quality(lambda u: self.scores(learned, u, clicks))
        )

    def _judged_by_all(
        self,
        parameters: Parameters,
        side: Side,
        clicks: Clicks,
        held_out: Clicks,
        rivals: Rivals,
    ) -> dict[str, Any]:
        """The quality of the chosen epoch by every criterion, and its verdict."""
        scores = partial(self.scores, parameters, clicks=clicks)
        every = with_popular(rivals, clicks)
        by_all = qualities(scores, clicks, held_out, side.passed_over)
        beside = on_held_out(scores, every, clicks, held_out, self.chooses_by)
        return {"criteria": by_all, "verdict": beside}


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
